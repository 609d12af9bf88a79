"""Convolutions with groups, in the forms for a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxops.kernels.convolution import grouped
from jaxops.shapes.nn import windows

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(5)
FORMS = [grouped.as_sum, grouped.columns_by_group, grouped.by_member]


def values(*sizes):
    return RNG.standard_normal(sizes).astype(np.float32)


def over(x, w, pads=None, strides=None, dilations=None):
    return windows.sliding(x.shape[2:], w.shape[2:], windows.Options("NOTSET", pads, strides, dilations))


def plainly(x, w, windows, group):
    numbers = {"rhs_dilation": windows.dilations, "feature_group_count": group}
    return jax.lax.conv_general_dilated(x, w, windows.strides, windows.pads, **numbers)


def equal(form, x, w, group, **attributes):
    found = over(x, w, **attributes)
    y = jax.jit(lambda x, w: form(x, w, found, group))(x, w)
    assert y.dtype == x.dtype
    np.testing.assert_allclose(y, plainly(x, w, found, group), rtol=1e-4, atol=1e-4)


CASES = [
    ((2, 12, 9, 8), (12, 4, 3, 3), 3, {"pads": (1, 1, 1, 1)}),
    ((2, 12, 9, 8), (24, 4, 3, 2), 3, {"pads": (0, 2, 1, 0), "strides": (2, 1), "dilations": (1, 2)}),
    ((1, 6, 30), (12, 3, 5), 2, {"strides": (3,), "pads": (4, 0)}),
    ((1, 4, 5, 6, 7), (4, 2, 2, 1, 3), 2, {"pads": (1, 0, 0, 0, 0, 1)}),
    ((2, 32, 9, 8), (48, 16, 1, 1), 2, {"strides": (2, 2)}),
    # Large enough for vectors and threads.
    ((1, 128, 28, 28), (128, 4, 3, 3), 32, {"pads": (1, 1, 1, 1)}),
    ((1, 104, 28, 28), (104, 8, 3, 3), 13, {"pads": (1, 1, 1, 1)}),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("x", "w", "group", "attributes"), CASES, ids=str)
def test_values(form, x, w, group, attributes):
    equal(form, values(*x), values(*w), group, **attributes)


@pytest.mark.parametrize("form", FORMS)
def test_numbers_that_are_not_finite_stay_in_their_group(form):
    """A zero in the place of another group's channel would make them NaN."""
    x, w = values(1, 8, 5, 5), values(8, 4, 3, 3)
    x[0, 1, 2, 2], w[5] = np.inf, np.abs(w[5])
    y = jax.jit(lambda x, w: form(x, w, over(x, w), 2))(x, w)
    assert np.isinf(np.asarray(y[0, :4])).all()
    assert np.isfinite(np.asarray(y[0, 4:])).all()


def test_a_sum_that_two_loops_read_is_computed_once():
    x, w = values(2, 16, 20, 20), values(16, 1, 3, 3)

    def read_twice(x, w):
        y = grouped.as_sum(x, w, over(x, w), 16)
        return jnp.sin(y), jnp.cos(jnp.swapaxes(y, 1, 2))

    text = jax.jit(read_twice).lower(x, w).compile().as_text()
    assert text.count(" multiply(") == 9


@pytest.mark.parametrize("form", FORMS)
def test_sums_are_wide(form):
    """A float16 of 2,048 would stay what it is when 1 is added, 35 times."""
    x, w = np.ones((1, 64, 30, 30), np.float16), np.ones((32, 4, 3, 3), np.float16)
    w[:, 0, 0, 0] = 2048
    assert (jax.jit(lambda x, w: form(x, w, over(x, w), 16))(x, w) == 2084).all()  # of 2,083 the nearest


@pytest.mark.parametrize(
    ("x", "w", "group", "attributes"),
    [
        ((2, 4, 7, 6), (8, 2, 3, 2), 2, {"pads": (2, 0, 1, 3), "strides": (2, 3), "dilations": (1, 2)}),
        ((1, 3, 9), (3, 1, 5), 3, {"strides": (3,), "pads": (7, 0)}),  # windows of padding alone, and a rest
    ],
)
def test_transposes_of_grouped_convolutions(x64, x, w, group, attributes):
    """They are written by hand; so are those that their own derivatives need."""
    rng = np.random.default_rng(3)
    x, w = rng.normal(size=x), rng.normal(size=w)
    found = over(x, w, **attributes)

    def loss(form):
        return lambda x, w: jnp.sum(jnp.sin(form(x, w, found, group)))

    def along(form):
        """The gradient, and its own gradient along a direction."""
        gradient = jax.grad(loss(form), (0, 1))
        return jax.jit(lambda: (gradient(x, w), jax.grad(lambda *a: sum(map(jnp.sum, gradient(*a))), (0, 1))(x, w)))()

    pairs = zip(*(jax.tree.leaves(along(f)) for f in (grouped.as_sum, plainly)), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, atol=1e-12)
