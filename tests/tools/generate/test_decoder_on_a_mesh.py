"""Tokens on two devices are those of one, with Auto axes and with Explicit ones, JAX's default."""

import contextlib
import functools

import jax
import numpy as np
import pytest
from decoder_graphs import no_mask, tokens_before_heads
from decoders import MODELS
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from language_models import language_model

import jaxops.onnx
from jaxops.sharding import tensor_parallel

PROMPTS = np.array([[1, 2, 3, 4], [5, 6, 7, 8]])
AXES = AxisType.Auto, AxisType.Explicit
FILES = {
    "a language model": lambda: language_model((0,)),
    "4 bits": lambda: language_model((0,), four_bits=True),
    "no mask": no_mask,
    "tokens before heads": tokens_before_heads,
    "gpt2": lambda: MODELS / "gpt2.dynamo.onnx",
}


def tokens_of(step, params, state):
    state, logits = step(params, state, PROMPTS)
    found, run = [logits[:, -1]], jax.jit(step)
    for k in range(3):
        state, logits = run(params, state, (np.asarray(found[-1]).argmax(-1) + k) % logits.shape[-1])
        found.append(logits)
    return state, np.stack(found)


@functools.cache
def on_one_device(name):
    model = jaxops.onnx.load(FILES[name]())
    step = jaxops.onnx.decoder(model, length=16)
    return tokens_of(step, model.params, step.init(2))[1]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5 * np.abs(expected).max())


@pytest.mark.grid
@pytest.mark.parametrize(
    ("name", "kind", "is_set"),
    [(name, kind, (k + j) % 2 == 0) for k, name in enumerate(FILES) for j, kind in enumerate(AXES)],
)
def test_weights_on_two_devices(name, kind, is_set):
    """Every second file is loaded under the mesh with one kind of axes, and with a mesh of its own with the other."""
    mesh = jax.make_mesh((2,), ("model",), axis_types=(kind,))
    with jax.set_mesh(mesh) if is_set else contextlib.nullcontext():
        rule = tensor_parallel("model") if is_set else tensor_parallel("model", mesh)
        model = jaxops.onnx.load(FILES[name](), sharding=rule)
        step = jaxops.onnx.decoder(model, length=16)
        found = tokens_of(step, model.params, step.init(2))[1]
    close(found, on_one_device(name))


@pytest.mark.grid
@pytest.mark.parametrize("kind", AXES[::-1], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_caches_on_two_devices(kind, axis):
    """Split over the rows, or over the heads; they stay so."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(kind,))
    model = jaxops.onnx.load(FILES["a language model"]())
    step = jaxops.onnx.decoder(model, length=16)
    split = NamedSharding(mesh, P(*[None] * axis, "d"))
    params, state = jax.device_put((dict(model.params), step.init(2)), NamedSharding(mesh, P()))
    state = state._replace(caches=jax.device_put(state.caches, split))
    state, found = tokens_of(step, params, state)
    close(found, on_one_device("a language model"))
    if kind == AxisType.Explicit:
        assert all(x.sharding.is_equivalent_to(split, 4) for x in state.caches.values())
