"""Elementwise activation functions.

Coefficients are Python numbers, so the arithmetic stays in the type of the operand.
"""

__all__ = [
    "celu",
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "leaky_relu",
    "mish",
    "prelu",
    "relu",
    "selu",
    "sigmoid",
    "softplus",
    "softsign",
    "swiglu",
    "swish",
    "tanh",
    "thresholded_relu",
]

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import one_of
from jaxops.dtypes import floating
from jaxops.errors import ArgumentError, shape_text
from jaxops.kernels import normal_cdf
from jaxops.ops.common.elementwise import (
    broadcast_to,
    on_sizes,
    one_of_kind,
    operands,
    symbolic,
    traced_operands,
    unary,
)
from jaxops.shapes import arithmetic as of_sizes
from jaxops.shapes.math.broadcasting import must_broadcast
from jaxops.signature import Traits, Weight, operator
from jaxops.static import A, ArrayLike, Operand, jit_if_concrete

TRAITS = Traits(kind="activation")

Approximation = Literal["none", "tanh"]


@operator(foldable=True)
def relu(x: Operand[A]) -> A:
    """max(x, 0), element by element; NaN stays, and the derivative at 0 is 0.

    x: any shape, real numbers. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Relu, opsets 1–14.

    >>> relu(jnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return unary(one_of_kind("real numbers", x), _not_below_zero, _relu)


def _relu(x: jax.Array) -> jax.Array:
    # `jax.nn.relu` without the rule of its derivative, which is slow to trace.
    zero = lax.full_like(x, 0)
    return lax.select(lax.le(x, zero), zero, x)


def _not_below_zero(x: np.ndarray) -> np.ndarray:
    return on_sizes(lambda d: of_sizes.larger(d, 0), x) if symbolic(x) else np.maximum(0, x)


def leaky_relu(x: ArrayLike, *, alpha: float = 0.01) -> jax.Array:
    """x where it is not negative, else alpha · x.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX LeakyRelu, opsets 1–16.

    >>> leaky_relu(jnp.array([-1.0, 2.0]), alpha=0.5)
    Array([-0.5,  2. ], dtype=float32)
    """
    (data,) = floating(x=x)
    return _leaky_relu(data, alpha)


@jit_if_concrete
def _leaky_relu(x: jax.Array, alpha: float) -> jax.Array:
    return lax.select(x > 0, x, x * alpha)  # at 0 the derivative is alpha, as PyTorch has it


@operator(grows=True)
def prelu(x: ArrayLike, slope: Weight[ArrayLike]) -> jax.Array:
    """x where it is not negative, else slope · x.

    x: any shape, numbers. slope: the same dtype; it broadcasts to the shape of x. Returns the shape and dtype of x.
    Raises ShapeError when slope does not broadcast to x, DTypeError when the dtypes differ.
    Source: ONNX PRelu, opsets 7–16.

    >>> prelu(jnp.array([-1.0, 2.0]), jnp.array([0.25]))
    Array([-0.25,  2.  ], dtype=float32)
    """
    return _prelu(traced_operands((x, slope), "real numbers"))


@jit_if_concrete
def _prelu(arrays: tuple[jax.Array, ...]) -> jax.Array:
    x, slope = arrays
    must_broadcast("slope", slope.shape, x.shape)
    return lax.select(x > 0, x, x * broadcast_to(slope, x.shape))  # at 0 the derivative is slope, as PyTorch has it


def elu(x: ArrayLike, *, alpha: float = 1.0) -> jax.Array:
    """x where it is not negative, else alpha · (eˣ - 1).

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Elu, opsets 1–22.

    >>> elu(jnp.array([-1000.0, 2.0]))
    Array([-1.,  2.], dtype=float32)
    """
    (data,) = floating(x=x)
    return _elu(data, alpha, 1.0, 1.0)


def celu(x: ArrayLike, *, alpha: float = 1.0) -> jax.Array:
    """max(0, x) + min(0, alpha · (e^(x / alpha) - 1)).

    x: any shape, floating-point. alpha: not 0. Returns the same shape and dtype.
    Raises ArgumentError for an alpha of 0.
    Source: ONNX Celu, opsets 12–28.

    >>> celu(jnp.array([-1000.0, 2.0]), alpha=3.0)
    Array([-3.,  2.], dtype=float32)
    """
    if alpha == 0:
        raise ArgumentError("`alpha` is 0; it divides, so it must not be 0")
    # The second term is nonzero only for a negative x, whatever the sign of alpha.
    (data,) = floating(x=x)
    return _elu(data, alpha, alpha, 1.0)


def selu(
    x: ArrayLike, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> jax.Array:
    """gamma · x where it is positive, else gamma · alpha · (eˣ - 1).

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Selu, opsets 1–22.

    >>> selu(jnp.array([-1000.0, 2.0]), alpha=2.0, gamma=3.0)
    Array([-6.,  6.], dtype=float32)
    """
    (data,) = floating(x=x)
    return _elu(data, gamma * alpha, 1.0, gamma)


@jit_if_concrete
def _elu(x: jax.Array, below: float, width: float, above: float) -> jax.Array:
    """above · x where it is positive, else below · (e^(x / width) - 1)."""
    positive = x > 0
    # No positive number reaches the exponential: where it overflows, the derivative would be NaN.
    negative = lax.select(positive, lax.full_like(x, 0), x)
    return lax.select(positive, _times(x, above), _times(lax.expm1(_times(negative, 1 / width)), below))


def _times(x: jax.Array, factor: float) -> jax.Array:
    return x if factor == 1 else lax.mul(x, lax.full_like(x, factor))


def gelu(x: ArrayLike, *, approximate: Approximation = "none") -> jax.Array:
    """x · Φ(x), with Φ the distribution function of the normal distribution.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    approximate: 'none' computes ½x(1 + erf(x/√2)), 'tanh' ½x(1 + tanh(√(2/π)(x + 0.044715x³))).
    Raises ArgumentError for another value.
    Source: ONNX Gelu, opset 20.

    >>> gelu(jnp.array([0.0, 100.0]))
    Array([  0., 100.], dtype=float32)
    """
    one_of("approximate", approximate, Approximation)
    (data,) = floating(x=x)
    return _gelu(data, approximate == "tanh")


@jit_if_concrete
def _gelu(x: jax.Array, approximate: bool) -> jax.Array:
    return normal_cdf.weighed(x, approximate)


def sigmoid(x: ArrayLike) -> jax.Array:
    """1 / (1 + e⁻ˣ), element by element.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Sigmoid, opsets 1–13.

    >>> sigmoid(jnp.array([0.0]))
    Array([0.5], dtype=float32)
    """
    return lax.logistic(*floating(x=x))


def hard_sigmoid(x: ArrayLike, *, alpha: float = 0.2, beta: float = 0.5) -> jax.Array:
    """max(0, min(1, alpha · x + beta)).

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX HardSigmoid, opsets 1–22.

    >>> hard_sigmoid(jnp.array([-9.0, 0.0, 9.0]))
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    (data,) = floating(x=x)
    return _hard_sigmoid(data, alpha, beta)


@jit_if_concrete
def _hard_sigmoid(x: jax.Array, alpha: float, beta: float) -> jax.Array:
    line = lax.add(_times(x, alpha), lax.full_like(x, beta))
    return lax.clamp(np.asarray(0, x.dtype), line, np.asarray(1, x.dtype))


def hard_swish(x: ArrayLike) -> jax.Array:
    """x · max(0, min(1, x / 6 + ½)).

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX HardSwish, opsets 14–22.

    >>> hard_swish(jnp.array([-9.0, 3.0]))
    Array([-0.,  3.], dtype=float32)
    """
    return _hard_swish(*floating(x=x))


@jit_if_concrete
def _hard_swish(x: jax.Array) -> jax.Array:
    return lax.mul(x, _hard_sigmoid(x, 1 / 6, 0.5))


def swish(x: ArrayLike, *, alpha: float = 1.0) -> jax.Array:
    """x · sigmoid(alpha · x).

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Swish, opset 24.

    >>> swish(jnp.array([0.0, 100.0]))
    Array([  0., 100.], dtype=float32)
    """
    (data,) = floating(x=x)
    return _swish(data, alpha)


@jit_if_concrete
def _swish(x: jax.Array, alpha: float) -> jax.Array:
    return lax.mul(x, lax.logistic(_times(x, alpha)))


def swiglu(a: ArrayLike, b: ArrayLike, *, alpha: float = 1.0) -> jax.Array:
    """`swish` of a gate, times a value: a · sigmoid(alpha · a) · b.

    a, b: one shape, floating-point, one dtype. Returns that shape and dtype.
    Raises ShapeError when the shapes differ, DTypeError.
    Source: ONNX SwiGLU, opset 28.

    >>> swiglu(jnp.array([0.0, 100.0]), jnp.array([3.0, 2.0]))
    Array([  0., 200.], dtype=float32)
    """
    gate, value = operands((a, b), "floating-point")
    if gate.shape != value.shape:
        problem = f"a of {shape_text(gate.shape)} and b of {shape_text(value.shape)} must have one shape"
        of_sizes.must_agree(problem, gate.shape, value.shape)
    return swish(gate, alpha=alpha) * value


def mish(x: ArrayLike) -> jax.Array:
    """x · tanh(ln(1 + eˣ)).

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Mish, opsets 18–22.

    >>> mish(jnp.array([0.0, 100.0]))
    Array([  0., 100.], dtype=float32)
    """
    return _mish(*floating(x=x))


@jit_if_concrete
def _mish(x: jax.Array) -> jax.Array:
    return x * lax.tanh(_softplus(x))


def softplus(x: ArrayLike) -> jax.Array:
    """ln(eˣ + 1), without overflow.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Softplus, opsets 1–22.

    >>> softplus(jnp.array([-1000.0, 1000.0]))
    Array([   0., 1000.], dtype=float32)
    """
    return _softplus(*floating(x=x))


@jit_if_concrete
def _softplus(x: jax.Array) -> jax.Array:
    return jnp.logaddexp(x, 0.0)


def softsign(input: ArrayLike) -> jax.Array:
    """x / (1 + |x|), element by element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Softsign, opsets 1–22.

    >>> softsign(jnp.array([-1.0, 3.0]))
    Array([-0.5 ,  0.75], dtype=float32)
    """
    return _softsign(*floating(input=input))


@jit_if_concrete
def _softsign(x: jax.Array) -> jax.Array:
    return x / (1.0 + lax.abs(x))


def tanh(input: ArrayLike) -> jax.Array:
    """The hyperbolic tangent of each element.

    input: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX Tanh, opsets 1–13.

    >>> tanh(jnp.array([0.0, 100.0]))
    Array([0., 1.], dtype=float32)
    """
    return lax.tanh(*floating(input=input))


def thresholded_relu(x: ArrayLike, *, alpha: float = 1.0) -> jax.Array:
    """x where it is above alpha, else 0.

    x: any shape, floating-point. Returns the same shape and dtype. Raises DTypeError for another dtype.
    Source: ONNX ThresholdedRelu, opsets 10–22.

    >>> thresholded_relu(jnp.array([0.5, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    (data,) = floating(x=x)
    return _thresholded_relu(data, alpha)


@jit_if_concrete
def _thresholded_relu(x: jax.Array, alpha: float) -> jax.Array:
    return lax.select(x > alpha, x, lax.full_like(x, 0))
