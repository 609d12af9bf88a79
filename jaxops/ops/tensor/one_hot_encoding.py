"""One-hot encoding."""

__all__ = ["one_hot"]

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, integer
from jaxops.dtypes import as_traced, canonical, is_float
from jaxops.errors import ArgumentError, describe
from jaxops.memory import bounded
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.elementwise import one_of_kind, traced_if_symbolic
from jaxops.ops.common.result_sizes import bounded_like, check_counts
from jaxops.shapes.arithmetic import must_agree
from jaxops.signature import Static, Traits
from jaxops.static import A, Operand, array, beside, is_symbolic, jit_if_concrete, known, static_array

TRAITS = Traits(foldable=True)


@moves_strings(2)
def one_hot(indices: Operand[A], depth: Static, values: Operand[A], *, axis: int = -1, wrap: bool = True) -> A:
    """Adds an axis that holds one value at the index and another everywhere else.

    indices: any shape, numbers; floats lose their fraction. depth: static, one number, the size of the new axis.
    values: (2,), any dtype: the value elsewhere, then the value at the index. axis: the position of the new axis.
    wrap: True counts a negative index from the end. An out-of-range index selects nothing.
    Returns the dtype of values. Raises ShapeError unless values has two elements, ArgumentError for a negative depth,
    AxisError.
    Source: ONNX OneHot, opsets 11–28; without `wrap` opset 9.

    >>> one_hot(jnp.array([1, -1]), 3, jnp.array([0, 5])).tolist()
    [[0, 5, 0], [0, 0, 5]]
    """
    off_on = array(values)
    positions = beside(off_on, "indices", indices)
    (positions,) = traced_if_symbolic(one_of_kind("real numbers or booleans", positions))
    along = resolve_axis(axis, positions.ndim + 1)
    problem = f"`values` must hold two elements, the values elsewhere and at the index, got {describe(off_on)}"
    must_agree(problem, off_on.shape, (2,))
    count = _depth(depth)
    if isinstance(positions, np.ndarray) and isinstance(off_on, np.ndarray) and not is_symbolic(count):
        bounded((*positions.shape, count), max(off_on.itemsize, np.dtype(np.int64).itemsize))
        # A narrow type may not hold the depth.
        columns = np.expand_dims(positions if positions.dtype == np.uint64 else positions.astype(np.int64), along)
        columns = np.where(columns < 0, columns + count, columns) if wrap else columns
        steps = np.arange(count).reshape([-1 if i == along else 1 for i in range(positions.ndim + 1)])
        return cast(Any, static_array(np.where(columns == steps, off_on[1:], off_on[:1])))
    return _one_hot((as_traced(positions), as_traced(off_on)), along, count, wrap)


def _depth(depth: Any) -> Any:
    if not is_symbolic(depth):
        value = known("depth", depth)
        depth = value.astype(np.int64) if is_float(value.dtype) else value
    count = integer("depth", depth)
    if isinstance(count, int) and count < 0:
        raise ArgumentError(f"`depth` is {count}; it must not be negative")
    return count


@jit_if_concrete
def _one_hot(operands: tuple[Any, Any], axis: int, depth: Any, wrap: bool) -> Any:
    indices, values = operands
    is_integer = jnp.issubdtype(indices.dtype, jnp.integer)
    if not is_integer or jnp.iinfo(indices.dtype).bits < 32:  # a narrow type may not hold the depth
        indices = lax.convert_element_type(indices, canonical(np.int64))
    kind = indices.dtype
    sizes = (*indices.shape[:axis], depth, *indices.shape[axis:])
    bounded_like(sizes, values)
    check_counts("depth", depth)
    columns = lax.expand_dims(indices, (axis,))
    if wrap and jnp.issubdtype(kind, jnp.signedinteger):
        columns = jnp.where(columns < 0, columns + jnp.asarray(depth, kind), columns)
    hot = jnp.broadcast_to(columns, sizes) == lax.broadcasted_iota(kind, sizes, axis)
    return lax.select(hot, jnp.broadcast_to(values[1], sizes), jnp.broadcast_to(values[0], sizes))
