"""Activations of two operands."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.test_util import check_grads

from jaxops import ops
from jaxops.errors import DTypeError, ShapeError

pytestmark = pytest.mark.optimized

A, B = np.random.default_rng(0).normal(size=(2, 64, 96)).astype(np.float32)


@pytest.mark.parametrize("alpha", [1.0, 1.75])
def test_swiglu(alpha):
    expected = A / (1 + np.exp(-alpha * A.astype(np.float64))) * B
    run = jax.jit(lambda a, b: ops.swiglu(a, b, alpha=alpha))
    np.testing.assert_allclose(run(A, B), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(run)(A, B), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(at_opset("SwiGLU", 28, A, B, alpha=alpha)[0], expected, rtol=1e-5, atol=1e-6)
    check_grads(run, (A[:2, :3], B[:2, :3]), order=1, rtol=1e-2)


def test_errors():
    with pytest.raises(ShapeError, match=r"swiglu: a of \(64, 96\) and b of \(96,\) must have one shape"):
        ops.swiglu(A, B[0])
    with pytest.raises(DTypeError, match="swiglu: operands must be floating-point"):
        ops.swiglu(jnp.ones(2, int), jnp.ones(2, int))
