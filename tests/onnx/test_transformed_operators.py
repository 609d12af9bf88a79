"""Operators of a user's own that take derivatives of ours, or map them, inside of `model(…)`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from jax import lax

import jaxops as jo
from jaxops.onnx import load

W = np.asarray(np.random.default_rng(0).normal(size=(8, 1, 3, 3)), np.float32)
X = np.asarray(np.random.default_rng(1).normal(size=(2, 8, 6, 6)), np.float32)


def conv(x):
    """A filter for each channel; x: (8, 6, 6)."""
    return jo.conv(x[None], jnp.asarray(W), group=8, pads=(1, 1, 1, 1))[0]


def plain_conv(x):
    return lax.conv_general_dilated(x[None], W, (1, 1), [(1, 1)] * 2, feature_group_count=8)[0]


def derivative(fn):
    return jax.grad(lambda x: jnp.sum(jnp.sin(fn(x))))


def scanned(fn):
    def step(c, _):
        return lax.scan(lambda c, _: (jnp.tanh(derivative(fn)(c) / 4), None), c, None, length=2)[0], None

    return lambda x: lax.scan(step, x, None, length=2)[0]


INNER = {
    "gelu": (jo.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
    "conv": (conv, plain_conv),
}
HOW = {
    "vmap": jax.vmap,
    "grad": lambda fn: lambda x: jnp.stack([derivative(fn)(row) for row in x]),
    "vmap of grad": lambda fn: jax.vmap(derivative(fn)),
    "grad of vmap": lambda fn: derivative(jax.vmap(fn)),
    "nested scan": lambda fn: jax.vmap(scanned(fn)),
    "jvp of vmap": lambda fn: lambda x: jax.jvp(jax.vmap(fn), (x,), (jnp.cos(x),))[1],
    "checkpoint": lambda fn: derivative(jax.checkpoint(jax.vmap(fn))),
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", INNER)
def test_an_operator_of_ones_own(name, how):
    fn, plain = (HOW[how](inner) for inner in INNER[name])
    made = build(
        node("MyOp", ["x"], ["y"], domain="my"),
        inputs=[info("x", X.shape)],
        outputs=[info("y", None)],
        opsets=(("", 20), ("my", 1)),
    )
    model = load(made, operators={("my", "MyOp"): fn})
    expected = plain(jnp.asarray(X))
    np.testing.assert_allclose(model(X), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(jax.jit(model.apply)(model.params, X), expected, rtol=1e-4, atol=1e-4)


WEIGHTS = np.asarray(np.random.default_rng(2).uniform(-1, 1, (8, 8, 3, 3)), np.float32)
SCALES = np.linspace(0.01, 0.02, 8, dtype=np.float32)


def rounded(x, scale, axis, zero):
    return jo.dequantize_linear(jo.quantize_linear(x, scale, zero, axis=axis), scale, zero, axis=axis)


def rounded_data(x):
    return rounded(x, np.float32(0.02), 0, np.uint8(117))


def quantized_conv(x, w, scales):
    """x: (8, 6, 6)."""
    return jo.conv(rounded_data(x)[None], rounded(w, scales, 0, np.zeros(8, np.int8)), pads=(1, 1, 1, 1))[0]


def quantized_product(x, w, scales):
    return jo.matmul(rounded_data(x.reshape(-1, 72)), rounded(w.reshape(8, 72).T, scales, 1, np.ones(8, np.int8)))


QUANTIZED = {
    "vmap": lambda fn: jax.vmap(fn, (0, None, None)),
    "grad of the scales": lambda fn: jax.grad(lambda x, w, s: jnp.sum(jnp.sin(fn(x[0], w, s))), 2),
    "value and grad": lambda fn: (
        lambda x, w, s: jnp.concatenate(
            [jnp.ravel(y) for y in jax.value_and_grad(lambda s: jnp.sum(jnp.sin(fn(x[0], w, s))))(s)]
        )
    ),
    "vmap of grad": lambda fn: jax.vmap(jax.grad(lambda x, w, s: jnp.sum(fn(x, w, s) ** 2), 2), (0, None, None)),
    "scan": lambda fn: lambda x, w, s: lax.scan(lambda c, row: (c, fn(row, w, s) * c), np.float32(2), x)[1],
    "sum": lambda fn: lambda x, w, s: fn(x[0], w, s) + 2 * rounded_data(w).sum(),
}


@pytest.mark.parametrize("how", QUANTIZED)
@pytest.mark.parametrize("inner", [quantized_conv, quantized_product])
def test_an_operator_of_ones_own_on_quantized_numbers(inner, how):
    """Weights and scales are parameters of the model."""
    fn = QUANTIZED[how](inner)
    made = build(
        node("MyOp", ["x", "w", "s"], ["y"], domain="my"),
        inputs=[info("x", X.shape)],
        outputs=[info("y", None)],
        initializers=[tensor(WEIGHTS, "w"), tensor(SCALES, "s")],
        opsets=(("", 20), ("my", 1)),
    )
    model = load(made, operators={("my", "MyOp"): fn})
    assert set(model.params) == {"w", "s"}
    expected = fn(jnp.asarray(X), jnp.asarray(WEIGHTS), jnp.asarray(SCALES))
    np.testing.assert_allclose(model(X), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(jax.jit(model.apply)(model.params, X), expected, rtol=1e-4, atol=1e-4)
