"""Bounds of clip that the type of its elements cannot hold."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxops import ops
from jaxops.errors import OutOfRangeError


def test_a_bound_beyond_32_bits_has_no_effect() -> None:
    numbers = jnp.array([1, 2])
    np.testing.assert_array_equal(ops.clip(numbers, np.int64(2), np.int64(2**63 - 1)), [2, 2])
    np.testing.assert_array_equal(ops.clip(numbers, -(2**63), 1), [1, 1])
    np.testing.assert_array_equal(ops.clip(jnp.array([jnp.inf, 1]), None, np.float64(np.inf)), [jnp.inf, 1])
    largest = np.finfo(np.float32).max  # onnxruntime, too, holds infinities to the default bounds
    for infinite in (np.float32([-np.inf, np.inf]), jnp.array([-jnp.inf, jnp.inf])):
        np.testing.assert_array_equal(ops.clip(infinite), [-largest, largest])
        np.testing.assert_array_equal(ops.clip(infinite, np.float32(0)), [0, largest])
    np.testing.assert_array_equal(ops.clip(jnp.array([9.0, 1]), np.float64(-1e300), 6), [6, 1])
    np.testing.assert_array_equal(ops.clip(np.int8([9, 1]), -1000, 1000), [9, 1])


@pytest.mark.parametrize(
    ("data", "bounds", "text"),
    [
        (jnp.array([1, 2]), (np.int64(2**40), None), "clip: `min` is 1099511627776, .* int32, which stands for int64"),
        (
            jnp.array([1, 2]),
            (None, np.int64(-(2**40))),
            "clip: `max` is -1099511627776, .* int32, which stands for int64",
        ),
        (jnp.array([1, 2]), (0, -(2**40)), "clip: `max` is -1099511627776, so every .* -1099511627776, but int32"),
        (
            jnp.array([1.0, 2]),
            (np.float64(1e300), None),
            r"clip: `min` is 1e\+300, .* float32, which stands for float64",
        ),
        (np.int8([9, 1]), (1000, None), "`min` is 1000, so every element would become 1000, but int8 does not hold"),
        (np.uint8([9, 1]), (None, -1), "`max` is -1, so every element would become -1, but uint8 does not hold"),
    ],
)
def test_a_bound_beyond_32_bits_that_is_every_element(data, bounds, text):
    with pytest.raises(OutOfRangeError, match=text):
        ops.clip(data, *bounds)
