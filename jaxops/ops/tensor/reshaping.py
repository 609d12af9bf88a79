"""Operators that give the same elements another shape."""

__all__ = ["identity", "reshape", "squeeze", "unsqueeze"]

from typing import Any

import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, flag, ints
from jaxops.dtypes import traced_for_sizes
from jaxops.lazy_sequences import GrowingSequence, SplitSequence
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes.tensor import reshaping as sizes_of
from jaxops.signature import SizesKept, StaticInts, Traits
from jaxops.static import A, Array, Ints, Operand, Sizes, array, jit_if_concrete

TRAITS = Traits(kind="form", foldable=True)


@moves_strings(0)
@tracks_sizes
def identity(input: SizesKept[Any]) -> Any:
    """Returns its operand: an array of any shape and dtype, strings included, a sequence (a list), or None.

    Source: ONNX Identity, opsets 1–25.

    >>> identity(np.ones(2)).shape
    (2,)
    """
    return input if input is None or isinstance(input, list | SplitSequence | GrowingSequence) else array(input)


@moves_strings(0)
@tracks_sizes
def reshape(data: Operand[A], shape: StaticInts, *, allowzero: int = 0) -> A:
    """The elements of `data`, in row-major order, in another shape.

    data: any shape and dtype. Returns the same dtype, of `shape`.
    shape: static, 1-D integers. 0 copies the size of data at its position, or means a size of zero with
    `allowzero`; one -1 is inferred; an empty shape makes a scalar.
    Raises ShapeError when the numbers of elements differ, for a second -1 or another negative, a 0 beyond the
    rank of data, -1 beside sizes whose product is 0, and 0 together with -1 under `allowzero`;
    StaticError when `shape` is traced.
    Source: ONNX Reshape, opsets 5–25.

    >>> reshape(np.zeros((2, 3, 4)), (0, -1)).shape
    (2, 12)
    """
    return _reshape(data, ints("shape", shape), flag("allowzero", allowzero))


@jit_if_concrete
def _reshape(data: Array, shape: Sizes, allowzero: bool) -> Array:
    sizes = sizes_of.reshape(data.shape, shape, allowzero)
    data = traced_for_sizes(data, sizes)
    y = data.reshape(sizes) if isinstance(data, np.ndarray) else lax.reshape(data, sizes)
    return assert_sizes(y, sizes, data.dtype)


@moves_strings(0)
@tracks_sizes
def squeeze(data: Operand[A], axes: StaticInts = None) -> A:
    """Drops axes of size 1: the given `axes`, or all of them.

    data: any dtype. axes: static, 1-D integers or one, in [-n, n-1], distinct; None drops every axis of size 1.
    Raises ShapeError when a named axis has another size, AxisError when it does not exist.
    Source: ONNX Squeeze, opsets 1–25.

    >>> squeeze(np.zeros((1, 3, 1)), (0,)).shape
    (3, 1)
    """
    return _squeeze(data, None if axes is None else ints("axes", axes, single=True))


@jit_if_concrete
def _squeeze(data: Array, axes: Ints | None) -> Array:
    named = None if axes is None else resolve_axes(axes, data.ndim)
    sizes = sizes_of.squeeze(data.shape, named)
    if isinstance(data, np.ndarray):
        return data.reshape(sizes)
    y = lax.squeeze(data, [i for i, d in enumerate(data.shape) if d == 1] if named is None else named)
    return assert_sizes(y, sizes, data.dtype)


@moves_strings(0)
@tracks_sizes
def unsqueeze(data: Operand[A], axes: StaticInts) -> A:
    """Inserts axes of size 1.

    data: n axes, any dtype. axes: static, k distinct integers in [-(n+k), n+k-1], positions in the result. A single
    integer is accepted too: the standard says 1-D, but its own test models use a scalar, and onnxruntime runs them.
    Raises AxisError when one is out of range or repeated.
    Source: ONNX Unsqueeze, opsets 1–25.

    >>> unsqueeze(np.zeros((3, 4)), (0, -1)).shape
    (1, 3, 4, 1)
    """
    return _unsqueeze(data, ints("axes", axes, single=True))


@jit_if_concrete
def _unsqueeze(data: Array, axes: Sizes) -> Any:
    new_axes = resolve_axes(axes, data.ndim + len(axes))
    sizes = sizes_of.unsqueeze(data.shape, new_axes)
    y = data.reshape(sizes) if isinstance(data, np.ndarray) else lax.expand_dims(data, new_axes)
    return assert_sizes(y, sizes, data.dtype)
