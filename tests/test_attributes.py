"""Static operands: their checks and messages, as an operator's caller sees them."""

import jax
import numpy as np
import pytest

import jaxops as jo
import jaxops.openvino
from jaxops.attributes import check_not_negative
from jaxops.errors import ArgumentError

X = np.zeros((3, 2), np.float32)
UNIFORM = {"output_type": np.float32, "op_seed": 1}
NEGATIVE = [
    (lambda: jo.expand(X, (-2, 2)), r"expand: `shape` \(-2, 2\) holds -2; sizes must"),
    (lambda: jo.constant_of_shape((4, -1)), r"constant_of_shape: `input` \(4, -1\) holds -1; sizes must"),
    (lambda: jo.random_uniform(shape=(-1,), seed=0.0), r"random_uniform: `shape` \(-1,\) holds -1; sizes must"),
    (lambda: jo.tile(X, (-3, 1)), r"tile: `repeats` \(-3, 1\) holds -3; it must"),
    (lambda: jo.split(X, (4, -1)), r"split: `split` \(4, -1\) holds -1; lengths must"),
    (lambda: jo.center_crop_pad(X, (-1, 2)), r"center_crop_pad: `shape` \(-1, 2\) holds -1; sizes must"),
    (
        lambda: jaxops.openvino.ops.random_uniform((2, -5), 0.0, 1.0, **UNIFORM),
        r"random_uniform: `shape` \(2, -5\) holds -5; sizes must",
    ),
]


@pytest.mark.parametrize(("call", "text"), NEGATIVE)
def test_a_negative_size_is_refused(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()


def test_symbolic_sizes_are_not_looked_at():
    (b,) = jax.export.symbolic_shape("b")
    check_not_negative("shape", (b - 7, 0, 3))
