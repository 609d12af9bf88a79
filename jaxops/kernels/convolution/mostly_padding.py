"""Convolutions whose windows are mostly padding: for each tap, a product of the data that it meets.

DeepLab has such convolutions, dilated by 12, 24 and 36. The fewer windows are data, the more is gained; at two thirds
nothing is.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution.window_slices import positions, to_channels_first, to_channels_last
from jaxops.kernels.matmul.dot import dot
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes


class _Seen(NamedTuple):
    """The data that one tap meets along an axis, in all windows.

    window: the first window whose tap meets data. entry: the element that it meets. windows: the number of such
    windows.
    """

    window: int
    entry: int
    windows: int


def _seen(windows: Windows, sizes: Sizes) -> list[list[_Seen]]:
    """Returns the data that taps meet: a list for each axis, with an entry for each tap along it."""
    by_axis = []
    for axis, size in enumerate(sizes):
        step, taps = windows.strides[axis], []
        for tap in range(windows.kernel[axis]):
            before = windows.pads[axis][0] - tap * windows.dilations[axis]
            first, end = max(0, -(-before // step)), min(windows.sizes[axis], (size - 1 + before) // step + 1)
            taps.append(_Seen(first, first * step - before, max(0, end - first)))
        by_axis.append(taps)
    return by_axis


def share(windows: Windows, sizes: Sizes) -> float:
    """Returns the fraction of window elements that are data, not padding, for data of these sizes."""
    each = zip(_seen(windows, sizes), windows.kernel, windows.sizes, strict=True)
    return math.prod(sum(tap.windows for tap in taps) / (count * size) for taps, count, size in each)


def by_tap(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    """Returns (N, M, o1, …, on) for data (N, C, d1, …, dn) and filters (M, C, k1, …, kn).

    Taps that meet no data are skipped.
    """
    data, seen, zero, last = to_channels_last(x), _seen(windows, x.shape[2:]), x.dtype.type(0), x.ndim - 1
    strides, parts = (1, *windows.strides, 1), []
    for tap in positions(windows):
        spans = [taps[k] for taps, k in zip(seen, tap, strict=True)]
        if any(span.windows == 0 for span in spans):
            continue
        starts = [0, *(span.entry for span in spans), 0]
        reach = [(span.windows - 1) * step + 1 for span, step in zip(spans, windows.strides, strict=True)]
        ends = [x.shape[0], *(span.entry + n for span, n in zip(spans, reach, strict=True)), x.shape[1]]
        y = dot(lax.slice(data, starts, ends, strides), w[(..., *tap)], (((last,), (1,)), ((), ())), x.dtype)
        around = [(s.window, size - s.window - s.windows, 0) for s, size in zip(spans, windows.sizes, strict=True)]
        parts.append(lax.pad(y, zero, [(0, 0, 0), *around, (0, 0, 0)]))
    nothing = jnp.zeros((x.shape[0], *windows.sizes, w.shape[0]), x.dtype)
    return to_channels_first(functools.reduce(lax.add, parts) if parts else nothing)
