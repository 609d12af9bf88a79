"""Transposed convolutions, as products whose results overlap."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from jax import lax
from programs import specialized

from jaxops.kernels.convolution.transposed import as_overlaps
from jaxops.ops import conv_transpose
from jaxops.shapes.nn import windows


@st.composite
def layers(draw, most_data=5, most_stride=5):
    """Data, filters, the number of groups, and windows with gaps between them or far beyond each other."""
    rank = draw(st.integers(1, 3))

    def sizes(least, most):
        return tuple(draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank)))

    (n, c, m, group), inner, kernel = draw(st.tuples(*[st.integers(1, 3)] * 4)), sizes(1, most_data), sizes(1, 4)
    strides, dilations = sizes(1, most_stride), sizes(1, 3)
    begins, ends = (
        [draw(st.integers(0, (k - 1) * d // 2)) for k, d in zip(kernel, dilations, strict=True)] for _ in "ab"
    )
    options = windows.Options("NOTSET", (*begins, *ends), strides, dilations)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(n, c * group, *inner)), rng.normal(size=(c * group, m, *kernel))
    extra = tuple(draw(st.integers(0, s - 1)) for s in strides)
    found = windows.transposed(inner, kernel, options, extra)
    attributes = {**options._asdict(), "group": group, "output_padding": extra}
    return x.astype(np.float32), w.astype(np.float32), found, attributes


def spread(x, w, group, found):
    """What each element adds to the result, one by one."""
    c, m = x.shape[1] // group, w.shape[1]
    y = np.zeros((x.shape[0], m * group, *(d + 200 for d in found.sizes)))
    for channel in range(x.shape[1]):
        first = channel // c * m
        for at in np.ndindex(*x.shape[2:], *found.kernel):
            i, k = at[: x.ndim - 2], at[x.ndim - 2 :]
            numbers = zip(i, found.strides, k, found.dilations, found.pads, strict=True)
            place = tuple(100 + a * s + b * d - lo for a, s, b, d, (lo, _) in numbers)
            terms = x[(slice(None), channel, *i)][:, None] * w[(channel, slice(None), *k)]
            y[(slice(None), slice(first, first + m), *place)] += terms
    return y[(..., *(slice(100, 100 + d) for d in found.sizes))]


@settings(max_examples=15, deadline=None)
@given(layers())
def test_overlaps_are_the_transposed_convolution(layer):
    x, w, found, attributes = layer
    assume(0 not in found.sizes)
    group = attributes["group"]
    np.testing.assert_allclose(as_overlaps(x, w, found, group), spread(x, w, group, found), atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(layers(most_stride=1) | layers(most_data=1), st.booleans())
def test_without_strides_and_of_one_element(layer, special):
    """A convolution with reversed filters, in a form of its own, and a product."""
    x, w, found, attributes = layer
    assume(0 not in found.sizes)

    def fn(x, w):
        return conv_transpose(x, w, **attributes)

    y = jax.jit(specialized(fn) if special else fn)(x, w)
    np.testing.assert_allclose(y, spread(x, w, attributes["group"], found), atol=1e-4)


def test_one_element_is_a_product():
    x, w = np.ones((2, 3, 1, 1), np.float32), np.ones((3, 4, 5, 5), np.float32)
    text = str(jax.make_jaxpr(lambda x, w: conv_transpose(x, w, strides=(2, 2), output_padding=(1, 1)))(x, w))
    assert "dot_general" in text
    assert "conv_general_dilated" not in text


@pytest.mark.optimized
def test_a_frame_of_many_places_is_few_operations():
    """As in the inverse of a short-time Fourier transform, where the stride is long as well."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 16, 50)).astype(np.float32), rng.normal(size=(16, 2, 1024)).astype(np.float32)
    run = jax.jit(lambda x, w: conv_transpose(x, w, strides=(256,)))
    assert len(run.lower(x, w).as_text().splitlines()) < 100
    wanted = lax.conv_general_dilated(x, jnp.swapaxes(w[..., ::-1], 0, 1), (1,), [(1023, 1023)], lhs_dilation=(256,))
    np.testing.assert_allclose(run(x, w), wanted, atol=1e-4)


@pytest.mark.optimized
def test_values_and_derivatives_of_many():
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 24, 20, 28)).astype(np.float32), rng.normal(size=(24, 8, 4, 3)).astype(np.float32)

    def gradients(f):
        return jax.jit(jax.value_and_grad(lambda x, w: jnp.mean(f(x, w) ** 2), (0, 1)))(x, w)

    def plain(x, w):
        filters = jnp.swapaxes(w[..., ::-1, ::-1], 0, 1)
        return lax.conv_general_dilated(x, filters, (1, 1), [(2, 2), (1, 1)], lhs_dilation=(2, 2))

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        gradients(lambda x, w: conv_transpose(x, w, strides=(2, 2), pads=(1, 1, 1, 1))),
        gradients(plain),
    )
