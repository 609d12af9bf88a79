"""Rounding to integers."""

__all__ = ["ceil", "floor", "round"]

from typing import Any

import numpy as np
from jax import lax

from jaxops.ops.common.elementwise import one_of_kind, unary
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.signature import Traits
from jaxops.static import A, Operand

TRAITS = Traits(foldable=True, differentiable=False)


@tracks_sizes
def floor(x: Operand[A]) -> A:
    """The largest integer at or below each element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Floor, opsets 1–13.

    >>> floor(np.array([1.5, -1.5]))
    array([ 1., -2.])
    """
    return unary(one_of_kind("floating-point", x), np.floor, lax.floor)


@tracks_sizes
def ceil(x: Operand[A]) -> A:
    """The smallest integer at or above each element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Ceil, opsets 1–13.

    >>> ceil(np.array([1.5, -1.5]))
    array([ 2., -1.])
    """
    return unary(one_of_kind("floating-point", x), np.ceil, lax.ceil)


@tracks_sizes
def round(x: Operand[A]) -> A:
    """The nearest integer; ties go to the even one.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Round, opsets 11–22.

    >>> round(np.array([0.9, 2.5, -4.5]))
    array([ 1.,  2., -4.])
    """
    return unary(one_of_kind("floating-point", x), np.rint, _traced_round)


def _traced_round(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)
