"""Bucketize and SearchSorted against NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import DTypeError, ShapeError
from jaxops.openvino import ops

RNG = np.random.default_rng(2)
DATA, BOUNDS = np.array([[3, 50], [10, -1]], np.int32), np.array([0, 5, 10], np.int32)


@pytest.mark.parametrize("right", [True, False])
def test_bucketize(right):
    y = ops.bucketize(DATA, BOUNDS, with_right_bound=right)
    assert y.tolist() == ([[1, 3], [2, 0]] if right else [[1, 3], [3, 0]])
    agree(3, "Bucketize", [DATA, BOUNDS], {"with_right_bound": right, "output_type": "i64"}, y)
    mixed = ops.bucketize(DATA, np.array([2.5, 10.5], np.float32), output_type="int32")
    assert mixed.tolist() == [[1, 2], [1, 0]]
    assert ops.bucketize(DATA, BOUNDS[:0]).tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("right", [True, False])
def test_search_sorted(right):
    sequence = np.sort(RNG.integers(0, 9, (2, 3, 6)), -1).astype(np.float32)
    values = RNG.integers(-1, 10, (2, 3, 4)).astype(np.float32)
    side = "right" if right else "left"
    expected = [[np.searchsorted(s, v, side) for s, v in zip(*rows, strict=True)] for rows in zip(sequence, values)]  # noqa: B905
    y = jax.jit(lambda *v: ops.search_sorted(*v, right_mode=right))(sequence, values)
    np.testing.assert_array_equal(y, expected)
    agree(15, "SearchSorted", [sequence, values], {"right_mode": right}, y)
    one = ops.search_sorted(sequence[0, 0], values, right_mode=right)
    np.testing.assert_array_equal(one, np.searchsorted(sequence[0, 0], values, side))
    agree(15, "SearchSorted", [sequence[0, 0], values], {"right_mode": right}, one)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`buckets` of \(2, 2\) must be \(n,\)", lambda: ops.bucketize(DATA, DATA)),
        (DTypeError, "`output_type` is float32", lambda: ops.bucketize(DATA, BOUNDS, output_type="float32")),
        (ShapeError, "or the leading axes of `values`", lambda: ops.search_sorted(DATA, BOUNDS)),
        (DTypeError, "one element type", lambda: ops.search_sorted(DATA, DATA * 1.0)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


def test_the_type_of_places():
    found = ops.search_sorted(np.float32([1, 2]), np.float32([1.5]), output_type="int32")
    assert found.dtype == np.int32
    with pytest.raises(DTypeError, match="search_sorted: `output_type` is float32; it must be int64 or int32"):
        ops.search_sorted(np.float32([1, 2]), np.float32([1.5]), output_type="float32")
