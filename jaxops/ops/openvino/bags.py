"""Sums, means and maxima over groups of rows, and rows of sparse matrices."""

__all__ = [
    "embedding_bag_offsets",
    "embedding_bag_offsets_sum",
    "embedding_bag_packed",
    "embedding_bag_packed_sum",
    "embedding_segments_sum",
    "segment_max",
    "sparse_fill_empty_rows",
]

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, ints, one_of
from jaxops.dtypes import accumulation_type, as_traced, integral, is_float, unify
from jaxops.errors import ArgumentError, ShapeError, describe, shape_text
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts, rows_that_begin, unbounded
from jaxops.ops.openvino.suppression import resized
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import DataSize, SizesResult, Static, Traits, Weight, operator
from jaxops.static import ArrayLike, Tracer, jit_if_concrete

TRAITS = Traits(kind="embedding")
Reduction = Literal["sum", "mean"]
FillMode = Literal["ZERO", "LOWEST"]


def embedding_bag_offsets(
    emb_table: Weight[ArrayLike],
    indices: ArrayLike,
    offsets: ArrayLike,
    default_index: Any = None,
    per_sample_weights: ArrayLike | None = None,
    *,
    reduction: Reduction = "sum",
) -> jax.Array:
    """Returns the sum or the mean of the rows of a table in each bag of indices.

    emb_table: (E, …), numbers. indices: (I,), integers: rows of the table. offsets: (B,), integers, ascending: where
    each bag begins in indices. default_index: one integer, the row for an empty bag; None and -1 stand for zeros.
    per_sample_weights: (I,), of the dtype of the table, factors of the rows of a sum. Returns (B, …), same dtype.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO EmbeddingBagOffsets-15.

    >>> table = jnp.array([[1.0], [2.0], [4.0]])
    >>> embedding_bag_offsets(table, jnp.array([0, 1, 2]), jnp.array([0, 2]), reduction="mean").tolist()
    [[1.5], [4.0]]
    """
    table, rows, starts = _bags(emb_table, indices=indices, offsets=offsets)
    must_fit("indices", rows.shape, ("I",))
    must_fit("offsets", starts.shape, ("B",))
    operands = (table, rows, starts, *_options(table, rows, default_index, per_sample_weights, reduction))
    return _of_offsets(operands, reduction == "mean")


def embedding_bag_offsets_sum(
    emb_table: Weight[ArrayLike],
    indices: ArrayLike,
    offsets: ArrayLike,
    default_index: Any = None,
    per_sample_weights: ArrayLike | None = None,
) -> jax.Array:
    """Returns the sum of the rows of each bag, as `embedding_bag_offsets` does.

    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO EmbeddingBagOffsetsSum-3.

    >>> embedding_bag_offsets_sum(jnp.array([[1.0], [2.0]]), jnp.array([0, 1]), jnp.array([0, 2])).tolist()
    [[3.0], [0.0]]
    """
    return embedding_bag_offsets(emb_table, indices, offsets, default_index, per_sample_weights)


def embedding_bag_packed(
    emb_table: Weight[ArrayLike],
    indices: ArrayLike,
    per_sample_weights: ArrayLike | None = None,
    *,
    reduction: Reduction = "sum",
) -> jax.Array:
    """Returns the sum or the mean of the rows of a table in each bag of indices, if all bags have one size.

    emb_table: (E, …), numbers. indices: (B, I), integers: rows of the table. per_sample_weights: (B, I), of the dtype
    of the table, factors of the rows of a sum. Returns (B, …), same dtype.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO EmbeddingBagPacked-15.

    >>> embedding_bag_packed(jnp.array([[1.0], [2.0]]), jnp.array([[0, 1], [1, 1]])).tolist()
    [[3.0], [4.0]]
    """
    table, rows = _bags(emb_table, indices=indices)
    must_fit("indices", rows.shape, ("B", "I"))
    _, weights = _options(table, rows, None, per_sample_weights, reduction)
    return _of_packed((table, rows, weights), reduction == "mean")


def embedding_bag_packed_sum(
    emb_table: Weight[ArrayLike], indices: ArrayLike, per_sample_weights: ArrayLike | None = None
) -> jax.Array:
    """Returns the sum of the rows of each bag, as `embedding_bag_packed` does.

    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO EmbeddingBagPackedSum-3.

    >>> embedding_bag_packed_sum(jnp.array([[1.0], [2.0]]), jnp.array([[0, 1]])).tolist()
    [[3.0]]
    """
    return embedding_bag_packed(emb_table, indices, per_sample_weights)


def embedding_segments_sum(
    emb_table: Weight[ArrayLike],
    indices: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: Static,
    default_index: Any = None,
    per_sample_weights: ArrayLike | None = None,
) -> jax.Array:
    """Returns the sum of the rows of a table in each segment of indices.

    emb_table: (E, …), numbers. indices: (I,), integers: rows of the table. segment_ids: (I,), integers: the segment of
    each index; an index whose segment is out of range is dropped. num_segments: static, one integer. default_index,
    per_sample_weights: as in `embedding_bag_offsets`. Returns (num_segments, …), same dtype.
    Raises ShapeError, ArgumentError, DTypeError, StaticError. Source: OpenVINO EmbeddingSegmentsSum-3.

    >>> table = jnp.array([[1.0], [2.0]])
    >>> embedding_segments_sum(table, jnp.array([0, 1]), jnp.array([0, 0]), 2).tolist()
    [[3.0], [0.0]]
    """
    table, rows, segments = _bags(emb_table, indices=indices, segment_ids=segment_ids)
    must_fit("indices", rows.shape, ("I",))
    must_fit("segment_ids", segments.shape, rows.shape)
    count = integer("num_segments", num_segments, least=0)
    options = _options(table, rows, default_index, per_sample_weights, "sum")
    return _of_segments((table, rows, segments, *options), count)


def _bags(emb_table: Any, **places: Any) -> tuple[Any, ...]:
    table, arrays = as_traced(emb_table), integral(**places)
    require("real numbers", table)
    if table.ndim < 1:
        raise ShapeError(f"`emb_table` {describe(table)} must have at least one axis")
    return table, *arrays


def _options(table: Any, rows: Any, default_index: Any, weights: Any, reduction: Any) -> tuple[Any, Any]:
    if one_of("reduction", reduction, Reduction) == "mean" and weights is not None:
        raise ArgumentError("`per_sample_weights` are permitted only with the reduction 'sum'")
    if weights is not None:
        _, weights = unify((table, as_traced(weights)), ("emb_table ", "per_sample_weights "))
        must_fit("per_sample_weights", weights.shape, rows.shape)
    (default,) = integral(default_index=default_index)
    if default is not None:
        must_fit("default_index", default.shape, (), (1,))
        default = default.reshape(())
    # With a default, a segment without an index reads a row, too.
    check_inhabited("`emb_table`", table.shape, (0,), rows.shape if default is None else ())
    return default, weights


def _rows(table: Any, rows: Any, weights: Any) -> Any:
    work = accumulation_type(table.dtype)
    read = table.at[rows].get(mode="fill", wrap_negative_indices=False).astype(work)
    if weights is None:
        return read
    return read * weights.astype(work).reshape(*weights.shape, *[1] * (table.ndim - 1))


def _grouped(table: Any, read: Any, group: Any, count: Any, default: Any, mean: bool) -> Any:
    """Returns the sum or mean of the rows of each group; rows of a group outside of [0, count) are dropped."""
    total = (
        jnp.zeros((count, *read.shape[1:]), read.dtype).at[group].add(read, mode="drop", wrap_negative_indices=False)
    )
    number = jnp.zeros(count, np.int32).at[group].add(1, mode="drop", wrap_negative_indices=False)
    number = number.reshape(-1, *[1] * (read.ndim - 1))
    if mean:
        divisor = jnp.maximum(number, 1).astype(read.dtype)
        total = total / divisor if is_float(read.dtype) else total // divisor
    total = total.astype(table.dtype)
    if default is None:
        return total
    row = table.at[default].get(mode="fill", wrap_negative_indices=False)
    row = jnp.where(default == -1, jnp.zeros_like(row), row)
    return jnp.where(number == 0, row[None], total)


@jit_if_concrete
def _of_offsets(operands: tuple[Any, ...], mean: bool) -> Any:
    table, rows, starts, default, weights = operands
    sizes = (starts.shape[0], *table.shape[1:])
    bounded_like(sizes, table)
    place = lax.iota(starts.dtype, rows.shape[0])
    bag = jnp.searchsorted(starts, place, side="right").astype(np.int32) - 1
    y = _grouped(table, _rows(table, rows, weights), bag, starts.shape[0], default, mean)
    return assert_sizes(y, sizes, table.dtype)


@jit_if_concrete
def _of_packed(operands: tuple[Any, ...], mean: bool) -> Any:
    table, rows, weights = operands
    read = _rows(table, rows, weights)
    y = jnp.mean(read, 1) if mean else jnp.sum(read, 1)
    sizes = (rows.shape[0], *table.shape[1:])
    return assert_sizes(y.astype(table.dtype), sizes, table.dtype)


@jit_if_concrete
def _of_segments(operands: tuple[Any, ...], count: int) -> Any:
    table, rows, segments, default, weights = operands
    sizes = (count, *table.shape[1:])
    bounded_like(sizes, table)
    y = _grouped(table, _rows(table, rows, weights), segments, count, default, False)
    return assert_sizes(y, sizes, table.dtype)


def _segments(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    return jnp.max(as_traced(inputs[1]), initial=-1) + 1


@operator(data_size=DataSize(_segments))
def segment_max(
    data: ArrayLike,
    segment_ids: SizesResult[ArrayLike],
    num_segments: Static = None,
    *,
    fill_mode: FillMode,
    size: Static = None,
) -> jax.Array:
    """Returns the largest element of each segment along the first axis.

    data: (n, …), real numbers. segment_ids: (n,), integers, ascending. num_segments: static, the number of rows of the
    result; None: max(segment_ids) + 1. Rows of segments beyond that are dropped. Returns (num_segments, …), same dtype.
    fill_mode: an empty segment gives zeros ('ZERO') or the lowest number of the type ('LOWEST').
    size: static, takes the place of num_segments. One of the two is needed if segment_ids is traced.
    Raises StaticError for traced segment_ids without either, ShapeError, ArgumentError, DTypeError.
    Source: OpenVINO SegmentMax-16.

    >>> segment_max(jnp.array([1, 5, 2]), jnp.array([0, 0, 2]), fill_mode="ZERO").tolist()
    [5, 0, 2]
    """
    x, (segments,) = as_traced(data), integral(segment_ids=segment_ids)
    require("real numbers", x)
    one_of("fill_mode", fill_mode, FillMode)
    if x.ndim < 1:
        raise ShapeError(f"`data` {describe(x)} must have at least one axis")
    must_fit("segment_ids", segments.shape, x.shape[:1])
    if num_segments is None and size is None and isinstance(segments, Tracer):
        problem = "the number of segments depends on `segment_ids`, which is traced"
        raise unbounded(problem, "n segments", segment_ids=segments)
    if num_segments is None and size is None:
        count = int(segments.max()) + 1 if segments.size else 0
    else:
        name, value = ("num_segments", num_segments) if size is None else ("size", size)
        count = integer(name, value, least=0)
    check_counts("num_segments", count)
    return _segment_max((x, segments), count, fill_mode == "LOWEST")


@jit_if_concrete
def _segment_max(operands: tuple[Any, Any], count: int, lowest: bool) -> Any:
    x, segments = operands
    sizes = (count, *x.shape[1:])
    bounded_like(sizes, x)
    least = jnp.asarray(jnp.finfo(x.dtype).min if is_float(x.dtype) else jnp.iinfo(x.dtype).min, x.dtype)
    start = jnp.asarray(-np.inf, x.dtype) if is_float(x.dtype) else least
    y = jnp.full(sizes, start).at[segments].max(x, mode="drop", wrap_negative_indices=False)
    filled = jnp.zeros(count, bool).at[segments].set(True, mode="drop", wrap_negative_indices=False)
    filled = filled.reshape(-1, *[1] * (x.ndim - 1))
    return assert_sizes(jnp.where(filled, y, least if lowest else jnp.zeros_like(least)), sizes, x.dtype)


@operator(data_size=DataSize(rows_that_begin))
def sparse_fill_empty_rows(
    values: ArrayLike,
    dense_shape: Static,
    indices: SizesResult[ArrayLike],
    default_value: ArrayLike,
    *,
    size: Static = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Adds an element to each empty row of a sparse matrix.

    values: (M,), any dtype. dense_shape: static, (2,): rows and columns. indices: (M, 2), integers: the row and the
    column of each value. default_value: one element, which an empty row gets in its first column. Returns indices
    (n, 2), sorted by row and column, and values (n,), of the dtypes of the operands; and (rows,), boolean: which rows
    were empty.
    size: static, n; the results are cropped or padded with -1. It is needed if indices is traced.
    Raises StaticError for traced indices without `size`, ShapeError, DTypeError. Source: OpenVINO
    SparseFillEmptyRows-16.

    >>> found = sparse_fill_empty_rows(jnp.array([1.0, 3.0]), (3, 3), jnp.array([[0, 0], [2, 2]]), jnp.array(42.0))
    >>> found[0].tolist(), found[1].tolist(), found[2].tolist()
    ([[0, 0], [1, 0], [2, 2]], [1.0, 42.0, 3.0], [False, True, False])
    """
    if size is None and isinstance(indices, Tracer):
        problem = "the number of elements depends on `indices`, which is traced"
        raise unbounded(problem, "n elements, cropped or filled up with -1", indices=indices)
    x, default = (as_traced(v) for v in unify((values, default_value), ("values ", "default_value ")))
    (places,) = integral(indices=indices)
    shape = ints("dense_shape", dense_shape)
    if len(shape) != 2:
        raise ShapeError(f"`dense_shape` {shape_text(shape)} must be (rows, columns)")
    must_fit("values", x.shape, ("M",))
    must_fit("indices", places.shape, (x.shape[0], 2))
    must_fit("default_value", default.shape, (), (1,))
    rows, numbers, total, empty = _filled((x, places, default), shape[0])
    count = int(total) if size is None else integer("size", size, least=0)
    return resized(rows, count), resized(numbers, count), empty


@jit_if_concrete
def _filled(operands: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
    x, places, default = operands
    bounded_like((rows, 2), places)
    filled = jnp.zeros(rows, bool).at[places[:, 0]].set(True, mode="drop", wrap_negative_indices=False)
    row = lax.iota(places.dtype, rows)
    every = jnp.concatenate([places, jnp.stack([row, jnp.zeros_like(row)], 1)])
    numbers = jnp.concatenate([x, jnp.broadcast_to(default.reshape(1), (rows,))])
    exists = jnp.concatenate([jnp.ones(x.shape[0], bool), ~filled])
    order = jnp.lexsort((every[:, 1], every[:, 0], ~exists))
    exists, total = exists[order], exists.sum(dtype=np.int32)
    every = jnp.where(exists[:, None], every[order], jnp.full_like(every, -1))
    numbers = jnp.where(exists, numbers[order], jnp.zeros_like(numbers) - jnp.ones_like(numbers))
    return every, numbers, total, ~filled
