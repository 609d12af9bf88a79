"""Functions of one operand, element by element.

The algebraic ones are computed by NumPy while static; the transcendental ones are always JAX operations.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.ops.pointwise import floating, on_sizes, require, symbolic, unary
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import Array, array, structural


@structural
def neg(x: Array) -> Array:
    """-x, element by element.

    x: any shape, signed numbers. Returns the same shape and dtype.
    Source: ONNX Neg, opsets 1–13.

    >>> neg(np.array([1, -2]))
    array([-1,  2])
    """
    return unary(x, np.negative, lax.neg)


@structural
def abs(x: Array) -> Array:
    """The absolute value of each element.

    x: any shape, numbers. Returns the same shape and dtype.
    Source: ONNX Abs, opsets 1–13.

    >>> abs(np.array([1, -2]))
    array([1, 2])
    """
    return unary(x, _static_abs, _traced_abs)


def _static_abs(x: Any) -> Any:
    return on_sizes(lambda d: of_sizes.larger(d, -d), x) if symbolic(x) else np.abs(x)


def _traced_abs(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else lax.abs(x)


@structural
def sign(input: Array) -> Array:
    """1 for a positive element, -1 for a negative one, 0 for zero; NaN stays.

    input: any shape, numbers. Returns the same shape and dtype.
    Source: ONNX Sign, opsets 9–13.

    >>> sign(np.array([5, 0, -2]))
    array([ 1,  0, -1])
    """
    return unary(input, np.sign, lax.sign)


@structural
def floor(x: Array) -> Array:
    """The next whole number at or below each element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Floor, opsets 1–13.

    >>> floor(np.array([1.5, -1.5]))
    array([ 1., -2.])
    """
    return unary(_real("floor", x), np.floor, lax.floor)


@structural
def ceil(x: Array) -> Array:
    """The next whole number at or above each element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Ceil, opsets 1–13.

    >>> ceil(np.array([1.5, -1.5]))
    array([ 2., -1.])
    """
    return unary(_real("ceil", x), np.ceil, lax.ceil)


@structural
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


@structural
def reciprocal(x: Array) -> Array:
    """1 / x, element by element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Reciprocal, opsets 1–13.

    >>> reciprocal(np.array([4.0, -0.5]))
    array([ 0.25, -2.  ])
    """
    return unary(_real("reciprocal", x), np.reciprocal, lax.reciprocal)


@structural
def sqrt(x: Array) -> Array:
    """The square root of each element; NaN for a negative one.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sqrt, opsets 1–13.

    >>> sqrt(np.array([4.0, 0.25]))
    array([2. , 0.5])
    """
    return unary(_real("sqrt", x), np.sqrt, lax.sqrt)


def _real(op: str, value: Any) -> Array:
    x = array(value)
    require(op, "floating-point", x)
    return x


def exp(input: Array) -> Array:
    """e to the power of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Exp, opsets 1–13.

    >>> exp(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return lax.exp(floating("exp", input))


def log(input: Array) -> Array:
    """The natural logarithm of each element; -inf for zero, NaN for a negative one.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Log, opsets 1–13.

    >>> log(jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return lax.log(floating("log", input))


def erf(input: Array) -> Array:
    """The error function of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Erf, opsets 9–13 (integers, before 13, by its adapter).

    >>> erf(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.erf(floating("erf", input))


def sin(input: Array) -> Array:
    """The sine of each element, an angle in radians.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sin, opsets 7–22.

    >>> sin(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.sin(floating("sin", input))


def cos(input: Array) -> Array:
    """The cosine of each element, an angle in radians.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Cos, opsets 7–22.

    >>> cos(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return lax.cos(floating("cos", input))


def tan(input: Array) -> Array:
    """The tangent of each element, an angle in radians.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Tan, opsets 7–22.

    >>> tan(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.tan(floating("tan", input))


def asin(input: Array) -> Array:
    """The angle in [-π/2, π/2] whose sine each element is; NaN outside [-1, 1].

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Asin, opsets 7–22.

    >>> asin(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.asin(floating("asin", input))


def acos(input: Array) -> Array:
    """The angle in [0, π] whose cosine each element is; NaN outside [-1, 1].

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Acos, opsets 7–22.

    >>> acos(jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return lax.acos(floating("acos", input))


def atan(input: Array) -> Array:
    """The angle in [-π/2, π/2] whose tangent each element is.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Atan, opsets 7–22.

    >>> atan(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.atan(floating("atan", input))


def sinh(input: Array) -> Array:
    """The hyperbolic sine of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sinh, opsets 9–22.

    >>> sinh(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.sinh(floating("sinh", input))


def cosh(input: Array) -> Array:
    """The hyperbolic cosine of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Cosh, opsets 9–22.

    >>> cosh(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return lax.cosh(floating("cosh", input))


def asinh(input: Array) -> Array:
    """The number whose hyperbolic sine each element is.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Asinh, opsets 9–22.

    >>> asinh(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.asinh(floating("asinh", input))


def acosh(input: Array) -> Array:
    """The number ≥ 0 whose hyperbolic cosine each element is; NaN below 1.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Acosh, opsets 9–22.

    >>> acosh(jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return lax.acosh(floating("acosh", input))


def atanh(input: Array) -> Array:
    """The number whose hyperbolic tangent each element is; ±inf at ±1, NaN beyond.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Atanh, opsets 9–22.

    >>> atanh(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.atanh(floating("atanh", input))
