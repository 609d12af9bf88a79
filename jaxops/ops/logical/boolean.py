"""Operators on booleans."""

__all__ = ["and_", "not_", "or_", "xor"]

import numpy as np
from jax import lax

from jaxops.ops.common.elementwise import broadcast_reduce, one_of_kind, pair, unary
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.signature import Traits
from jaxops.static import A, Operand

TRAITS = Traits(foldable=True)


@tracks_sizes
def and_(a: Operand[A], b: Operand[A]) -> A:
    """Logical and, element by element; the operands broadcast to each other.

    a, b: booleans. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for another dtype.
    Source: ONNX And, opset 7.

    >>> and_(np.array([True, False]), np.array(True))
    array([ True, False])
    """
    return broadcast_reduce(pair("boolean", a, b), np.logical_and, lax.bitwise_and)


@tracks_sizes
def or_(a: Operand[A], b: Operand[A]) -> A:
    """Logical or, element by element; the operands broadcast to each other.

    a, b: booleans. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for another dtype.
    Source: ONNX Or, opset 7.

    >>> or_(np.array([True, False]), np.array(False))
    array([ True, False])
    """
    return broadcast_reduce(pair("boolean", a, b), np.logical_or, lax.bitwise_or)


def xor(a: Operand[A], b: Operand[A]) -> A:
    """Logical exclusive or, element by element; the operands broadcast to each other.

    a, b: booleans. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, DTypeError for another dtype.
    Source: ONNX Xor, opset 7.

    >>> xor(np.array([True, False]), np.array(True))
    array([False,  True])
    """
    return broadcast_reduce(pair("boolean", a, b), np.logical_xor, lax.bitwise_xor)


@tracks_sizes
def not_(x: Operand[A]) -> A:
    """Logical not, element by element.

    x: booleans, any shape. Returns booleans of the same shape. Raises DTypeError for another dtype.
    Source: ONNX Not, opset 1.

    >>> not_(np.array([True, False]))
    array([False,  True])
    """
    return unary(one_of_kind("boolean", x), np.logical_not, lax.bitwise_not)
