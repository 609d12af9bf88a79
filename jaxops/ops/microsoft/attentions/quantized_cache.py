"""Caches of keys and values that hold integers of 8 bits, or two integers of 4 bits per byte."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import DTypeError, describe
from jaxops.static import array

CELL = {4: np.dtype(np.uint8), 8: np.dtype(np.int8)}  # bits of an integer → element type of the cache


def cells(bits: int, **operands: Any) -> tuple[Any, ...]:
    """Returns quantized caches as JAX arrays; None stays None. Raises DTypeError for another element type."""
    arrays = tuple(None if v is None else array(v) for v in operands.values())
    for name, value in zip(operands, arrays, strict=True):
        if value is not None and value.dtype != CELL[bits]:
            raise DTypeError(f"`{name}` must be {CELL[bits].name} for {bits} bits, got {describe(value)}")
    return tuple(None if v is None else as_traced(v) for v in arrays)


def quantized(x: Any, scale: Any, bits: int) -> Any:
    """Returns x / scale as integers of the cache. Two of 4 bits, plus 8, share a byte, the first in its low half."""
    limit = 2 ** (bits - 1)
    wide = jnp.clip(jnp.round(x.astype(np.float32) / scale), -limit, limit - 1).astype(np.int32)
    if bits == 8:
        return wide.astype(np.int8)
    wide = wide + 8
    return (wide[..., ::2] | (wide[..., 1::2] << 4)).astype(np.uint8)


def dequantized(cache: Any, scale: Any, bits: int, dtype: Any) -> Any:
    """Returns the cache as floats."""
    if bits == 8:
        return (cache.astype(np.float32) * scale).astype(dtype)
    halves = jnp.stack([cache & np.uint8(15), cache >> np.uint8(4)], -1)
    wide = halves.reshape(*cache.shape[:-1], 2 * cache.shape[-1]).astype(np.float32) - 8.0
    return (wide * scale).astype(dtype)
