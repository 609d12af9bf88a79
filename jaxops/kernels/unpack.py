"""Unpacks integers of 1, 2 or 4 bits from bytes, the lowest bits first."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def unpacked(x: jax.Array, bits: int) -> jax.Array:
    """Returns the elements of bytes as uint8; the last axis is 8 / bits times as long."""
    if bits == 8:
        return x
    elements = jnp.stack(at_positions(x, bits), -1)
    return lax.reshape(elements, (*x.shape[:-1], x.shape[-1] * (8 // bits)))


def at_positions(x: jax.Array, bits: int) -> list[jax.Array]:
    """Returns the elements at each position in a byte, each in the shape of x."""
    return [(x >> np.uint8(shift)) & np.uint8(2**bits - 1) for shift in range(0, 8, bits)]
