"""`generate` with the decoder of an encoder–decoder, whose further inputs are given by name; and with variables."""

import jax
import numpy as np
import onnx
import pytest
from decoder_graphs import merged
from decoders import MODELS, session
from onnxruntime.quantization import quantize_dynamic

import jaxops.onnx
import jaxops.openvino
from jaxops.errors import ModelError, ShapeError, SignatureError, UnsupportedError


@pytest.fixture(scope="module")
def model():
    return jaxops.onnx.load(MODELS / "t5_decoder.script.onnx")


@pytest.fixture(scope="module")
def given(model):
    """What an encoder gives for three texts: its keys and values, and its mask."""
    rng, found = np.random.default_rng(0), {}
    for value in model.inputs:
        shape = value.shape
        if ".encoder." in value.name:
            found[value.name] = rng.normal(size=(3, shape[1], 6, shape[3])).astype(np.float32)
    return found | {"encoder_attention_mask": np.array([[1] * 6, [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]])}


PROMPTS = [[0], [0, 9, 4], [0]]


def test_rows_of_named_inputs_follow_the_prompts(model, given):
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=5, **given)
    step = jaxops.onnx.decoder(model, length=16)
    for row, prompt in enumerate(PROMPTS):
        one = {name: x[row : row + 1] for name, x in given.items()}
        state, logits = step.init(), None
        tokens, logs = [], []
        for token in prompt:
            state, logits = step(model.params, state, np.array([token]), **one)
        for _ in range(5):
            logs.append(float(jax.nn.log_softmax(logits[0]).max()))
            tokens.append(int(logits[0].argmax()))
            state, logits = step(model.params, state, np.array(tokens[-1:]), **one)
        np.testing.assert_allclose(found.log_probabilities[row, 0], logs, rtol=0, atol=1e-4)
        assert found.tokens[row, 0].tolist() == tokens


def test_samples_of_named_inputs(model, given):
    """Each sample of a prompt sees the prompt's row."""
    options = {"max_tokens": 5, "key": jax.random.key(0), "temperature": 1e-4}  # the likeliest, but by the way of draws
    found = jaxops.onnx.generate(model, [[0]] * 3, samples=2, **options, **given)
    expected = jaxops.onnx.generate(model, [[0]] * 3, max_tokens=5, **given)
    np.testing.assert_array_equal(found.tokens, np.repeat(expected.tokens, 2, axis=1))
    np.testing.assert_allclose(
        found.log_probabilities, np.repeat(expected.log_probabilities, 2, axis=1), rtol=0, atol=1e-4
    )


def test_a_file_with_two_decoders_makes_the_caches_of_the_encoder():
    """As optimum writes it, by If on `use_cache_branch`: the tokens are those of the two files of torch."""
    first, later = (MODELS / f"t5_{part}.script.onnx" for part in ("first", "decoder"))
    rng = np.random.default_rng(1)
    of_encoder = {"encoder_hidden_states": rng.normal(size=(3, 6, 16)).astype(np.float32)}
    of_encoder["encoder_attention_mask"] = np.array([[1] * 6, [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]])
    mask = {"encoder_attention_mask": of_encoder["encoder_attention_mask"]}
    run = session(first)
    made = run.run(None, {"input_ids": np.zeros((3, 1), np.int64), **of_encoder})
    made = {value.name: x for value, x in zip(run.get_outputs(), made, strict=True) if ".encoder." in value.name}
    cross = {name.replace("present", "past_key_values"): x for name, x in made.items()}
    options = {"max_tokens": 5, "repetition_penalty": 3.0}
    expected = jaxops.onnx.generate(jaxops.onnx.load(later), PROMPTS, **options, **mask, **cross)
    assert len({tuple(row) for row in expected.tokens[::2, 0].tolist()}) == 2
    model = jaxops.onnx.load(merged(onnx.load(first), onnx.load(later)))
    found = jaxops.onnx.generate(model, PROMPTS, **options, **of_encoder)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, rtol=0, atol=1e-4)
    # Given ones are taken.
    other = {name: np.zeros_like(x) for name, x in cross.items()}
    changed = jaxops.onnx.generate(model, PROMPTS, **options, **of_encoder, **other)
    assert abs(changed.log_probabilities - found.log_probabilities).max() > 1e-3


def test_a_quantized_file_makes_the_caches_of_each_row_alone(tmp_path):
    """DynamicQuantizeLinear scales by the largest number of all rows."""
    first, later = (MODELS / f"t5_{part}.script.onnx" for part in ("first", "decoder"))
    quantize_dynamic(first, tmp_path / "first.onnx")
    model = jaxops.onnx.load(merged(onnx.load(tmp_path / "first.onnx"), onnx.load(later)))
    hidden = (
        np.random.default_rng(1).normal(size=(2, 6, 16)).astype(np.float32) * np.array([1, 100], "f")[:, None, None]
    )
    of_encoder = {"encoder_hidden_states": hidden, "encoder_attention_mask": np.ones((2, 6), np.int64)}
    found = jaxops.onnx.generate(model, [[0], [0]], max_tokens=3, **of_encoder)
    alone = jaxops.onnx.generate(model, [[0]], max_tokens=3, **{name: x[:1] for name, x in of_encoder.items()})
    np.testing.assert_array_equal(found.tokens[:1], alone.tokens)
    np.testing.assert_allclose(found.log_probabilities[:1], alone.log_probabilities, rtol=0, atol=1e-4)


def test_errors(model, given):
    with pytest.raises(ShapeError, match=r"generate: 'encoder_attention_mask' is .*; it must have a row for each of 2"):
        jaxops.onnx.generate(model, PROMPTS[:2], max_tokens=2, encoder_attention_mask=given["encoder_attention_mask"])
    with pytest.raises(SignatureError, match=r"generate: input '.*' is missing(.|\n)*give it by name"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2)
    mask = {"encoder_attention_mask": given["encoder_attention_mask"]}
    with pytest.raises(SignatureError, match=r"encoder.*is missing(.|\n)*decoder_model.onnx makes it of the encoder's"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2, **mask)
    hidden = {"encoder_hidden_states": np.zeros((3, 6, 16), np.float32)}
    with pytest.raises(
        SignatureError, match=r"unknown input 'encoder_hidden_states'(.|\n)*of later tokens alone, which"
    ):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2, **hidden)
    first = jaxops.onnx.load(MODELS / "t5_first.script.onnx")
    with pytest.raises(
        ModelError, match=r"no cache that grows(.|\n)*first tokens alone; load decoder_model_merged.onnx"
    ):
        jaxops.onnx.generate(first, PROMPTS, max_tokens=2, **mask, **hidden)


def test_caches_in_variables():
    model = jaxops.openvino.load("notebooks/tiny_decoder.xml")
    prompt = [3, 1, 4]
    found = jaxops.openvino.generate(model, [prompt], max_tokens=6)
    step = jaxops.openvino.decoder(model, length=16)
    state, logits = step(model.params, step.init(), np.array([prompt]), last_only=True)
    for k in range(6):
        assert found.tokens[0, 0, k] == logits[0].argmax()
        state, logits = step(model.params, state, logits.argmax(-1))
    with pytest.raises(UnsupportedError, match=r"fixes its batch \(tokens.*\), but there are 2 prompts; give 1 prompt"):
        jaxops.openvino.generate(model, [prompt, [7]], max_tokens=6)
