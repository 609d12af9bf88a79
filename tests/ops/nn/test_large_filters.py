"""Large filters for each channel, a few rows of places at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from hypothesis import given, settings, strategies as st
from jax import lax
from programs import prepared

import jaxops.onnx
from jaxops.ops import conv
from jaxops.ops.nn.convolution_forms import large_as_sum, large_by_channel
from jaxops.shapes.nn import windows

RNG = np.random.default_rng(0)


def plain(x, w, found):
    return lax.conv_general_dilated(
        x, w, found.strides, found.pads, rhs_dilation=found.dilations, feature_group_count=x.shape[1]
    )


@st.composite
def layers(draw):
    """Data and filters of random values, and windows over them."""
    rank = draw(st.integers(1, 3))

    def sizes(values):
        return tuple(draw(st.lists(values, min_size=rank, max_size=rank)))

    (n, c, several), kernel = draw(st.tuples(*[st.integers(1, 3)] * 3)), sizes(st.sampled_from([1, 2, 5, 13, 70]))
    dilations, spatial = sizes(st.integers(1, 2)), sizes(st.integers(3, 9))
    pads = tuple((k - 1) * d for k, d in zip(kernel, dilations, strict=True)) * 2
    options = windows.Options("NOTSET", pads, sizes(st.integers(1, 3)), dilations)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(n, c, *spatial)), rng.normal(size=(c * several, 1, *kernel))
    return x.astype(np.float32), w.astype(np.float32), windows.sliding("conv", spatial, kernel, options)


@settings(max_examples=15, deadline=None)
@given(layers())
def test_rows_add_up_to_the_convolution(layer):
    x, w, found = layer
    wanted = plain(x, w, found)
    np.testing.assert_allclose(large_as_sum(x, w, found, x.shape[1]), wanted, atol=1e-3)
    if w.shape[0] == x.shape[1]:
        with prepared():
            np.testing.assert_allclose(large_by_channel(x, w, found, x.shape[1]), wanted, atol=1e-3)


@pytest.mark.optimized
def test_a_model_with_a_large_kernel():
    x, w = (RNG.normal(size=size).astype(np.float32) for size in [(1, 64, 40, 40), (64, 1, 31, 31)])
    convolution = node("Conv", ["x", "w"], ["y"], pads=[15] * 4, group=64)
    model = jaxops.onnx.load(build(convolution, inputs=[info("x", x.shape)], initializers=[tensor(w, "w")]))
    wanted = lax.conv_general_dilated(x, w, (1, 1), [(15, 15)] * 2, feature_group_count=64)
    np.testing.assert_allclose(model(x), wanted, atol=3e-4)
    (filters,) = model._pieces.prepared.values
    assert filters.shape == (31, 1, 31, 64)


@pytest.mark.optimized
def test_derivatives():
    x, w = (RNG.normal(size=size).astype(np.float32) for size in [(2, 16, 24, 20), (32, 1, 11, 9)])
    found = windows.sliding("conv", (24, 20), (11, 9), windows.Options("NOTSET", (5, 4, 5, 4), (2, 1), (1, 2)))

    def gradients(f):
        return jax.jit(jax.value_and_grad(lambda x, w: jnp.mean(f(x, w) ** 2), (0, 1)))(x, w)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        gradients(lambda x, w: conv(x, w, pads=(5, 4, 5, 4), strides=(2, 1), dilations=(1, 2), group=16)),
        gradients(lambda x, w: plain(x, w, found)),
    )


def test_sums_are_wide():
    """A float16 would stop at 2,048, to which it adds no 1."""
    x, w = np.ones((1, 1, 70, 70), np.float16), np.ones((1, 1, 70, 70), np.float16)
    assert conv(x, w) == 4900
