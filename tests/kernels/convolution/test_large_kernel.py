"""Large filters for each channel, a few rows of places at a time."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from hypothesis import assume, given, settings, strategies as st
from jax import lax

import jaxops.onnx
from jaxops.kernels.convolution.large_kernel import large_as_sum, large_by_channel
from jaxops.ops import conv
from jaxops.shapes.nn import windows

RNG = np.random.default_rng(0)


def plain(x, w, found):
    return lax.conv_general_dilated(
        x, w, found.strides, found.pads, rhs_dilation=found.dilations, feature_group_count=x.shape[1] // w.shape[1]
    )


@st.composite
def layers(draw):
    """Data and filters of random values, and windows over them."""
    rank = draw(st.integers(1, 3))

    def sizes(values):
        return tuple(draw(st.lists(values, min_size=rank, max_size=rank)))

    (n, c, several), kernel = draw(st.tuples(*[st.integers(1, 3)] * 3)), sizes(st.sampled_from([1, 2, 5, 13, 70]))
    assume(math.prod(kernel) <= 1000)  # or a case takes minutes
    dilations, spatial = sizes(st.integers(1, 2)), sizes(st.integers(3, 9))
    pads = tuple((k - 1) * d for k, d in zip(kernel, dilations, strict=True)) * 2
    options = windows.Options("NOTSET", pads, sizes(st.integers(1, 3)), dilations)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(n, c, *spatial)), rng.normal(size=(c * several, 1, *kernel))
    return x.astype(np.float32), w.astype(np.float32), windows.sliding(spatial, kernel, options)


@settings(max_examples=15, deadline=None)
@given(layers())
def test_rows_add_up_to_the_convolution(layer):
    x, w, found = layer
    wanted = plain(x, w, found)
    np.testing.assert_allclose(large_as_sum(x, w, found, x.shape[1]), wanted, atol=1e-3)
    if w.shape[0] == x.shape[1]:
        np.testing.assert_allclose(large_by_channel(x, w, found, x.shape[1]), wanted, atol=1e-3)


@pytest.mark.optimized
def test_a_model_with_a_large_kernel():
    x, w = (RNG.normal(size=size).astype(np.float32) for size in [(1, 64, 40, 40), (64, 1, 31, 31)])
    convolution = node("Conv", ["x", "w"], ["y"], pads=[15] * 4, group=64)
    model = jaxops.onnx.load(build(convolution, inputs=[info("x", x.shape)], initializers=[tensor(w, "w")]))
    wanted = lax.conv_general_dilated(x, w, (1, 1), [(15, 15)] * 2, feature_group_count=64)
    np.testing.assert_allclose(model(x), wanted, atol=3e-4)
    (filters,) = model._weights.cache.prepared.values()
    assert filters.shape == (31, 1, 31, 64)


@pytest.mark.optimized
def test_derivatives():
    x, w = (RNG.normal(size=size).astype(np.float32) for size in [(2, 16, 24, 20), (32, 1, 11, 9)])
    found = windows.sliding((24, 20), (11, 9), windows.Options("NOTSET", (5, 4, 5, 4), (2, 1), (1, 2)))

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


# Data, filters and options: of Fourier and constant-Q transforms, and others with many filters a group or many places.
MANY = {
    "a Fourier transform": ((1, 1, 4000), (258, 1, 256), {"strides": (128,)}),
    "a constant-Q transform": ((2, 1, 1, 4000), (36, 1, 1, 509), {"strides": (1, 3)}),
    "every place": ((1, 1, 2000), (60, 1, 300), {"pads": (150, 149), "dilations": (2,)}),
    "some groups": ((1, 4, 3000), (400, 1, 256), {"strides": (7,), "group": 4}),
    "some groups of a picture": ((2, 3, 30, 34), (96, 1, 12, 11), {"pads": (5, 5, 6, 5), "group": 3}),
    "few places": ((2, 4, 90), (400, 1, 16), {"group": 4, "strides": (3,), "dilations": (2,), "pads": (9, 4)}),
    "few places of a picture": ((2, 4, 20, 21), (80, 1, 7, 5), {"group": 4, "strides": (2, 1), "pads": (3, 2, 3, 2)}),
    "channels": ((2, 30, 20, 20), (90, 10, 2, 3), {"group": 3, "strides": (2, 3)}),
}


@pytest.mark.parametrize(("x", "w", "options"), MANY.values(), ids=MANY)
def test_gradients_of_many_filters_are_short_programs(x, w, options):
    x, w = (RNG.normal(size=size).astype(np.float32) for size in (x, w))
    found = windows.sliding(
        x.shape[2:],
        w.shape[2:],
        windows.Options("NOTSET", *(options.get(name) for name in ("pads", "strides", "dilations"))),
    )
    direction = RNG.normal(size=(len(x), len(w), *found.sizes)).astype(np.float32)

    def gradients(f):
        return jax.jit(jax.grad(lambda x, w: jnp.sum(f(x, w) * direction + f(x, w) ** 2), (0, 1)))

    ours = gradients(lambda x, w: conv(x, w, **options))
    assert len(ours.lower(x, w).as_text().splitlines()) < 1000
    for got, wanted in zip(ours(x, w), gradients(lambda x, w: plain(x, w, found))(x, w), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_gradients_of_gradients_of_many_filters():
    x, w = (RNG.normal(size=size).astype(np.float32) for size in ((2, 4, 30), (120, 1, 6)))
    found = windows.sliding((30,), (6,), windows.Options("NOTSET", (3, 2), (2,), None))

    def gradients(f, argument):
        inner = jax.grad(lambda x, w: jnp.sum(f(x, w) ** 2), argument)
        return jax.jit(jax.grad(lambda x, w: jnp.sum(inner(x, w) ** 2), (0, 1)))(x, w)

    for argument in (0, 1):
        got = gradients(lambda x, w: conv(x, w, pads=(3, 2), strides=(2,), group=4), argument)
        for a, b in zip(got, gradients(lambda x, w: plain(x, w, found), argument), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())
