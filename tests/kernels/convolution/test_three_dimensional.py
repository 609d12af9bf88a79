"""Convolutions over three and more axes, as sums of convolutions of planes."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax
from programs import TARGET

from jaxops.kernels.convolution.three_dimensional import as_planes
from jaxops.ops import conv
from jaxops.shapes.nn import windows

RNG = np.random.default_rng(0)


def over(x, w, pads, strides, dilations):
    return windows.sliding(x[2:], w[2:], windows.Options("NOTSET", pads, strides, dilations))


def plain(x, w, found):
    return lax.conv_general_dilated(x, w, found.strides, found.pads, rhs_dilation=found.dilations)


@st.composite
def layers(draw):
    """Sizes of data and filters, and windows that may lie in the padding altogether."""
    rank = draw(st.integers(3, 4))

    def sizes(count, least, most):
        return tuple(draw(st.lists(st.integers(least, most), min_size=count, max_size=count)))

    x, w = (*sizes(2, 1, 3), *sizes(rank, 1, 6)), (draw(st.integers(1, 3)), *sizes(rank, 1, 3))
    w = (w[0], x[1], *w[1:])
    found = over(x, w, sizes(2 * rank, 2, 5), sizes(rank, 1, 3), sizes(rank, 1, 2))
    return x, w, found


@settings(max_examples=40, deadline=None)
@given(layers())
def test_sums_of_planes_are_the_convolution(layer):
    sizes, filters, found = layer
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=sizes).astype(np.float32), rng.normal(size=filters).astype(np.float32)
    np.testing.assert_allclose(as_planes(TARGET, x, w, found, 1), plain(x, w, found), atol=1e-4)


@pytest.mark.optimized
@pytest.mark.parametrize("depth", [32, 2])
@pytest.mark.parametrize("strides", [(1, 1, 1), (2, 1, 2)])
def test_gradients_are_those_of_the_convolution(depth, strides):
    x = RNG.normal(size=(2, 8, depth, 20, 24)).astype(np.float32)
    w = RNG.normal(size=(16, 8, 3, 3, 3)).astype(np.float32)
    attributes = {"pads": (1,) * 6, "strides": strides, "dilations": (1, 1, 1)}
    found = over(x.shape, w.shape, **attributes)

    def gradients(f):
        return jax.jit(jax.value_and_grad(lambda x, w: jnp.mean(f(x, w) ** 2), (0, 1)))(x, w)

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-7),
        gradients(lambda x, w: conv(x, w, **attributes)),
        gradients(lambda x, w: plain(x, w, found)),
    )


@pytest.mark.parametrize(
    ("depth", "attributes", "convolutions"),
    [
        (64, {"pads": (1,) * 6}, 1),
        (64, {"pads": (1,) * 6, "strides": (2, 1, 1)}, 3),
        (4, {"pads": (1,) * 6}, 3),
        (1, {"pads": (1,) * 6}, 1),
        (1, {"pads": (4, 1, 1) * 2, "strides": (4, 1, 1), "dilations": (2, 1, 1)}, 2),
        (1, {"pads": (3, 1, 1) * 2, "strides": (2, 1, 1), "dilations": (2, 1, 1)}, 0),
    ],
)
def test_places_that_meet_padding_alone_are_skipped(depth, attributes, convolutions):
    x = RNG.normal(size=(1, 4, depth, 8, 8)).astype(np.float32)
    w = RNG.normal(size=(6, 4, 3, 3, 3)).astype(np.float32)
    found = over(x.shape, w.shape, *(attributes.get(name) for name in ("pads", "strides", "dilations")))
    jaxpr = jax.make_jaxpr(lambda x, w: as_planes(TARGET, x, w, found, 1))(x, w)
    assert [e.primitive.name for e in jaxpr.eqns].count("conv_general_dilated") == convolutions
    np.testing.assert_allclose(as_planes(TARGET, x, w, found, 1), plain(x, w, found), atol=1e-4)


@pytest.mark.optimized
def test_only_a_cpu_sums_planes():
    x, w = np.ones((1, 4, 8, 8, 8), np.float32), np.ones((6, 4, 3, 3, 3), np.float32)
    traced = jax.jit(conv).trace(x, w)
    for platform, order in {"cpu": "b, 0, 1, f", "tpu": "b, f, 0, 1, 2"}.items():
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert {*re.findall(r"dim_numbers = \[(.*?)\]", text)} == {order}
