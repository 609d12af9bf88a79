"""Softmax of float16: the roundings of the standard's function body, without its overflow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo

pytestmark = pytest.mark.optimized

ULP = 2.0**-10  # the distance of neighbours in float16, relative to the smaller ones of a binade


def body(x, axis):
    """ReduceMax, Sub, Exp, ReduceSum and Div in float16."""
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True, dtype=np.float32).astype(np.float16)


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("run", [jo.softmax, jax.jit(jo.softmax, static_argnames="axis")])
def test_float16_is_rounded_as_in_the_function_body(run, axis):
    # Multiples of 1/64: no difference is rounded, and no exponential is subnormal.
    x = (np.random.default_rng(0).integers(-256, 256, (4, 50, 60)) / 64).astype(np.float16)
    found = np.asarray(run(x, axis=axis))
    assert found.dtype == np.float16
    expected = body(x, axis)
    # NumPy's and XLA's exponentials of float32 differ in the last bit, which can round to another float16.
    assert np.mean(found == expected) > 0.99
    np.testing.assert_allclose(found, expected, rtol=2 * ULP)
    exact = jo.softmax(x.astype(np.float32), axis=axis)
    assert np.mean(found == np.asarray(exact).astype(np.float16)) < 0.8


def test_a_sum_beyond_float16_is_finite():
    for x in (np.zeros(70_000, np.float16), np.full((1, 3, 40_000), -7, np.float16)):
        axes = tuple(range(x.ndim))
        np.testing.assert_array_equal(jo.softmax(x, axes=axes), np.full_like(x, np.float16(1 / x.size)))
    assert jo.softmax(np.float16([0, -11, -np.inf])).tolist() == pytest.approx([1, np.exp(-11), 0], abs=2.0**-24)


@pytest.mark.parametrize(("size", "scale"), [(6, 1), (64, 2), (4096, 8)])
def test_float16_is_within_two_roundings_more(size, scale):
    x = np.random.default_rng(size).normal(size=(200, size)) * scale
    x = x.astype(np.float16)
    powers = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    exact = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(jo.softmax(x), exact, rtol=1.5 * ULP * 1.01, atol=2.0**-24)


def test_other_types_are_rounded_once():
    x = np.random.default_rng(3).normal(size=(20, 30)).astype(np.float32)
    x = np.asarray(jnp.asarray(x, jnp.bfloat16))
    exact = jo.softmax(x.astype(np.float32))
    np.testing.assert_array_equal(jo.softmax(x), np.asarray(exact.astype(jnp.bfloat16)))
    assert "reduce_precision" not in str(jax.make_jaxpr(jo.softmax)(exact))


def test_gradient_of_float16():
    x = np.random.default_rng(4).normal(size=(5, 7)).astype(np.float16)
    weights = np.random.default_rng(5).normal(size=(5, 7)).astype(np.float16)

    def loss(v):
        return jnp.sum(jo.softmax(v) * weights.astype(v.dtype))

    np.testing.assert_allclose(jax.grad(loss)(x), jax.grad(loss)(x.astype(np.float32)), rtol=0.01, atol=1e-3)
