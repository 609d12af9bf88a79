"""Numbers that are looked up in a table."""

import ml_dtypes
import numpy as np
import pytest

from jaxops.errors import BoundsError, DTypeError, ShapeError
from jaxops.openvino.ops import look_up

TABLE = np.float32([-1, -0.5, 0.25, np.inf])


@pytest.mark.parametrize("codes", [np.uint8([[3, 0], [1, 2]]), np.array([[3, 0], [1, 2]], ml_dtypes.uint4)])
@pytest.mark.parametrize("to", [np.float32, np.float16])
def test_a_code_is_a_position_in_the_table(codes, to):
    y = look_up(codes, TABLE, to=to)
    assert y.dtype == to
    np.testing.assert_array_equal(y, np.array([[np.inf, -1], [-0.5, 0.25]], to))


ERRORS = [
    (lambda: look_up(np.float32([0]), TABLE, to=np.float32), DTypeError, "look_up: `codes` must be integers"),
    (lambda: look_up(np.uint8([0]), TABLE[0], to=np.float32), ShapeError, r"look_up: `table` of \(\) must be \(T,\)"),
    (lambda: look_up(np.uint8([0]), TABLE, to="no type"), DTypeError, "look_up: `to` is 'no type'"),
    (lambda: look_up(np.uint8([4]), TABLE, to=np.float32), BoundsError, "index 4 is outside axis 0 of size 4"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
