"""Linear maps with a transpose of their own: all transformations of JAX, and that the transpose is the one given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from jaxops.ops.linear_maps import linear

W, X = np.arange(6.0).reshape(2, 3), np.array([1.0, -2.0, 3.0])


def product(w, x, back=lambda w, y: {"x": w.T @ y["y"]}):
    return linear(lambda w, x: {"y": w @ x["x"]}, back, w, {"x": x})["y"]


def several(w, x):
    return jnp.stack([w, w * 2, w - 1]), jnp.stack([x, x + 1, -x])


@pytest.mark.parametrize("run", [product, jax.jit(product)])
def test_derivatives(x64, run):
    check_grads(run, (W, X), 3)
    assert jax.hessian(lambda w: jnp.sum(run(w, X) ** 2))(W).shape == (2, 3, 2, 3)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0), (2, 1)])
def test_mapped(x64, axes):
    ws, xs = several(W, X)
    given = (
        W if axes[0] is None else jnp.moveaxis(ws, 0, axes[0]),
        X if axes[1] is None else jnp.moveaxis(xs, 0, axes[1]),
    )
    np.testing.assert_array_equal(jax.vmap(product, axes)(*given), jax.vmap(jnp.matmul, axes)(*given))
    check_grads(jax.vmap(product, axes), given, 2)


def test_the_transpose_is_the_one_given(x64):
    wrong = jax.grad(lambda x: product(W, x, lambda w, y: {"x": 7 * w.T @ y["y"]}).sum())(X)
    np.testing.assert_array_equal(wrong, 7 * jax.grad(lambda x: (W @ x).sum())(X))
