"""Convolutions with groups, in the forms for a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxops.ops.nn import grouped_convolution
from jaxops.shapes.nn import windows

RNG = np.random.default_rng(5)


def values(*sizes):
    return RNG.standard_normal(sizes).astype(np.float32)


def over(x, w, pads=None, strides=None, dilations=None):
    return windows.sliding("conv", x.shape[2:], w.shape[2:], windows.Options("NOTSET", pads, strides, dilations))


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
    ((1, 128, 28, 28), (128, 4, 3, 3), 32, {"pads": (1, 1, 1, 1)}),  # large enough for vectors and threads
]


@pytest.mark.parametrize("form", [grouped_convolution.as_sum, grouped_convolution.columns_by_group])
@pytest.mark.parametrize(("x", "w", "group", "attributes"), CASES, ids=str)
def test_values(form, x, w, group, attributes):
    equal(form, values(*x), values(*w), group, **attributes)


@pytest.mark.parametrize("form", [grouped_convolution.as_sum, grouped_convolution.columns_by_group])
def test_numbers_that_are_not_finite_stay_in_their_group(form):
    """A zero in the place of another group's channel would make them NaN."""
    x, w = values(1, 8, 5, 5), values(8, 4, 3, 3)
    x[0, 1, 2, 2], w[5] = np.inf, np.abs(w[5])
    y = form(jnp.asarray(x), jnp.asarray(w), over(x, w), 2)
    assert np.isinf(np.asarray(y[0, :4])).all()
    assert np.isfinite(np.asarray(y[0, 4:])).all()
