"""`generate` on several devices gives the tokens of one, with Auto axes and with Explicit ones, JAX's default."""

import functools

import jax
import numpy as np
import pytest
from decoder_graphs import fused_attention, no_mask
from decoders import MODELS
from jax.sharding import AxisType
from language_models import language_model

import jaxops.onnx
from jaxops.sharding import tensor_parallel

PROMPTS = [[7, 9, 2], [1, 2, 3, 4, 9], [5, 6, 8], [30, 2, 11, 4, 5]]
FILES = {
    "float16, whose parameters are prepared": lambda: language_model((0,), half=True),
    "a language model": lambda: language_model((0,)),
    "llama, dynamo": lambda: MODELS / "llama.dynamo.onnx",
    "one weight for queries, keys and values": fused_attention,
}
DRAWN = {"max_tokens": 10, "samples": 2, "top_k": 20, "top_p": 0.9, "temperature": 2.0, "repetition_penalty": 1.2}


def drawn(model, **options):
    return jaxops.onnx.generate(model, PROMPTS, key=jax.random.key(3), **DRAWN, **options)


@functools.cache
def on_one_device(name):
    return drawn(jaxops.onnx.load(FILES[name]()))


@functools.cache
def likeliest_on_one_device():
    return jaxops.onnx.generate(jaxops.onnx.load(no_mask()), PROMPTS, max_tokens=10)


def split(file, kind):
    mesh = jax.make_mesh((jax.device_count(),), ("model",), axis_types=(kind,))
    return mesh, jaxops.onnx.load(file(), sharding=tensor_parallel("model", mesh))


@pytest.mark.grid
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, AxisType.Explicit) for name in FILES), ("one weight for queries, keys and values", AxisType.Auto)],
)
def test_a_stream_of_drawn_tokens(name, kind):
    mesh, model = split(FILES[name], kind)
    with jax.set_mesh(mesh):
        parts = list(drawn(model, stream=True))
    tokens, logs = (np.concatenate(x, -1) for x in zip(*((p.tokens, p.log_probabilities) for p in parts), strict=True))
    expected = on_one_device(name)
    np.testing.assert_array_equal(tokens, expected.tokens)
    np.testing.assert_allclose(logs, expected.log_probabilities, atol=5e-3 if "float16" in name else 1e-5)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_the_likeliest_tokens_without_a_current_mesh(kind):
    _, model = split(no_mask, kind)
    assert any(not x.is_fully_replicated for x in model.params.values())
    found = jaxops.onnx.generate(model, PROMPTS, max_tokens=10)
    expected = likeliest_on_one_device()
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    np.testing.assert_allclose(found.log_probabilities, expected.log_probabilities, atol=1e-5)


def test_rows_and_drafts():
    """Rows are inserted and taken back, and tokens drafted on a mesh, too."""
    mesh, model = split(lambda: language_model((0,)), AxisType.Explicit)
    alone = jaxops.onnx.load(language_model((0,)))

    def found(model):
        step = jaxops.onnx.decoder(model, length=32)
        state, _ = step(model.params, step.init(2), np.array([[1, 2, 3], [4, 5, 6]]))
        state = step.insert(state, [1, 0], state)
        _, logits = step(model.params, step.rewind(state, [0, 1]), np.array([5, 5]))
        run = jaxops.onnx.speculative(step, step, ahead=2)
        return logits, run(model.params, model.params, np.array([[1, 2, 3]]), count=6).tokens

    with jax.set_mesh(mesh):
        logits, tokens = found(model)
    expected_logits, expected_tokens = found(alone)
    np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(tokens, expected_tokens)
