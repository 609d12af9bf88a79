"""`model.save`: the IR again with other weights, which OpenVINO reads to the same answer."""

import os
import pickle
import warnings
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from openvino_files import REASON, File, assert_close, outputs_of, written_files

from jaxops.errors import ArgumentError
from jaxops.openvino import load
from jaxops.openvino.element_types import TYPES


def by_openvino(xml, *inputs):
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # it starts a process
        with mock.patch.dict(os.environ, {"CI": "true"}):  # it sends no message then
            openvino = pytest.importorskip("openvino", reason=REASON)
        core = openvino.Core()
        compiled = core.compile_model(core.read_model(str(xml)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        results = compiled(list(inputs))
    return [np.array(results[port]) for port in compiled.outputs]


def doubled(model):
    return {name: value * 2 for name, value in model.params.items()}


def agrees(model, params, path, *inputs):
    """Asserts that OpenVINO, and a second load, give what the model gives with these parameters."""
    model.save(path, params)
    expected = outputs_of(lambda *x: model.apply(params, *x), inputs)
    assert_close(outputs_of(load(path), inputs), expected)
    assert_close(by_openvino(path, *inputs), expected)


@pytest.fixture
def file():
    """A product with a weight of f16 that is decompressed, a bias, and a table of bytes that is no parameter."""
    file = File()
    x = file.parameter([2, 3], name="x")
    w = file.constant(np.arange(12).reshape(3, 4).astype("f2") / 4, name="w")
    rt = '<rt_info><attribute name="decompression" version="0"/></rt_info>'
    wide = file.layer("Convert", 1, [w], {"destination_type": "f32"}, name="wide", extra="", body=rt)
    y = file.layer("MatMul", 1, [x, wide], {"transpose_a": False, "transpose_b": False}, name="product")
    y = file.layer("Add", 1, [y, file.constant(np.ones((1, 4), "f4"), name="b")], name="sum")
    table = file.layer("Convert", 1, [file.constant(np.arange(4, dtype="i1"))], {"destination_type": "f32"})
    file.result(file.layer("Multiply", 1, [y, table], name="scaled"))
    return file


def test_openvino_reads_what_is_saved(file, tmp_path):
    path = written_files(file, tmp_path)
    model, x = load(path), np.ones((2, 3), "f4")
    assert {"w", "b"} <= model.params.keys()
    agrees(model, doubled(model), tmp_path / "tuned.xml", x)
    again = load(tmp_path / "tuned.xml")
    for name, value in doubled(model).items():
        np.testing.assert_array_equal(again.params[name], value)
    text = (tmp_path / "tuned.xml").read_text()
    assert 'element_type="f16"' in text
    assert 'element_type="i8"' in text


def test_a_model_may_be_saved_over_itself_and_unchanged_weights_are_copied(file, tmp_path):
    path = written_files(file, tmp_path)
    model, x = load(path), np.ones((2, 3), "f4")
    expected = np.asarray(model(x))
    model.save(path)
    assert_close(by_openvino(path, x), [expected])
    np.testing.assert_array_equal(load(path)(x), expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.bin", "model.xml"]


def test_a_model_keeps_its_weights_when_its_file_gets_others(file, tmp_path):
    """Weights are read when they are needed, which may be after the file was replaced."""
    path = written_files(file, tmp_path)
    expected, x = np.asarray(load(path)(np.ones((2, 3), "f4"))), np.ones((2, 3), "f4")
    params = {name: w * 2 for name, w in load(path).params.items()}
    model = load(path)
    model.save(path, params)
    np.testing.assert_array_equal(model(x), expected)
    assert np.abs(load(path)(x) - expected).max() > 0.01


def test_the_path_ends_in_xml(file, tmp_path):
    model = load(written_files(file, tmp_path))
    with pytest.raises(ArgumentError, match=r"give a path that ends in \.xml, not '.*tuned\.onnx'"):
        model.save(tmp_path / "tuned.onnx")


def test_constants_of_one_offset_are_two_parameters(tmp_path):
    file = File()
    x = file.parameter([2, 2], name="x")
    a = file.constant(np.array([[1, 2]], "f4"), name="a")
    b = file.constant(np.array([[1, 2]], "f4"), name="b")
    file.layers[b[0]] = file.layers[b[0]].replace('offset="8"', 'offset="0"')
    file.result(file.layer("Multiply", 1, [file.layer("Add", 1, [x, a]), b]))
    model = load(written_files(file, tmp_path))
    params = {"a": model.params["a"], "b": model.params["b"] * 3}
    agrees(model, params, tmp_path / "tuned.xml", np.ones((2, 2), "f4"))
    # Unchanged, they share their bytes again.
    model.save(tmp_path / "same.xml")
    assert (tmp_path / "same.bin").stat().st_size == 8


def test_a_constant_that_is_read_in_two_types_becomes_two_where_these_differ(tmp_path):
    file = File()
    x, h = file.parameter([2], name="x"), file.parameter([2], "f2", name="h")
    w = file.constant(np.array([1, 2], "f2"), name="w")
    rt = '<rt_info><attribute name="decompression" version="0"/></rt_info>'
    wide = file.layer("Convert", 1, [w], {"destination_type": "f32"}, body=rt)
    file.result(file.layer("Add", 1, [x, wide]))
    file.result(file.layer("Add", 1, [h, w]))
    model = load(written_files(file, tmp_path))
    assert len(model.params) == 2
    inputs = np.ones(2, "f4"), np.ones(2, "f2")
    agrees(model, doubled(model), tmp_path / "both.xml", *inputs)
    name, value = next(iter(model.params.items()))
    agrees(model, {**model.params, name: value * 3}, tmp_path / "one.xml", *inputs)


def test_a_weight_that_modules_share_in_the_file_becomes_two(tmp_path):
    file = File()
    x = file.parameter([1, 2], name="x")
    rt = '<rt_info><attribute name="decompression" version="0"/></rt_info>'
    w = file.constant(np.array([[1, 2]], "f2"), name="self.a.bias")
    wide = file.layer("Convert", 1, [w], {"destination_type": "f32"}, body=rt)
    y = file.layer("Add", 1, [x, wide], name="__module.a/aten::add/Add")
    file.result(file.layer("Multiply", 1, [y, wide], name="__module.b/aten::mul/Multiply"))
    model = load(written_files(file, tmp_path))
    assert len(model.params) == 2
    params = {name: value * (2 + i) for i, (name, value) in enumerate(model.params.items())}
    agrees(model, params, tmp_path / "tuned.xml", np.ones((1, 2), "f4"))


def test_a_weight_that_a_layer_computes_becomes_a_constant(tmp_path):
    file = File()
    x = file.parameter([3], name="x")
    w = file.layer("Convert", 1, [file.constant(np.arange(3, dtype="i4"))], {"destination_type": "f32"}, name="made")
    file.result(file.layer("Multiply", 1, [x, w]))
    model = load(written_files(file, tmp_path))
    assert list(model.params) == ["made"]
    agrees(model, {"made": np.array([5, 6, 7], "f4")}, tmp_path / "tuned.xml", np.ones(3, "f4"))
    assert list(load(tmp_path / "tuned.xml").params) == ["made"]


def test_weights_in_bodies_and_models_of_bytes(tmp_path):
    body = File()
    a = body.parameter([2], name="a")
    body.result(body.layer("Add", 1, [a, body.constant(np.array([1, 2], "f4"), name="inside")]))
    other = File()
    other.result(other.layer("Relu", 1, [other.parameter([2], name="a")]))
    file = File()
    p, x = file.parameter([], "?", name="p"), file.parameter([2], name="x")
    file.weights = body.weights
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/>'
        f'<output external_port_id="0" internal_layer_id="{last}"/></{name}_port_map>'
        for name, last in (("then", 3), ("else", 2))
    )
    inner = f"{maps}<then_body>{body.net}</then_body><else_body>{other.net}</else_body>"
    file.result(file.layer("If", 8, [p, x], body=inner))
    model = load(file.xml, weights=file.bin)
    agrees(model, doubled(model), tmp_path / "tuned.xml", np.array(True), np.array([1, -2], "f4"))


@pytest.mark.parametrize("name", ["f4e2m1", "nf4", "u1", "u2", "u3", "u4", "u6", "i4"])
@pytest.mark.parametrize("count", [1, 5, 8, 13])
def test_small_types_are_packed_as_they_are_read(name, count):
    element = TYPES[name]
    assert element.pack is not None
    assert element.unpack is not None
    values = element.unpack(np.random.default_rng(0).integers(0, 256, element.file_bytes(count), np.uint8), count)
    packed = np.asarray(element.pack(values))
    assert packed.size == element.file_bytes(count)
    np.testing.assert_array_equal(element.unpack(packed, count), values)


def test_nf4_takes_the_closest_number():
    element = TYPES["nf4"]
    assert element.pack is not None
    assert element.unpack is not None
    values = element.unpack(element.pack(np.array([-2, 0.04, 0.02, 0.99], "f4")), 4)
    np.testing.assert_allclose(values, [-1, 0.0795803, 0, 1], rtol=1e-5)


def test_weights_of_four_bits_are_packed_again(tmp_path):
    file = File()
    values = np.resize(np.arange(-8, 8), (64, 32)).astype(ml_dtypes.int4)
    pack = TYPES["i4"].pack
    assert pack is not None
    x = file.parameter([2, 64], name="x")
    w = file.constant(pack(values), name="w")
    size = values.size // 2
    file.layers[w[0]] = file.layers[w[0]].replace(
        f'element_type="u8" shape="{size}"', 'element_type="i4" shape="64,32"'
    )
    wide = file.layer("Convert", 1, [w], {"destination_type": "f32"})
    file.result(file.layer("MatMul", 1, [x, wide], {"transpose_a": False, "transpose_b": False}))
    model = load(written_files(file, tmp_path))
    ((name, weight),) = model.params.items()
    tuned = {name: np.asarray(weight)[::-1].copy()}
    agrees(model, tuned, tmp_path / "tuned.xml", np.ones((2, 64), "f4"))


UNREAD = [
    '<layer id="99" name="n" type="Const" version="opset1"/>',
    '<layer id="99" name="n" type="Const" version="opset1"><data offset="-8" size="4"/></layer>',
    '<layer id="99" name="n" type="Const" version="opset1"><data offset="99999999999999999999" size="4"/></layer>',
    '<layer id="99" name="n" type="Const" version="opset1"><data offset="0" size="99999999999999999999"/></layer>',
]


@pytest.mark.parametrize("layer", UNREAD)
def test_constants_that_nothing_reads(layer, file, tmp_path):
    text = file.xml.replace(b"<layers>", b"<layers>" + layer.encode(), 1)
    model = load(text, weights=file.bin)
    model.save(tmp_path / "saved.xml", doubled(model))
    x = np.ones((2, 3), np.float32)
    assert_close(
        outputs_of(load(tmp_path / "saved.xml"), [x]), outputs_of(lambda x: model.apply(doubled(model), x), [x])
    )


@pytest.mark.parametrize("attribute", ['xmlns="urn:x"', 'xmlns:a="urn:x"', 'a:b="1"', 'xml:lang="1"'])
def test_a_colon_in_a_name_means_nothing(attribute, file, tmp_path):
    model = load(file.xml.replace(b"<net ", f"<net {attribute} ".encode(), 1), weights=file.bin)
    model.save(tmp_path / "saved.xml", doubled(model))
    assert attribute.encode() in (tmp_path / "saved.xml").read_bytes()
    for name, value in load(tmp_path / "saved.xml").params.items():
        np.testing.assert_array_equal(value, 2 * model.params[name])


def test_a_model_with_other_parameters_writes_them(tmp_path):
    """The weights of the file are not known then."""
    file = File()
    x = file.parameter([2, 3], name="x")
    half = file.layer("Convert", 1, [file.constant(np.float16([[1, -2, 3]]))], {"destination_type": "f32"})
    y = file.layer("Add", 1, [x, half], name="sum")
    file.result(file.layer("Multiply", 1, [y, file.constant(np.float32([[2, 0.5, 4]]))]))
    model = load(file.xml, weights=file.bin)
    tuned = model.with_params({name: 3 * value for name, value in model.params.items()})
    for one in (tuned, pickle.loads(pickle.dumps(tuned))):
        one.save(tmp_path / "tuned.xml")
        found = load(tmp_path / "tuned.xml").params
        assert len(found) == 2
        for name, value in found.items():
            np.testing.assert_array_equal(value, tuned.params[name])
