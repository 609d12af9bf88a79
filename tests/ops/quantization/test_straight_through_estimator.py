"""The straight-through estimator against the formulas of PyTorch's `fake_quantize`, written out in NumPy."""

import chex
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxops as jo
from jaxops.ops.quantization.straight_through_estimator import Quantization, straight_through

RNG = np.random.default_rng(3)
X = (RNG.normal(size=(3, 8, 5)) * 40).astype(np.float32)
G = RNG.normal(size=X.shape).astype(np.float32)
WAYS = {
    "scalar": ((), {}),
    "axis": ((8,), {"axis": 1}),
    "negative axis": ((5,), {"axis": -1}),
    "blocks": ((3, 2, 5), {"axis": 1, "block_size": 4}),
    "uneven blocks": ((3, 8, 2), {"axis": 2, "block_size": 3}),
}


def dtype_of(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def spread(v, shape, attributes):
    """A scale or zero point at each element."""
    axis, block = attributes.get("axis", 0), attributes.get("block_size", 0)
    if block:
        return np.take(np.repeat(v, block, axis), range(shape[axis]), axis)
    sizes = [1] * len(shape)
    if v.ndim:
        sizes[axis] = -1
    return np.broadcast_to(v.reshape(sizes), shape)


def quantized_and_back(x, scale, zero, attributes, dynamic=False):
    at = Quantization(**attributes, **{f"back_{k}": v for k, v in attributes.items()}, dynamic=dynamic)
    q = jo.quantize_linear(x, scale, zero, **attributes)
    return straight_through(
        lambda *operands: jo.dequantize_linear(*operands, **attributes), (q, scale, zero), (x, scale, zero), at
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int4", "uint4", "int2"])
def test_of_integers(name, way):
    shape, attributes = WAYS[way]
    dtype = dtype_of(name)
    low, high = (int(f(ml_dtypes.iinfo(dtype))) for f in (lambda i: i.min, lambda i: i.max))
    scale = (60 / (high - low) * (1 + RNG.random(size=shape))).astype(np.float32)
    zero = np.full(shape, 1, np.int32).astype(dtype)
    s, z = (spread(v.astype(np.float32), X.shape, attributes) for v in (scale, zero))
    ratio = X / s
    rounded = np.rint(ratio) + z
    inside = (low <= rounded) & (rounded <= high)
    assert 0.1 < inside.mean() < 0.95
    of_scale = G * np.where(inside, np.rint(ratio) - ratio, np.clip(rounded, low, high) - z)

    def loss(x, scale):
        return jnp.sum(quantized_and_back(x, scale, zero, attributes) * G)

    value, (dx, ds) = jax.jit(jax.value_and_grad(loss, (0, 1)))(X, scale)
    plain = jo.dequantize_linear(jo.quantize_linear(X, scale, zero, **attributes), scale, zero, **attributes)
    np.testing.assert_allclose(value, np.sum(np.asarray(plain) * G), rtol=1e-4, atol=1e-3)
    np.testing.assert_array_equal(dx, np.where(inside, G, 0))
    _, back = jax.vjp(lambda v: jnp.asarray(spread_jax(v, X.shape, attributes)), scale)
    # Its two terms cancel but for a part of 1.
    np.testing.assert_allclose(ds, back(of_scale.astype(np.float32))[0], rtol=1e-5, atol=5e-7 * (high - low) + 1e-5)


def spread_jax(v, shape, attributes):
    """`spread` by indices, so that its transpose adds up what belongs to one scale."""
    return v.reshape(-1)[spread(np.arange(v.size).reshape(v.shape), shape, attributes)]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_of_floats(name):
    largest = float(ml_dtypes.finfo(dtype_of(name)).max)
    scale, zero = np.float32(40 / largest), np.zeros((), dtype_of(name))
    dx = jax.grad(lambda x: jnp.sum(quantized_and_back(x, scale, zero, {}) * G))(X)
    inside = np.abs(X / scale) <= largest
    assert 0.1 < inside.mean() < 0.95
    np.testing.assert_array_equal(dx, np.where(inside, G, 0))


def test_ends_of_the_range():
    """As PyTorch, which looks at the rounded number."""
    x = np.float32([-128.5, -128.51, -127.6, 126.5, 127.49, 127.5, 128, np.nan, np.inf, -np.inf])
    dx = jax.grad(lambda x: jnp.sum(quantized_and_back(x, np.float32(1), np.int8(0), {})))(x)
    assert dx.tolist() == [1, 0, 1, 1, 1, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float64])
def test_other_types(dtype):
    with jax.enable_x64(dtype == np.float64):
        x, scale = jnp.asarray(X, dtype), jnp.asarray(0.5, dtype)
        y = quantized_and_back(x, scale, np.int8(0), {})
        chex.assert_trees_all_equal(
            y, jo.dequantize_linear(jo.quantize_linear(x, scale, np.int8(0)), scale, np.int8(0))
        )
        dx = jax.grad(lambda x: jnp.sum(quantized_and_back(x, scale, np.int8(0), {}) * G.astype(dtype)))(x)
        inside = np.abs(np.asarray(y, np.float32)) < 63
        np.testing.assert_array_equal(np.asarray(dx)[inside], G.astype(dtype)[inside])
        assert dx.dtype == dtype


def test_two_scales():
    """Back in another scale, the derivative is their quotient."""

    def fn(x):
        q = jo.quantize_linear(x, np.float32(0.5), np.int8(0))
        operands = (q, np.float32(2), np.int8(0)), (x, np.float32(0.5), np.int8(0))
        return straight_through(jo.dequantize_linear, *operands, Quantization())

    assert jax.vmap(jax.grad(fn))(jnp.array([1.2, 99.0])).tolist() == [4, 0]


def test_a_dynamic_scale_is_a_constant():
    def fn(x):
        q, scale, zero = jo.dynamic_quantize_linear(x)
        return straight_through(jo.dequantize_linear, (q, scale, zero), (x, scale, zero), Quantization(dynamic=True))

    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(fn(x) * G))(X), G)


def test_a_scale_of_zero():
    scale, zero = np.float32([0, 1]), np.zeros(2, np.int8)
    dx = jax.grad(lambda x: jnp.sum(quantized_and_back(x, scale, zero, {"axis": 1})))(np.float32([[0, 0], [2, 2]]))
    assert dx.tolist() == [[0, 1], [0, 1]]


def test_integers_have_no_derivative():
    x = jnp.arange(5, dtype=np.int32)
    assert quantized_and_back(x, np.float32(2), np.int8(0), {}).tolist() == [0, 0, 2, 4, 4]


def test_transformations_agree():
    def fn(x):
        return quantized_and_back(x, np.float32(0.5), np.int8(0), {})

    tangent = jax.jvp(fn, (X,), (G,))[1]
    np.testing.assert_array_equal(tangent, np.where(np.abs(np.rint(X / 0.5) + 0.5) < 128, G, 0))
    _, back = jax.vjp(fn, X)
    np.testing.assert_array_equal(back(G)[0], tangent)
    np.testing.assert_array_equal(jax.vmap(lambda x, g: jax.jvp(fn, (x,), (g,))[1])(X, G), tangent)
