"""Reductions in the form that is fastest on a CPU.

XLA:CPU finds the maximum of a row one element after the other, and that of several slices of a row many at once.
Milliseconds of a maximum on two cores, as it is → here: 8×1500 rows of 1500 21 → 9; all of 64×3072 0.6 → 0.2.

A sum of columns is faster as a product with ones. Microseconds of a sum over the places of an image, channels last:
56×56×144 200 → 32, 14×14×480 59 → 22, 7×7×2048 110 → 15, eight of these 890 → 90; MobileNetV3 takes 0.87 of the time.
The product sums in blocks, so its error stays below 1e-6 of the sum of magnitudes for a million rows, too.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.graph.program import Operation

# Those of rows: of two arrays, and of one.
_PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reduce_max": (lax.max, lax.reduce_max),
    "reduce_min": (lax.min, lax.reduce_min),
}
# All that have a form here.
NAMES = {*_PAIRS, "reduce_sum"}
# A row of fewer elements is not worth it. Each step leaves an eighth of the others. A longer rest XLA would cut into
# windows again: int8 BERT-base 73 → 70 ms, against a rest of up to 2,048.
_SHORTEST, _SLICES, _LONGEST = 64, 8, 256
# Sums of fewer numbers, or of fewer in all, take no longer than it takes to begin a product.
_FEWEST_ROWS, _FEWEST = 32, 1 << 15
# The most numbers to multiply by that stand in a program: 256 KiB.
_MOST_ONES = 1 << 16


def bind(operation: Operation, x: Any, axes: tuple[int, ...]) -> Any:
    """The result of a reduction of one array over these axes, in ascending order."""
    found = None
    if jax.default_backend() == "cpu":
        pair = _PAIRS.get(operation.name)
        if pair is not None:
            found = by_slices(*pair, x, axes)
        elif operation.name == "reduce_sum":
            found = sum_of_columns(x, axes)
    return operation.bind([x], {**operation.equation.params, "axes": axes})[0] if found is None else found


def by_slices(pair: Callable[..., Any], reduce: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """The maximum or minimum along the last axes; NaN where there is one. None where it would be no faster."""
    kept = x.ndim - len(axes)
    size = math.prod(x.shape[kept:])
    if axes != tuple(range(kept, x.ndim)) or size < _SHORTEST:
        return None
    x = lax.reshape(x, (*x.shape[:kept], size))
    while True:
        count = x.shape[-1]
        size = -(-count // _SLICES)
        # The last slices may overlap: an element may count twice.
        starts = [min(k * size, count - size) for k in range(_SLICES)]
        x = functools.reduce(pair, (lax.slice_in_dim(x, at, at + size, axis=x.ndim - 1) for at in starts))
        if size <= _LONGEST:
            return reduce(x, (x.ndim - 1,))


def sum_of_columns(x: Any, axes: tuple[int, ...]) -> Any:
    """The sum over all axes between the first ones and the last one; None where it would be no faster.

    By two rows, as XLA multiplies one row in a form of its own.
    """
    if not axes or axes != tuple(range(axes[0], x.ndim - 1)) or x.dtype != np.float32:
        return None
    kept, channels = x.shape[: axes[0]], x.shape[-1]
    count, rows = math.prod(kept), math.prod(x.shape[axes[0] : -1])
    if rows < _FEWEST_ROWS or rows * channels < _FEWEST or 2 * count * rows > _MOST_ONES:
        return None
    # The second row is not read. If it held ones, too, XLA would fill the whole at each call.
    ones = np.repeat(np.array([1, 0], np.float32)[:, None], rows, 1)
    dimensions, sizes = (((1,), (0,)), ((), ())), (rows, channels)
    if count != 1:  # of one matrix XLA would keep the axis
        ones = np.repeat(ones[None], count, 0)
        dimensions, sizes = (((2,), (1,)), ((0,), (0,))), (count, rows, channels)
    y = lax.dot_general(ones, lax.reshape(x, sizes), dimensions, precision=lax.Precision.HIGHEST)
    return lax.reshape(lax.index_in_dim(y, 0, y.ndim - 2, keepdims=False), (*kept, channels))
