"""Operators that move elements: blocks to the batch and back, rolls, reversals, beams."""

__all__ = [
    "batch_to_space",
    "gather_tree",
    "reverse",
    "roll",
    "shuffle_channels",
    "slice_scatter",
    "space_to_batch",
]

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as axes_of, axis as axis_of, integer, ints, one_of
from jaxops.dtypes import as_traced, unify, widened
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.arithmetic import divided, must_fit
from jaxops.shapes.tensor.slicing import slice_range
from jaxops.signature import Static, Traits
from jaxops.static import ArrayLike, Sizes, is_static, jit_if_concrete, known

TRAITS = Traits(kind="movement")
ReverseMode = Literal["index", "mask"]


def space_to_batch(data: ArrayLike, block_shape: Static, pads_begin: Static, pads_end: Static) -> jax.Array:
    """Divides the axes into blocks, and moves the position inside a block to the batch axis.

    data: (N, d1, …), at least two axes, any dtype. block_shape, pads_begin, pads_end: static, one integer per axis: the
    size of a block, and the number of zeros before and after the data; for the batch they must be 1 and 0. Returns
    (N · Π blocks, (d1 + pads) / block, …), same dtype.
    Raises ShapeError, ArgumentError, StaticError. Source: OpenVINO SpaceToBatch-2.

    >>> space_to_batch(jnp.arange(4).reshape(1, 4), (1, 2), (0, 0), (0, 0)).tolist()
    [[0, 2], [1, 3]]
    """
    x = as_traced(data)
    block, begin, end = _of_axes(x.shape, block_shape=block_shape, pads_begin=pads_begin, pads_end=pads_end)
    return widened(lambda arrays: _space_to_batch(arrays[0], block, begin, end), (x,))


def batch_to_space(data: ArrayLike, block_shape: Static, crops_begin: Static, crops_end: Static) -> jax.Array:
    """Reverses `space_to_batch`: moves positions inside blocks from the batch to the axes, then crops these.

    data: (N, d1, …), at least two axes, any dtype. block_shape, crops_begin, crops_end: static, one integer per
    axis; for the batch they must be 1 and 0. Returns (N / Π blocks, d1 · block - crops, …), same dtype.
    Raises ShapeError, ArgumentError, StaticError. Source: OpenVINO BatchToSpace-2.

    >>> batch_to_space(jnp.array([[0, 2], [1, 3]]), (1, 2), (0, 1), (0, 0)).tolist()
    [[1, 2, 3]]
    """
    x = as_traced(data)
    block, begin, end = _of_axes(x.shape, block_shape=block_shape, crops_begin=crops_begin, crops_end=crops_end)
    return widened(lambda arrays: _batch_to_space(arrays[0], block, begin, end), (x,))


def _of_axes(sizes: Sizes, **operands: Any) -> list[Sizes]:
    values = [ints(name, v) for name, v in operands.items()]
    if len(sizes) < 2 or any(len(v) != len(sizes) for v in values):
        names = ", ".join(f"`{name}` {shape_text(v)}" for name, v in zip(operands, values, strict=True))
        raise ShapeError(f"{names} must have one number for each axis of data {shape_text(sizes)}, at least two")
    (block, *others), names = values, list(operands)
    if min(block) < 1 or block[0] != 1:
        raise ArgumentError(f"`{names[0]}` {shape_text(block)} must be at least 1, and exactly 1 for the batch")
    for name, v in zip(names[1:], others, strict=True):
        if min(v) < 0 or v[0] != 0:
            raise ArgumentError(f"`{name}` {shape_text(v)} must be at least 0, and exactly 0 for the batch")
    return values


@jit_if_concrete
def _space_to_batch(x: Any, block: Sizes, begin: Sizes, end: Sizes) -> Any:
    rank = x.ndim
    x = lax.pad(x, jnp.zeros((), x.dtype), [(lo, hi, 0) for lo, hi in zip(begin, end, strict=True)])
    problem = f"`block_shape` {shape_text(block)} does not divide the padded sizes {shape_text(x.shape)}"
    parts = [divided(problem, size, b) for size, b in zip(x.shape, block, strict=True)]
    form = [x.shape[0]]
    for part, b in zip(parts[1:], block[1:], strict=True):
        form += [part, b]
    order = [*range(2, 2 * rank - 1, 2), 0, *range(1, 2 * rank - 1, 2)]
    sizes = (x.shape[0] * math.prod(block), *parts[1:])
    return assert_sizes(lax.reshape(lax.transpose(lax.reshape(x, form), order), sizes), sizes, x.dtype)


@jit_if_concrete
def _batch_to_space(x: Any, block: Sizes, begin: Sizes, end: Sizes) -> Any:
    rank = x.ndim
    problem = f"`block_shape` {shape_text(block)} does not divide the batch of {shape_text(x.shape)}"
    batch = divided(problem, x.shape[0], math.prod(block))
    form = (*block[1:], batch, *x.shape[1:])
    order = [rank - 1]
    for i in range(rank - 1):
        order += [rank + i, i]
    whole = (batch, *(size * b for size, b in zip(x.shape[1:], block[1:], strict=True)))
    for axis, (size, lo, hi) in enumerate(zip(whole, begin, end, strict=True)):
        if isinstance(size, int) and lo + hi > size:
            raise ShapeError(f"`crops_begin` {lo} and `crops_end` {hi} exceed the size {size} of axis {axis}")
    y = lax.reshape(lax.transpose(lax.reshape(x, form), order), whole)
    y = lax.slice(y, begin, [size - hi for size, hi in zip(whole, end, strict=True)])
    sizes = tuple(size - lo - hi for size, lo, hi in zip(whole, begin, end, strict=True))
    return assert_sizes(y, sizes, x.dtype)


def shuffle_channels(data: ArrayLike, *, axis: int = 1, group: int = 1) -> jax.Array:
    """Reads an axis as (group, size / group), and swaps the two.

    data: at least one axis, any dtype. Returns an array like data.
    Raises AxisError, ShapeError, ArgumentError. Source: OpenVINO ShuffleChannels-1.

    >>> shuffle_channels(jnp.arange(6), axis=0, group=2).tolist()
    [0, 3, 1, 4, 2, 5]
    """
    x, count = as_traced(data), integer("group", group, least=1)
    index = axis_of(axis, x.ndim)
    part = divided(f"`group` {count} does not divide axis {index} of {shape_text(x.shape)}", x.shape[index], count)
    form = (*x.shape[:index], count, part, *x.shape[index + 1 :])

    def swapped(arrays: Any) -> Any:
        return lax.reshape(jnp.swapaxes(lax.reshape(arrays[0], form), index, index + 1), x.shape)

    return assert_sizes(widened(swapped, (x,)), x.shape, x.dtype)


def roll(data: ArrayLike, shift: Any, axes: Static) -> jax.Array:
    """Moves elements along axes; those that leave at one end enter at the other.

    data: any dtype. shift: an integer for all axes, or one for each. axes: static, in [-n, n-1]; if an axis is named
    twice, its shifts are added. Returns an array like data.
    Raises AxisError, ShapeError, DTypeError, StaticError. Source: OpenVINO Roll-7.

    >>> roll(jnp.arange(4), 1, 0).tolist()
    [3, 0, 1, 2]
    """
    x = as_traced(data)
    indices = [axis_of(a, x.ndim, operand="axes") for a in ints("axes", axes, single=True)]
    shifts = as_traced(shift) if not is_static(shift) else known("shift", shift)
    require("integer", shifts)
    if shifts.ndim > 1 or (shifts.ndim == 1 and shifts.shape[0] not in (1, len(indices))):
        raise ShapeError(
            f"`shift` of {shape_text(shifts.shape)} must be one integer, or one for each of {len(indices)} `axes`"
        )
    ways: dict[int, Any] = {}
    for position, index in enumerate(indices):
        way = shifts.reshape(-1)[position if shifts.size > 1 else 0]
        ways[index] = ways.get(index, 0) + way
    return widened(lambda arrays: _rolled(arrays[0], ways), (x,))


def _rolled(x: Any, ways: dict[int, Any]) -> Any:
    y = x
    for axis, way in ways.items():
        size = x.shape[axis]
        if isinstance(size, int) and is_static(way):
            way = int(way) % size if size else 0
            parts = (lax.slice_in_dim(y, size - way, size, axis=axis), lax.slice_in_dim(y, 0, size - way, axis=axis))
            y = lax.concatenate(parts, axis) if way else y
        else:
            count = jnp.asarray(size, np.int32)
            index = (lax.iota(np.int32, size) - jnp.asarray(way).astype(np.int32) % jnp.maximum(count, 1)) % count
            y = jnp.take(y, index, axis, mode="clip")
    return assert_sizes(y, x.shape, x.dtype)


def reverse(data: ArrayLike, axis: Static, *, mode: ReverseMode) -> jax.Array:
    """Reverses the elements along axes.

    data: any dtype. axis: static; with mode 'index' the axes, in [-n, n-1]; with 'mask' one boolean per axis.
    Returns an array like data.
    Raises AxisError, ShapeError, ArgumentError, StaticError. Source: OpenVINO Reverse-1.

    >>> reverse(jnp.arange(4).reshape(2, 2), (1,), mode="index").tolist()
    [[1, 0], [3, 2]]
    """
    x = as_traced(data)
    if one_of("mode", mode, ReverseMode) == "mask":
        mask = known("axis", axis)
        if mask.shape != (x.ndim,):
            raise ShapeError(f"`axis` of {shape_text(mask.shape)} must have {x.ndim} booleans, one per axis")
        indices = tuple(int(i) for i in np.flatnonzero(mask))
    else:
        indices = axes_of(axis, x.ndim, operand="axis")
    return widened(lambda arrays: lax.rev(arrays[0], indices), (x,))


def slice_scatter(
    data: ArrayLike, updates: ArrayLike, start: Static, stop: Static, step: Static, axes: Static = None
) -> jax.Array:
    """Writes `updates` into a slice of `data`.

    data: at least one axis, any dtype. updates: of the sizes of the slice, same dtype. start, stop, step: static, one
    integer for each of `axes` (None: the first ones), as in `slice`. Returns an array like data.
    Raises ShapeError, AxisError, ArgumentError, DTypeError, StaticError. Source: OpenVINO SliceScatter-15.

    >>> slice_scatter(jnp.zeros(5), jnp.ones(2), (1,), (5,), (2,)).tolist()
    [0.0, 1.0, 0.0, 1.0, 0.0]
    """
    x, values = (as_traced(v) for v in unify((data, updates), ("data ", "updates ")))
    bounds = [ints(name, v) for name, v in (("start", start), ("stop", stop), ("step", step))]
    indices = tuple(range(len(bounds[0]))) if axes is None else axes_of(axes, x.ndim)
    if {len(b) for b in bounds} != {len(indices)} or len(indices) > x.ndim:
        raise ShapeError(f"`start`, `stop`, `step` and `axes` must have one length, at most the {x.ndim} axes")
    ranges: list[Any] = [(0, size, 1) for size in x.shape]
    for index, first, last, by in zip(indices, *bounds, strict=True):
        ranges[index] = (*slice_range(x.shape[index], first, last, by), by)
    sizes = tuple(count for _, count, _ in ranges)
    must_fit("updates", values.shape, sizes, reason=", the sizes of the slice")

    def written(arrays: Any) -> Any:
        places = []
        for axis, (first, count, by) in enumerate(ranges):
            place = lax.iota(np.int32, count) * by + jnp.asarray(first, np.int32)
            places.append(place.reshape([-1 if a == axis else 1 for a in range(x.ndim)]))
        return arrays[0].at[tuple(places)].set(arrays[1], unique_indices=True)

    return assert_sizes(widened(written, (x, values)), x.shape, x.dtype)


def gather_tree(step_ids: ArrayLike, parent_idx: ArrayLike, max_seq_len: ArrayLike, end_token: ArrayLike) -> jax.Array:
    """Follows each beam of a search back from its end, and returns the tokens of each.

    step_ids: (T, N, B), the token of each step, sample and beam; parent_idx: (T, N, B), the beam that each continues.
    max_seq_len: (N,), the number of steps. end_token: one token, which fills each beam after its first end_token and
    after its number of steps. Whole numbers of one dtype. Returns (T, N, B), same dtype.
    Raises ShapeError, DTypeError. Source: OpenVINO GatherTree-1.

    >>> step = jnp.array([[[1, 2]], [[3, 4]]])
    >>> gather_tree(step, jnp.array([[[0, 0]], [[1, 0]]]), jnp.array([2]), jnp.array(9)).tolist()
    [[[2, 1]], [[3, 4]]]
    """
    names = ("step_ids ", "parent_idx ", "max_seq_len ", "end_token ")
    operands = tuple(as_traced(v) for v in unify((step_ids, parent_idx, max_seq_len, end_token), names))
    require("real numbers", *operands)
    steps, parents, lengths, end = operands
    must_fit("step_ids", steps.shape, ("T", "N", "B"))
    must_fit("parent_idx", parents.shape, steps.shape)
    must_fit("max_seq_len", lengths.shape, (steps.shape[1],))
    must_fit("end_token", end.shape, (), (1,))
    return _gather_tree(operands)


@jit_if_concrete
def _gather_tree(operands: tuple[Any, ...]) -> Any:
    steps, parents, lengths, end = operands
    time, count, beams = steps.shape
    end = end.reshape(())
    own = jnp.broadcast_to(lax.iota(np.int32, beams)[None], (count, beams))
    exists = lax.iota(np.int32, time)[:, None] < lengths.astype(np.int32)[None]

    def back(beam: Any, at: Any) -> tuple[Any, Any]:
        tokens, sources, exists = at
        token, source = (jnp.take_along_axis(v, beam, 1, mode="clip") for v in (tokens, sources))
        exists = exists[:, None]
        return jnp.where(exists, source.astype(np.int32), beam), jnp.where(exists, token, end)

    tokens = lax.scan(back, own, (steps, parents, exists), reverse=True)[1]
    is_end = (tokens == end).astype(np.int32)
    ended = jnp.cumsum(is_end, 0) > is_end
    return assert_sizes(jnp.where(ended, end, tokens), steps.shape, steps.dtype)
