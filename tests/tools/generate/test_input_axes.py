"""Further inputs of a decoder whose axes have names of their own, or none: the model says which are rows and tokens."""

import jax
import numpy as np
import onnx
import pytest
from decoders import MODELS
from graphs import info, node
from language_models import language_model
from onnx import TensorProto

import jaxops.onnx
from jaxops.errors import SignatureError, UnsupportedError

PROMPTS = [[7, 3], [1, 2, 3, 4, 9]]


def own_names(model, names, of):
    """A copy in which each free axis of some inputs has a name of its own, or none.

    names: such as "{name}_{axis}", or None. of: a part of the names of these inputs.
    """
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for value in (value for value in copy.graph.input if of in value.name):
        for axis, size in enumerate(value.type.tensor_type.shape.dim):
            if not size.HasField("dim_value"):
                size.ClearField("value")
                if names:
                    size.dim_param = names.format(name=value.name, axis=axis)
    return copy


def with_input(name, sizes, kind, change):
    """A language model with one more input. change: the nodes that make "embedded" of "own" and of this input."""
    model = language_model((0,))
    for one in model.graph.node:
        one.output[:] = ["own" if name == "embedded" else name for name in one.output]
    model.graph.input.append(info(name, sizes, kind))
    place = next(k for k, one in enumerate(model.graph.node) if "own" in one.output) + 1
    for one in reversed(change):
        model.graph.node.insert(place, one)
    return model


@pytest.mark.parametrize("size", [2, 3])
def test_an_axis_that_is_no_batch(size):
    """A table of as many entries as there are prompts goes to each prompt whole, if its size is said to be fixed."""
    change = [node("ReduceSum", ["table"], ["sum"], keepdims=0), node("Mul", ["own", "sum"], ["embedded"])]
    file = with_input("table", ["K"], TensorProto.FLOAT, change)
    model = jaxops.onnx.load(file, sizes={"K": size})
    table = np.float32([-1, 3, 1][:size])
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=5, table=table)
    for row, prompt in enumerate(PROMPTS):
        alone = jaxops.onnx.generate(model, [prompt], max_tokens=5, table=table)
        assert found.tokens[row].tolist() == alone.tokens[0].tolist()
        np.testing.assert_allclose(found.log_probabilities[row], alone.log_probabilities[0], rtol=0, atol=1e-5)
    drawn = jaxops.onnx.generate(
        model, PROMPTS, max_tokens=5, table=table, samples=2, key=jax.random.key(0), temperature=1e-4
    )
    np.testing.assert_array_equal(drawn.tokens, np.repeat(found.tokens, 2, axis=1))
    free = jaxops.onnx.load(file)
    alone = jaxops.onnx.generate(free, PROMPTS[:1], max_tokens=5, table=table[:1])
    assert alone.lengths.tolist() == [[5]]
    text = r"whether 'table' has a row for each prompt: its first axis is 'K', .* 'batch_size'\n.*sizes={'K': …}"
    with pytest.raises(UnsupportedError, match=text):
        jaxops.onnx.generate(free, PROMPTS, max_tokens=5, table=table)
    step = jaxops.onnx.decoder(free, length=16)
    with pytest.raises(UnsupportedError, match=text):
        step(free.params, step.init(2), np.array([3, 4]), table=table)


@pytest.mark.parametrize("names", ["{name}_{axis}", "unk__{name}{axis}", None])  # of OpenVINO's reader, of tf2onnx
def test_rows_of_an_encoder(names):
    rng = np.random.default_rng(0)
    plain = onnx.load(MODELS / "t5_decoder.script.onnx")
    expected, model = jaxops.onnx.load(plain), jaxops.onnx.load(own_names(plain, names, "encoder"))
    given = {"encoder_attention_mask": np.array([[1] * 6, [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]])}
    for value in expected.inputs:
        if ".encoder." in value.name:
            given[value.name] = rng.normal(size=(3, value.shape[1], 6, value.shape[3])).astype(np.float32)
    prompts = [[0], [0, 9, 4], [0]]
    found = jaxops.onnx.generate(model, prompts, max_tokens=5, **given)
    expected = jaxops.onnx.generate(expected, prompts, max_tokens=5, **given)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, rtol=0, atol=1e-5)


@pytest.mark.parametrize("names", ["{name}_{axis}", None])
def test_a_number_for_each_token(names):
    """Padding of tokens is padding of their types, and chunks of tokens have those of their types."""
    change = [node("Cast", ["types"], ["kinds"], to=TensorProto.FLOAT), node("Unsqueeze", ["kinds", "last"], ["wide"])]
    model = with_input("types", ["batch_size", "sequence_length"], TensorProto.INT64, [
        *change, node("Add", ["own", "wide"], ["embedded"])
    ])  # fmt: skip
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "last"))
    model = jaxops.onnx.load(own_names(model, names, "types"))
    step = jaxops.onnx.decoder(model, length=16)
    tokens = np.array([[0, 0, 0, 7, 3], [1, 2, 3, 4, 9]])
    types, mask = np.array([[5, 5, 5, 1, 0], [0, 1, 0, 1, 1]]), (tokens > 0).astype(np.int64)
    for run in (step, lambda *a, **more: step.prefill(*a, chunk=2, **more)):
        _, logits = run(model.params, step.init(2), tokens, types=types, attention_mask=mask)
        for row, start in enumerate((3, 0)):
            alone = tokens[row : row + 1, start:], {"types": types[row : row + 1, start:]}
            _, expected = step(model.params, step.init(1), alone[0], last_only=True, **alone[1])
            np.testing.assert_allclose(logits[row].reshape(-1, 48)[-1], expected[0], rtol=0, atol=1e-5)
    with pytest.raises(SignatureError, match="'types' has a number for each token, which later tokens l"):
        jaxops.onnx.generate(model, PROMPTS, max_tokens=2, types=types)
