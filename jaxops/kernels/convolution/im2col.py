"""Convolutions as one matrix product of all windows with the filters (im2col)."""

import functools
import math
from typing import Any

import jax
from jax import lax

from jaxops.kernels.convolution.window_slices import (
    positions,
    shifted,
    stacked,
    to_channels_first,
    to_channels_last,
    zero_padded,
)
from jaxops.kernels.matmul.dot import dot
from jaxops.shapes.nn.windows import Windows


def as_columns(x: jax.Array, w: jax.Array, windows: Windows, group: int, dtype: Any = None) -> jax.Array:
    """Concatenates all windows, then computes one matrix product per group, summed in `dtype`.

    The weights keep their layout.
    """
    n, c, m = *x.shape[:2], w.shape[0]
    x, count = zero_padded(x, windows), math.prod(windows.sizes)
    parts = [lax.reshape(shifted(x, tap, windows), (n, c, 1, count)) for tap in positions(windows)]
    columns = lax.concatenate(parts, 2)
    columns = lax.reshape(columns, (n, group, math.prod(w.shape[1:]), count))
    filters = lax.reshape(w, (group, m // group, math.prod(w.shape[1:])))
    dimensions = (((2,), (2,)), ((0,), (1,)))
    y = dot(filters, columns, dimensions, dtype or x.dtype)  # (group, M/group, N, count)
    return lax.reshape(lax.transpose(y, (2, 0, 1, 3)), (n, m, *windows.sizes))


def columns_as_stored(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes `as_columns` for one group with channels last; the weights keep their layout.

    Without the barriers it is slower than weights that are transposed at each call.
    """
    c, m, rows = x.shape[1], w.shape[0], x.shape[0] * math.prod(windows.sizes)
    data = lax.optimization_barrier(zero_padded(x, windows))
    parts = [lax.reshape(to_channels_last(shifted(data, tap, windows)), (rows, c, 1)) for tap in positions(windows)]
    columns = lax.optimization_barrier(lax.reshape(lax.concatenate(parts, 2), (rows, c * len(parts))))
    y = dot(columns, lax.reshape(w, (m, c * len(parts))), (((1,), (1,)), ((), ())), x.dtype)
    return to_channels_first(lax.reshape(y, (x.shape[0], *windows.sizes, m)))


def columns_last(x: jax.Array, w: jax.Array, windows: Windows, multiply: Any) -> jax.Array:
    """Computes `as_columns` for one group with channels last. multiply: the product of matrices (…, K) and (K, M).

    Windows are concatenated axis by axis, which takes fewer operations than tap by tap: an int8 ResNet-50 starts
    sooner, with less memory. Along the first axis, if its stride is 1, the shifted results of one product are added
    instead. Slices are stacked along a new axis before the channels, which is one loop; concatenating them along the
    channels is a loop for each slice, and a copy.
    """
    summed = windows.kernel[:1] if len(windows.kernel) > 1 and windows.strides[0] == 1 else ()
    taps = math.prod(summed)
    columns = to_channels_last(x)
    for axis in reversed(range(len(summed), len(windows.kernel))):
        step, reach = windows.strides[axis], (windows.sizes[axis] - 1) * windows.strides[axis] + 1
        begins = [k * windows.dilations[axis] for k in range(windows.kernel[axis])]
        parts = [lax.slice_in_dim(columns, begin, begin + reach, step, axis + 1) for begin in begins]
        columns = lax.collapse(stacked(parts, x.ndim - 1), x.ndim - 1)
    # One axis of (k2, …, kn, C), and one of k1 and M. If nothing is added, the first axis has k1, too.
    filters = lax.reshape(to_channels_last(w), (w.shape[0], taps, math.prod(w.shape[1:]) // taps))
    filters = lax.reshape(lax.transpose(filters, (2, 1, 0)), (filters.shape[2], taps * w.shape[0]))
    y = lax.reshape(multiply(columns, filters), (*columns.shape[:-1], taps, w.shape[0]))
    rows = [
        lax.slice_in_dim(lax.index_in_dim(y, k, y.ndim - 2, keepdims=False), begin, begin + windows.sizes[0], axis=1)
        for k, begin in enumerate(range(0, taps * windows.dilations[0], windows.dilations[0]))
    ]
    return to_channels_first(functools.reduce(lax.add, rows))
