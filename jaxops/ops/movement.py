"""Operators that give the same elements another shape or another order."""

import jax.numpy as jnp  # noqa: F401 - the doctests use it
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError
from jaxops.shapes import movement as sizes_of
from jaxops.static import (
    Array,
    Ints,
    Sizes,
    Static,
    array,
    axes as resolve_axes,
    axis as resolve_axis,
    integer,
    ints,
    is_symbolic,
    kernel,
    structural,
)


def _sized(data: Array, sizes: Sizes) -> Array:
    """A static array that gets a symbolic size cannot stay one."""
    return as_traced(data) if isinstance(data, np.ndarray) and any(map(is_symbolic, sizes)) else data


@structural
def identity(input: Array) -> Array:
    """The operand itself: any shape, any dtype, strings included.

    Source: ONNX Identity, opsets 1–25.

    >>> identity(np.ones(2)).shape
    (2,)
    """
    return array(input)


@structural
def reshape(data: Array, shape: Static, *, allowzero: int = 0) -> Array:
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
    return _reshape(data, ints("reshape", "shape", shape), flag("reshape", "allowzero", allowzero))


@kernel
def _reshape(data: Array, shape: Sizes, allowzero: bool) -> Array:
    sizes = sizes_of.reshape(data.shape, shape, allowzero)
    data = _sized(data, sizes)
    return data.reshape(sizes) if isinstance(data, np.ndarray) else lax.reshape(data, sizes)


def flag(op: str, operand: str, value: int) -> bool:
    """An attribute that is 0 or 1."""
    given = value if isinstance(value, int) else integer(op, operand, value)
    if given not in (0, 1):
        raise ArgumentError(f"{op}: `{operand}` is {given}; it must be 0 or 1")
    return given == 1


@structural
def flatten(input: Array, *, axis: int = 1) -> Array:
    """Joins the axes before `axis` into one, and those from `axis` on into another.

    input: (d0, …, dn-1), any dtype. Returns (d0·…·d[axis-1], d[axis]·…·dn-1), same dtype; an empty product is 1.
    axis: static, in [-n, n]; n is allowed and gives a last axis of size 1.
    Raises AxisError when `axis` is outside that range.
    Source: ONNX Flatten, opsets 1–25 (a negative axis from 11).

    >>> flatten(np.zeros((2, 0, 4))).shape
    (2, 0)
    """
    return _flatten(input, integer("flatten", "axis", axis))


@kernel
def _flatten(input: Array, axis: int) -> Array:
    sizes = sizes_of.flatten(input.shape, resolve_axis("flatten", axis, input.ndim, end=True))
    return input.reshape(sizes) if isinstance(input, np.ndarray) else lax.reshape(input, sizes)


@structural
def squeeze(data: Array, axes: Static = None) -> Array:
    """Drops axes of size 1: the `axes` given, or all that there are.

    data: any dtype. axes: static, 1-D integers in [-n, n-1], distinct; None drops every axis of size 1.
    Raises ShapeError when an axis named has another size, AxisError when it does not exist.
    Source: ONNX Squeeze, opsets 1–25.

    >>> squeeze(np.zeros((1, 3, 1)), (0,)).shape
    (3, 1)
    """
    return _squeeze(data, None if axes is None else ints("squeeze", "axes", axes))


@kernel
def _squeeze(data: Array, axes: Ints | None) -> Array:
    named = None if axes is None else resolve_axes("squeeze", axes, data.ndim)
    sizes = sizes_of.squeeze(data.shape, named)
    if isinstance(data, np.ndarray):
        return data.reshape(sizes)
    return lax.squeeze(data, [i for i, d in enumerate(data.shape) if d == 1] if named is None else named)


@structural
def unsqueeze(data: Array, axes: Static) -> Array:
    """Inserts axes of size 1.

    data: n axes, any dtype. axes: static, k distinct integers in [-(n+k), n+k-1], positions in the result. A single
    integer is taken too: the standard says 1-D, but models of its own suite have a scalar, and onnxruntime runs them.
    Raises AxisError when one is outside that range or stands twice.
    Source: ONNX Unsqueeze, opsets 1–25.

    >>> unsqueeze(np.zeros((3, 4)), (0, -1)).shape
    (1, 3, 4, 1)
    """
    if type(axes) is not tuple and (isinstance(axes, int) or getattr(axes, "ndim", 1) == 0):
        axes = (integer("unsqueeze", "axes", axes),)
    return _unsqueeze(data, ints("unsqueeze", "axes", axes))


@kernel
def _unsqueeze(data: Array, axes: Sizes) -> Array:
    places = resolve_axes("unsqueeze", axes, data.ndim + len(axes))
    if isinstance(data, np.ndarray):
        return data.reshape(sizes_of.unsqueeze(data.shape, places))
    return lax.expand_dims(data, places)


@structural
def transpose(data: Array, *, perm: Ints | None = None) -> Array:
    """The axes of `data` in the order `perm`; reversed when `perm` is None.

    data: n axes, any dtype. perm: static, a permutation of 0 … n-1; axis i of the result is axis perm[i] of data.
    Raises AxisError when `perm` is no permutation of the axes.
    Source: ONNX Transpose, opsets 1–25.

    >>> transpose(np.zeros((2, 3, 4)), perm=(2, 0, 1)).shape
    (4, 2, 3)
    """
    return _transpose(data, None if perm is None else ints("transpose", "perm", perm))


@kernel
def _transpose(data: Array, perm: tuple[int, ...] | None) -> Array:
    order = sizes_of.permutation(perm, data.ndim)
    return np.transpose(data, order) if isinstance(data, np.ndarray) else lax.transpose(data, order)


@structural
def expand(input: Array, shape: Static) -> Array:
    """Broadcasts `input` against `shape`, in both directions: the result may be larger than `shape`.

    input: any dtype. shape: static, 1-D integers; a 1 keeps the size of the input.
    Raises ShapeError when the two do not broadcast.
    Source: ONNX Expand, opsets 8–13.

    >>> expand(np.zeros((3, 1)), (2, 1, 6)).shape
    (2, 3, 6)
    """
    return _expand(input, ints("expand", "shape", shape))


@kernel
def _expand(input: Array, shape: Sizes) -> Array:
    negative = [d for d in shape if isinstance(d, int) and d < 0]
    if negative:
        raise ArgumentError(f"expand: `shape` {shape} holds {negative[0]}; sizes must not be negative")
    sizes = sizes_of.countable("expand", sizes_of.broadcast("expand", input.shape, shape))
    input = _sized(input, sizes)
    if isinstance(input, np.ndarray):
        return np.broadcast_to(input, sizes)
    if sizes == input.shape:
        return input
    return lax.broadcast_in_dim(input, sizes, tuple(range(len(sizes) - input.ndim, len(sizes))))
