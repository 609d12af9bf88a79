"""Linear maps with a transpose of their own: all transformations of JAX, and that the transpose is the one given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxops.kernels.custom_transpose import linear

W, X = np.arange(6.0).reshape(2, 3), np.array([1.0, -2.0, 3.0])


def product(w, x, back=lambda w, y: {"x": w.T @ y["y"]}):
    return linear(lambda w, x: {"y": w @ x["x"]}, back, w, {"x": x})["y"]


def several(w, x):
    return jnp.stack([w, w * 2, w - 1]), jnp.stack([x, x + 1, -x])


def test_derivatives(x64):
    check_grads(product, (W, X), 2)
    found = jax.jit(jax.hessian(lambda w: jnp.sum(product(w, X) ** 2)))(W)
    np.testing.assert_array_equal(found, jax.hessian(lambda w: jnp.sum((w @ X) ** 2))(W))


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (2, 1)])
def test_mapped(x64, axes):
    ws, xs = several(W, X)
    given = (
        W if axes[0] is None else jnp.moveaxis(ws, 0, axes[0]),
        X if axes[1] is None else jnp.moveaxis(xs, 0, axes[1]),
    )
    np.testing.assert_array_equal(jax.vmap(product, axes)(*given), jax.vmap(jnp.matmul, axes)(*given))
    check_grads(jax.vmap(product, axes), given, 1)


def test_the_transpose_is_the_one_given(x64):
    wrong = jax.grad(lambda x: product(W, x, lambda w, y: {"x": 7 * w.T @ y["y"]}).sum())(X)
    np.testing.assert_array_equal(wrong, 7 * jax.grad(lambda x: (W @ x).sum())(X))
