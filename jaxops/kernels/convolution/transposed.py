"""Transposed convolutions on a CPU: one matrix product, whose overlapping results are added.

Another form adds results that are dilated by the stride. It takes longer, to start as well: U-Net, HiFi-GAN, DCGAN.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution.window_slices import channels_first, to_channels_first, to_channels_last
from jaxops.kernels.matmul.dot import dot
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.shapes.nn.windows import Windows, span


def as_overlaps(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Returns (N, M, o1, …, on) for data (N, C, d1, …, dn) and filters (C, M/group, k1, …, kn); works channels last.

    Element i of an axis contributes to result i·stride + k·dilation for each tap k. So the results are cut into
    stretches of `stride` taps; the results of one stretch do not overlap, and the next stretch is shifted by `stride`.
    """
    n, c, *inner = x.shape
    m, taps = w.shape[1], math.prod(windows.kernel)
    filters = jnp.moveaxis(lax.reshape(w, (group, c // group, m, taps)), 2, 3)
    if group == 1:
        filters = lax.reshape(filters, (c, taps * m))
        y = dot(to_channels_last(x), filters, (((x.ndim - 1,), (0,)), ((), ())), x.dtype)
    else:
        rows = lax.reshape(to_channels_last(x), (n * math.prod(inner), group, c // group))
        filters = lax.reshape(filters, (group, c // group, taps * m))
        y = dot(rows, filters, (((2,), (1,)), ((1,), (0,))), x.dtype)  # (group, rows, taps·M/group)
        y = jnp.moveaxis(lax.reshape(y, (group, rows.shape[0], taps, m)), 0, 2)
    y = lax.reshape(y, (n, *inner, *windows.kernel, group * m))
    for axis in range(len(inner)):
        y = _overlapped(y, windows, axis)
    return to_channels_first(y)


def _overlapped(y: jax.Array, windows: Windows, axis: int) -> jax.Array:
    """Adds overlapping results along one axis: (…, d, …, k, …) → (…, o, …), for d data and k taps."""
    step, dilation, begin = windows.strides[axis], windows.dilations[axis], windows.pads[axis][0]
    data_axis, tap_axis = axis + 1, len(windows.kernel) + 1  # the tap axes of earlier axes are removed already
    zero, none = y.dtype.type(0), (0, 0, 0)
    span = (windows.kernel[axis] - 1) * dilation + 1
    stretches = -(-span // step)
    y = lax.pad(y, zero, [(0, stretches * step - span, dilation - 1) if a == tap_axis else none for a in range(y.ndim)])
    y = jnp.moveaxis(y, tap_axis, data_axis + 1)
    parts = [
        lax.pad(
            lax.slice_in_dim(y, k * step, (k + 1) * step, axis=data_axis + 1),
            zero,
            [(k, stretches - 1 - k, 0) if a == data_axis else none for a in range(y.ndim)],
        )
        for k in range(stretches)
    ]
    y = lax.collapse(functools.reduce(lax.add, parts), data_axis, data_axis + 2)
    end = begin + windows.sizes[axis] - y.shape[data_axis]
    return lax.pad(y, zero, [(-begin, end, 0) if a == data_axis else none for a in range(y.ndim)])


def reversed_filters(w: jax.Array, group: int) -> jax.Array:
    """Returns filters (C, M/group, k1, …, kn) as (M, C/group, k1, …, kn), reversed along the spatial axes."""
    rank, (c, m), kernel = w.ndim, w.shape[:2], w.shape[2:]
    w = lax.reshape(w, (group, c // group, m, *kernel))
    w = lax.transpose(w, (0, 2, 1, *range(3, rank + 1)))
    return lax.rev(lax.reshape(w, (group * m, c // group, *kernel)), range(2, rank))


def reversed_pads(windows: Windows) -> tuple[tuple[Any, Any], ...]:
    """Returns the pads of the convolution with reversed filters."""
    widths = [span(k, d) for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    return tuple((v - 1 - lo, v - 1 - hi) for v, (lo, hi) in zip(widths, windows.pads, strict=True))


def dilated(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Returns the convolution of `x`, dilated by the stride, with reversed filters."""
    rank = x.ndim
    return lax.conv_general_dilated(
        x,
        w,
        (1,) * (rank - 2),
        reversed_pads(windows),
        lhs_dilation=windows.strides,
        rhs_dilation=windows.dilations,
        dimension_numbers=channels_first(rank),
        feature_group_count=group,
    )


def _plain(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    return dilated(x, reversed_filters(w, group), windows, group)


def _select(target: Target, x: Any, w: Any, windows: Windows, group: int) -> Any:
    return as_overlaps if target.platform == "cpu" else None


# The plain form also multiplies the stride - 1 zeros between two elements of `x`, and on a CPU its gradient is many
# times slower than its value.
strided = NamedCall("transposed_convolution", _plain, _select)
