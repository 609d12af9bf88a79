"""Operators on a `SplitSequence`, whose number of arrays is symbolic."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, at_least_int32
from jaxops.errors import BoundsError, ShapeError, SizeError, amount
from jaxops.lazy_sequences import SplitSequence
from jaxops.ops.common.size_tracking import repeated
from jaxops.shapes import arithmetic
from jaxops.static import Dim, Tracer


def count(pieces: SplitSequence) -> Dim:
    """The number of arrays."""
    return arithmetic.ceiled(pieces.data.shape[pieces.axis], pieces.each)


def rows(pieces: SplitSequence) -> jax.Array:
    """The arrays stacked along a new first axis. Raises SizeError if the last one may be shorter."""
    data, axis = as_traced(pieces.data), pieces.axis
    sizes, number = data.shape, _whole(pieces)
    if not pieces.keepdims:
        return jnp.moveaxis(data, axis, 0)
    return jnp.moveaxis(data.reshape(*sizes[:axis], number, pieces.each, *sizes[axis + 1 :]), axis, 0)


def taken(pieces: SplitSequence, position: Any) -> Any:
    """The array at a position. position: an integer, or traced; a traced one out of range raises no error."""
    if isinstance(position, int):
        start, length = _place(pieces, position)
    else:
        number, position = _whole(pieces), at_least_int32(position)
        index = jnp.where(position < 0, position + as_traced(np.array(number, object), position.dtype), position)
        start, length = index * as_traced(np.array(pieces.each), position.dtype), pieces.each
    data = as_traced(pieces.data)
    if isinstance(start, Tracer | jax.Array):
        piece = lax.dynamic_slice_in_dim(data, start, length, pieces.axis)
    else:
        starts, limits = [0] * data.ndim, list(data.shape)
        starts[pieces.axis], limits[pieces.axis] = start, start + length
        piece = lax.slice(data, starts, limits)
    return repeated(pieces.data, piece if pieces.keepdims else lax.squeeze(piece, (pieces.axis,)))


def mapped(
    pieces: SplitSequence, additional: Sequence[Any], body: Callable[..., Sequence[Any]], rng: Any
) -> tuple[SplitSequence, ...]:
    """The sequences that `body` makes of each array. additional: sequences of the same length, or arrays for all."""
    number = _whole(pieces)
    for k, other in enumerate(additional, 1):
        length = count(other) if isinstance(other, SplitSequence) else len(other) if isinstance(other, list) else number
        problem = f"input {k} has {amount(length, 'item')}, but `input_sequence` has {number}"
        if isinstance(other, list) or not arithmetic.agree(problem, length, number):
            raise SizeError(problem, number) if isinstance(other, list) else ShapeError(problem)

    def one(_: None, xs: Any) -> Any:
        k, item, split_items = xs
        items_of_others = [split_items.get(str(n), other) for n, other in enumerate(additional)]
        key = {} if rng is None else {"rng": jax.random.fold_in(rng, k)}
        return None, [as_traced(value) for value in body(item, *items_of_others, **key)]

    split = {str(n): rows(v) for n, v in enumerate(additional) if isinstance(v, SplitSequence)}
    steps = lax.iota(np.int32, number)
    _, stacked = lax.scan(one, None, (steps, rows(pieces), split))
    return tuple(SplitSequence(data, 1, 0, False) for data in stacked)


def joined(pieces: SplitSequence, axis: int, new_axis: bool) -> Any:
    """The arrays joined along an axis, or along a new one."""
    if not new_axis and axis == pieces.axis and pieces.keepdims:
        return as_traced(pieces.data)
    stacked = jnp.moveaxis(rows(pieces), 0, axis)
    if new_axis:
        return stacked
    sizes = stacked.shape
    return stacked.reshape(*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :])


def _place(pieces: SplitSequence, position: int) -> tuple[Dim, Dim]:
    """The start of an array, and its length."""
    size, each = pieces.data.shape[pieces.axis], pieces.each
    start = each * (position if position >= 0 else count(pieces) + position)
    _require(pieces, position, size - start - 1)
    _require(pieces, position, start)
    try:
        is_full = arithmetic.greater_or_equal(size - start, each)
    except SizeError:
        return start, arithmetic.smaller(size - start, each)
    return start, each if is_full else size - start


def _require(pieces: SplitSequence, position: int, room: Dim) -> None:
    """Raises BoundsError unless `room`, the number of elements that must exist, is at least 0."""
    size, each = pieces.data.shape[pieces.axis], pieces.each
    problem = (
        f"`position` is {position}, but the sequence has {count(pieces)} arrays: an axis of size {size} "
        f"is split into pieces of {each}"
    )
    if not arithmetic.at_least(problem, room, 0):
        raise BoundsError(problem)


def _whole(pieces: SplitSequence) -> Dim:
    """The number of arrays, all of one length."""
    size, each = pieces.data.shape[pieces.axis], pieces.each
    problem = f"all arrays must have one length, but {size} is not always a multiple of {each}"
    return arithmetic.divided(problem, size, each)
