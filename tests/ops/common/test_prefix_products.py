"""Derivatives of CumProd and ReduceProd: exact beside zeros, and small programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxops as jo

pytestmark = pytest.mark.optimized

X = np.array([[2, 0, 3, 4, -5], [1, 2, 0, 0, 2], [1, 2, 3, 4, 5]], float)


def products(x, reverse, exclusive):
    """The definition: the product of a mask's elements, one result at a time."""
    at = np.arange(x.shape[1])
    before = at[:, None] - at[None] if not reverse else at[None] - at[:, None]
    return jnp.prod(jnp.where((before > 0) | ((before == 0) & (not exclusive)), x[:, None], 1), 2)


@pytest.mark.parametrize(("reverse", "exclusive"), [(0, 0), (1, 1)])
def test_cumprod(x64, reverse, exclusive):
    def fn(x):
        return jo.cumprod(x, 1, reverse=reverse, exclusive=exclusive)

    def expected(x):
        return products(x, reverse, exclusive)

    assert (fn(jnp.asarray(X)) == expected(X)).all()
    # The gradient under `vmap`, and its derivative forward.
    for derive in (jax.jacrev, jax.hessian):
        np.testing.assert_allclose(jax.jit(derive(fn))(X), jax.jit(derive(expected))(X), atol=1e-12)


@pytest.mark.parametrize("axes", [(1,), ()])
def test_reduce_prod(x64, axes):
    def fn(x):
        return jo.reduce_prod(x, axes, keepdims=0)

    def expected(x):
        return jnp.prod(x, axes or (0, 1))

    for derive in (jax.jacrev, jax.hessian):
        np.testing.assert_allclose(jax.jit(derive(fn))(X), jax.jit(derive(expected))(X), atol=1e-9)


def test_infinities_and_no_elements():
    x = jnp.array([jnp.inf, 2.0, 0.0])
    np.testing.assert_array_equal(jax.grad(lambda x: jo.reduce_prod(x)[0])(x), [0, np.nan, np.inf])
    for size in (0, 1):
        x = jnp.ones(size)
        for gradient in (jax.grad(lambda x: jo.cumprod(x, 0).sum()), jax.grad(lambda x: jo.reduce_prod(x).sum())):
            np.testing.assert_array_equal(gradient(x), x)


def test_the_program_does_not_grow_with_the_factors():
    """A derivative is a loop over the levels, not a tree of them."""

    def lines(fn, size):
        shape = jax.ShapeDtypeStruct((size,), np.float32)
        return len(jax.jit(jax.grad(lambda x: fn(x).sum())).lower(shape).as_text().splitlines())

    assert lines(jo.reduce_prod, 4000) == lines(jo.reduce_prod, 40)
