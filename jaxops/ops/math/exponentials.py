"""Exponential, logarithm, square root and error function."""

__all__ = ["erf", "exp", "log", "sqrt"]


import jax
import jax.numpy as jnp  # noqa: F401 - the doctests use it
import numpy as np
from jax import lax

from jaxops.dtypes import floating
from jaxops.ops.common.elementwise import one_of_kind, unary
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.signature import Traits, operator
from jaxops.signature_errors import errors_of
from jaxops.static import A, Array, ArrayLike, Operand

TRAITS = Traits(foldable=True)


@tracks_sizes
def sqrt(x: Operand[A]) -> A:
    """The square root of each element; NaN for a negative one.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sqrt, opsets 1–13.

    >>> sqrt(np.array([4.0, 0.25]))
    array([2. , 0.5])
    """
    return unary(one_of_kind("floating-point", x), np.sqrt, lax.sqrt)


def exp(input: Operand[A]) -> A:
    """e to the power of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Exp, opsets 1–13.

    >>> exp(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return unary(one_of_kind("floating-point", input), np.exp, lax.exp)


def log(input: Operand[A]) -> A:
    """The natural logarithm of each element; -inf for zero, NaN for a negative one.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Log, opsets 1–13.

    >>> log(jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return unary(one_of_kind("floating-point", input), np.log, _log)


def _log(x: jax.Array) -> jax.Array:
    # Without the barrier, XLA would replace log(exp(x)) by x, even where exp(x) has overflowed.
    return lax.log(lax.optimization_barrier(x))


@operator(foldable=False, kind="activation")
def erf(input: ArrayLike) -> jax.Array:
    """The error function of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Erf, opsets 9–13 (integers, too, before 13: only as `jaxops.onnx.opset(9).Erf` and in files).

    >>> erf(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.erf(*floating(input=input))


@operator(foldable=False, kind="activation")
def erfc(x: Array) -> jax.Array:
    """1 - erf(x), exact where erf(x) is near 1. Not an operator of ONNX: some converters write it into their files."""
    with errors_of("erfc"):
        return lax.erfc(*floating(x=x))
