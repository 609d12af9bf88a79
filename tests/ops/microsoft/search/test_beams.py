"""Beam searches over small decoders, with and without encoders, beside onnxruntime."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from search_models import VOCABULARY, gpt, model_of_search, runtime, with_encoder

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, ShapeError, SignatureError, UnsupportedError
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


def floats(*numbers):
    return np.array(numbers, np.float32)


def inputs(max_length=12, num_beams=3, num_return_sequences=2, **others):
    # onnxruntime asks for `min_length` and `length_penalty`, which the schema calls optional.
    names = ("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
    given = {"input_ids": IDS, "max_length": some(max_length), "min_length": some(0), "num_beams": some(num_beams)}
    given |= {"num_return_sequences": some(num_return_sequences), "length_penalty": floats(1)}
    return given | dict.fromkeys(names) | others


def agree(model, values):
    """Asserts that all three results are onnxruntime's; returns ours."""
    expected = runtime(model, values)
    found = [np.asarray(y) for y in load(model)(*values.values())]
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in expected]
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)
    # onnxruntime leaves the scores behind the last step undefined; here they are 0.
    steps = found[2].any((1, 2, 3)).sum()
    np.testing.assert_allclose(found[2][:steps], expected[2][:steps], rtol=1e-5, atol=2e-5)
    assert not found[2][steps:].any()
    return [*found, steps]


CASES = [
    ({}, {}),
    ({"max_length": 16}, {"early_stopping": 1, "eos_token_id": 22}),
    ({"max_length": 16, "num_beams": 4, "length_penalty": floats(2)}, {"eos_token_id": 3}),
    ({"num_beams": 4, "length_penalty": floats(-1), "min_length": some(9)}, {"eos_token_id": 10}),
    ({"num_beams": 1, "num_return_sequences": 1}, {}),
    ({"num_beams": 6, "num_return_sequences": 6, "repetition_penalty": floats(1.4)}, {"no_repeat_ngram_size": 2}),
    ({"vocab_mask": WORDS, "prefix_vocab_mask": FIRST, "attention_mask": MASK}, {"eos_token_id": 10}),
    ({}, {"init_decoder": gpt(5, 1.0)}),
]  # fmt: skip


def name(case):
    return ",".join([*case[0], *case[1]]) or "plain"


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", CASES, ids=name)
def test_decoders(case, seed):
    given, attributes = case
    agree(*model_of_search("BeamSearch", inputs(**given), 3, decoder=gpt(seed, 1.0), **ENDS | attributes))


FORMS = [{"old": True}, {"old": False}, {"old": True, "whole": True}, {"old": False, "whole": True}]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("case", [case for case in CASES if "init_decoder" not in case[1]][::2], ids=name)
def test_decoders_behind_encoders(case, form):
    given, attributes = case
    agree(*model_of_search("BeamSearch", inputs(**given), 3, **with_encoder(1, **form), **ENDS | attributes))


@pytest.mark.parametrize("seed", range(6))
def test_searches_that_end_early(seed):
    # So sure of its tokens, and so many of them end a sequence, that some searches of the batch end before others.
    vocabulary = np.zeros(VOCABULARY, np.int32)
    vocabulary[[3, 7, 11]] = 1
    given = inputs(20, 2, vocab_mask=vocabulary)
    *_, steps = agree(*model_of_search("BeamSearch", given, 3, decoder=gpt(seed, 0.5), early_stopping=seed % 2, **ENDS))
    assert steps < 15 or not seed % 2


def test_under_jit():
    for attributes in ({"decoder": gpt(1, 0.5)}, with_encoder(0)):
        model, values = model_of_search("BeamSearch", inputs(9, 2), 3, early_stopping=1, **attributes, **ENDS)
        loaded = load(model)
        static = [x for name, x in values.items() if name != "input_ids"]
        jitted = jax.jit(lambda ids, run=loaded, rest=static: run(ids, *rest))
        for found, wanted in zip(jitted(IDS), loaded(*values.values()), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_as_python(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for k, attributes in enumerate(({"decoder": gpt(1, 1.0)}, with_encoder(0))):
        model, values = model_of_search("BeamSearch", inputs(8, 2), 2, **attributes, **ENDS)
        loaded = load(model)
        loaded.to_python(tmp_path / f"beams_as_python_{k}")
        written = importlib.import_module(f"beams_as_python_{k}")
        found = written.apply(written.load_params(), *values.values())
        for ours, wanted in zip(found, loaded(*values.values()), strict=True):
            np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


def decoder(tokens, positions, mask, cache):
    """Each token is followed by the next number."""
    rows, count = tokens.shape
    return jax.nn.one_hot(tokens + 1, 8), jnp.concatenate([cache, jnp.zeros((2, rows, 1, count, 1))], 3)


decoder.inputs = [None] * 3 + [jax.ShapeDtypeStruct((2, 1, 1, 0, 1), np.float32)]


def call(length=9, beams=2, count=1, **others):
    return ms.beam_search(IDS, length, None, beams, count, **{"decoder": decoder, **ENDS, **others})


def encoder(ids, mask):
    return [jnp.zeros((3, 1, 5, 2))] * 2


encoder.inputs = [None] * 2
BEHIND = {"encoder": encoder, "model_type": 1, "decoder_start_token_id": 0}


def taking(*shapes, gives=lambda *given: [jnp.zeros((6, 1, 8)), *given[2:4]]):
    def fn(*given):
        return gives(*given)

    fn.inputs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return fn


CACHES = [(0, 1, 0, 2)] * 4
ERRORS = [
    (lambda: call(beams=0), ArgumentError, "`num_beams` is 0 and `num_return_sequences` 1; there must be 1 to 128"),
    (lambda: call(beams=129), ArgumentError, "`num_beams` is 129"),
    (lambda: call(count=3), ArgumentError, "`num_beams` is 2 and `num_return_sequences` 3"),
    (lambda: call(length_penalty=floats(1, 1)), ShapeError, r"`length_penalty` of \(2,\) must be one number"),
    (lambda: call(logits_processor=1), UnsupportedError, "`decoder_input_ids` and `logits_processor` are for Whisper"),
    (lambda: call(model_type=2), ArgumentError, "`model_type` is 2, without an `encoder`"),
    (lambda: call(model_type=1), ArgumentError, "`model_type` is 1, without an `encoder`"),
    (lambda: call(encoder=encoder), ArgumentError, "`model_type` is 0, with an `encoder`"),
    (lambda: call(encoder=encoder, model_type=1), ArgumentError, "`decoder_start_token_id` is -1"),
    (lambda: call(**BEHIND, decoder=lambda *given: []), ArgumentError, "`decoder` and `encoder` need an attribute"),
    (lambda: call(**BEHIND), ShapeError, "`encoder` returns 2 values, and `decoder` takes 4; it must take tokens"),
    (lambda: call(**BEHIND, decoder=taking((0, 1), (0, 5), (0, 1, 0, 0), (0, 0, 0), *CACHES[:2])), ShapeError,
     r"input 3 of `decoder`, a cache, must be \(batch, heads, past, head size\)"),
    (lambda: call(**BEHIND, decoder=taking((0, 1), (0, 5), *CACHES, gives=lambda *given: [])), SignatureError,
     "the decoder has 2 caches of its own; it must return the logits and these"),
]  # fmt: skip


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[2])
def test_errors(case):
    run, kind, text = case
    with pytest.raises(kind, match=text):
        run()
