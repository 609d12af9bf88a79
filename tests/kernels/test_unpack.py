"""Integers of a few bits are unpacked from bytes."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxops.kernels.unpack import unpacked


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_unpacked(bits):
    x = np.random.default_rng(7).integers(0, 256, (3, 8)).astype(np.uint8)
    parts = np.stack([(x >> shift) & (2**bits - 1) for shift in range(0, 8, bits)], -1).reshape(3, -1)
    np.testing.assert_array_equal(unpacked(jnp.asarray(x), bits), parts)
