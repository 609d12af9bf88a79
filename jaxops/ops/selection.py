"""Operators that mark, rank or select elements; some have a size that depends on the data.

Those are exact outside `jax.jit`. Inside, their `size` says how long the result is: what is missing is filled up, what
is too much is cut off.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, canonical, is_float
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError, describe, message
from jaxops.ops.movement import flag
from jaxops.shapes.movement import text
from jaxops.static import (
    Array,
    Static,
    Tracer,
    array,
    axis as resolve_axis,
    integer,
    is_symbolic,
    kernel,
    known,
    structural,
)


@structural
def one_hot(indices: Array, depth: Static, values: Array, *, axis: int = -1, wrap: bool = True) -> Array:
    """A new axis, with one value where the index says and another everywhere else.

    indices: any shape, numbers; floats lose their fraction. depth: static, one number, the size of the new axis.
    values: (2,), any dtype, the value elsewhere and the value at the index. axis: where the new axis goes.
    wrap: a negative index counts from the end; else it is outside. An index outside is nowhere.
    Raises ShapeError for other values, ArgumentError for a negative depth, AxisError.
    Source: ONNX OneHot, opsets 11–28; without `wrap` opset 9.

    >>> one_hot(jnp.array([1, -1]), 3, jnp.array([0, 5])).tolist()
    [[0, 5, 0], [0, 0, 5]]
    """
    indices, values = array(indices), array(values)
    at = resolve_axis("one_hot", axis, indices.ndim + 1)
    if values.shape != (2,):
        raise ShapeError(f"one_hot: `values` must be two numbers, elsewhere and at the index, got {describe(values)}")
    count = _depth(depth)
    if isinstance(indices, np.ndarray) and isinstance(values, np.ndarray) and not is_symbolic(count):
        # A narrow type may not hold the depth.
        place = np.expand_dims(indices if indices.dtype == np.uint64 else indices.astype(np.int64), at)
        place = np.where(place < 0, place + count, place) if wrap else place
        steps = np.arange(count).reshape([-1 if i == at else 1 for i in range(indices.ndim + 1)])
        return np.where(place == steps, values[1], values[0])
    return _one_hot((as_traced(indices), as_traced(values)), at, count, wrap)


def _depth(depth: Any) -> Any:
    if not is_symbolic(depth):
        value = known("one_hot", "depth", depth)
        depth = value.astype(np.int64) if is_float(value.dtype) else value
    count = integer("one_hot", "depth", depth)
    if isinstance(count, int) and count < 0:
        raise ArgumentError(f"one_hot: `depth` is {count}; it must not be negative")
    return count


@kernel
def _one_hot(operands: tuple[Any, Any], axis: int, depth: Any, wrap: bool) -> Any:
    indices, values = operands
    whole = jnp.issubdtype(indices.dtype, jnp.integer)
    if not whole or jnp.iinfo(indices.dtype).bits < 32:  # a narrow type may not hold the depth
        indices = lax.convert_element_type(indices, canonical(np.int64))
    kind = indices.dtype
    place = lax.expand_dims(indices, (axis,))
    if wrap and jnp.issubdtype(kind, jnp.signedinteger):
        place = jnp.where(place < 0, place + jnp.asarray(depth, kind), place)
    sizes = (*indices.shape[:axis], depth, *indices.shape[axis:])
    hot = jnp.broadcast_to(place, sizes) == lax.broadcasted_iota(kind, sizes, axis)
    return lax.select(hot, jnp.broadcast_to(values[1], sizes), jnp.broadcast_to(values[0], sizes))


def top_k(x: Array, k: Static, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    """The k largest, or smallest, elements along `axis`, and where they stand.

    x: numbers. k: static, one integer in [0, d]. Returns (values, indices), the latter of type int64.
    Both are in order, the best first; of equal elements the first one comes first. Without `sorted` any order is
    allowed, and this is the one. Raises ShapeError for a k outside that range, AxisError, DTypeError.
    Source: ONNX TopK, opsets 1–24.

    >>> values, indices = top_k(jnp.array([3, 9, 9, 1]), 2)
    >>> values.tolist(), indices.tolist()
    ([9, 9], [1, 2])
    """
    x = as_traced(array(x))
    at = resolve_axis("top_k", axis, x.ndim)
    count = integer("top_k", "k", k)
    size = x.shape[at]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise ShapeError(f"top_k: `k` is {count}, but axis {at} of {text(x.shape)} has {size} elements")
    if not (is_float(x.dtype) or jnp.issubdtype(x.dtype, jnp.integer)):
        raise DTypeError(f"top_k: the operand must be numbers, got {describe(x)}")
    flag("top_k", "sorted", sorted)
    return _top_k(x, count, at, flag("top_k", "largest", largest))


@kernel
def _top_k(x: Any, k: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    x = jnp.moveaxis(x, axis, -1)
    # ~x reverses the order of integers, the smallest included, which has no negative.
    turn = (lambda v: v) if largest else lax.neg if is_float(x.dtype) else lax.bitwise_not
    values, indices = lax.top_k(turn(x), k)
    indices = lax.convert_element_type(indices, canonical(np.int64))
    return jnp.moveaxis(turn(values), -1, axis), jnp.moveaxis(indices, -1, axis)


def _unbounded(op: str, operand: str, value: Any, size: Static) -> bool:
    """Whether the result has the size that the data give it; that needs data that are known."""
    if size is not None:
        return False
    if isinstance(value, Tracer):
        raise StaticError(
            message(
                op,
                f"the size of the result depends on `{operand}`, which is traced",
                **{operand: value},
                hint=f"call it outside `jax.jit`, or give `size`: {op}(…, size=n) has room for n and fills up the rest",
            )
        )
    return True


@structural
def compress(input: Array, condition: Array, *, axis: int | None = None, size: Static = None) -> Array:
    """The entries along `axis` for which the condition holds; None takes the input as one row.

    input: at least one axis, any dtype; it may be traced. condition: (m,) boolean, m at most the size of the axis;
    entries beyond it are left out. size: static, the size of the axis in the result, filled up with zeros; needed
    when the condition is traced.
    Raises StaticError for a traced condition without `size`, ShapeError, DTypeError, AxisError.
    Source: ONNX Compress, opsets 9–28.

    >>> compress(jnp.arange(3), np.array([True, False, True])).tolist()
    [0, 2]
    """
    x, condition = array(input), array(condition)
    if axis is None:
        x = x.reshape(-1)
    at = 0 if axis is None else resolve_axis("compress", axis, x.ndim)
    if condition.dtype != bool or condition.ndim != 1:
        raise DTypeError(f"compress: `condition` must be a vector of booleans, got {describe(condition)}")
    if isinstance(x.shape[at], int) and condition.shape[0] > x.shape[at]:
        raise ShapeError(
            f"compress: `condition` has {condition.shape[0]} entries, more than axis {at} of {text(x.shape)} has"
        )
    if _unbounded("compress", "condition", condition, size):
        kept = np.flatnonzero(np.asarray(condition))
        if isinstance(x, np.ndarray):
            return np.take(x, kept, axis=at)
        return jnp.take(x, as_traced(kept), axis=at, mode="clip")
    (kept,) = _places(as_traced(condition), integer("compress", "size", size), x.shape[at])
    return jnp.take(as_traced(x), kept, axis=at, mode="fill", fill_value=0)


def _places(x: Any, size: int, fill: Any) -> tuple[Any, ...]:
    """`jnp.nonzero` of a size, which of an empty array gives zeros instead of the fill."""
    if 0 in x.shape:
        return (jnp.full(size, fill, canonical(np.int64)),) * x.ndim
    return jnp.nonzero(x, size=size, fill_value=fill)


@structural
def nonzero(x: Array, *, size: Static = None) -> Array:
    """The indices of the elements that are not zero, in row-major order: one column each.

    x: any dtype. Returns (n, count), int64; a scalar has no axes and gives (0, count).
    size: static, the number of columns, filled up with -1; needed when x is traced.
    Raises StaticError for a traced x without `size`.
    Source: ONNX NonZero, opsets 9–13.

    >>> nonzero(np.array([[1, 0], [1, 1]]))
    array([[0, 1, 1],
           [0, 0, 1]])
    """
    x = array(x)
    if _unbounded("nonzero", "x", x, size):
        values = np.asarray(x)
        if not values.ndim:
            found = np.zeros((0, int(bool(values))), np.int64)
        else:
            found = np.stack(np.nonzero(values)).astype(np.int64)
        return found if isinstance(x, np.ndarray) else as_traced(found)
    count = integer("nonzero", "size", size)
    if not x.ndim:
        return jnp.zeros((0, count), canonical(np.int64))
    return jnp.stack(_places(as_traced(x), count, -1)).astype(canonical(np.int64))


@structural
def unique(
    x: Array, *, axis: int | None = None, sorted: int = 1, size: Static = None
) -> tuple[Array, Array, Array, Array]:
    """The distinct elements, or the distinct parts along `axis`.

    x: any dtype. Returns (y, indices, inverse_indices, counts): y in ascending order, or with sorted=0 in the order
    of first appearance; where each first stands in x; for each of x where it is in y; and how often it occurs.
    size: static, the number of elements of y, filled up with its smallest; needed when x is traced.
    Raises StaticError for a traced x without `size`, ArgumentError for `size` with sorted=0, AxisError.
    Source: ONNX Unique, opsets 11–28.

    >>> [v.tolist() for v in unique(np.array([2, 1, 1, 3]), sorted=0)]
    [[2, 1, 3], [0, 1, 3], [0, 1, 1, 2], [1, 2, 1]]
    """
    x = array(x)
    at = None if axis is None else resolve_axis("unique", axis, x.ndim)
    ascending = flag("unique", "sorted", sorted)
    if not _unbounded("unique", "x", x, size):
        if not ascending:
            raise ArgumentError("unique: `sorted` is 0; together with `size` it must be 1")
        count = integer("unique", "size", size)
        y, *places = jnp.unique(as_traced(x), True, True, True, at, size=count)
        first, inverse, counts = (v.reshape(-1).astype(canonical(np.int64)) for v in places)
        return y, first, inverse, counts
    y, first, inverse, counts = np.unique(np.asarray(x), True, True, True, at)
    inverse = inverse.reshape(-1)
    if not ascending:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        y, first, inverse, counts = y.take(order, at or 0), first[order], rank[inverse], counts[order]
    found = (y, *(v.astype(np.int64) for v in (first, inverse, counts)))
    return tuple(map(as_traced, found)) if isinstance(x, jax.Array) else found  # pyright: ignore[reportReturnType]
