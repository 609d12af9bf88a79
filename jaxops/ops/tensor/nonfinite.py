"""Operators that find NaN and infinity."""

__all__ = ["isinf", "isnan"]

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag
from jaxops.ops.common.elementwise import broadcast_to, one_of_kind, unary
from jaxops.signature import Traits
from jaxops.static import A, Array, Operand, jit_if_concrete

TRAITS = Traits(foldable=True)


def isnan(x: Operand[A]) -> A:
    """Returns True for each element that is NaN.

    x: any shape, floating-point. Returns booleans of the same shape.
    Raises DTypeError for another dtype.
    Source: ONNX IsNaN, opsets 9–20.

    >>> isnan(np.array([1.0, np.nan]))
    array([False,  True])
    """
    x = _comparable(x)
    return unary(x, np.isnan, _traced_isnan)


def _traced_isnan(x: Any) -> Any:
    return lax.ne(x, x)


def isinf(x: Operand[A], *, detect_negative: int = 1, detect_positive: int = 1) -> A:
    """Returns True for each infinite element.

    x: any shape, floating-point. Returns booleans of the same shape.
    detect_negative, detect_positive: 0 ignores that infinity.
    Raises DTypeError for another dtype.
    Source: ONNX IsInf, opsets 10–20.

    >>> isinf(np.array([-np.inf, np.inf]), detect_negative=0)
    array([False,  True])
    """
    negative, positive = (
        flag(name, value)
        for name, value in (("detect_negative", detect_negative), ("detect_positive", detect_positive))
    )
    return _isinf(_comparable(x), negative, positive)


@jit_if_concrete
def _isinf(x: Array, negative: bool, positive: bool) -> Array:
    same = np.equal if isinstance(x, np.ndarray) else lax.eq
    if negative and positive:
        return np.asarray(np.isinf(x)) if isinstance(x, np.ndarray) else jnp.isinf(x)
    if not (negative or positive):
        return (np if isinstance(x, np.ndarray) else jnp).zeros(x.shape, bool)
    infinity = np.asarray(np.inf if positive else -np.inf, x.dtype)
    return same(x, infinity if isinstance(x, np.ndarray) else broadcast_to(infinity, x.shape))


def _comparable(value: Any) -> Any:
    """The operand, with 8-bit floats as float32, since not every backend compares them."""
    x = one_of_kind("floating-point", value)
    return x.astype(np.float32) if x.dtype.itemsize == 1 else x
