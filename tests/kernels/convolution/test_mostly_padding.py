"""Convolutions of windows that are mostly padding."""

import jax
import numpy as np
import pytest
from graphs import build, info, node, tensor
from hypothesis import given, settings, strategies as st
from jax import lax
from programs import TARGET

import jaxops.onnx
from jaxops.kernels.convolution import mostly_padding
from jaxops.kernels.convolution.channels_last import dense_last
from jaxops.shapes.nn import windows

RNG = np.random.default_rng(0)


def over(sizes, kernel, pads, strides=None, dilations=None):
    return windows.sliding(sizes, kernel, windows.Options("NOTSET", pads, strides, dilations))


def plain(x, w, found):
    return lax.conv_general_dilated(x, w, found.strides, found.pads, rhs_dilation=found.dilations, precision="highest")


@st.composite
def layers(draw):
    """Sizes of data and filters, and windows over them with much padding."""
    rank = draw(st.integers(1, 3))

    def sizes(low, high, count=rank):
        return tuple(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    spatial, kernel, dilations = sizes(1, 6), sizes(1, 4), sizes(1, 5)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [draw(st.integers(0, most + 2)) for most in reach]
    pads += [
        max(0, most - size - lo) + draw(st.integers(0, 3)) for most, size, lo in zip(reach, spatial, pads, strict=True)
    ]
    return spatial, over(spatial, kernel, tuple(pads), sizes(1, 3), dilations)


@settings(max_examples=60, deadline=None)
@given(layers())
def test_values(layer):
    spatial, found = layer
    x, w = (
        RNG.normal(size=(2, 3, *spatial)).astype(np.float32),
        RNG.normal(size=(4, 3, *found.kernel)).astype(np.float32),
    )
    np.testing.assert_allclose(mostly_padding.by_tap(x, w, found), plain(x, w, found), atol=1e-4)
    ones = plain(*(np.ones((1, 1, *size), np.float32) for size in (spatial, found.kernel)), found)
    assert mostly_padding.share(found, spatial) == pytest.approx(
        np.asarray(ones).mean() / np.prod(found.kernel), abs=1e-6
    )


@pytest.mark.parametrize(("dilation", "place"), [(12, True), (24, True), (36, True), (2, False)])
def test_when_most_is_padding(dilation, place):
    found = over((14, 14), (3, 3), (dilation,) * 4, dilations=(dilation,) * 2)
    x, w = np.zeros((1, 960, 14, 14), np.float32), np.zeros((256, 960, 3, 3), np.float32)
    program = str(jax.make_jaxpr(lambda x, w: dense_last(TARGET, x, w, found, 1))(x, w))
    assert ("conv_general_dilated" not in program) == place
    assert program.count("dot_general") == {12: 9, 24: 1, 36: 1, 2: 0}[dilation]
    narrow = jax.make_jaxpr(lambda x, w: dense_last(TARGET, x, w, found, 1))(*map(np.float16, (x, w)))
    assert "conv_general_dilated" in str(narrow)  # parts of a sum would be rounded


def test_filters_of_many_places_stay_one_convolution():
    found = over((10, 10), (19, 19), (9,) * 4)
    assert mostly_padding.share(found, (10, 10)) < 0.3
    x, w = np.zeros((1, 8, 10, 10), np.float32), np.zeros((8, 8, 19, 19), np.float32)
    assert "dot_general" not in str(jax.make_jaxpr(lambda x, w: dense_last(TARGET, x, w, found, 1))(x, w))


@pytest.mark.optimized
def test_a_model():
    x, w = (RNG.normal(size=size).astype(np.float32) for size in [(2, 64, 20, 22), (48, 64, 3, 3)])
    convolution = node("Conv", ["x", "w"], ["y"], pads=[18] * 4, dilations=[18, 18], strides=[1, 2])
    model = jaxops.onnx.load(build(convolution, inputs=[info("x", x.shape)], initializers=[tensor(w, "w")]))
    found = over((20, 22), (3, 3), (18,) * 4, (1, 2), (18, 18))
    np.testing.assert_allclose(model(x), plain(x, w, found), rtol=1e-4, atol=1e-4)
