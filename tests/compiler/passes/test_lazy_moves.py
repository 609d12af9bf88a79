"""Reshapes that are held back until an operation needs them: the same numbers as without, and fewer transposes."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax
from programs import TARGET, inlined

from jaxops.compiler.passes import lazy_moves
from jaxops.compiler.pipeline import function_of, lowering

RNG = np.random.default_rng(0)


def last(x):
    return lax.transpose(x, (0, *range(2, x.ndim), 1))


def first(x):
    return lax.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def walked(fn, *given):
    """The function as the walk runs it."""
    function = function_of(inlined(fn, *given), lowering(TARGET))
    tree = jax.tree.structure(jax.eval_shape(fn, *given))
    return lambda *values: jax.tree.unflatten(tree, function(values))


def transposes(fn, *given):
    return str(jax.make_jaxpr(fn)(*given)).count(" transpose[")


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ((2, 12, 5), (2, 3, 20), [(2, 0, 0), (3, 1, 1), (4, 1, 2), (5, 2, 2)]),
        ((1, 6, 1, 4), (6, 2, 1, 2), [(6, 1, 0), (2, 3, 1), (2, 3, 3)]),
        ((4, 6), (6, 4), None),
        ((2, 0), (0, 5), None),
        ((3,), (3, 1, 1), [(3, 0, 0)]),
        ((1, 1), (), []),
    ],
)
def test_pieces_that_shapes_share(old, new, wanted):
    assert lazy_moves.shared_factors(old, new) == wanted


def normalized(x, groups, split=False):
    """Groups of channels, as exporters write it, or as the operator does."""
    y = x.reshape(x.shape[0], groups, *((-1, *x.shape[2:]) if split else (-1,)))
    axes = tuple(range(2, y.ndim))
    y = y - y.mean(axes, keepdims=True)
    y = y * lax.rsqrt(jnp.mean(y * y, axes, keepdims=True) + 1e-5)
    return y.reshape(x.shape) * lax.broadcast_in_dim(jnp.arange(1.0, 1 + x.shape[1]), x.shape, (1,))


@pytest.mark.optimized
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("groups", [1, 4, 16])
def test_groups_of_channels_are_normalized_where_they_are(groups, split):
    x = RNG.standard_normal((2, 40, 36, 16), np.float32)

    def fn(x):
        return last(normalized(first(x), groups, split))

    run = walked(fn, x)
    assert transposes(run, x) == 0
    np.testing.assert_allclose(jax.jit(run)(x), jax.jit(fn)(x), rtol=1e-4, atol=1e-4)


BODIES = {
    "transposed": lambda x: x.reshape(*x.shape[:2], -1).swapaxes(1, 2),
    "twice": lambda x: x.reshape(x.shape[0], -1).reshape(x.shape[0], x.shape[1], -1) * 2,
    "no common factors": lambda x: x.reshape(x.shape[0] * 9, -1) + 1,
    "squeezed": lambda x: x[:, :1].squeeze(1) + 1,
    "other partner": lambda x: x.reshape(2, -1) + lax.tanh(x).reshape(2, -1) * jnp.sin(x.size * 1.0),
    "plain partner": lambda x: x.reshape(2, 2, -1) * jnp.arange(x.size / 4).reshape(1, 1, -1),
    "maximum of parts": lambda x: x.reshape(2, 2, 3, *x.shape[2:]).max((2, 3)),
    "parts only": lambda x: x.reshape(2, 2, 3, *x.shape[2:]).sum(2),
    "all": lambda x: x.reshape(-1).sum(),
    "no rule": lambda x: lax.rev(x.reshape(2, 2, -1), (1,)),
    "selected": lambda x: jnp.where(x.reshape(2, -1) > 0, x.reshape(2, -1), 0.5),
    "two results": lambda x: (x.reshape(2, -1) * 2, x + 1),
}


@pytest.mark.parametrize("name", BODIES)
def test_values(name):
    x = RNG.standard_normal((2, 9, 4, 6), np.float32)

    def fn(x):
        return BODIES[name](first(x))

    chex.assert_trees_all_close(walked(fn, x)(x), fn(x), rtol=1e-5, atol=1e-6)


@st.composite
def regrouped(draw):
    """The sizes of an array, and others that share factors with them."""
    factors = draw(st.lists(st.integers(1, 3), min_size=4, max_size=7))

    def merged(axes):
        cuts = sorted(draw(st.sets(st.integers(1, len(factors) - 1), min_size=axes - 1, max_size=axes - 1)))
        return tuple(math.prod(factors[a:b]) for a, b in zip([0, *cuts], [*cuts, len(factors)], strict=True))

    return merged(4), merged(draw(st.integers(2, 4)))


@settings(max_examples=60, deadline=None)
@given(regrouped(), st.data())
def test_any_reshape(shapes, data):
    old, new = shapes
    axes = tuple(data.draw(st.sets(st.integers(0, len(new) - 1))))
    sizes = [1 if data.draw(st.booleans()) else size for size in new]
    x = RNG.standard_normal([old[0], *old[2:], old[1]]).astype(np.float32)
    partner = RNG.standard_normal(sizes).astype(np.float32)

    def fn(x, partner):
        y = jnp.exp(first(x).reshape(new) * partner)
        return y.reshape(old), y.sum(axes), (y - y.max(axes, keepdims=True)).reshape(old)

    for a, b in zip(walked(fn, x, partner)(x, partner), fn(x, partner), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
