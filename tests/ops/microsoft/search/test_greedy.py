"""Greedy searches over a small decoder, beside onnxruntime."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from search_models import VOCABULARY, gpt, model_of_search, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, SizeError, UnsupportedError
from jaxops.onnx import load

PAD = 1
IDS = np.random.default_rng(1).integers(3, VOCABULARY, (3, 5)).astype(np.int32)
IDS[1, :2] = PAD
ENDS = {"eos_token_id": 7, "pad_token_id": PAD}
MASK = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 0], [0, 0, 1, 1, 1]], np.int32)
WORDS = (np.arange(VOCABULARY) % 3 > 0).astype(np.int32)
FIRST = np.random.default_rng(2).integers(0, 2, (3, VOCABULARY)).astype(np.int32)


def some(*numbers):
    return np.array(numbers, np.int32)


def inputs(max_length=14, **others):
    names = ("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
    return {"input_ids": IDS, "max_length": some(max_length), **dict.fromkeys(names)} | others


CASES = [
    ({}, {}),
    ({"min_length": some(12)}, {"eos_token_id": 10}),
    ({"repetition_penalty": np.float32([1.7])}, {}),
    ({"repetition_penalty": np.float32([0.5])}, {}),
    ({"vocab_mask": WORDS}, {}),
    ({"prefix_vocab_mask": FIRST}, {}),
    ({"attention_mask": MASK}, {}),
    ({}, {"no_repeat_ngram_size": 1}),
    ({}, {"no_repeat_ngram_size": 2}),
    ({"max_length": 40}, {"no_repeat_ngram_size": 3}),
    ({}, {"init_decoder": gpt(5)}),
    ({}, {"eos_token_id": -1}),
    ({"min_length": some(9), "repetition_penalty": np.float32([1.2]), "vocab_mask": WORDS, "prefix_vocab_mask": FIRST,
      "attention_mask": MASK}, {"no_repeat_ngram_size": 2, "eos_token_id": 10}),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES, ids=lambda case: ",".join([*case[0], *case[1]]) or "plain")
def test_tokens(case, seed):
    given, attributes = case
    model, values = model_of_search("GreedySearch", inputs(**given), decoder=gpt(seed), **ENDS | attributes)
    (expected,) = runtime(model, values)
    found = np.asarray(load(model)(*values.values()))
    assert found.dtype == np.int32
    assert found.shape == expected.shape
    # onnxruntime leaves undefined what is behind the end of the last sequence; here it is pads.
    end = found.shape[1] - int((found == PAD).all(0)[::-1].cumprod().sum())
    np.testing.assert_array_equal(found[:, :end], expected[:, :end])
    assert end == found.shape[1] or (expected[:, end] == PAD).all()


def test_a_search_stops_with_its_last_sequence():
    calls = []

    def counted(*given):
        calls.append(given[0].shape)
        return decoder(*given)

    counted.inputs = decoder.inputs
    found = ms.greedy_search(some([2, 3], [0, 1]), 4000, decoder=counted, eos_token_id=6, pad_token_id=9)
    assert calls == [(2, 2)] + [(2, 1)] * 4
    np.testing.assert_array_equal(found[:, :8], [[2, 3, 4, 5, 9, 9, 9, 9], [0, 1, 2, 3, 4, 5, 9, 9]])
    assert found.shape == (2, 4000)
    assert (found[:, 8:] == 9).all()


def decoder(tokens, positions, mask, cache):
    """Each token is followed by the next number."""
    rows, count = tokens.shape
    return jax.nn.one_hot(tokens + 1, 8), jnp.concatenate([cache, jnp.zeros((2, rows, 1, count, 1))], 3)


decoder.inputs = [None] * 3 + [jax.ShapeDtypeStruct((2, 1, 1, 0, 1), np.float32)]


def test_under_jit():
    model, values = model_of_search("GreedySearch", inputs(), decoder=gpt(1), **ENDS | {"eos_token_id": 10})
    loaded = load(model)
    eager = loaded(*values.values())
    jitted = jax.jit(lambda ids: loaded(ids, values["max_length"]))
    np.testing.assert_array_equal(jitted(values["input_ids"]), eager)
    short = jitted(np.flip(values["input_ids"], 0).copy())
    np.testing.assert_array_equal(short, np.flip(eager, 0))
    applied = loaded.apply(loaded.params, *values.values())
    np.testing.assert_array_equal(applied, eager)


def test_caches_of_many_sizes_share_programs():
    model, values = model_of_search("GreedySearch", inputs(50), decoder=gpt(2), **ENDS | {"eos_token_id": -1})
    loaded, compiled = load(model), []

    def listen(event, _, fun_name="", **__):
        compiled.extend([fun_name] if event.endswith("backend_compile_duration") else [])

    jax.clear_caches()
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        loaded(*values.values())
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert 0 < compiled.count("jit(piece)") <= 12


def test_as_python(tmp_path, monkeypatch):
    model, values = model_of_search("GreedySearch", inputs(9), decoder=gpt(2), init_decoder=gpt(1), **ENDS)
    loaded = load(model)
    loaded.to_python(tmp_path / "greedy_as_python")
    monkeypatch.syspath_prepend(tmp_path)
    written = importlib.import_module("greedy_as_python")
    found = written.apply(written.load_params(), *values.values())
    np.testing.assert_array_equal(found, loaded(*values.values()))


def test_a_size_of_the_prompt_must_be_known_for_an_export():
    model, values = model_of_search("GreedySearch", inputs(9), decoder=gpt(2), **ENDS)
    loaded = load(model, values={"max_length": values["max_length"]})
    with pytest.raises(SizeError, match="of `input_ids` must be a number, as each step is traced"):
        loaded.export()
    program = load(model, values={"max_length": values["max_length"]}, sizes={"input_ids_1": 5}).export()
    np.testing.assert_array_equal(program.call(loaded.params, IDS), loaded(IDS))


def call(ids=IDS, length=9, **others):
    return ms.greedy_search(ids, length, **{"decoder": decoder, **ENDS, **others})


def bare(*given):
    return decoder(*given)


def wrong(logits, cache):
    def fn(*given):
        found = decoder(*given)
        return (logits(found[0]), *cache(found[1]))

    fn.inputs = decoder.inputs
    return fn


ERRORS = [
    (lambda: call(length=5), ArgumentError, "`max_length` is 5; it must be more than the 5 tokens"),
    (lambda: call(length=4097), ArgumentError, "`max_length` is 4097; .* at most 4096"),
    (lambda: call(IDS.astype(np.int64)), DTypeError, "`input_ids` must be int32, got int64"),
    (lambda: call(IDS[0]), ShapeError, r"`input_ids` of \(5,\) must be \(batch, sequence\)"),
    (lambda: call(IDS[:, :0]), ShapeError, r"`input_ids` of \(3, 0\) must be .* not empty"),
    (lambda: call(attention_mask=MASK[:2]), ShapeError, r"`attention_mask` of \(2, 5\) must be \(3, 5\), the shape"),
    (lambda: call(vocab_mask=WORDS), ShapeError, r"`vocab_mask` of \(23,\) must be \(8,\)"),
    (lambda: call(prefix_vocab_mask=FIRST), ShapeError, r"`prefix_vocab_mask` of \(3, 23\) must be \(3, 8\)"),
    (lambda: call(repetition_penalty=np.float32([0])), ArgumentError, "`repetition_penalty` is 0.0; .* positive"),
    (lambda: call(repetition_penalty=np.ones(2, np.float32)), ShapeError, "must be one number"),
    (lambda: call(model_type=1), UnsupportedError, "`model_type` is 1; it must be 0"),
    (lambda: call(encoder=decoder), UnsupportedError, "there is an `encoder`"),
    (lambda: call(vocab_size=9), ArgumentError, "`vocab_size` is 9, but the decoder gives 8 logits"),
    (lambda: call(decoder=bare), ArgumentError, "`decoder` needs an attribute `inputs`: values"),
    (lambda: call(decoder=wrong(lambda x: x, lambda c: [c, c])), SignatureError, "takes 1 caches; it must return"),
    (lambda: call(decoder=wrong(lambda x: x[0], lambda c: [c])), ShapeError, r"must return logits .* got \(5, 8\)"),
]  # fmt: skip


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[2])
def test_errors(case):
    run, kind, text = case
    with pytest.raises(kind, match=text):
        run()
