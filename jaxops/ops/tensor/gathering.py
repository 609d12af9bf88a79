"""Operators that read elements by index.

An out-of-range static index raises BoundsError. A traced one reads NaN, or the smallest integer (the largest of an
unsigned type, True): see `jaxops.ops.common.indices`.
"""

__all__ = ["gather", "gather_elements", "gather_nd"]

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, integer
from jaxops.dtypes import as_traced
from jaxops.errors import BoundsError, DTypeError, describe
from jaxops.memory import bounded_operands
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.indices import checked_indices, from_start
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes.tensor import indexing as sizes_of
from jaxops.signature import Traits, Weight
from jaxops.static import A, Array, Operand, Sizes, array, beside, is_static, is_symbolic, jit_if_concrete, static_array

TRAITS = Traits(kind="movement", foldable=True)


@moves_strings(0)
@tracks_sizes
def gather(data: Weight[Operand[A]], indices: Operand[A], *, axis: int = 0) -> A:
    """Picks entries of `data` along `axis`.

    data: (d0, …, dn-1), any dtype. indices: any shape, integers in [-d, d-1] of the axis; negative ones count
    from the end. Returns data.shape[:axis] + indices.shape + data.shape[axis+1:].
    Raises BoundsError for an out-of-range static index; a traced one reads NaN, or the smallest integer (the
    largest of an unsigned type), as in `jnp.take`. Raises AxisError, DTypeError for other indices.
    Source: ONNX Gather, opsets 1–13.

    >>> gather(jnp.arange(5.0), np.array([[0, -1]]))
    Array([[0., 4.]], dtype=float32)
    """
    values = array(data)
    positions = array(beside(values, "indices", indices))
    bounded_operands((positions,))
    if not (jnp.issubdtype(positions.dtype, jnp.integer) or is_symbolic(positions)):
        raise DTypeError(f"`indices` must be integers, got {describe(positions)}")
    along = resolve_axis(axis, values.ndim)
    count = values.shape[along]
    if isinstance(count, int) and count == 0 and positions.size:
        raise BoundsError(f"axis {along} of {describe(values)} is empty, but `indices` is not")
    if is_static(positions) and not is_symbolic(positions) and not is_symbolic(count):
        # Narrow types may not hold the size.
        positions = positions if positions.dtype == np.uint64 else positions.astype(np.int64)
        bad = positions[(positions < -count) | (positions >= count)]
        if bad.size:
            raise BoundsError(f"index {bad.flat[0]} is outside axis {along} of size {count} ({describe(values)})")
        if is_static(values):
            bounded_like(values.shape[:along] + positions.shape + values.shape[along + 1 :], values)
            return cast(Any, static_array(np.asarray(np.take(values, positions, axis=along), values.dtype), values))
        return _gather((values, as_traced(np.where(positions < 0, positions + count, positions))), along, True)
    return _gather((as_traced(values), as_traced(positions)), along, False)


@jit_if_concrete
def _gather(operands: tuple[Array, Array], axis: int, inside: bool) -> Array:
    data, indices = operands
    if not inside:
        indices = from_start(indices, data.shape[axis])
    dims = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + indices.ndim, data.ndim - 1 + indices.ndim)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    picked = lax.gather(
        data,
        lax.expand_dims(indices, (indices.ndim,)),
        dims,
        slice_sizes=(*data.shape[:axis], 1, *data.shape[axis + 1 :]),
        mode="promise_in_bounds" if inside else "fill",
    )
    sizes = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    return assert_sizes(picked, sizes, data.dtype)


@moves_strings(0)
def gather_elements(data: Operand[A], indices: Operand[A], *, axis: int = 0) -> A:
    """Picks one element per index, at the index's own coordinates, except along `axis`, where it gives the position.

    data: n axes, any dtype. indices: n axes, integers in [-d, d-1] of the axis; on other axes at most the size of
    data. Returns the shape of indices, the dtype of data.
    Raises BoundsError for an out-of-range static index (a traced one reads as in `gather`), AxisError, ShapeError,
    DTypeError.
    Source: ONNX GatherElements, opsets 11–13.

    >>> gather_elements(np.array([[1, 2], [3, 4]]), np.array([[0, 0], [1, 0]]), axis=1)
    array([[1, 1],
           [4, 3]])
    """
    values = array(data)
    indices = beside(values, "indices", indices)
    along = resolve_axis(axis, values.ndim)
    sizes_of.elements(values.shape, array(indices).shape, along)
    sizes_of.check_inhabited("`data`", values.shape, (along,), array(indices).shape)
    positions, inside = checked_indices(indices, values.shape[along])
    if is_static(values) and inside:
        cropped = _same_length(values, positions.shape, along)
        return cast(Any, static_array(np.take_along_axis(cropped, np.asarray(positions), along), values))
    return _gather_elements((as_traced(values), as_traced(positions)), along, inside)


def _same_length(data: Any, sizes: Sizes, axis: int) -> Any:
    """`data` cropped to `sizes` on all axes except `axis`."""
    for i, size in enumerate(sizes):
        if i != axis and size != data.shape[i]:
            cut = isinstance(data, np.ndarray)
            data = data[(slice(None),) * i + (slice(size),)] if cut else lax.slice_in_dim(data, 0, size, axis=i)
    return data


@jit_if_concrete
def _gather_elements(operands: tuple[Any, Any], axis: int, inside: bool) -> Any:
    data, indices = operands
    if not inside:
        indices = from_start(indices, data.shape[axis])
    batch_axes = tuple(i for i in range(data.ndim) if i != axis)
    dims = lax.GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=batch_axes,
        start_indices_batching_dims=batch_axes,
    )
    return lax.gather(
        _same_length(data, indices.shape, axis),
        lax.expand_dims(indices, (indices.ndim,)),
        dims,
        slice_sizes=(1,) * data.ndim,
        mode="promise_in_bounds" if inside else "fill",
    )


@moves_strings(0)
def gather_nd(data: Operand[A], indices: Operand[A], *, batch_dims: int = 0) -> A:
    """Picks elements or slices of `data` by tuples of indices.

    data: (b…, d1, …), any dtype. indices: (b…, q…, k), integers; each tuple of k indexes the k axes after the
    `batch_dims` axes b…, which data and indices share. Returns (b…, q…) followed by the remaining axes of data.
    Raises BoundsError for an out-of-range static index (a traced one reads as in `gather`), ShapeError, ArgumentError,
    DTypeError.
    Source: ONNX GatherND, opsets 11–13.

    >>> gather_nd(np.array([[0, 1], [2, 3]]), np.array([[0, 0], [1, 1]]))
    array([0, 3])
    """
    values = array(data)
    indices = beside(values, "indices", indices)
    batch = integer("batch_dims", batch_dims)
    count = sizes_of.tuples(values.shape, array(indices).shape, batch)
    named = range(batch, batch + count)
    sizes_of.check_inhabited("`data`", values.shape, named, array(indices).shape[:-1])
    tuples, inside = checked_indices(indices, values.shape[batch : batch + count])
    if is_static(values) and inside:
        bounded_like(tuples.shape[:-1] + values.shape[batch + count :], values)
        rank = tuples.ndim - 1
        grid = [
            np.arange(d).reshape([-1 if i == j else 1 for j in range(rank)]) for i, d in enumerate(values.shape[:batch])
        ]
        # NumPy returns a bare element for a 0-d result; without the dtype it could become an array of another type.
        picked = [np.asarray(tuples)[..., k] for k in range(count)]
        return cast(Any, static_array(np.asarray(values[(*grid, *picked)], values.dtype), values))
    return _gather_nd((as_traced(values), as_traced(tuples)), batch, inside)


@jit_if_concrete
def _gather_nd(operands: tuple[Any, Any], batch: int, inside: bool) -> Any:
    data, indices = operands
    count = indices.shape[-1]
    if not inside:
        indices = from_start(indices, data.shape[batch : batch + count])
    left = data.ndim - batch - count
    named = tuple(range(batch, batch + count))
    dims = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(indices.ndim - 1, indices.ndim - 1 + left)),
        collapsed_slice_dims=named,
        start_index_map=named,
        operand_batching_dims=tuple(range(batch)),
        start_indices_batching_dims=tuple(range(batch)),
    )
    sizes = (*(1,) * (batch + count), *data.shape[batch + count :])
    return lax.gather(data, indices, dims, slice_sizes=sizes, mode="promise_in_bounds" if inside else "fill")
