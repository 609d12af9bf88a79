"""Operators that take an array apart along an axis, or put arrays together."""

from collections.abc import Sequence
from itertools import accumulate

import chex
import numpy as np
from jax import lax

from jaxops.dtypes import unify, widened
from jaxops.errors import ArgumentError, ShapeError, SignatureError
from jaxops.shapes import movement as sizes_of
from jaxops.static import (
    Array,
    Sizes,
    Static,
    axes as resolve_axes,
    axis as resolve_axis,
    integer,
    ints,
    kernel,
    structural,
)


@structural
def split(input: Array, split: Static = None, *, axis: int = 0, num_outputs: int | None = None) -> tuple[Array, ...]:
    """Takes `input` apart along `axis`, into pieces of the lengths `split` or into `num_outputs` like ones.

    input: any dtype. Returns a tuple of arrays.
    split: static, 1-D integers >= 0 that sum to the size of the axis.
    num_outputs: pieces of ceil(size / num_outputs), the last one what is left. Give one of the two.
    Raises ShapeError when the lengths do not fill the axis, AxisError, SignatureError for both or neither.
    Source: ONNX Split, opsets 2–18.

    >>> [piece.shape for piece in split(np.zeros(7), num_outputs=3)]
    [(3,), (3,), (1,)]
    """
    if (split is None) == (num_outputs is None):
        raise SignatureError("split: give the lengths `split` or `num_outputs`, one of the two")
    lengths = None if split is None else ints("split", "split", split)
    if lengths is not None:
        negative = [n for n in lengths if isinstance(n, int) and n < 0]
        if negative:
            raise ArgumentError(f"split: `split` {lengths} holds {negative[0]}; lengths must not be negative")
    parts = None if num_outputs is None else integer("split", "num_outputs", num_outputs)
    return _split(input, "split", integer("split", "axis", axis), lengths, parts)


@structural
def variadic_split(data: Array, axis: Static, split_lengths: Static) -> tuple[Array, ...]:
    """Takes `data` apart along `axis` into pieces of the given lengths.

    data: any dtype. Returns a tuple, as many arrays as there are lengths.
    axis: static, an integer (or one in a 1-D array) in [-n, n-1].
    split_lengths: static, 1-D integers >= -1; one -1 takes what the others leave, which may be nothing. Without
    it they sum to the size of the axis, so no lengths at all are for an axis of size 0 only.
    Raises ShapeError when the lengths do not fill the axis or exceed it (also beside a -1), AxisError.
    Source: OpenVINO VariadicSplit-1.

    >>> [piece.shape for piece in variadic_split(np.zeros((6, 2)), 0, (1, -1, 3))]
    [(1, 2), (2, 2), (3, 2)]
    """
    lengths = ints("variadic_split", "split_lengths", split_lengths)
    return _split(data, "variadic_split", integer("variadic_split", "axis", axis), lengths, None)


@kernel
def _split(data: Array, op: str, axis: int, lengths: Sizes | None, parts: int | None) -> tuple[Array, ...]:
    at = resolve_axis(op, axis, data.ndim)
    if parts is not None:
        lengths = sizes_of.ceil_chunks(data.shape[at], parts)
    elif lengths is not None:
        lengths = sizes_of.pieces(op, data.shape[at], lengths)
    if not lengths:
        return ()
    if isinstance(data, np.ndarray):
        return tuple(np.split(data, list(accumulate(lengths))[:-1], axis=at))
    found = tuple(lax.split(data, lengths, axis=at))
    chex.assert_equal([piece.shape[at] for piece in found], list(lengths))
    return found


@structural
def concat(inputs: Sequence[Array], *, axis: int) -> Array:
    """Joins arrays along an axis they have.

    inputs: at least one array, of one dtype and rank; their sizes may differ on `axis` only.
    axis: static, in [-n, n-1].
    Raises ShapeError when the sizes do not fit, DTypeError when the dtypes differ, AxisError.
    Source: ONNX Concat, opsets 1–13.

    >>> concat([np.zeros((2, 3)), np.zeros((2, 1))], axis=-1).shape
    (2, 4)
    """
    if len(inputs) == 0:
        raise SignatureError("concat: `inputs` is empty; at least one array is needed")
    return _concat(unify("concat", tuple(inputs)), integer("concat", "axis", axis))


@kernel
def _concat(inputs: tuple[Array, ...], axis: int) -> Array:
    at = resolve_axis("concat", axis, inputs[0].ndim)
    sizes = sizes_of.concat([x.shape for x in inputs], at)
    if isinstance(inputs[0], np.ndarray):
        return np.concatenate(inputs, axis=at)
    joined = widened(lambda arrays: lax.concatenate(arrays, at), inputs)
    chex.assert_equal(joined.shape, sizes)
    return joined


@structural
def slice(data: Array, starts: Static, ends: Static, axes: Static = None, steps: Static = None) -> Array:
    """Every `step`-th element from `start` up to, not including, `end`, on each of the axes.

    data: n axes, any dtype. starts, ends: static, 1-D integers of one length; bounds count from the end when
    negative and are clamped to the axis, so INT64_MAX means its end.
    axes: static, distinct, of that length; None means the first axes. steps: likewise, not 0; None means 1.
    Raises ShapeError when the lengths differ, ArgumentError for a step of 0, AxisError.
    Source: ONNX Slice, opsets 1–13.

    >>> slice(np.arange(10), (8,), (0,), (0,), (-3,))
    array([8, 5, 2])
    """
    first, last = ints("slice", "starts", starts), ints("slice", "ends", ends)
    on = tuple(range(len(first))) if axes is None else ints("slice", "axes", axes)
    by = (1,) * len(first) if steps is None else ints("slice", "steps", steps)
    if not len(first) == len(last) == len(on) == len(by):
        raise ShapeError(f"slice: `starts` {first}, `ends` {last}, `axes` {on} and `steps` {by} must have one length")
    return _slice(data, first, last, on, by)


@kernel
def _slice(data: Array, starts: Sizes, ends: Sizes, axes: Sizes, steps: tuple[int, ...]) -> Array:
    low, counts, by = [0] * data.ndim, list(data.shape), [1] * data.ndim
    for at, start, end, step in zip(resolve_axes("slice", axes, data.ndim), starts, ends, steps, strict=True):
        low[at], counts[at] = sizes_of.slice_range(data.shape[at], start, end, step)
        # Beyond one element the step has no part; INT64_MIN, as some models have it, has no place in a program.
        by[at] = step if not isinstance(counts[at], int) or counts[at] > 1 else 1
    if isinstance(data, np.ndarray):
        picked = [lo + np.arange(n) * step for lo, n, step in zip(low, counts, by, strict=True)]
        return data[np.ix_(*picked)] if picked else data
    # A negative step: slice forwards what it picks, then reverse it.
    reverse = [i for i, step in enumerate(by) if step < 0]
    for i in reverse:
        low[i] = low[i] + (counts[i] - 1) * by[i] if counts[i] != 0 else 0
    stops = [lo + (n - 1) * abs(s) + 1 if n != 0 else lo for lo, n, s in zip(low, counts, by, strict=True)]
    if any(abs(s) != 1 for s in by) or tuple(counts) != data.shape:
        data = lax.slice(data, low, stops, [abs(s) for s in by])
    data = lax.rev(data, reverse) if reverse else data
    chex.assert_equal(data.shape, tuple(counts))
    return data
