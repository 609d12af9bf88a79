"""Φ, and numbers weighed by it, beside the standard library's erfc."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from programs import specialized

from jaxops.kernels.normal_cdf import distribution, weighed

pytestmark = pytest.mark.optimized

X = np.concatenate([np.linspace(-8, 8, 20_001), np.linspace(-2.01, 2.01, 20_001)]).astype(np.float32)


def phi(x):
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x.astype(np.float64).tolist()])


def density(x):
    return np.exp(-(x.astype(np.float64) ** 2) / 2) / math.sqrt(2 * math.pi)


def fn(x):
    return jax.jit(lambda x: weighed(x, False))(x)


def test_float32_is_exact_to_a_few_units_in_the_last_place():
    found, expected = np.asarray(fn(X), np.float64), X * phi(X)
    np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1.2e-7)
    tail = (X > -5.6) & (X < -2)
    np.testing.assert_allclose(found[tail], expected[tail], rtol=6e-6)


def test_it_never_falls_and_ends_at_0_and_1():
    found = np.asarray(jax.jit(distribution)(np.sort(X)))
    assert np.diff(found).min() > -2e-7
    assert distribution(np.float32([0, 40, -40])).tolist() == [0.5, 1, 0]


def test_it_is_one_operation():
    form = specialized(lambda x: weighed(x, False))
    for traced in (jax.make_jaxpr(lambda x: weighed(x, False))(X), jax.make_jaxpr(form)(X)):
        assert [eqn.primitive.name for eqn in traced.eqns] == ["normal_distribution", "mul"]
    np.testing.assert_array_equal(jax.jit(form)(X), fn(X))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_other_types(dtype):
    with jax.enable_x64(True):
        x = X[::7].astype(dtype)
        found = fn(x)
        assert found.dtype == dtype
        eps = float(jnp.finfo(dtype).eps)
        wide = x.astype(np.float64)
        np.testing.assert_allclose(np.asarray(found, np.float64), wide * phi(wide), rtol=max(eps, 1e-13), atol=1.2e-7)


def test_what_is_not_finite():
    x = np.float32([np.inf, 3e38, -3e38, np.nan])
    np.testing.assert_array_equal(fn(x), np.float32([np.inf, 3e38, -0.0, np.nan]))


def test_derivatives():
    first = jax.jit(jax.vmap(jax.grad(lambda x: weighed(x, False))))
    np.testing.assert_allclose(first(X), phi(X) + X * density(X), rtol=1e-6, atol=3e-7)
    second = jax.jit(jax.vmap(jax.grad(jax.grad(lambda x: weighed(x, False)))))
    np.testing.assert_allclose(second(X), density(X) * (2 - X.astype(np.float64) ** 2), rtol=1e-5, atol=1e-6)
    assert np.isfinite(first(np.float32([1e30, -1e30]))).all()


def test_the_approximation_by_tanh():
    wide = X.astype(np.float64)
    expected = wide / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    np.testing.assert_allclose(jax.jit(lambda x: weighed(x, True))(X), expected, rtol=1e-6, atol=1e-6)
