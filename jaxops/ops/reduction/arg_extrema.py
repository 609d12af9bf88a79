"""The index of the largest or smallest element along an axis."""

__all__ = ["arg_max", "arg_min"]

from typing import Any

import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag
from jaxops.dtypes import as_traced, canonical
from jaxops.errors import ArgumentError, shape_text
from jaxops.ops.common.elementwise import one_of_kind, traced_if_symbolic
from jaxops.ops.tensor.inspection import dims
from jaxops.shapes.arithmetic import at_least
from jaxops.signature import Traits
from jaxops.static import A, Array, ArrayLike, Operand, jit_if_concrete

TRAITS = Traits(foldable=True)


def arg_max(data: Operand[A], *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> A:
    """The index of the largest element along an axis; NaN counts as the largest.

    data: at least one axis, numbers. Returns int64; the axis has size 1, or is dropped with keepdims=0.
    axis: static, in [-n, n-1]. select_last_index: of equal elements, 0 takes the first and 1 the last.
    Raises AxisError, ArgumentError for an axis of size 0, ShapeError for a symbolic size that may be 0.
    Source: ONNX ArgMax, opsets 1–13 (select_last_index from 12).

    >>> arg_max(np.array([[1, 3, 3]]), axis=1, keepdims=0, select_last_index=1)
    array([2])
    """
    return _arg(data, axis, keepdims, select_last_index, largest=True)


def arg_min(data: Operand[A], *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> A:
    """The index of the smallest element along an axis; NaN counts as the smallest.

    data: at least one axis, numbers. Returns int64; the axis has size 1, or is dropped with keepdims=0.
    axis: static, in [-n, n-1]. select_last_index: of equal elements, 0 takes the first and 1 the last.
    Raises AxisError, ArgumentError for an axis of size 0, ShapeError for a symbolic size that may be 0.
    Source: ONNX ArgMin, opsets 1–13 (select_last_index from 12).

    >>> arg_min(np.array([[3, 1, 1]]), axis=1, keepdims=0)
    array([1])
    """
    return _arg(data, axis, keepdims, select_last_index, largest=False)


def _arg(operand: ArrayLike, axis: int, keepdims: int, last: int, *, largest: bool) -> Any:
    (data,) = traced_if_symbolic(one_of_kind("real numbers", operand))
    resolved = resolve_axis(axis, data.ndim)
    if not at_least(f"axis {resolved} of {shape_text(data.shape)} may be empty", data.shape[resolved], 1):
        raise ArgumentError(f"axis {resolved} has size 0; it must have at least one element")
    keep, reverse = flag("keepdims", keepdims), flag("select_last_index", last)
    return _index(data, resolved, keep, reverse, largest)


@jit_if_concrete
def _index(data: Array, axis: int, keepdims: bool, reverse: bool, largest: bool) -> Array:
    count = data.shape[axis]
    if isinstance(data, np.ndarray):
        position = (np.argmax if largest else np.argmin)(np.flip(data, axis) if reverse else data, axis=axis)
        position = np.asarray(count - 1 - position if reverse else position, np.int64)
        return np.expand_dims(position, axis) if keepdims else position
    index = canonical(np.int64)
    data = lax.rev(data, [axis]) if reverse else data
    position = (lax.argmax if largest else lax.argmin)(data, axis, index)
    if reverse:
        position = as_traced(dims(count - 1)).astype(index) - position
    return lax.expand_dims(position, [axis]) if keepdims else position
