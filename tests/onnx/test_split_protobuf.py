"""Weights go from a model's own file to where they stay; what protobuf alone understands is left to it."""

import gc
import io
import os
import re
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

import jaxops.onnx
from jaxops.errors import ModelError
from jaxops.onnx.open import parsed
from jaxops.onnx.split_protobuf import split

LARGE = np.arange(600, dtype=np.float32).reshape(20, 30)
SMALL = np.arange(30, dtype=np.float32)
X = np.ones((2, 20), np.float32)


def model(*initializers: TensorProto, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """`x @ w + b`."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, dtype, None) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


W, B = numpy_helper.from_array(LARGE, "w"), numpy_helper.from_array(SMALL, "b")
DATA = model(W, B).SerializeToString()


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, of less than 2^14, as protobuf writes it."""
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def test_the_rest_and_the_data_are_the_model():
    found = split(io.BytesIO(DATA))
    assert list(found.data) == [0]
    assert len(found.rest) < len(DATA) - LARGE.nbytes
    proto = onnx.load_model_from_string(found.rest)
    assert not proto.graph.initializer[0].HasField("raw_data")
    place = found.data[0]
    proto.graph.initializer[0].raw_data = DATA[place.start : place.stop]
    assert proto == onnx.load_model_from_string(DATA)


def test_jax_shares_the_memory_that_the_file_was_read_to(tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(DATA)
    for given in (path, DATA):
        values = jaxops.onnx.load(given)._tensors["w"].load()
        array = jax.device_put(values)
        assert array.unsafe_buffer_pointer() == values.ctypes.data or jax.default_backend() != "cpu"
        np.testing.assert_array_equal(array, LARGE)
        with pytest.raises(ValueError, match="read-only"):
            values[0, 0] = 1


@pytest.mark.parametrize("given", ["path", "bytes", "file", "proto"])
def test_every_form_runs_and_saves(given, tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(DATA)
    with path.open("rb") as file:
        forms = {"path": path, "bytes": DATA, "file": file, "proto": onnx.load_model_from_string(DATA)}
        model = jaxops.onnx.load(forms[given])
    np.testing.assert_allclose(model(X), X @ LARGE + SMALL, rtol=1e-6)
    model.save(tmp_path / "b.onnx", {**model.params, "w": model.params["w"] * 2})
    saved = onnx.load(tmp_path / "b.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(saved.graph.initializer[0]), LARGE * 2)
    assert saved.graph.node == onnx.load(path).graph.node


@pytest.mark.parametrize("reads_at_once", [True, False])
def test_the_file_may_go_after_loading(reads_at_once, tmp_path, monkeypatch):
    """Also where the system cannot read at a place."""
    if reads_at_once:
        monkeypatch.delattr(os, "preadv", raising=False)
    path = tmp_path / "a.onnx"
    path.write_bytes(DATA)
    model = jaxops.onnx.load(path)
    path.unlink()
    np.testing.assert_allclose(model(X), X @ LARGE + SMALL, rtol=1e-6)


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="the file was read at once")
def test_a_file_that_has_changed_is_not_read(tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(DATA)
    model, other = jaxops.onnx.load(path), jaxops.onnx.load(path)
    model.params  # noqa: B018
    path.write_bytes(DATA.replace(LARGE.tobytes(), bytes(LARGE.nbytes)))
    np.testing.assert_allclose(model(X), X @ LARGE + SMALL, rtol=1e-6)
    match = f"'{re.escape(str(path))}' has changed since the model was loaded from it; load it again"
    with pytest.raises(ModelError, match=match):
        other.params  # noqa: B018
    with pytest.raises(ModelError, match=match):
        other(X)
    path.write_bytes(DATA[:-1])  # shorter
    with pytest.raises(ModelError, match=match):
        other(X)


def test_no_file_stays_open_behind_its_model(tmp_path):
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        pytest.skip("the system does not say what is open")
    (tmp_path / "a.onnx").write_bytes(DATA)

    def open_files():
        return sum(os.path.realpath(p) == os.path.realpath(tmp_path / "a.onnx") for p in folder.iterdir())

    model = jaxops.onnx.load(tmp_path / "a.onnx")
    model.params  # noqa: B018
    assert open_files() == 0
    unused = jaxops.onnx.load(tmp_path / "a.onnx")
    assert open_files() == 1
    del model, unused
    gc.collect()
    assert open_files() == 0


@pytest.mark.parametrize(
    "dtype", [np.float64, np.int8, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.uint16]
)
def test_element_types(dtype):
    values = (np.arange(2400).reshape(40, 60) % 7).astype(dtype)
    tensor = numpy_helper.from_array(values, "w")
    found = parsed(model(tensor, B).SerializeToString())
    assert list(found.data) == [0]
    source = jaxops.onnx.load(model(tensor, B).SerializeToString(), static=["w"])
    np.testing.assert_array_equal(source.graph.static["w"], values)


def test_packed_types():
    values = (np.arange(4002).reshape(2, 2001) % 8).astype(ml_dtypes.int4)
    tensor = numpy_helper.from_array(values, "w")
    found = jaxops.onnx.load(model(tensor, B).SerializeToString(), static=["w"])
    np.testing.assert_array_equal(found.graph.static["w"], values)


def test_exact_repeats_are_one_and_others_are_refused():
    assert len(jaxops.onnx.load(model(W, W, B).SerializeToString()).params) == 2
    other = numpy_helper.from_array(LARGE + 1, "w")
    with pytest.raises(ModelError, match="'w'"):
        jaxops.onnx.load(model(W, other, B).SerializeToString())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"dims": [20, 31]}, "its data is damaged"),
        ({"dims": [-1, 30]}, "negative size"),
        ({"data_type": TensorProto.STRING}, "its data is damaged"),
        ({"data_type": 99}, "unknown element type 99"),
    ],
)
def test_data_that_does_not_fit(change, match):
    tensor = TensorProto(name="w", raw_data=LARGE.tobytes(), **{"dims": [20, 30], "data_type": 1, **change})
    with pytest.raises(ModelError, match=match):
        jaxops.onnx.load(model(tensor, B).SerializeToString()).params  # noqa: B018


GRAPH = model(W, B).graph.SerializeToString()
TENSOR = W.SerializeToString()
OPSET = field(8, helper.make_opsetid("", 20).SerializeToString())


@pytest.mark.parametrize(
    "data",
    [
        DATA + field(7, onnx.GraphProto(name="again").SerializeToString()),  # protobuf joins the two graphs
        bytes([8, 9]) + OPSET + field(7, GRAPH + bytes([5 << 3 | 0, 1])),  # an initializer that is a number
        bytes([8, 9]) + OPSET + field(7, GRAPH + bytes([9 << 3 | 3, 9 << 3 | 4])),  # a group
        bytes([8, 9])
        + OPSET
        + field(7, model(B).graph.SerializeToString() + field(5, TENSOR + field(9, LARGE.tobytes()))),
        bytes([8, 9]) + OPSET + field(7, model(B).graph.SerializeToString() + field(5, TENSOR + bytes([14 << 3, 0]))),
        *(DATA[:end] for end in range(0, len(DATA), 37)),
        *(DATA[:at] + b"\xff" * 11 + DATA[at + 11 :] for at in range(0, 200, 7)),
    ],
)
def test_what_is_unusual_means_what_protobuf_says(data):
    """A graph in two parts, data in two parts, damage at any place."""
    try:
        expected = onnx.load_model_from_string(data)
    except DecodeError:
        with pytest.raises(ModelError, match="not an ONNX model, or a truncated one"):
            parsed(data)
        return
    found = parsed(data)
    for position, values in found.data.items():
        found.proto.graph.initializer[position].raw_data = values.read()
    assert found.proto == expected
