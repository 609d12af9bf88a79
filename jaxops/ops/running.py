"""The place of the largest or smallest element, and running sums and products along an axis."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, canonical, is_float, settled
from jaxops.errors import ArgumentError, ShapeError
from jaxops.ops.inspection import dims
from jaxops.ops.movement import flag
from jaxops.ops.pointwise import symbolic
from jaxops.shapes.movement import text
from jaxops.static import Array, Static, Undecided, array, axis as resolve_axis, integer, kernel, structural


@structural
def arg_max(data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    """The index of the largest element along an axis; NaN counts as the largest.

    data: at least one axis, numbers. Returns int64; the axis has size 1, or goes with keepdims=0.
    axis: static, in [-n, n-1]. select_last_index: of equal elements, 0 takes the first and 1 the last.
    Raises AxisError, ArgumentError for an axis of size 0, ShapeError for a symbolic size that may be 0.
    Source: ONNX ArgMax, opsets 1–13 (select_last_index from 12).

    >>> arg_max(np.array([[1, 3, 3]]), axis=1, keepdims=0, select_last_index=1)
    array([2])
    """
    return _arg("arg_max", array(data), axis, keepdims, select_last_index)


@structural
def arg_min(data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
    """The index of the smallest element along an axis; NaN counts as the smallest.

    data: at least one axis, numbers. Returns int64; the axis has size 1, or goes with keepdims=0.
    axis: static, in [-n, n-1]. select_last_index: of equal elements, 0 takes the first and 1 the last.
    Raises AxisError, ArgumentError for an axis of size 0, ShapeError for a symbolic size that may be 0.
    Source: ONNX ArgMin, opsets 1–13 (select_last_index from 12).

    >>> arg_min(np.array([[3, 1, 1]]), axis=1, keepdims=0)
    array([1])
    """
    return _arg("arg_min", array(data), axis, keepdims, select_last_index)


def _arg(op: str, data: Array, axis: int, keepdims: int, last: int) -> Array:
    at = resolve_axis(op, axis, data.ndim)
    try:
        empty = data.shape[at] < 1
    except Undecided as error:
        raise ShapeError(
            f"{op}: axis {at} of {text(data.shape)} must have an element, which cannot be decided; "
            f"give `symbolic_shape` a constraint that says so"
        ) from error
    if empty:
        raise ArgumentError(f"{op}: axis {at} has size 0, so it has no element to name")
    keep, reverse = flag(op, "keepdims", keepdims), flag(op, "select_last_index", last)
    return _index(data, op, at, keep, reverse)


@kernel
def _index(data: Array, op: str, at: int, keepdims: bool, reverse: bool) -> Array:
    count = data.shape[at]
    if isinstance(data, np.ndarray):
        found = (np.argmax if op == "arg_max" else np.argmin)(np.flip(data, at) if reverse else data, axis=at)
        found = np.asarray(count - 1 - found if reverse else found, np.int64)
        return np.expand_dims(found, at) if keepdims else found
    index = canonical(np.int64)
    data = lax.rev(data, [at]) if reverse else data
    found = (lax.argmax if op == "arg_max" else lax.argmin)(data, at, index)
    if reverse:
        found = as_traced(dims(count - 1)).astype(index) - found
    return lax.expand_dims(found, [at]) if keepdims else found


@structural
def cumsum(x: Array, axis: Static, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """The running sum along an axis.

    x: at least one axis, numbers. axis: static, an integer in [-n, n-1]. Returns the shape and dtype of x.
    exclusive: 1 leaves the element itself out, so the first sum is 0. reverse: 1 runs from the end.
    Raises AxisError, StaticError when `axis` is traced.
    Source: ONNX CumSum, opsets 11–14.

    >>> cumsum(np.array([1, 2, 3]), 0), cumsum(np.array([1, 2, 3]), 0, exclusive=1, reverse=1)
    (array([1, 3, 6]), array([5, 3, 0]))
    """
    return _run("cumsum", x, axis, exclusive, reverse)


@structural
def cumprod(x: Array, axis: Static, *, exclusive: int = 0, reverse: int = 0) -> Array:
    """The running product along an axis.

    x: at least one axis, numbers. axis: static, an integer in [-n, n-1]. Returns the shape and dtype of x.
    exclusive: 1 leaves the element itself out, so the first product is 1. reverse: 1 runs from the end.
    Raises AxisError, StaticError when `axis` is traced.
    Source: ONNX CumProd, opset 26.

    >>> cumprod(np.array([1, 2, 3]), 0), cumprod(np.array([1, 2, 3]), 0, exclusive=1, reverse=1)
    (array([1, 2, 6]), array([6, 3, 1]))
    """
    return _run("cumprod", x, axis, exclusive, reverse)


def _run(op: str, x: Any, axis: Any, exclusive: int, reverse: int) -> Array:
    data = array(x)
    at = resolve_axis(op, integer(op, "axis", axis), data.ndim)
    return _running(data, op, at, flag(op, "exclusive", exclusive), flag(op, "reverse", reverse))


@kernel
def _running(data: Array, op: str, at: int, exclusive: bool, reverse: bool) -> Array:
    start = 0 if op == "cumsum" else 1
    x = data.astype(np.float32) if is_float(data.dtype) and data.dtype.itemsize < 4 else data
    if isinstance(x, np.ndarray):
        x = np.flip(x, at) if reverse else x
        if exclusive and x.shape[at] != 0:
            first = np.full_like(x.take([0], at), start)
            x = np.concatenate([first, x.take(range(x.shape[at] - 1), at)], at)
        with np.errstate(all="ignore"):
            x = (np.cumsum if op == "cumsum" else np.cumprod)(x, axis=at, dtype=x.dtype)
        x = settled(np.flip(x, at) if reverse else x)
        return x if symbolic(x) else x.astype(data.dtype, copy=False)
    if exclusive:
        # One element in at the start and one out at the end: padding by -1 cuts.
        edges = (-1, 1, 0) if reverse else (1, -1, 0)
        x = lax.pad(x, np.asarray(start, x.dtype), [edges if i == at else (0, 0, 0) for i in range(x.ndim)])
    run: Callable[..., jax.Array] = lax.cumsum if op == "cumsum" else lax.cumprod
    return lax.convert_element_type(run(x, at, reverse), data.dtype)
