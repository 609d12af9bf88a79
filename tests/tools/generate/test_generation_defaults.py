"""Defaults of `generate` from a `genai_config.json` or a `generation_config.json` beside the file."""

import json

import jax
import numpy as np
import onnx
import pytest
from language_models import language_model

import jaxops.onnx
from jaxops.errors import ModelError, ShapeError, SignatureError, UnsupportedError
from jaxops.tools.generate.generation_defaults import Defaults, read_defaults
from jaxops.tools.generate.sampling import Sampling
from jaxops.tools.generate.search_options import Options, search

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


def of_transformers(folder, **said):
    """A model with the file that transformers and optimum write."""
    (folder / "generation_config.json").write_text(json.dumps({"transformers_version": "5.0.0", **said}))
    onnx.save(language_model((0,)), folder / "model.onnx")
    return jaxops.onnx.load(folder / "model.onnx")


def test_no_file(tmp_path):
    assert read_defaults(None, (), 48) == read_defaults(tmp_path, (), 48) == Defaults()


def test_what_a_file_says(tmp_path):
    model = written(tmp_path, {"eos_token_id": [2, 7]}, do_sample=True, temperature=0.7, top_k=9, top_p=0.9)
    found = read_defaults(model.folder, model.inputs, 48)
    file, sizes = "genai_config.json", {"pad": 5, "room": 64}
    assert found == Defaults(file, (2, 7), **sizes, max_length=64, do_sample=True, temperature=0.7, top_k=9, top_p=0.9)
    written(tmp_path, {"eos_token_id": 2}, max_length=20, repetition_penalty=1.2)
    found = read_defaults(tmp_path, model.inputs, 48)
    assert found == Defaults(file, (2,), **sizes, max_length=20, repetition_penalty=1.2)


OF_TRANSFORMERS = [
    ({}, {"top_k": 50}),
    ({"eos_token_id": 7, "max_length": 20}, {"stop": (7,), "pad": 7, "top_k": 50, "max_length": 20}),
    (
        {"eos_token_id": [2, 7], "pad_token_id": 0, "do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 9},
        {"stop": (2, 7), "do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 9},
    ),
    (
        {
            "eos_token_id": None,
            "top_k": 0,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "max_new_tokens": 6,
            "num_beams": 1,
        },
        {"min_p": 0.1, "repetition_penalty": 1.1, "max_tokens": 6},
    ),
    (
        {"suppress_tokens": [4, 9], "begin_suppress_tokens": 3, "bad_words_ids": [[5], [7]], "eos_token_id": 7},
        {"stop": (7,), "pad": 7, "top_k": 50, "suppress_tokens": (4, 9, 5), "begin_suppress_tokens": (3,)},
    ),
    ({"pad_token_id": -1, "num_beams": None, "bad_words_ids": None}, {"pad": -1, "top_k": 50}),
]


@pytest.mark.parametrize(("said", "expected"), OF_TRANSFORMERS)
def test_what_a_file_of_transformers_says(tmp_path, said, expected):
    (tmp_path / "generation_config.json").write_text(json.dumps({"transformers_version": "5.0.0", **said}))
    assert read_defaults(tmp_path, (), 48) == Defaults("generation_config.json", **expected)


def test_the_file_of_genai_comes_first(tmp_path):
    of_transformers(tmp_path, eos_token_id=9, num_beams=4)
    model = written(tmp_path)
    assert read_defaults(tmp_path, model.inputs, 48).stop == (2,)


def test_the_search_of_a_file_of_transformers(tmp_path):
    plain = jaxops.onnx.load(language_model((0,)))
    expected = jaxops.onnx.generate(plain, PROMPTS, max_tokens=6)
    end = int(expected.tokens[0, 0, 2])
    model = of_transformers(tmp_path, eos_token_id=[end], max_new_tokens=6, max_length=3)
    found = jaxops.onnx.generate(model, PROMPTS)
    assert found.tokens.shape == (2, 1, 6)
    assert found.tokens[0, 0].tolist() == [*expected.tokens[0, 0, :3].tolist(), end, end, end]
    assert found.lengths[0, 0] == 3
    model = of_transformers(tmp_path, do_sample=True, max_length=12)
    with pytest.raises(SignatureError, match=r"the model's generation_config.json asks \(do_sample\) for drawn tokens"):
        jaxops.onnx.generate(model, PROMPTS)
    with pytest.raises(ShapeError, match=r"13 tokens and 1 more exceed the 12 tokens .*\(generation_config.json\)"):
        jaxops.onnx.generate(model, [[1] * 13], temperature=0)


def test_suppressed_tokens_of_a_file(tmp_path):
    """They are those of the same options given in the call, which come first."""
    plain = jaxops.onnx.load(language_model((0,)))
    expected = jaxops.onnx.generate(plain, PROMPTS, max_tokens=6)
    first, later = (int(token) for token in expected.tokens[0, 0, [0, 4]])
    options = {"suppress_tokens": [later], "begin_suppress_tokens": [first, 3]}
    model = of_transformers(tmp_path, max_new_tokens=6, **options)
    found = jaxops.onnx.generate(model, PROMPTS)
    again = jaxops.onnx.generate(plain, PROMPTS, max_tokens=6, **options)
    jax.tree.map(np.testing.assert_array_equal, found, again)
    assert not (found.tokens == later).any()
    assert not (found.tokens[:, :, 0] == first).any()
    free = jaxops.onnx.generate(model, PROMPTS, suppress_tokens=(), begin_suppress_tokens=())
    np.testing.assert_array_equal(free.tokens, expected.tokens)


def searched(model, **given):
    """The search of a call for `PROMPTS`."""
    options = dict.fromkeys(Options._fields) | {"stop": (), "samples": 1} | given
    return search(Options(**options), read_defaults(model.folder, model.inputs, 48), [2, 5], 48)


def test_its_search(tmp_path):
    """It is that of the same options given in the call; those of the call come first."""
    said = {"do_sample": True, "temperature": 3.0, "top_k": 30, "repetition_penalty": 1.4}
    plain, model = jaxops.onnx.load(language_model((0,))), written(tmp_path, **said)
    options = {"temperature": 3.0, "top_k": 30, "repetition_penalty": 1.4, "key": jax.random.key(1), "max_tokens": 16}
    expected = searched(plain, stop=[2], **options)
    found = searched(model, max_tokens=16, key=jax.random.key(1))
    assert found.sampling == expected.sampling == Sampling(True, 30, False, True)
    assert found.pad == 5
    found, expected = (s._replace(keys=jax.random.key_data(s.keys), pad=5) for s in (found, expected))
    jax.tree.map(np.testing.assert_array_equal, found[1:], expected[1:])
    likeliest = searched(model, max_tokens=16, temperature=0, repetition_penalty=1)
    assert likeliest.sampling == Sampling()
    with pytest.raises(SignatureError, match=r"the model's genai_config.json asks \(do_sample\) for drawn tokens"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=3)


def test_its_lengths(tmp_path):
    """`max_length` counts the prompt; nothing exceeds `context_length`."""
    model = written(tmp_path, {"eos_token_id": []}, max_length=12)
    assert searched(model).limits.tolist() == [10, 7]
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
    "a text": ({"eos_token_id": "end"}, {}, ModelError, "is not a configuration of onnxruntime-genai: TypeError"),
    "a token": ({"eos_token_id": 48}, {}, ModelError, r"has the token 48 \(eos_token_id\), but .* has 48 tokens"),
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


WRONG_OF_TRANSFORMERS = [
    ("{", ModelError, "generation_config.json is not a configuration of transformers: JSONDecodeError"),
    ("[]", ModelError, "is not a configuration of transformers: AttributeError"),
    ('{"eos_token_id": "end"}', ModelError, "is not a configuration of transformers: TypeError"),
    ('{"temperature": "hot"}', ModelError, "is not a configuration of transformers: ValueError"),
    ('{"max_new_tokens": -1}', ModelError, "is not a configuration of transformers: .*max_new_tokens is -1"),
    ('{"eos_token_id": [2, 50]}', ModelError, r"of another model: it has the token 50 \(eos_token_id\), but .* 48 tok"),
    (
        '{"suppress_tokens": [2, 48]}',
        ModelError,
        r"has the token 48 \(suppress_tokens or bad_words_ids\), but this mod",
    ),
    (
        '{"begin_suppress_tokens": [-1]}',
        ModelError,
        r"has the token -1 \(begin_suppress_tokens\), but this model has 48",
    ),
    (
        '{"bad_words_ids": [[1], [2, 3]]}',
        UnsupportedError,
        r"bad_words_ids \[\[1\], \[2, 3\]\], but .*\n.*of one token",
    ),
    ('{"suppress_tokens": "all"}', ModelError, "is not a configuration of transformers: TypeError"),
    ('{"num_beams": 4}', UnsupportedError, "asks for num_beams 4, which generate does not have"),
]


@pytest.mark.parametrize(("text", "kind", "match"), WRONG_OF_TRANSFORMERS)
def test_wrong_files_of_transformers(tmp_path, text, kind, match):
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(kind, match=match):
        read_defaults(tmp_path, (), 48)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("forced_bos_token_id", r'set "forced_bos_token_id" to null there; let each prompt have this token after its'),
        ("forced_eos_token_id", r'set "forced_eos_token_id" to null there; a row that reaches max_tokens then ends'),
    ],
)
def test_forced_tokens(tmp_path, name, text):
    model = of_transformers(tmp_path, **{name: 2})
    with pytest.raises(UnsupportedError, match=f"asks for {name} 2, which generate does not have\n  hint    {text}"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2)
