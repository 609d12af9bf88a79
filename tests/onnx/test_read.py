"""From a file to a `Source`: tensors, external data, attributes, functions, subgraphs."""

import io
import types

import ml_dtypes
import numpy as np
import onnx
import pytest
from graphs import IN, OUT, build, function, info, model, node, tensor
from onnx import TensorProto, helper, numpy_helper

from jaxops.errors import ModelError, SignatureError
from jaxops.graph.nodes import Graph, Tensor
from jaxops.onnx import load
from jaxops.onnx.read import read
from jaxops.onnx.unbound import OperatorName, Reference

X = np.ones((2, 3), np.float32)
TEXT = "main (float[N,3] x) => (float[N,3] y) { y = Add(x, w) }"
W = np.float32([1, 2, 3])


def test_a_path_a_string_bytes_and_a_proto_are_the_same_model(tmp_path):
    proto = model(TEXT, initializers={"w": W})
    data, path = proto.SerializeToString(), tmp_path / "m.onnx"
    path.write_bytes(data)
    program = types.SimpleNamespace(model_proto=proto)  # as torch.onnx.export gives
    with path.open("rb") as file:
        np.testing.assert_array_equal(load(file)(X), X + W)
    for given in (path, str(path), data, bytearray(data), memoryview(data), proto, program, io.BytesIO(data)):
        source = read(given)
        assert source.opsets == {"": 18}
        assert source.producer == "tests"
        assert [str(v) for v in source.graph.inputs] == ["x: float32[N, 3]"]
        if not isinstance(given, io.BytesIO):
            np.testing.assert_array_equal(load(given)(X), X + W)
    with path.open(encoding="latin-1") as file, pytest.raises(SignatureError, match="not a file opened as text"):
        load(file)


def test_no_protobuf_goes_past_the_reader():
    branch = helper.make_graph([node("Relu", ["x"], ["b"])], "branch", [], [info("b", None)])
    source = read(
        build(
            node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
            node("Constant", [], ["k"], value=tensor([1, 2])),
            node("Flatten", ["x"], ["f"], axis=2),
            node("Transpose", ["x"], ["t"], perm=[1, 0]),
            node("Cast", ["x"], ["g"], to=1, round_mode="up"),
            node("Elu", ["x"], ["e"], alpha=0.5),
        )
    )

    def leaves(value):
        if isinstance(value, Graph):
            return [leaf for n in value.nodes for a in n.attributes.values() for leaf in leaves(a)]
        return [value]

    values = [leaf for n in source.graph.nodes for a in n.attributes.values() for leaf in leaves(a)]
    assert not any(type(v).__module__.startswith(("onnx", "google")) for v in values)
    assert isinstance(source.graph.nodes[0].attributes["then_branch"], Graph)
    assert [v if not isinstance(v, np.ndarray) else v.tolist() for v in values] == [[1, 2], 2, (1, 0), "up", 1, 0.5]


ALL = [name for name in TensorProto.DataType.keys() if name not in ("UNDEFINED", "STRING")]  # noqa: SIM118


@pytest.mark.parametrize("name", ALL)
def test_tensors_of_every_type(name):
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name)))
    values = np.array([1, 0, 1]).astype(dtype)
    found = read(build(node("Identity", ["w"], ["y"]), initializers=[numpy_helper.from_array(values, "w")]))
    (value,) = (t.load() for t in found.graph.initializers.values())
    assert value.dtype == dtype
    assert value.tobytes() == values.tobytes()


def test_tensors_given_by_numbers_instead_of_bytes():
    tensors = [
        TensorProto(name="a", data_type=TensorProto.FLOAT, dims=[2], float_data=[1.5, 2]),
        TensorProto(name="b", data_type=TensorProto.INT64, dims=[2], int64_data=[1, -1]),
        TensorProto(name="c", data_type=TensorProto.BOOL, dims=[2], int32_data=[1, 0]),
        TensorProto(name="d", data_type=TensorProto.STRING, dims=[1, 2], string_data=[b"\xc3\xa9", b"x"]),
        TensorProto(name="e", data_type=TensorProto.BFLOAT16, dims=[1], int32_data=[0x3FC0]),
        TensorProto(name="f", data_type=TensorProto.FLOAT, dims=[]),
    ]
    tensors[-1].float_data.append(7)
    found = read(build(node("Identity", ["a"], ["y"]), initializers=tensors)).graph.initializers
    loaded = {name: t.load() for name, t in found.items()}
    assert {name: v.tolist() for name, v in loaded.items()} == {
        "a": [1.5, 2], "b": [1, -1], "c": [True, False], "d": [["é", "x"]], "e": [1.5], "f": 7,
    }  # fmt: skip
    assert loaded["e"].dtype == ml_dtypes.bfloat16
    assert loaded["d"].dtype == object
    assert all(found[name].shape == v.shape and found[name].dtype == v.dtype for name, v in loaded.items())


def test_sparse_initializers_become_dense():
    flat = helper.make_sparse_tensor(tensor(np.float32([1, 2])), tensor([0, 5], ""), [2, 3])
    pairs = helper.make_sparse_tensor(tensor(np.float32([1, 2])), tensor([[0, 0], [1, 2]], ""), [2, 3])
    for sparse in (flat, pairs):
        found = load(build(node("Add", ["x", "w"], ["y"]), sparse=[sparse]))
        np.testing.assert_array_equal(found(X), X + np.float32([[1, 0, 0], [0, 0, 2]]))
        constant = load(build(node("Constant", [], ["y"], sparse_value=sparse)))
        np.testing.assert_array_equal(constant(X), np.float32([[1, 0, 0], [0, 0, 2]]))


def test_attributes_of_functions_are_references_until_they_are_bound():
    body = node("Flatten", ["a"], ["b"])
    body.attribute.append(onnx.AttributeProto(name="axis", ref_attr_name="k", type=onnx.AttributeProto.INT))
    flat = function("F", ["a"], body, attributes=["k"])
    for attributes, shape in (({"k": 0}, (1, 6)), ({"k": 2}, (6, 1)), ({}, (2, 3))):
        proto = build(
            node("F", ["x"], ["y"], domain="loc", **attributes), functions=[flat], opsets=(("", 18), ("loc", 1))
        )
        assert read(proto).functions[OperatorName("F", "loc")].graph.nodes[0].attributes == {"axis": Reference("k")}
        assert load(proto)(X).shape == shape


def test_ai_onnx_is_the_standard_domain():
    found = read(build(node("Relu", ["x"], ["y"], domain="ai.onnx"), opsets=(("ai.onnx", 13),)))
    assert found.opsets == {"": 13}
    assert found.graph.nodes[0].operator.domain == ""


def test_values_say_their_shapes():
    values = [
        info("a", ["N", 3]),
        info("b", [None, 2]),
        info("c", None, TensorProto.STRING),
        info("d", [], TensorProto.BFLOAT16),
        helper.make_tensor_sequence_value_info("e", TensorProto.INT64, ["K"]),
        helper.make_value_info("f", helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [1]))),
    ]
    found = read(build(node("Identity", ["a"], ["y"]), inputs=values)).graph.inputs
    assert [str(v) for v in found] == [
        "a: float32[N, 3]", "b: float32[?, 2]", "c: string[…]", "d: bfloat16[]", "e: sequence(int64[K])",
        "f: optional(float32[1])",
    ]  # fmt: skip


# External data


def external(tmp_path, location, *, offset=None, length=None, values=W):
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=values.shape)
    proto.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            proto.external_data.add(key=key, value=str(value))
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(build(node("Add", ["x", "w"], ["y"]), initializers=[proto]).SerializeToString())
    return path


@pytest.mark.parametrize(("offset", "length"), [(None, None), (0, 12), (4, 12), (8, None)])
def test_external_data(tmp_path, offset, length):
    path = external(tmp_path, "w.bin", offset=offset, length=length)
    (path.parent / "w.bin").write_bytes(bytes(offset or 0) + W.tobytes() + (bytes(7) if length else b""))
    np.testing.assert_array_equal(load(path)(X), X + W)


def test_external_data_in_a_folder_below_and_through_a_link_that_stays_inside(tmp_path):
    path = external(tmp_path, "data/w.bin")
    (path.parent / "data").mkdir()
    (path.parent / "real.bin").write_bytes(W.tobytes())
    (path.parent / "data/w.bin").symlink_to(path.parent / "real.bin")
    np.testing.assert_array_equal(load(path)(X), X + W)


def test_external_data_is_read_when_it_is_needed(tmp_path):
    path = external(tmp_path, "w.bin")
    data = path.parent / "w.bin"
    data.write_bytes(bytes(12))
    lazy = load(path)
    data.write_bytes(W.tobytes())
    np.testing.assert_array_equal(lazy.params["w"], W)
    data.unlink()
    np.testing.assert_array_equal(lazy(X), X + W)  # read once


def test_external_data_of_what_onnx_writes(tmp_path):
    weights = {"w": np.arange(3000, dtype=np.float32), "v": np.ones((2, 2000), np.float16)}
    proto = model("main (float[3000] x) => (float[3000] y) { y = Add(x, w) }", initializers=weights)
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    with path.open("rb") as file:
        for found in (load(path), load(file)):  # a file on disk has a folder
            np.testing.assert_array_equal(found.params["w"], weights["w"])


OUTSIDE = [
    ("../w.bin", "lies outside the model's folder"),
    ("data/../../w.bin", "lies outside the model's folder"),
    ("{tmp}/w.bin", "lies outside the model's folder"),
    ("{tmp}/model/inside.bin", "lies outside the model's folder"),  # absolute, so of no other machine
    ("link.bin", "lies outside the model's folder"),
    ("linked/w.bin", "lies outside the model's folder"),
    ("missing.bin", "is missing: there is no file"),
    ("", "is missing: there is no file"),
    (".", "is missing: there is no file"),
]


@pytest.mark.parametrize(("location", "text"), OUTSIDE)
def test_external_data_that_is_refused(tmp_path, location, text):
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    path = external(tmp_path, location.format(tmp=tmp_path))
    (path.parent / "inside.bin").write_bytes(W.tobytes())
    (path.parent / "link.bin").symlink_to(tmp_path / "w.bin")
    (path.parent / "linked").symlink_to(tmp_path)
    with pytest.raises(ModelError, match=rf"tensor 'w': external data '.*' {text}"):
        load(path)


def test_external_data_whose_location_is_no_file_name(tmp_path):
    for location in ("w\0.bin", "w" * 5000):
        with pytest.raises(ModelError, match=r"tensor 'w': external data '.*' cannot be looked up: "):
            load(external(tmp_path, location))


@pytest.mark.parametrize(
    ("offset", "length", "text"),
    [
        (4, 12, r"bytes 4 to 16 go past its end at 12"),
        (99, None, r"go past its end at 12"),
        (0, 13, r"bytes 0 to 13 go past its end at 12"),
        (-4, 12, "offset must be non-negative, got -4"),
        (0, -1, "length must be non-negative, got -1"),
        ("x", 12, r"'x'"),
        (0, 8, r"8 bytes cannot fill float32 \(3,\), which takes 12"),
        (12, 0, r"0 bytes cannot fill float32 \(3,\), which takes 12"),
    ],
)
def test_external_data_past_the_end(tmp_path, offset, length, text):
    path = external(tmp_path, "w.bin", offset=offset, length=length)
    (path.parent / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(ModelError, match=rf"tensor 'w': external data.*{text}"):
        load(path)


def test_external_data_that_does_not_fill_its_shape(tmp_path):
    path = external(tmp_path, "w.bin")
    (path.parent / "w.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match=r"external data 'w.bin': bytes 0 to 12 go past its end at 8"):
        load(path)


def test_external_data_that_shrinks_after_loading(tmp_path):
    path = external(tmp_path, "w.bin")
    (path.parent / "w.bin").write_bytes(bytes(12))
    loaded = load(path)
    (path.parent / "w.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match=r"tensor 'w' of shape .3,.: its data is damaged"):
        _ = loaded.params


@pytest.mark.parametrize("name", ALL)
def test_external_data_of_every_type(tmp_path, name):
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(name)))
    proto = numpy_helper.from_array(np.array([1, 0, 1]).astype(dtype), "w")
    data = proto.raw_data
    path = tmp_path / "m.onnx"
    onnx.external_data_helper.set_external_data(proto, "w.bin", length=len(data))
    proto.ClearField("raw_data")
    path.write_bytes(build(node("Identity", ["w"], ["y"]), initializers=[proto]).SerializeToString())
    (tmp_path / "w.bin").write_bytes(data)
    assert read(path).graph.initializers["w"].load().tobytes() == np.array([1, 0, 1]).astype(dtype).tobytes()


@pytest.mark.parametrize("given", [3, None, ["m.onnx"]])
def test_what_is_no_model_at_all(given):
    with pytest.raises(
        SignatureError,
        match=r"load: a model is a path, a file opened as binary, its bytes, a ModelProto or an ONNXProgram, not ",
    ):
        load(given)


def test_external_data_needs_the_folder(tmp_path, monkeypatch):
    path = external(tmp_path, "w.bin")
    (path.parent / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(
        ModelError, match=r"external data 'w.bin' needs the model's folder; load the model from its path"
    ):
        load(path.read_bytes())
    monkeypatch.chdir(path.parent)
    np.testing.assert_array_equal(load("m.onnx")(X), X + W)


def test_the_types_of_the_reader():
    source = read(build(node("Add", ["x", "w"], ["y"]), inputs=(IN,), outputs=(OUT,), initializers=[tensor(W)]))
    assert isinstance(source.graph.initializers["w"], Tensor)
    assert source.graph.initializers["w"].shape == (3,)
