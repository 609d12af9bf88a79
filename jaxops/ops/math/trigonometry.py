"""Trigonometric and hyperbolic functions; angles are in radians."""

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "sin", "sinh", "tan"]


import jax
import jax.numpy as jnp  # noqa: F401 - the doctests use it
from jax import lax

from jaxops.dtypes import floating
from jaxops.signature import operator
from jaxops.static import ArrayLike


@operator(precision="exact")
def sin(input: ArrayLike) -> jax.Array:
    """The sine of each element, an angle in radians.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sin, opsets 7–22.

    >>> sin(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.sin(*floating(input=input))


@operator(precision="exact")
def cos(input: ArrayLike) -> jax.Array:
    """The cosine of each element, an angle in radians.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Cos, opsets 7–22.

    >>> cos(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return lax.cos(*floating(input=input))


def tan(input: ArrayLike) -> jax.Array:
    """The tangent of each element, an angle in radians.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Tan, opsets 7–22.

    >>> tan(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.tan(*floating(input=input))


def asin(input: ArrayLike) -> jax.Array:
    """The inverse sine of each element, an angle in [-π/2, π/2]; NaN outside [-1, 1].

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Asin, opsets 7–22.

    >>> asin(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.asin(*floating(input=input))


def acos(input: ArrayLike) -> jax.Array:
    """The inverse cosine of each element, an angle in [0, π]; NaN outside [-1, 1].

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Acos, opsets 7–22.

    >>> acos(jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return lax.acos(*floating(input=input))


def atan(input: ArrayLike) -> jax.Array:
    """The inverse tangent of each element, an angle in [-π/2, π/2].

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Atan, opsets 7–22.

    >>> atan(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.atan(*floating(input=input))


def sinh(input: ArrayLike) -> jax.Array:
    """The hyperbolic sine of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sinh, opsets 9–22.

    >>> sinh(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.sinh(*floating(input=input))


def cosh(input: ArrayLike) -> jax.Array:
    """The hyperbolic cosine of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Cosh, opsets 9–22.

    >>> cosh(jnp.array([0.0]))
    Array([1.], dtype=float32)
    """
    return lax.cosh(*floating(input=input))


def asinh(input: ArrayLike) -> jax.Array:
    """The inverse hyperbolic sine of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Asinh, opsets 9–22.

    >>> asinh(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.asinh(*floating(input=input))


def acosh(input: ArrayLike) -> jax.Array:
    """The inverse hyperbolic cosine of each element, a number ≥ 0; NaN below 1.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Acosh, opsets 9–22.

    >>> acosh(jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return lax.acosh(*floating(input=input))


def atanh(input: ArrayLike) -> jax.Array:
    """The inverse hyperbolic tangent of each element; ±inf at ±1, NaN beyond.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Atanh, opsets 9–22.

    >>> atanh(jnp.array([0.0]))
    Array([0.], dtype=float32)
    """
    return lax.atanh(*floating(input=input))
