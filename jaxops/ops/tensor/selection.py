"""Operators that select elements. The size of some results depends on the data.

These are exact outside `jax.jit`. Inside, `size` fixes the size of the result, which is padded or cropped to it.
"""

__all__ = ["compress", "nonzero", "unique", "where"]

from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer
from jaxops.dtypes import as_traced, canonical, widened
from jaxops.errors import DTypeError, ShapeError, describe, shape_text
from jaxops.memory import bounded_operands
from jaxops.ops.common.chosen_strings import holds_strings, moves_strings
from jaxops.ops.common.elementwise import broadcast_to, on_facts, operands, require
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts, unbounded
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.signature import DataSize, SizesResult, Static, Traits, operator
from jaxops.static import A, Array, Operand, Tracer, array, beside, is_symbolic, jit_if_concrete, static_array

TRAITS = Traits(foldable=True)


@moves_strings(1, 2)
@tracks_sizes
def where(condition: Operand[A], x: Operand[A], y: Operand[A]) -> A:
    """The element of `x` where `condition` holds, else that of `y`; the three broadcast to each other.

    condition: booleans. x, y: of one dtype, any. Returns that dtype, of the common shape. Strings are static.
    Raises ShapeError when the shapes do not broadcast, DTypeError for other conditions or differing dtypes.
    Source: ONNX Where, opsets 9–16.

    >>> where(np.array([True, False]), np.array([1, 2]), 0)
    array([1, 0])
    """
    values = operands((x, y))
    test = array(beside(values[0], "condition", condition))
    require("boolean", test)
    if not (isinstance(test, np.ndarray) and isinstance(values[0], np.ndarray)):
        # A condition on sizes is traced: sizes then take the type of the other operand.
        dtypes = [array(v).dtype for v in (x, y) if not is_symbolic(array(v))]
        dtype = dtypes[0] if len(dtypes) == 1 else None
        test, values = as_traced(test), tuple(as_traced(v, dtype) for v in values)
    return _where((test, *values))


@jit_if_concrete
def _where(arrays: tuple[Array, ...]) -> Any:
    test, x, y = arrays
    sizes = broadcast(test.shape, x.shape, y.shape)
    if isinstance(test, np.ndarray):
        bounded_like(sizes, x)
        return np.where(test, x, y)
    # `lax.select` accepts a scalar condition.
    test = test if test.ndim == 0 else broadcast_to(test, sizes)
    return assert_sizes(lax.select(test, broadcast_to(x, sizes), broadcast_to(y, sizes)), sizes, x.dtype)


def _unbounded(operand: str, value: Any, size: Static, result: str) -> bool:
    """Returns True if the data decide the size of the result, because no `size` is given. Raises if they are traced.

    result: of a `size` of n, such as "n columns", for the message.
    """
    if size is None and isinstance(value, Tracer):
        problem = f"the size of the result depends on `{operand}`, which is traced"
        raise unbounded(problem, f"{result}, padded or cropped", **{operand: value})
    return size is None


def _selected(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    return jnp.count_nonzero(as_traced(inputs[1]))


@operator(data_size=DataSize(_selected, lambda inputs, attributes: inputs[1].shape[0]))
def compress(
    input: Operand[A], condition: SizesResult[Operand[A]], *, axis: int | None = None, size: Static = None
) -> A:
    """The entries along `axis` for which the condition holds; None flattens the input first.

    input: at least one axis, any dtype; it may be traced. condition: (m,) boolean, m at most the size of the axis;
    entries beyond it are dropped. size: static, the size of the axis in the result, padded with zeros, or empty
    strings; required when the condition is traced.
    Raises StaticError for a traced condition without `size`, ShapeError, DTypeError, AxisError.
    Source: ONNX Compress, opsets 9–28.

    >>> compress(jnp.arange(3), np.array([True, False, True])).tolist()
    [0, 2]
    """
    return _compress(input, condition, np.array("", object) if holds_strings(input) else None, axis, size)


@moves_strings(0, 2)
def _compress(x: Any, condition: Any, fill: Any, axis: int | None, size: Static) -> Any:
    x, condition = array(x), array(condition)
    if axis is None:
        x = x.reshape(-1)
    along = 0 if axis is None else resolve_axis(axis, x.ndim)
    if condition.dtype != bool or condition.ndim != 1:
        raise DTypeError(f"`condition` must be a vector of booleans, got {describe(condition)}")
    if isinstance(x.shape[along], int) and condition.shape[0] > x.shape[along]:
        raise ShapeError(
            f"`condition` has {condition.shape[0]} entries, more than axis {along} of {shape_text(x.shape)} has"
        )
    bounded_operands((x, condition))
    if _unbounded("condition", condition, size, "n entries"):
        selected = np.flatnonzero(np.asarray(condition))
        if isinstance(x, np.ndarray):
            return static_array(np.take(x, selected, axis=along), x)
        return jnp.take(x, as_traced(selected), axis=along, mode="clip")
    count = _count(size)
    bounded_like((*x.shape[:along], count, *x.shape[along + 1 :]), x)
    (selected,) = _places(as_traced(condition), count, x.shape[along])
    return jnp.take(as_traced(x), selected, axis=along, mode="fill", fill_value=0 if fill is None else fill.item())


def _count(size: Static) -> int:
    count = integer("size", size, least=0)
    check_counts("size", count)
    return count


def _places(x: Any, size: int, fill: Any) -> tuple[Any, ...]:
    """`jnp.nonzero` with `size`; for an empty array it returns the fill, where JAX returns zeros."""
    if 0 in x.shape:
        return (jnp.full(size, fill, canonical(np.int64)),) * x.ndim
    return jnp.nonzero(x, size=size, fill_value=fill)


def _columns(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    return jnp.count_nonzero(results[0][0] >= 0 if inputs[0].ndim else inputs[0])


@operator(data_size=DataSize(_columns, lambda inputs, attributes: inputs[0].size))
def nonzero(x: Operand[A], *, size: Static = None) -> A:
    """The indices of the nonzero elements, in row-major order, one column per element.

    x: any dtype. Returns (n, count), int64; a scalar has no axes and gives (0, count).
    size: static, the number of columns, padded with -1; required when x is traced.
    Raises StaticError for a traced x without `size`.
    Source: ONNX NonZero, opsets 9–13.

    >>> nonzero(np.array([[1, 0], [1, 1]]))
    array([[0, 1, 1],
           [0, 0, 1]])
    """
    elements = array(x)
    bounded_operands((elements,))
    if _unbounded("x", elements, size, "n columns"):
        values = on_facts(_is_not_zero, elements) if is_symbolic(elements) else np.asarray(elements)
        if not values.ndim:
            indices = np.zeros((0, int(bool(values))), np.int64)
        else:
            bounded_like((values.ndim, np.count_nonzero(values)), values, np.int64)
            indices = np.array(np.nonzero(values), np.int64)
        return cast(Any, indices if isinstance(elements, np.ndarray) else as_traced(indices))
    count = _count(size)
    bounded_like((max(elements.ndim, 1), count), elements, np.int64)
    if not elements.ndim:
        return cast(Any, jnp.zeros((0, count), canonical(np.int64)))
    return cast(Any, jnp.stack(_places(as_traced(elements), count, -1)).astype(canonical(np.int64)))


def _is_not_zero(size: Any) -> bool:
    return not of_sizes.equal(size, 0)


def _distinct(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    return jnp.count_nonzero(results[3])


def _most_distinct(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    axis = attributes.get("axis")
    return inputs[0].size if axis is None else inputs[0].shape[axis]


@operator(data_size=DataSize(_distinct, _most_distinct))
def unique(x: Operand[A], *, axis: int | None = None, sorted: int = 1, size: Static = None) -> tuple[A, A, A, A]:
    """The distinct elements, or the distinct slices along `axis`.

    x: any dtype. Returns (y, indices, inverse_indices, counts): y in ascending order, or with sorted=0 in the order
    of first appearance; indices of the first occurrences in x; for each element of x its index in y; the counts.
    size: static, the number of elements of y, padded with the smallest one, with a count of 0; required for more than
    one traced element.
    Raises StaticError for a traced x without `size`, AxisError.
    Source: ONNX Unique, opsets 11–28.

    >>> [v.tolist() for v in unique(np.array([2, 1, 1, 3]), sorted=0)]
    [[2, 1, 3], [0, 1, 3], [0, 1, 1, 2], [1, 2, 1]]
    """
    elements = array(x)
    bounded_operands((elements,))
    along = None if axis is None else resolve_axis(axis, elements.ndim)
    ascending = flag("sorted", sorted)
    if (
        size is None
        and isinstance(elements, Tracer)
        and (elements.size if along is None else elements.shape[along]) == 1
    ):
        zero = as_traced(np.zeros(1, np.int64))
        return cast(Any, (elements.reshape(-1) if along is None else elements, zero, zero, zero + 1))
    if not _unbounded("x", elements, size, "n elements"):
        count = _count(size)
        bounded_like(
            (count,) if along is None else (*elements.shape[:along], count, *elements.shape[along + 1 :]),
            elements,
            np.int64,
        )
        y, *index_arrays = widened(
            lambda xs: jnp.unique(xs[0], True, True, True, along, size=count), (as_traced(elements),)
        )
        first, inverse, counts = (v.reshape(-1).astype(canonical(np.int64)) for v in index_arrays)
        if ascending:
            return y, first, inverse, counts
        order = jnp.argsort(jnp.where(counts == 0, jnp.iinfo(first.dtype).max, first))  # the padding comes last
        rank = jnp.zeros_like(first).at[order].set(lax.iota(first.dtype, count))
        return cast(Any, (jnp.take(y, order, axis=along or 0), first[order], rank[inverse], counts[order]))
    if is_symbolic(elements):
        raise ShapeError(
            f"the order of {describe(elements)} depends on the value of a symbolic size; give `size` to decide it "
            f"when the program runs"
        )
    bounded_like(
        (3, elements.size if along is None else elements.shape[along]), elements, np.int64, "its three lists of indices"
    )
    y, first, inverse, counts = _unique(np.asarray(elements), along)
    inverse = inverse.reshape(-1)
    if not ascending:
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        y, first, inverse, counts = y.take(order, along or 0), first[order], rank[inverse], counts[order]
    results = (y, *(v.astype(np.int64) for v in (first, inverse, counts)))
    return tuple(map(as_traced, results)) if isinstance(elements, jax.Array) else results  # pyright: ignore[reportReturnType]


def _unique(x: np.ndarray, axis: int | None) -> tuple[np.ndarray, ...]:
    if axis is None or x.dtype != object:
        return np.unique(x, True, True, True, axis)
    # NumPy does not order slices of objects; the ranks of the strings have the same order.
    strings, ranks = np.unique(x, return_inverse=True)
    y, *index_arrays = np.unique(ranks.reshape(x.shape), True, True, True, axis)
    return strings[y], *index_arrays
