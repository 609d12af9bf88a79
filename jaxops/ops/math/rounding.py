"""Rounding to whole numbers."""

__all__ = ["ceil", "floor", "round"]

from typing import Any

import numpy as np
from jax import lax

from jaxops.ops.elementwise import require, unary
from jaxops.static import Array, array, foldable


@foldable
def floor(x: Array) -> Array:
    """The next whole number at or below each element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Floor, opsets 1–13.

    >>> floor(np.array([1.5, -1.5]))
    array([ 1., -2.])
    """
    return unary(_real("floor", x), np.floor, lax.floor)


@foldable
def ceil(x: Array) -> Array:
    """The next whole number at or above each element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Ceil, opsets 1–13.

    >>> ceil(np.array([1.5, -1.5]))
    array([ 2., -1.])
    """
    return unary(_real("ceil", x), np.ceil, lax.ceil)


@foldable
def round(x: Array) -> Array:
    """The nearest whole number; from the middle between two, the even one.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Round, opsets 11–22.

    >>> round(np.array([0.9, 2.5, -4.5]))
    array([ 1.,  2., -4.])
    """
    return unary(_real("round", x), np.rint, _traced_round)


def _traced_round(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


def _real(op: str, value: Any) -> Array:
    x = array(value)
    require(op, "floating-point", x)
    return x
