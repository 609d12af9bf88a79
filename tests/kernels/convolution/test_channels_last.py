"""A convolution of few channels as a sum, beside XLA's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxops.kernels.convolution.channels_last import convolution_last, dense_last, few_channels, narrow_last
from jaxops.kernels.target import Target
from jaxops.shapes.nn import windows

pytestmark = pytest.mark.optimized

RNG = np.random.default_rng(0)
TARGET = Target("cpu", cores=2, specialized=True)


def over(x, w, **attributes):
    options = windows.Options("NOTSET", *(attributes.get(a) for a in ("pads", "strides", "dilations")))
    return windows.sliding(x.shape[2:], w.shape[2:], options)


def both(x, w, **attributes):
    """The form that is chosen for few channels, and XLA's own."""
    places = over(x, w, **attributes)
    assert few_channels(x.shape, w.shape, places)
    program = str(jax.make_jaxpr(lambda x, w: dense_last(TARGET, x, w, places, 1))(x, w))
    assert "conv_general_dilated" not in program
    assert "channel_sum" in program
    results = [
        jax.jit(lambda x, w, form=form: jnp.maximum(form(x, w), 0))(x, w)
        for form in (lambda x, w: narrow_last(x, w, places), lambda x, w: convolution_last(x, w, places, 1))
    ]
    assert results[0].dtype == results[1].dtype == x.dtype
    return results


CASES = [
    ((2, 1, 37, 40), (32, 1, 3, 3), {"pads": (1, 1, 1, 1)}),
    ((1, 3, 64, 47), (16, 3, 3, 3), {"pads": (0, 1, 2, 1), "strides": (2, 2)}),
    ((1, 2, 33, 64), (5, 2, 5, 3), {"dilations": (2, 1), "strides": (1, 2)}),
    ((1, 4, 20, 20), (64, 4, 3, 3), {}),
    ((3, 1, 160), (48, 1, 10), {"strides": (5,)}),
    ((1, 3, 9, 9), (20, 3, 1, 1), {"pads": (1, 1, 1, 1)}),
]


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize(("data", "filters", "attributes"), CASES)
def test_few_channels(data, filters, attributes, dtype):
    x, w = (RNG.standard_normal(sizes, np.float32).astype(dtype) for sizes in (data, filters))
    y, plain = both(x, w, **attributes)
    tolerance = 1e-4 if dtype == np.float32 else 0.1
    np.testing.assert_allclose(np.float32(y), np.float32(plain), rtol=tolerance, atol=tolerance)


def test_few_channels_with_nan_and_infinity():
    x, w = RNG.standard_normal((1, 3, 40, 48), np.float32), RNG.standard_normal((32, 3, 3, 3), np.float32)
    x[0, 1, 5, 7], x[0, 2, 30, 0], x[0, 0, 20, 33] = np.nan, np.inf, -np.inf
    y, plain = both(x, w, pads=(1, 1, 1, 1))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(plain))
    np.testing.assert_allclose(y, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("data", "filters", "strides"),
    [
        ((1, 8, 40, 40), (32, 8, 3, 3), (1, 1)),
        ((1, 3, 224, 224), (64, 3, 7, 7), (2, 2)),
        ((1, 3, 224, 224), (96, 3, 4, 4), (4, 4)),
    ],
)
def test_others_stay_convolutions(data, filters, strides):
    x, w = jax.ShapeDtypeStruct(data, np.float32), jax.ShapeDtypeStruct(filters, np.float32)
    places = over(x, w, strides=strides)
    assert not few_channels(x.shape, w.shape, places)
    equations = jax.make_jaxpr(lambda x, w: dense_last(TARGET, x, w, places, 1))(x, w).eqns
    assert lax.conv_general_dilated_p in [equation.primitive for equation in equations]
