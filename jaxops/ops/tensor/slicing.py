"""Slices along axes."""

__all__ = ["slice"]

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, ints
from jaxops.dtypes import canonical, traced_for_sizes
from jaxops.errors import ShapeError
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.ops.tensor.gathering import gather
from jaxops.shapes.tensor import slicing as sizes_of
from jaxops.signature import StaticInts, Traits
from jaxops.static import A, Array, Dim, Operand, Sizes, jit_if_concrete

TRAITS = Traits(kind="movement", foldable=True)


@moves_strings(0)
@tracks_sizes
def slice(
    data: Operand[A], starts: StaticInts, ends: StaticInts, axes: StaticInts = None, steps: StaticInts = None
) -> A:
    """Every `step`-th element from `start` up to, not including, `end`, on each of the axes.

    data: n axes, any dtype. starts, ends: static, 1-D integers of one length; bounds count from the end when
    negative and are clamped to the axis, so INT64_MAX means its end; symbolic sizes are clamped too: min(b, 4).
    axes: static, distinct, of that length; None means the first axes. steps: of that length too, not 0; None means 1.
    Static data become traced if a bound is symbolic.
    Raises ShapeError when the lengths differ or the sign of a symbolic bound is unknown; ArgumentError for a step of 0,
    AxisError.
    Source: ONNX Slice, opsets 1–13.

    >>> slice(np.arange(10), (8,), (0,), (0,), (-3,))
    array([8, 5, 2])
    """
    first, last = ints("starts", starts), ints("ends", ends)
    on = tuple(range(len(first))) if axes is None else ints("axes", axes)
    by = (1,) * len(first) if steps is None else ints("steps", steps)
    if not len(first) == len(last) == len(on) == len(by):
        raise ShapeError(f"`starts` {first}, `ends` {last}, `axes` {on} and `steps` {by} must have one length")
    return _slice(data, first, last, on, by)


@jit_if_concrete
def _slice(data: Array, starts: Sizes, ends: Sizes, axes: Sizes, steps: tuple[int, ...]) -> Array:
    low, counts, by, dtype = [0] * data.ndim, list(data.shape), [1] * data.ndim, data.dtype
    for axis, start, end, step in zip(resolve_axes(axes, data.ndim), starts, ends, steps, strict=True):
        low[axis], counts[axis] = sizes_of.slice_range(data.shape[axis], start, end, step)
        # The step matters only with several elements; some models write INT64_MIN, which XLA does not accept.
        by[axis] = step if not isinstance(counts[axis], int) or counts[axis] > 1 else 1
    data = traced_for_sizes(data, (*low, *counts))
    if isinstance(data, np.ndarray):
        picked = [lo + np.arange(n) * step for lo, n, step in zip(low, counts, by, strict=True)]
        return data[np.ix_(*picked)] if picked else data
    if any(not isinstance(n, int) and abs(s) != 1 for n, s in zip(counts, by, strict=True)):
        return _picked(data, low, counts, by)
    # A negative step: slice forwards, then reverse.
    reverse = [i for i, step in enumerate(by) if step < 0]
    for i in reverse:
        low[i] = low[i] + (counts[i] - 1) * by[i] if counts[i] != 0 else 0
    stops = [lo + (n - 1) * abs(s) + 1 if n != 0 else lo for lo, n, s in zip(low, counts, by, strict=True)]
    if any(abs(s) != 1 for s in by) or tuple(counts) != data.shape:
        data = lax.slice(data, low, stops, [abs(s) for s in by])
    data = lax.rev(data, reverse) if reverse else data
    return assert_sizes(data, tuple(counts), dtype)


def _picked(data: Any, low: list[Dim], counts: list[Dim], by: list[int]) -> Any:
    """The slice as a gather, since `lax.slice` cannot prove that a stride stays inside a symbolic size."""
    for axis, (start, count, step) in enumerate(zip(low, counts, by, strict=True)):
        if step != 1 or count is not data.shape[axis]:
            kind = canonical(np.int64)
            data = gather(data, lax.iota(kind, count) * step + jnp.asarray(start, kind), axis=axis)
    return data
