"""Searches for what was spoken, over small models like Whisper, with and without times, beside onnxruntime."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from search_models import model_of_search, runtime, with_encoder

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from jaxops.onnx import load

BANDS, VOCABULARY, FIRST_TIME = 5, 110, 40
SOUND = np.random.default_rng(0).normal(size=(3, BANDS, 6)).astype(np.float32)
ENDS = {"eos_token_id": 30, "pad_token_id": 1}
IDS = {
    "decoder_start_token_id": 32,
    "translate_token_id": 33,
    "transcribe_token_id": 34,
    "start_of_lm_token_id": 35,
    "no_speech_token_id": 36,
    "no_timestamps_token_id": 37,
    "beginning_timestamp_token_id": FIRST_TIME,
}
PROMPT = np.array([[32, 3, 34], [32, 7, 33], [32, 4, 34]], np.int32)
OPERANDS = "repetition_penalty vocab_mask prefix_vocab_mask attention_mask decoder_input_ids logits_processor"
OPERANDS = f"{OPERANDS} cross_qk_layer_head extra_decoding_ids temperature".split()
WORDS = (np.arange(VOCABULARY) % 3 > 0).astype(np.int32)
MASK = np.random.default_rng(2).integers(0, 2, (3, VOCABULARY)).astype(np.int32)


def some(*numbers):
    return np.array(numbers, np.int32)


def floats(*numbers):
    return np.array(numbers, np.float32)


def model(seed=0, *, max_length=14, num_beams=3, count=2, outputs=3, form=None, attributes=None, **others):
    given = {"input_ids": SOUND, "max_length": some(max_length), "min_length": some(0), "num_beams": some(num_beams)}
    given |= {"num_return_sequences": some(count), "length_penalty": floats(1)} | dict.fromkeys(OPERANDS) | others
    body = with_encoder(seed, bands=BANDS, vocabulary=VOCABULARY, **(form or {}))
    return model_of_search("WhisperBeamSearch", given, outputs, **{**body, **ENDS, **IDS, **(attributes or {})})


def agree(model, values):
    """Asserts that all three results are onnxruntime's; returns the sequences."""
    expected = runtime(model, values)
    found = [np.asarray(y) for y in load(model)(*values.values())]
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in expected]
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5, atol=1e-5)
    steps = found[2].any((1, 2, 3)).sum()
    np.testing.assert_allclose(found[2][:steps], expected[2][:steps], rtol=1e-5, atol=2e-5)
    return found[0]


CASES = {
    "plain": {},
    "prompt": {"decoder_input_ids": PROMPT},
    "one beam": {"num_beams": 1, "count": 1, "decoder_input_ids": PROMPT},
    "masks": {"vocab_mask": WORDS, "prefix_vocab_mask": MASK, "min_length": some(9), "temperature": floats(0.7)},
    "penalties": {"repetition_penalty": floats(1.4), "length_penalty": floats(2), "temperature": floats(1.6),
                  "attributes": {"no_repeat_ngram_size": 2, "early_stopping": 1}},
    "no temperature": {"temperature": floats(0)},
    "less temperature": {"temperature": floats(-2)},
    # onnxruntime takes the logits of several rows from wrong places where some do not count.
    "vocabulary": {"attributes": {"vocab_size": 90}, "input_ids": SOUND[:1], "num_beams": 1, "count": 1},
    "what cross_qk holds": {"cross_qk_layer_head": some(0, 0)[None], "extra_decoding_ids": PROMPT},
}  # fmt: skip
FORMS = [{}, {"states": False}, {"whole": True}]


@pytest.mark.parametrize("times", [None, some(1)], ids=["text", "times"])
@pytest.mark.parametrize("case", CASES)
def test_cases(case, times):
    agree(*model(logits_processor=times, **CASES[case]))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_forms(form):
    agree(*model(1, form=form, decoder_input_ids=PROMPT))


@pytest.mark.parametrize("seed", range(8))
def test_times(seed):
    # Unsure of its tokens, so that the rules decide; half of the prompts begin with a time, alone or in a pair.
    prompt = [None, PROMPT, np.array([[32, 50]] * 3, np.int32), np.array([[32, 44, 5, 60, 60]] * 3, np.int32)][seed % 4]
    given = {"decoder_input_ids": prompt, "logits_processor": some(1), "max_length": 22, "num_beams": 4}
    others = {"eos_token_id": 30 if seed % 2 else 8}
    found = agree(*model(seed, form={"sharp": 0.3}, attributes=others, **given))
    times = [[token for token in row if token >= FIRST_TIME] for row in found.reshape(-1, 22)]
    assert all(row == sorted(row) for row in times)
    assert max(len(row) for row in times) > 1


def test_other_processors_change_nothing():
    plain, other = (load(m)(*v.values()) for m, v in (model(), model(logits_processor=some(2))))
    np.testing.assert_array_equal(plain[0], other[0])


def test_the_last_step_alone():
    # onnxruntime fails where only one token is missing; the rest of a longer search says what it is.
    given = {"num_beams": 1, "count": 1}
    short, longer = (load(m)(*v.values())[0] for m, v in (model(max_length=n, **given) for n in (2, 3)))
    np.testing.assert_array_equal(short[..., :2], longer[..., :2])


def test_under_jit():
    graph, values = model(max_length=9, logits_processor=some(1), decoder_input_ids=PROMPT)
    loaded = load(graph)
    names = list(values)
    place = names.index("decoder_input_ids")
    static = list(values.values())[1:place]
    jitted = jax.jit(lambda sound, prompt: loaded(sound, *static, prompt, *list(values.values())[place + 1 :]))
    for found, wanted in zip(jitted(SOUND, PROMPT), loaded(*values.values()), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_as_python(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    graph, values = model(max_length=8, logits_processor=some(1), outputs=2)
    loaded = load(graph)
    loaded.to_python(tmp_path / "transcription_as_python")
    written = importlib.import_module("transcription_as_python")
    found = written.apply(written.load_params(), *values.values())
    for ours, wanted in zip(found, loaded(*values.values()), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", [3, 4])
def test_outputs_that_only_gpus_have(place):
    graph, values = model(outputs=(0, place))
    with pytest.raises(UnsupportedError, match="`cross_qk` and `non_speech_probs` are not computed"):
        load(graph)(*values.values())


def decoder(tokens, own_keys, own_values, keys, values):
    own = jnp.pad(own_keys, ((0, 0), (0, 0), (0, 1), (0, 0)))
    return jax.nn.one_hot(tokens + 1, 9), own, own


def encoder(sound, tokens):
    return jax.nn.one_hot(tokens + 1, 9), sound, *[jnp.zeros((3, 1, 1, 1))] * 4


def deaf(tokens):
    return [jnp.zeros((3, 1, 1, 1))] * 2


decoder.inputs = [jax.ShapeDtypeStruct((3, 1), np.int32)] + [jax.ShapeDtypeStruct((3, 1, 1, 1), np.float32)] * 4
encoder.inputs, deaf.inputs = [None] * 2, [None]


def call(sound=SOUND, **others):
    given = {"decoder": decoder, "encoder": encoder, "decoder_start_token_id": 2, **ENDS, "max_length": 9}
    return ms.whisper_beam_search(sound, **{**given, **others})


ERRORS = [
    (lambda: call(SOUND[0]), ShapeError, r"`input_ids` of \(5, 6\) must be \(batch, bands, frames\)"),
    (lambda: call(SOUND[:0]), ShapeError, r"`input_ids` of \(0, 5, 6\) must be .*not empty"),
    (lambda: call(SOUND.astype(np.int32)), DTypeError, "`input_ids` must be floating"),
    (lambda: call(model_type=1), ArgumentError, "`model_type` is 1, with an `encoder`; it must be 2, with one"),
    (lambda: call(encoder=None), ArgumentError, "`model_type` is 2, without an `encoder`"),
    (lambda: call(encoder=deaf), ShapeError, "`encoder` must take the sound and the first tokens"),
    (lambda: call(decoder_start_token_id=-1), ArgumentError, "`decoder_start_token_id` is -1; without `decoder_inp"),
    (lambda: call(decoder_input_ids=PROMPT[:2]), ShapeError, r"`decoder_input_ids` of \(2, 3\) must be \(3, sequence"),
    (lambda: call(decoder_input_ids=PROMPT[:, :0]), ShapeError, r"`decoder_input_ids` of \(3, 0\)"),
    (lambda: call(decoder_input_ids=PROMPT * 1.0), DTypeError, "`decoder_input_ids` must be int32"),
    (lambda: call(decoder_input_ids=PROMPT, max_length=3), ArgumentError, "more than the 3 tokens of `decoder_input_"),
    (lambda: call(logits_processor=-1), ArgumentError, "`logits_processor` is -1; it must be 0 or more"),
    (lambda: call(logits_processor=1), ArgumentError, "`beginning_timestamp_token_id` is -1; .* must be 1 to 8"),
    (lambda: call(logits_processor=1, beginning_timestamp_token_id=9), ArgumentError, "token_id` is 9; .* 1 to 8"),
    (lambda: call(attention_mask=PROMPT), UnsupportedError, "nothing reads `attention_mask`; leave it out"),
    (lambda: call(decoder_output_cross_qk=1), UnsupportedError, "`cross_qk` and `non_speech_probs` are not computed"),
    (lambda: call(n_outputs=5), UnsupportedError, "`cross_qk` and `non_speech_probs` are not computed"),
    (lambda: call(temperature=floats(1, 1)), ShapeError, r"`temperature` of \(2,\) must be one number"),
]  # fmt: skip


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: case[2])
def test_errors(case):
    run, kind, text = case
    with pytest.raises(kind, match=text):
        run()
