"""Operators on the bits of integers."""

__all__ = ["bit_shift", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import one_of
from jaxops.ops.common.elementwise import broadcast_reduce, pair, require, traced_if_symbolic, unary
from jaxops.signature import Traits, operator
from jaxops.static import A, Operand, array

TRAITS = Traits(foldable=True)

Direction = Literal["LEFT", "RIGHT"]


def bitwise_and(a: Operand[A], b: Operand[A]) -> A:
    """The bits set in both, element by element; the operands broadcast to each other.

    a, b: integers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for other or differing dtypes.
    Source: ONNX BitwiseAnd, opset 18.

    >>> bitwise_and(np.array([6, 5]), 3)
    array([2, 1])
    """
    return broadcast_reduce(pair("integer", a, b), np.bitwise_and, lax.bitwise_and)


def bitwise_or(a: Operand[A], b: Operand[A]) -> A:
    """The bits set in either or both, element by element; the operands broadcast to each other.

    a, b: integers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for other or differing dtypes.
    Source: ONNX BitwiseOr, opset 18.

    >>> bitwise_or(np.array([6, 5]), 3)
    array([7, 7])
    """
    return broadcast_reduce(pair("integer", a, b), np.bitwise_or, lax.bitwise_or)


def bitwise_xor(a: Operand[A], b: Operand[A]) -> A:
    """The bits set in exactly one of the two, element by element; the operands broadcast to each other.

    a, b: integers of one dtype. Returns that dtype, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for other or differing dtypes.
    Source: ONNX BitwiseXor, opset 18.

    >>> bitwise_xor(np.array([6, 5]), 3)
    array([5, 6])
    """
    return broadcast_reduce(pair("integer", a, b), np.bitwise_xor, lax.bitwise_xor)


@operator(grows=True)
def bitwise_not(x: Operand[A]) -> A:
    """The bits that are not set, element by element.

    x: integers, any shape. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX BitwiseNot, opset 18.

    >>> bitwise_not(np.array([0, 5]))
    array([-1, -6])
    """
    (bits,) = traced_if_symbolic(array(x))
    require("integer", bits)
    return unary(bits, np.bitwise_not, lax.bitwise_not)


@operator(grows=True)
def bit_shift(x: Operand[A], y: Operand[A], *, direction: Direction) -> A:
    """The bits of `x` shifted by `y` positions, element by element; the operands broadcast to each other.

    x, y: integers of one dtype. Returns that dtype, of the common shape. direction: 'LEFT' or 'RIGHT'.
    A right shift of a signed number keeps its sign. A y that is negative or at least the number of bits shifts all bits
    out: the result is 0, or -1 for a right shift of a negative number.
    Raises ArgumentError for another direction, ShapeError, DTypeError.
    Source: ONNX BitShift, opsets 11–28 (signed integers from 28).

    >>> bit_shift(np.array([16, -4]), 2, direction="RIGHT")
    array([ 4, -1])
    """
    one_of("direction", direction, Direction)
    arrays = pair("integer", x, y)
    if direction == "LEFT":
        return broadcast_reduce(arrays, _static_left, _left)
    return broadcast_reduce(arrays, _static_right, _right)


def _static_left(x: Any, y: Any) -> Any:
    beyond = _beyond(x, y)
    return np.where(beyond, 0, np.left_shift(x, np.where(beyond, 0, y).astype(x.dtype))).astype(x.dtype)


def _static_right(x: Any, y: Any) -> Any:
    # NumPy shifts by at most bits - 1; shift by that, then by one more.
    last = np.iinfo(x.dtype).bits - 1
    beyond = _beyond(x, y)
    moved = np.right_shift(x, np.where(beyond, last, y).astype(x.dtype))
    return np.where(beyond, np.right_shift(moved, np.asarray(1, x.dtype)), moved)


def _beyond(x: Any, y: Any) -> Any:
    return (y < 0) | (y >= np.iinfo(x.dtype).bits)


def _left(x: jax.Array, y: jax.Array) -> jax.Array:
    return lax.select(_outside(y), lax.full_like(x, 0), lax.shift_left(x, y))


def _right(x: jax.Array, y: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return lax.select(_outside(y), lax.full_like(x, 0), lax.shift_right_logical(x, y))
    last = lax.full_like(y, jnp.iinfo(y.dtype).bits - 1)
    return lax.shift_right_arithmetic(x, lax.select(_outside(y), last, y))


def _outside(y: jax.Array) -> jax.Array:
    wide = lax.ge(y, lax.full_like(y, jnp.iinfo(y.dtype).bits))
    return lax.bitwise_or(wide, lax.lt(y, lax.full_like(y, 0)))
