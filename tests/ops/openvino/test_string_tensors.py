"""Strings as bytes, and back."""

import jax
import numpy as np
import pytest

from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, StaticError
from jaxops.openvino import ops


def symbols(text):
    return np.frombuffer(text.encode(), np.uint8)


@pytest.mark.parametrize(
    ("begins", "ends", "text", "expected"),
    [
        ([0, 5], [5, 13], "IntelOpenVINO", ["Intel", "OpenVINO"]),
        ([0, 3, 3, 8, 9], [3, 3, 8, 9, 13], "OMZGenAI 2024", ["OMZ", "", "GenAI", " ", "2024"]),
        ([0, 8], [1, 9], "123456789", ["1", "9"]),
        ([[0, 5], [13, 16]], [[5, 13], [16, 21]], "IntelOpenVINOOMZGenAI", [["Intel", "OpenVINO"], ["OMZ", "GenAI"]]),
        ([0], [3], "½x½", ["½x"]),
    ],
)
def test_the_strings_of_the_text(begins, ends, text, expected):
    packed = ops.string_tensor_pack(begins, ends, symbols(text))
    assert packed.tolist() == expected
    first, last, content = ops.string_tensor_unpack(packed)
    assert [v.dtype.name for v in (first, last, content)] == ["int32", "int32", "uint8"]
    assert first.shape == last.shape == packed.shape
    joined = "".join(np.asarray(packed).reshape(-1).tolist())
    assert content.tobytes().decode() == joined
    assert ops.string_tensor_pack(first, last, content).tolist() == packed.tolist()


def test_bytes_and_nothing():
    first, last, content = ops.string_tensor_unpack(np.array([b"ab", b""], object))
    assert [v.tolist() for v in (first, last, content)] == [[0, 2], [2, 2], [97, 98]]
    empty = ops.string_tensor_unpack(np.empty((0, 2), "U1"))
    assert [v.shape for v in empty] == [(0, 2), (0, 2), (0,)]


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (BoundsError, r"must be in order, and in \[0, 2\]", lambda: ops.string_tensor_pack([0], [3], symbols("ab"))),
        (BoundsError, "must be in order", lambda: ops.string_tensor_pack([2], [1], symbols("ab"))),
        (ArgumentError, "which is not UTF-8", lambda: ops.string_tensor_pack([0], [1], symbols("½"))),
        (DTypeError, "`symbols` must be uint8", lambda: ops.string_tensor_pack([0], [1], [97])),
        (DTypeError, "`begins` must be integers", lambda: ops.string_tensor_pack([0.5], [1], symbols("a"))),
        (ShapeError, r"`ends` of \(2,\) must be \(1,\)", lambda: ops.string_tensor_pack([0], [1, 1], symbols("a"))),
        (
            StaticError,
            "`symbols` must be known while tracing",
            lambda: jax.jit(lambda s: ops.string_tensor_pack([0], [1], s))(symbols("a")),
        ),
        (DTypeError, "`data` must be strings", lambda: ops.string_tensor_unpack([1])),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
