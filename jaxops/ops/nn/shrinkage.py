"""Shrink: the one activation that the standard lists in its family `nn`."""

__all__ = ["shrink"]

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, as_written, is_float
from jaxops.ops.common.elementwise import one_of_kind
from jaxops.signature import Traits
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(grows=True)


def shrink(input: ArrayLike, *, bias: float = 0.0, lambd: float = 0.5) -> jax.Array:
    """x + bias where x < -lambd, x - bias where x > lambd, else 0.

    input: any shape, numbers. Returns the same shape and dtype.
    Integer results are exact, truncated toward zero; onnxruntime truncates too, but computes in floating point.
    Raises ArgumentError for an infinite bias on integers.
    Source: ONNX Shrink, opset 9.

    >>> shrink(jnp.array([-2.0, 0.25, 2.0]), bias=1.0)
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return _shrink(as_traced(one_of_kind("real numbers", input)), float(bias), float(lambd))


@jit_if_concrete
def _shrink(x: jax.Array, bias: float, lambd: float) -> jax.Array:
    zero = lax.full_like(x, 0)
    if is_float(x.dtype):
        return lax.select(x < -lambd, x + bias, lax.select(x > lambd, x - bias, zero))
    step = as_written("bias", bias)
    above = lax.select(_greater(x, lambd), _shifted(x, -step), zero)
    return lax.select(_less(x, -lambd), _shifted(x, step), above)


def _less(x: jax.Array, limit: float) -> jax.Array:
    if not math.isfinite(limit):
        return jnp.full(x.shape, limit > 0)
    least, bound = int(jnp.iinfo(x.dtype).min), math.ceil(limit)
    if not least <= bound <= jnp.iinfo(x.dtype).max:
        return jnp.full(x.shape, bound > least)
    return x < bound


def _greater(x: jax.Array, limit: float) -> jax.Array:
    return ~_less(x, math.floor(limit) + 1) if math.isfinite(limit) else jnp.full(x.shape, limit < 0)


def _shifted(x: jax.Array, by: Fraction) -> jax.Array:
    """x + by, truncated."""
    integer_part = math.floor(by)
    total = x + np.uint64(integer_part % 2 ** jnp.iinfo(x.dtype).bits).astype(x.dtype)  # sums wrap
    return total if by == integer_part else total + _less(x, -integer_part).astype(x.dtype)
