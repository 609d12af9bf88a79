"""The gradient of a convolution by filters of few channels."""

import jax
import numpy as np
import pytest

from jaxops.kernels.convolution import filter_gradient
from jaxops.kernels.convolution.filter_gradient import by_stretches
from jaxops.shapes.nn import windows

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(7)


def values(*sizes):
    return RNG.standard_normal(sizes).astype(np.float32)


def over(x, w, pads=None, strides=None, dilations=None):
    return windows.sliding(x[2:], w[2:], windows.Options("NOTSET", pads, strides, dilations))


def plainly(x, y, w, windows, group):
    """What JAX derives from the plain convolution."""

    def convolve(w):
        numbers = {"rhs_dilation": windows.dilations, "feature_group_count": group}
        return jax.lax.conv_general_dilated(x, w, windows.strides, windows.pads, **numbers)

    return jax.linear_transpose(convolve, jax.ShapeDtypeStruct(w, x.dtype))(y)[0]


CASES = [
    ((2, 6, 9, 8), (6, 1, 3, 3), 6, {"pads": (1, 1, 1, 1)}),
    ((2, 12, 9, 8), (24, 4, 3, 2), 3, {"pads": (0, 2, 1, 0), "strides": (2, 1), "dilations": (1, 2)}),
    ((3, 4, 10, 61), (4, 1, 3, 5), 4, {"pads": (1, 1, 1, 1), "strides": (1, 2)}),  # two stretches, and a rest of one
    ((1, 4, 5, 57), (8, 1, 2, 3), 4, {"pads": (0, 1, 0, 1), "dilations": (1, 3)}),
    ((1, 3, 9), (3, 1, 5), 3, {"strides": (3,), "pads": (7, 0)}),  # windows of padding alone, and a rest
    ((2, 2, 200), (4, 1, 40), 2, {}),  # windows longer than a stretch
    ((2, 4, 5, 6, 40), (4, 2, 2, 1, 3), 2, {"pads": (1, 0, 0, 0, 0, 1)}),
    ((2, 96, 56, 56), (96, 1, 7, 7), 96, {"pads": (3, 3, 3, 3)}),  # one image after the other
]


@pytest.mark.parametrize(("x", "w", "group", "attributes"), CASES, ids=str)
def test_values(x, w, group, attributes):
    found = over(x, w, **attributes)
    x, y = values(*x), values(x[0], w[0], *found.sizes)
    gradient = jax.jit(lambda x, y: by_stretches(x, y, found, group))(x, y)
    assert gradient.dtype == x.dtype
    expected = np.asarray(plainly(x, y, w, found, group))
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5 * abs(expected).max() * 10)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_numbers_that_are_not_finite_reach_the_weights_that_read_them(monkeypatch, one_by_one):
    monkeypatch.setattr(filter_gradient, "_LARGE_IMAGE", 0 if one_by_one else 1 << 30)
    found = over((2, 4, 6, 57), (4, 1, 3, 3), pads=(1, 1, 1, 1))
    x, y = values(2, 4, 6, 57), np.ones((2, 4, 6, 57), np.float32)
    x[0, 1, 2, 56], x[1, 2, 0, 0], x[1, 2, 5, 28] = np.inf, np.nan, -np.inf
    gradient = np.asarray(jax.jit(lambda x, y: by_stretches(x, y, found, 4))(x, y))
    assert np.isfinite(gradient[[0, 3]]).all()
    # The last element of a row is never under the first of a window's three: there, `inf` must not become NaN.
    assert np.isfinite(gradient[1, 0, :, 0]).all()
    assert np.isinf(gradient[1, 0, :, 1:]).all()
    # The first element of all is under the upper left of each window alone that lies there.
    assert np.isnan(gradient[2, 0, :2, :2]).all()
    assert np.isinf(gradient[2, 0, 1:, 2]).all()


def test_sums_are_wide():
    """A float16 of 2,048 would stay what it is when 1 is added."""
    found = over((1, 2, 4, 64), (2, 1, 1, 1))
    x, y = np.ones((1, 2, 4, 64), np.float16), np.ones((1, 2, 4, 64), np.float16)
    x[..., 0, 0] = 2048
    assert (jax.jit(lambda x, y: by_stretches(x, y, found, 2))(x, y) == 2304).all()  # of 2,303 the nearest
