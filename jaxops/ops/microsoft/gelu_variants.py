"""Activation functions, some with a bias before them; 16-bit floats are computed in float32."""

__all__ = ["bias_gelu", "bias_split_gelu", "fast_gelu", "gelu", "quick_gelu", "scaled_silu", "swiglu"]

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type, floating
from jaxops.errors import ShapeError, describe
from jaxops.kernels import normal_cdf
from jaxops.ops.common.elementwise import traced_operands
from jaxops.shapes.microsoft import biases as sizes_of
from jaxops.signature import Bias, Traits
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="activation")


def gelu(x: ArrayLike) -> jax.Array:
    """x · Φ(x), with Φ the distribution function of the normal distribution.

    x: any shape, floating-point. Returns the same shape and dtype.
    Raises DTypeError. Source: com.microsoft Gelu, opset 1; as the standard's Gelu with approximate='none'.

    >>> gelu(jnp.array([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    return _biased_gelu(floating(x=x), False)


def fast_gelu(x: ArrayLike, bias: Bias[ArrayLike] | None = None) -> jax.Array:
    """½y(1 + tanh(√(2/π)(y + 0.044715y³))), where y is x, with `bias` added to its last axis.

    x: (…, C), floating-point, any shape without bias. bias: (C,), of x's dtype. Returns an array like x.
    Raises ShapeError for a bias of another shape, DTypeError. Source: com.microsoft FastGelu, opset 1.

    >>> fast_gelu(jnp.array([0.0, 99.0]), jnp.array([0.0, 1.0])).tolist()
    [0.0, 100.0]
    """
    return _biased_gelu(_with_bias(x, bias), True)


def bias_gelu(a: ArrayLike, b: Bias[ArrayLike]) -> jax.Array:
    """Returns gelu(a + b), where b is added to the last axis.

    a: (…, C), floating-point. b: (C,), of a's dtype. Returns an array like a.
    Raises ShapeError for a b of another shape, DTypeError. Source: com.microsoft BiasGelu, opset 1.

    >>> bias_gelu(jnp.array([0.0, 99.0]), jnp.array([0.0, 1.0])).tolist()
    [0.0, 100.0]
    """
    return _biased_gelu(_with_bias(a, b), False)


def _with_bias(x: Any, bias: Any) -> tuple[jax.Array, ...]:
    return traced_operands((x,) if bias is None else (x, bias), "floating-point")


@jit_if_concrete
def _biased_gelu(operands: tuple[jax.Array, ...], approximate: bool) -> jax.Array:
    x, *biases = (v.astype(accumulation_type(v.dtype)) for v in operands)
    for bias in biases:
        sizes_of.last_axis(x.shape, bias=bias.shape)
        x = x + lax.broadcast_in_dim(bias, x.shape, (x.ndim - 1,))
    return normal_cdf.weighed(x, approximate).astype(operands[0].dtype)


def quick_gelu(x: ArrayLike, *, alpha: float = 1.7020000219345093) -> jax.Array:
    """x · sigmoid(alpha · x).

    x: any shape, floating-point. Returns the same shape and dtype.
    Raises DTypeError. Source: com.microsoft QuickGelu, opset 1.

    >>> quick_gelu(jnp.array([0.0, 100.0])).tolist()
    [0.0, 100.0]
    """
    (data,) = floating(x=x)
    return _quick_gelu(data, float(alpha))


@jit_if_concrete
def _quick_gelu(x: jax.Array, alpha: float) -> jax.Array:
    wide = x.astype(accumulation_type(x.dtype))
    return (wide * lax.logistic(wide * alpha)).astype(x.dtype)


def scaled_silu(x: ArrayLike, scale: ArrayLike | None = None, *, alpha: float = 1.0) -> jax.Array:
    """z · sigmoid(z), with z = scale · x; z and its sigmoid are rounded to the dtype of x.

    x: any shape, floating-point. scale: one number of any floating dtype; None is `alpha`. Returns an array like x.
    Raises ShapeError for a scale of several numbers, DTypeError. Source: com.microsoft ScaledSiLU, opset 1.

    >>> scaled_silu(jnp.array([0.0, 100.0]), alpha=0.5).tolist()
    [0.0, 50.0]
    """
    (data, factor) = floating(x=x, scale=scale)
    if factor is None:
        factor = jnp.asarray(alpha, accumulation_type(data.dtype))
    elif factor.size != 1:
        raise ShapeError(f"`scale` must be one number, got {describe(factor)}")
    return _scaled_silu((data, factor))


@jit_if_concrete
def _scaled_silu(operands: tuple[jax.Array, jax.Array]) -> jax.Array:
    x, scale = operands
    wide = accumulation_type(x.dtype)
    z = (x.astype(wide) * scale.reshape(()).astype(wide)).astype(x.dtype)
    return z * lax.logistic(z.astype(wide)).astype(x.dtype)


def swiglu(
    gate: ArrayLike,
    up: ArrayLike | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
    round_activation: int = 0,
) -> jax.Array:
    """Returns g · sigmoid(activation_alpha · g) · (u + activation_beta), with g = min(gate, limit) and u = `up`,
    clipped to [-limit, limit].

    gate, up: one shape and dtype, floating-point; without `up`, the left half of the last axis of `gate` is the gate,
    the right half is up. limit: 0 or less for no limit. round_activation: 1 rounds g · sigmoid(…) to the dtype of the
    gate, and multiplies by u in that dtype. Returns an array like `up`.
    Raises ShapeError for other shapes, and for an odd last axis without `up`; DTypeError; ArgumentError for a flag
    other than 0 and 1. Source: com.microsoft SwiGLU, opset 1.

    >>> swiglu(jnp.array([0.0, 100.0, 3.0, 2.0]), limit=50.0).tolist()
    [0.0, 100.0]
    """
    halves = traced_operands((gate,) if up is None else (gate, up), "floating-point")
    if up is not None and halves[0].shape != halves[1].shape:
        raise ShapeError(f"`gate` is {describe(halves[0])}, and `up` {describe(halves[1])}; they must have one shape")
    options = float(activation_alpha), float(activation_beta), float(limit)
    return _swiglu(halves, *options, flag("round_activation", round_activation))


@jit_if_concrete
def _swiglu(halves: tuple[jax.Array, ...], alpha: float, beta: float, limit: float, rounds: bool) -> jax.Array:
    dtype = halves[0].dtype
    wide = accumulation_type(dtype)
    if len(halves) == 1:
        (x,) = halves
        half = sizes_of.halves(x.shape)[-1]
        halves = x[..., :half], x[..., half:]
    gate, up = (x.astype(wide) for x in halves)
    activated, up = swiglu_factors(gate, up, alpha, beta, limit if limit > 0 else None)
    return ((activated.astype(dtype).astype(wide) if rounds else activated) * up).astype(dtype)


def swiglu_factors(
    gate: jax.Array, up: jax.Array, alpha: float, beta: float, limit: float | None
) -> tuple[jax.Array, jax.Array]:
    """Returns g · sigmoid(alpha · g) and u + beta, with g = min(gate, limit) and u = `up` in [-limit, limit]."""
    if limit is not None:
        gate, up = jnp.minimum(gate, limit), jnp.clip(up, -limit, limit)
    return gate * lax.logistic(gate * alpha), up + beta if beta else up  # adding 0 would change -0.0


def bias_split_gelu(x: ArrayLike, bias: Bias[ArrayLike]) -> jax.Array:
    """Adds `bias` to the last axis, cuts it in two, and returns left · gelu(right).

    x: (…, 2·C), floating-point. bias: (2·C,), of x's dtype. Returns (…, C), same dtype.
    Raises ShapeError for an odd last axis or a bias of another shape, DTypeError. Source: com.microsoft BiasSplitGelu,
    opset 1.

    >>> bias_split_gelu(jnp.array([3.0, 99.0]), jnp.array([0.0, 1.0])).tolist()
    [300.0]
    """
    return _bias_split_gelu(traced_operands((x, bias), "floating-point"))


@jit_if_concrete
def _bias_split_gelu(operands: tuple[jax.Array, ...]) -> jax.Array:
    x, bias = (v.astype(accumulation_type(v.dtype)) for v in operands)
    sizes_of.last_axis(x.shape, bias=bias.shape)
    half = sizes_of.halves(x.shape)[-1]
    x = x + lax.broadcast_in_dim(bias, x.shape, (x.ndim - 1,))
    left, right = x[..., :half], x[..., half:]
    return (left * normal_cdf.weighed(right, False)).astype(operands[0].dtype)
