"""The activation that the standard lists among the neural-network operators."""

__all__ = ["shrink"]


import jax
import jax.numpy as jnp
from jax import lax

from jaxops.dtypes import as_traced, is_float
from jaxops.static import Array, jit_if_concrete


def shrink(input: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """x + bias where x < -lambd, x - bias where x > lambd, else 0.

    input: any shape, numbers; integers are compared and shifted as floating-point numbers, then truncated.
    Returns the same shape and dtype.
    Source: ONNX Shrink, opset 9.

    >>> shrink(jnp.array([-2.0, 0.25, 2.0]), bias=1.0)
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return _shrink(as_traced(input), bias, lambd)


@jit_if_concrete
def _shrink(input: jax.Array, bias: float, lambd: float) -> jax.Array:
    x = input if is_float(input.dtype) else input.astype(jnp.float32)
    zero = lax.full_like(x, 0)
    return lax.select(x < -lambd, x + bias, lax.select(x > lambd, x - bias, zero)).astype(input.dtype)
