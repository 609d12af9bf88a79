"""Static operands as Python values; most of their messages are tested with the operators that read them."""

import jax
import numpy as np
import pytest

import jaxops.openvino
from jaxops.attributes import check_not_negative
from jaxops.errors import ArgumentError


def test_a_negative_size_is_refused():
    attributes = {"output_type": np.float32, "op_seed": 1}
    with pytest.raises(ArgumentError, match=r"random_uniform: `shape` \(2, -5\) holds -5; sizes must not be negative"):
        jaxops.openvino.ops.random_uniform((2, -5), 0.0, 1.0, **attributes)


def test_symbolic_sizes_are_not_looked_at():
    (b,) = jax.export.symbolic_shape("b")
    check_not_negative("shape", (b - 7, 0, 3))
    with pytest.raises(ArgumentError, match=r"`shape` \(b - 7, -1\) holds -1; lengths must not be negative"):
        check_not_negative("shape", (b - 7, -1), "lengths")
