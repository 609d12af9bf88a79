"""Tensors in files, whole and in parts."""

import jax
import numpy as np
import pytest

from jaxops.errors import ModelError
from jaxops.frontend.tensor_file import FileRange, InMemory, is_packed, read_part


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "bool"])
@pytest.mark.parametrize("index", [np.s_[:, :, :], np.s_[1:3, :, :], np.s_[:, 1:2, 2:], np.s_[2:, 0:0, :]])
def test_read_part(tmp_path, monkeypatch, dtype, index):
    monkeypatch.setattr("jaxops.frontend.tensor_file._BLOCK", 50)  # more than one block
    values = np.arange(60).reshape(4, 3, 5).astype(jax.numpy.dtype(dtype))
    (tmp_path / "w").write_bytes(b"before" + values.tobytes() + b"after")
    found = read_part("w", tmp_path / "w", 6, values.dtype, values.shape, index)
    assert found.dtype == values.dtype
    assert found.tobytes() == values[index].tobytes()
    assert found.shape == values[index].shape


def test_read_part_of_a_scalar_and_of_a_file_that_ends(tmp_path):
    (tmp_path / "w").write_bytes(np.float32(3).tobytes())
    assert read_part("w", tmp_path / "w", 0, np.dtype(np.float32), (), ()).item() == 3
    with pytest.raises(ModelError, match=r"tensor 'w' of shape \(2,\): its data is damaged.*ends before byte 8"):
        read_part("w", tmp_path / "w", 0, np.dtype(np.float32), (2,), (slice(None),))


def test_a_range_of_a_file_is_a_tensor():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    data = FileRange(InMemory(b"before" + values.tobytes() + b"after"), range(6, 30))
    found = data.tensor("w", values.dtype, values.shape)
    assert data.read() == values.tobytes()
    np.testing.assert_array_equal(found.load(), values)
    np.testing.assert_array_equal(found.part((slice(1, 2), slice(None))), values[1:])


@pytest.mark.parametrize(
    ("dtype", "packed"), [("int4", True), ("float4_e2m1fn", True), ("int8", False), ("bool", False)]
)
def test_types_of_less_than_a_byte_are_packed(dtype, packed):
    assert is_packed(np.dtype(jax.numpy.dtype(dtype))) is packed
