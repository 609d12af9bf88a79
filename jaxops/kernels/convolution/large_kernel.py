"""Depthwise convolutions with large filters: a loop over groups of rows of the filters.

XLA:CPU is many times slower at these, and one sum over all taps would be thousands of operations.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.dtypes import accumulation_type
from jaxops.kernels.convolution.depthwise import channel_sum
from jaxops.kernels.convolution.grouped import MOST_TERMS, as_sum
from jaxops.kernels.convolution.window_slices import to_channels_first, to_channels_last, zero_padded
from jaxops.shapes.nn.windows import Windows

# Returns (N, o1, …, on, M) for padded data (N, d1, …, dn, C) and filters (k1·…·kn, M).
Convolve = Callable[[jax.Array, jax.Array, Windows], jax.Array]


def large_by_channel(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution with one large filter for each channel: a loop over rows of the filters."""
    return _by_rows(x, w, windows, channel_sum)


def large_as_sum(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution with large filters for each channel: a loop of `as_sum` over rows of the filters."""

    def convolve(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
        filters = lax.reshape(lax.transpose(w, (1, 0)), (w.shape[1], 1, *windows.kernel))
        return to_channels_last(as_sum(to_channels_first(x), filters, windows, group))

    return _by_rows(x, w, windows, convolve)


def _by_rows(x: jax.Array, w: jax.Array, windows: Windows, convolve: Convolve) -> jax.Array:
    """Returns (N, M, o1, …, on) for data (N, C, d1, …, dn) and filters (M, 1, k1, …, kn) in C groups.

    The loop runs over the longest axis of a filter. A step has at most `MOST_TERMS` taps, if a row has.
    """
    m, kernel = w.shape[0], windows.kernel
    axis = max(range(len(kernel)), key=kernel.__getitem__)
    size, other_taps, dilation = kernel[axis], math.prod(kernel) // kernel[axis], windows.dilations[axis]
    rows = max(d for d in range(1, size + 1) if size % d == 0 and (d == 1 or d * other_taps <= MOST_TERMS))
    parts, before, after = size // rows, kernel[:axis], kernel[axis + 1 :]
    none = ((0, 0),) * len(kernel)
    part = replace(windows, kernel=(*before, rows, *after), pads=none, ends=(0,) * len(kernel))
    reach = (windows.sizes[axis] - 1) * windows.strides[axis] + (rows - 1) * dilation + 1
    wide = accumulation_type(x.dtype)
    data = to_channels_last(zero_padded(x, windows).astype(wide))
    filters = jnp.moveaxis(lax.reshape(w.astype(wide), (m, *before, parts, rows, *after)), (axis + 1, 0), (0, -1))
    filters = lax.reshape(filters, (parts, rows * other_taps, m))

    def add(total: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        begin, filters = row
        return total + convolve(lax.dynamic_slice_in_dim(data, begin, reach, axis + 1), filters, part), None

    begins = jnp.arange(0, size * dilation, rows * dilation)
    zeros = lax.full((x.shape[0], *windows.sizes, m), 0, wide)
    # A derivative slices the data again, so that it need not store all slices.
    total, _ = lax.scan(jax.checkpoint(add), zeros, (begins, filters))
    return to_channels_first(total).astype(x.dtype)
