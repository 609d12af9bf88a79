"""That XLA computes with floats as they are written."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxops as jo
from jaxops.kernels import xla_workarounds
from jaxops.kernels.xla_workarounds import quotient

pytestmark = pytest.mark.optimized
RNG = np.random.default_rng(5)
X = np.concatenate([RNG.normal(size=100_000) * 100, [np.inf, -np.inf, np.nan, 0, -0.0, 1, 3e38]]).astype(np.float32)
Y = np.concatenate([np.abs(RNG.normal(size=100_000)) + 0.01, [2, -3, 1, 5, 5, 0, 1e-3]]).astype(np.float32)


def divided():
    with np.errstate(all="ignore"):
        return X / Y


def same(found, expected):
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_quotients_are_rounded_correctly():
    scale = np.float32(0.1)
    expected = X[:-1] / scale
    same(jax.jit(lambda x, s: quotient(x, jnp.broadcast_to(s, x.shape)))(X[:-1], scale), expected)
    plain = np.asarray(jax.jit(lambda x, s: x / s)(X[:-1], scale))
    assert (plain != expected)[:100_000].any(), "XLA divides exactly now: `quotient` may go"


@pytest.mark.parametrize("ulps", [-2, 0, 1])
def test_a_gpu_divides_correctly_though_its_division_is_two_ulps_off(ulps, monkeypatch):
    def near(x, divisor):
        y = lax.div(x, divisor)
        return lax.select(lax.is_finite(y) & (y != 0), y + ulps * np.float32(2**-23) * y, y)

    monkeypatch.setattr(xla_workarounds, "_divided", near)
    assert ulps == 0 or (np.asarray(jax.jit(near)(X, Y)) != divided()).mean() > 0.9
    same(jax.jit(xla_workarounds._corrected)(X, Y), divided())


def test_derivatives_of_what_a_gpu_divides():
    x, y = X[:1000], Y[:1000]
    found = jax.jit(jax.grad(lambda x, y: jnp.sum(xla_workarounds._corrected(x, y)), (0, 1)))(x, y)
    for a, b in zip(found, jax.grad(lambda x, y: jnp.sum(x / y), (0, 1))(x, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_gpu_corrects_the_quotients_of_a_user_s_program():
    traced = jax.jit(lambda x: jo.quantize_linear(x, np.float32(0.1))).trace(X)
    assert "f64" in traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "f64" not in traced.lower(lowering_platforms=("cpu",)).as_text()
