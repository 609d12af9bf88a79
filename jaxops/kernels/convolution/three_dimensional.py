"""Convolutions over three or more axes, as sums of convolutions over all of these axes but the first.

Over three axes XLA:CPU takes two to five times as long, and for a gradient even longer.
"""

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
from jax import lax

from jaxops.kernels.convolution.channels_last import direct_last
from jaxops.kernels.convolution.window_slices import to_channels_first, to_channels_last
from jaxops.kernels.target import Target
from jaxops.shapes.nn.windows import Windows

# One convolution with the filters of all positions along the first axis is faster than one for each position, unless
# more than this part of its results is unused.
_MOST_UNUSED = 0.1


class _Tap(NamedTuple):
    """A position along the first axis of a window.

    At this position, the windows `first` to `end` meet data: every `stride`-th plane, from `plane` on.
    """

    position: int
    first: int
    end: int
    plane: int


def as_planes(target: Target, x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Returns (N, M, o1, …, on), the convolution of data (N, C, d1, …, dn) with filters (M, C, k1, …, kn) in one group.

    It works with channels last. Winograd's products are not used: a ResNet-18 over three axes would gain little, and
    start much later.
    """
    size, stride, m = windows.sizes[0], windows.strides[0], w.shape[0]
    inner = replace(windows, **{name: values[1:] for name, values in vars(windows).items()})
    data, taps = to_channels_last(x), _taps(x.shape[2], windows)
    if not taps:
        return lax.full_like(x, 0, shape=(x.shape[0], m, *windows.sizes))

    def convolved(data: jax.Array, w: jax.Array) -> jax.Array:
        y = direct_last(target, to_channels_first(lax.collapse(data, 0, 2)), w, inner, group)
        return lax.reshape(to_channels_last(y), (*data.shape[:2], *inner.sizes, w.shape[0]))

    def planes(x: jax.Array, p: _Tap) -> jax.Array:
        return lax.slice_in_dim(x, p.plane, p.plane + (p.end - p.first - 1) * stride + 1, stride, axis=1)

    filters = [lax.index_in_dim(w, p.position, 2, keepdims=False) for p in taps]
    used = sum(p.end - p.first for p in taps) / (len(taps) * x.shape[2])
    if stride == 1 and used >= 1 - _MOST_UNUSED:
        y = convolved(data, lax.concatenate(filters, 0))
        parts = [planes(lax.slice_in_dim(y, k * m, (k + 1) * m, axis=-1), p) for k, p in enumerate(taps)]
    else:
        parts = [convolved(planes(data, p), f) for p, f in zip(taps, filters, strict=True)]
    edges = [(0, 0, 0)] * (x.ndim - 2)
    placed = [
        lax.pad(y, y.dtype.type(0), [(0, 0, 0), (p.first, size - p.end, 0), *edges])
        for y, p in zip(parts, taps, strict=True)
    ]
    return to_channels_first(functools.reduce(lax.add, placed))


def _taps(depth: int, windows: Windows) -> list[_Tap]:
    """Returns the positions that meet data in some windows, for data of `depth` planes."""
    size, stride, dilation, (lo, _) = windows.sizes[0], windows.strides[0], windows.dilations[0], windows.pads[0]
    taps = []
    for k in range(windows.kernel[0]):
        begin = k * dilation - lo  # the plane that the first window meets; negative ones are padding
        first, end = max(0, -(begin // stride)), min(size, (depth - 1 - begin) // stride + 1)
        if first < end:
            taps.append(_Tap(k, first, end, begin + first * stride))
    return taps
