"""Defaults of `generate` from a `genai_config.json` beside the file."""

import json

import jax
import numpy as np
import onnx
import pytest
from language_models import language_model

import jaxops.onnx
from jaxops.errors import ModelError, ShapeError, SignatureError, UnsupportedError
from jaxops.tools.generate.genai_config import Defaults, read_defaults

PROMPTS = [[7, 3], [1, 2, 3, 4, 9]]
DECODER = {
    "inputs": {
        "input_ids": "input_ids",
        "attention_mask": "attention_mask",
        "position_ids": "position_ids",  # the builder's files do not all have it
        "past_key_names": "past_key_values.%d.key",
        "past_value_names": "past_key_values.%d.value",
    }
}
MODEL = {"vocab_size": 48, "context_length": 64, "eos_token_id": 2, "pad_token_id": 5, "decoder": DECODER}


def written(folder, model=None, **search):
    (folder / "genai_config.json").write_text(json.dumps({"model": MODEL | (model or {}), "search": search}))
    onnx.save(language_model((0,)), folder / "model.onnx")
    return jaxops.onnx.load(folder / "model.onnx")


def test_no_file(tmp_path):
    assert read_defaults(None, (), 48) == read_defaults(tmp_path, (), 48) == Defaults()


def test_what_a_file_says(tmp_path):
    model = written(tmp_path, {"eos_token_id": [2, 7]}, do_sample=True, temperature=0.7, top_k=9, top_p=0.9)
    found = read_defaults(model.folder, model.inputs, 48)
    assert found == Defaults((2, 7), 5, 64, 64, True, 0.7, 9, 0.9, 1.0)
    written(tmp_path, {"eos_token_id": 2}, max_length=20, repetition_penalty=1.2)
    assert read_defaults(tmp_path, model.inputs, 48) == Defaults((2,), 5, 64, 20, repetition_penalty=1.2)


def test_its_search(tmp_path):
    """The results are those of the same options given in the call; those of the call come first."""
    said = {"do_sample": True, "temperature": 3.0, "top_k": 30, "repetition_penalty": 1.4}
    plain, model = jaxops.onnx.load(language_model((0,))), written(tmp_path, **said)
    key = jax.random.key(1)
    options = {"temperature": 3.0, "top_k": 30, "repetition_penalty": 1.4, "key": key, "max_tokens": 16}
    expected = jaxops.onnx.generate(plain, PROMPTS, stop=[2], **options)
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=16, key=key)
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    own = np.arange(16) < np.asarray(found.lengths)[..., None]
    np.testing.assert_array_equal(found.tokens, np.where(own, expected.tokens, 5))
    likeliest = jaxops.onnx.generate(model, PROMPTS, max_tokens=16, temperature=0, repetition_penalty=1)
    np.testing.assert_array_equal(
        likeliest.tokens, np.where(own_of(likeliest), jaxops.onnx.generate(plain, PROMPTS, max_tokens=16).tokens, 5)
    )
    with pytest.raises(SignatureError, match=r"the model's genai_config.json asks \(do_sample\) for drawn tokens"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=3)


def own_of(found):
    return np.arange(found.tokens.shape[-1]) < np.asarray(found.lengths)[..., None]


def test_its_lengths(tmp_path):
    """`max_length` counts the prompt; nothing exceeds `context_length`."""
    model = written(tmp_path, {"eos_token_id": []}, max_length=12)
    assert jaxops.onnx.generate(model, PROMPTS).lengths.tolist() == [[10], [7]]
    with pytest.raises(ShapeError, match=r"prompts of up to 5 tokens and 60 more exceed the 64 tokens of the model"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=60)
    with pytest.raises(ShapeError, match="prompts of up to 13 tokens"):
        jaxops.onnx.generate(model, [[1] * 13])


WRONG = {
    "vocabulary": ({"vocab_size": 50}, {}, ModelError, r"another model: it has 50 tokens \(vocab_size\), .* has 48"),
    "inputs": (
        {"decoder": {"inputs": {"past_key_names": "past.%d.k"}}},
        {},
        ModelError,
        r"another model: it names an input 'past.0.k' \(past_key_names\), but this model has attention_mask",
    ),
    "a beam search": ({}, {"num_beams": 4}, UnsupportedError, "asks for num_beams 4, which generate does not have"),
    "a text": ({"eos_token_id": "end"}, {}, ModelError, "is not a configuration of onnxruntime-genai: ValueError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_files_that_do_not_fit(tmp_path, name):
    more, search, kind, text = WRONG[name]
    model = written(tmp_path, more, **search)
    with pytest.raises(kind, match=text):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2)


@pytest.mark.parametrize("text", ["{", "[]", '{"search": {}}', '{"model": 3}'])
def test_damaged_files(tmp_path, text):
    (tmp_path / "genai_config.json").write_text(text)
    with pytest.raises(ModelError, match=r"genai_config.json is not a configuration of onnxruntime-genai"):
        read_defaults(tmp_path, (), 48)
