"""Pointwise convolutions in a user's program."""

import chex
import jax
import numpy as np
import pytest

from jaxops.kernels.convolution.pointwise import as_product
from jaxops.shapes.nn import windows

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(11)


def values(*sizes):
    return RNG.standard_normal(sizes).astype(np.float32)


def plainly(x, w, windows, group):
    return jax.lax.conv_general_dilated(x, w, windows.strides, windows.pads)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize(("channels", "filters", "by_image"), [(8, 12, True), (160, 96, False)])
def test_values_and_gradients(channels, filters, by_image, strides):
    """Few weights are multiplied with each image by itself."""
    x, w = values(3, channels, 9, 10), values(filters, channels, 1, 1)
    over = windows.sliding((9, 10), (1, 1), windows.Options("NOTSET", None, strides, None))

    def of(form):
        return jax.vjp(lambda x, w: form(x, w, over, 1), x, w)

    y, gradients = of(as_product)
    expected, plain_gradients = of(plainly)
    tangent = values(*y.shape)
    chex.assert_trees_all_close(y, expected, rtol=1e-4, atol=1e-4)
    chex.assert_trees_all_close(gradients(tangent), plain_gradients(tangent), rtol=1e-4, atol=1e-3)
    jaxpr = jax.make_jaxpr(lambda x, w: as_product(x, w, over, 1))(x, w)
    (product,) = (e for e in jaxpr.eqns if e.primitive.name == "dot_general")
    _, (batch, _) = product.params["dimension_numbers"]
    assert len(batch) == by_image


def test_numbers_that_are_not_finite_stay_in_their_image():
    x, w = values(2, 4, 8, 8), values(4, 4, 1, 1)
    x[0, 1, 3, 3] = np.inf
    over = windows.sliding((8, 8), (1, 1), windows.Options("NOTSET", None, None, None))
    y = np.array(jax.jit(lambda x, w: as_product(x, w, over, 1))(x, w))
    assert np.isinf(y[0, :, 3, 3]).all()
    y[0, :, 3, 3] = 0
    assert np.isfinite(y).all()
