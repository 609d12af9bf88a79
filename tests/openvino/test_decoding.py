"""Decoders whose caches are variables, beside steps with caches that grow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from openvino_files import File

from jaxops.errors import ModelError
from jaxops.openvino import decoder, load

VOCABULARY, WIDTH = 11, 4
PAST = {"variable_id": "past", "variable_shape": "?,?,4", "variable_type": "f32"}


def language_model():
    """Embedding, attention to all tokens by a cache, and logits."""
    random = np.random.RandomState(0)
    file = File("language_model")
    tokens = file.parameter(["?", "?"], "i8", name="input_ids")
    rows = file.parameter(["?"], "i4", name="beam_idx")
    axis, zero = file.constant(np.int64(0)), file.constant(np.array([0], "i8"))
    table = file.constant(random.randn(VOCABULARY, WIDTH).astype("f4"), name="table")
    x = file.layer("Gather", 8, [table, tokens, axis], {"batch_dims": 0})
    sizes = file.layer("ShapeOf", 3, [tokens], {"output_type": "i64"})
    batch = file.layer("Gather", 8, [sizes, zero, axis], {"batch_dims": 0})
    empty = file.layer("Concat", 1, [batch, zero, file.constant(np.array([WIDTH], "i8"))], {"axis": 0})
    first = file.layer("Broadcast", 3, [file.constant(np.float32(0)), empty], {"mode": "numpy"})
    before = file.layer("ReadValue", 6, [first], PAST)
    chosen = file.layer("Gather", 8, [before, rows, axis], {"batch_dims": 0})
    after = file.layer("Concat", 1, [chosen, x], {"axis": 1})
    file.layer("Assign", 6, [after], PAST)
    y = file.layer("ScaledDotProductAttention", 13, [x, after, after], {"causal": False})
    file.result(file.layer("MatMul", 1, [y, table], {"transpose_a": False, "transpose_b": True}))
    return file


PROMPT = np.array([[1, 2, 3], [4, 5, 6]])


def by_growing(model, tokens, rows):
    state, logits = model.init(model.params, tokens[0], rows[0]), np.zeros(())
    for ids, order in zip(tokens, rows, strict=True):
        state, logits = model.step(model.params, state, ids, order)
    return logits


def test_steps_are_those_of_the_model():
    file = language_model()
    model = load(file.xml, weights=file.bin)
    step = decoder(model, length=8)
    rows = np.arange(2, dtype="i4")
    state, logits = step(model.params, step.init(batch=2), PROMPT)
    np.testing.assert_allclose(logits, by_growing(model, [PROMPT], [rows]), rtol=1e-5, atol=1e-5)

    def one(carry, _):
        state, tokens = carry
        state, logits = step(model.params, state, tokens)
        return (state, logits.argmax(-1)), (tokens, logits)

    _, (tokens, all_logits) = jax.lax.scan(one, (state, logits[:, -1].argmax(-1)), length=4)
    for count in range(1, 5):
        calls = [PROMPT, *(np.asarray(t)[:, None] for t in tokens[:count])]
        expected = by_growing(model, calls, [rows] * len(calls))
        np.testing.assert_allclose(all_logits[count - 1], expected[:, 0], rtol=1e-5, atol=1e-5)
    crossed = np.array([1, 1], "i4")
    logits = step(model.params, state, tokens[0], beam_idx=crossed)[1]
    expected = by_growing(model, [PROMPT, np.asarray(tokens[0])[:, None]], [rows, crossed])
    np.testing.assert_allclose(logits, expected[:, 0], rtol=1e-5, atol=1e-5)
    assert not np.allclose(logits, all_logits[0])


def test_a_state_of_the_model_goes_on():
    file = language_model()
    model, rows = load(file.xml, weights=file.bin), np.arange(2, dtype="i4")
    step = decoder(model, length=8)
    state, _ = model.step(model.params, model.init(model.params, PROMPT, rows), PROMPT, rows)
    _, logits = step(model.params, step.init(past=state), jnp.array([7, 8]))
    expected = by_growing(model, [PROMPT, np.array([[7], [8]])], [rows, rows])
    np.testing.assert_allclose(logits, expected[:, 0], rtol=1e-5, atol=1e-5)


def test_models_without_growing_variables():
    file = File()
    file.result(file.parameter(["?", "?"], "i8"))
    with pytest.raises(ModelError, match=r"decoder: the model has no variables; jaxops\.onnx\.decoder takes one"):
        decoder(load(file.xml))
    file = language_model()
    file.layers = [text.replace('"?,?,4"', '"2,3,4"') for text in file.layers]
    with pytest.raises(ModelError, match=r"'past: float32\[2, 3, 4\]' must have one size besides the batch"):
        decoder(load(file.xml, weights=file.bin))
