"""Files that are damaged, contradict themselves, or are made to do harm: an error of ours that says where."""

import os
import time

import numpy as np
import pytest
from openvino_files import File

from jaxops.errors import JaxopsError, ModelError, PathError, SignatureError, UnsupportedError
from jaxops.openvino import load


def good():
    file = File()
    x = file.parameter([2], name="x")
    file.result(file.layer("Add", 1, [x, file.constant(np.ones(2, "f4"))]))
    return file


def changed(old, new):
    text = good().xml
    assert old in text, "the test changes nothing"
    return text.replace(old, new)


LAUGHS = b'<!DOCTYPE net [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
EXTERNAL = b'<!DOCTYPE net SYSTEM "file:///etc/passwd">'
DEEP = b'<net version="11">' + b"<a>" * 100_000
XML = [
    (b"", "it is damaged, or not XML"),
    (bytes(range(256)), "it is damaged, or not XML"),
    (good().xml[:200], "it is damaged, or not XML"),
    (good().xml.replace(b"?>", b"?>" + LAUGHS), "declares 'net', a document type or entity"),
    (good().xml.replace(b"?>", b"?>" + EXTERNAL), "declares 'net', a document type or entity"),
    (good().xml.replace(b"?>", b' encoding="no-such-code"?>'), "it is damaged, or not XML"),
    (DEEP, "its elements nest deeper than"),
    (b"<html/>", "not an OpenVINO IR: its root is <html>, not <net>"),
    (
        changed(b'version="11"', b'version="7"'),
        "IR version 7: jaxops reads versions 10 and 11; convert the model again",
    ),
    (b'<net version="11"/>', "the model has no Result"),
]


@pytest.mark.parametrize(("data", "match"), XML, ids=range(len(XML)))
def test_bad_xml(data, match):
    with pytest.raises(ModelError, match=match):
        load(data, weights=b"")


CONSTANTS = [
    (b'offset="0"', b'offset="-4"', "offset -4 and size 8 must not be negative"),
    (b'offset="0"', b'offset="1"', "bytes 1 to 9 go past the end of its weights at 8"),
    (b'offset="0"', b'offset="18446744073709551612"', "go past the end of its weights at 8"),
    (b'offset="0"', b'offset="' + b"9" * 400 + b'"', "`offset` is '999.*; it must be a whole number"),
    (b'size="8"', b'size="7"', r"7 bytes cannot fill shape \[2\], which takes 8"),
    (b'size="8"', b'size="many"', "`size` is 'many'; it must be a whole number"),
    (b' offset="0"', b"", "required attribute `offset` is missing"),
    (b'shape="2" offset', b'shape="-2" offset', r"shape \[-2\] has a negative size or is too large"),
    (b'shape="2" offset', b'shape="0,4611686018427387904" offset', "has a negative size or is too large"),
    (b'shape="2" offset', b'shape="4294967296,4294967296" offset', "has a negative size or is too large"),
    (b'"f32" shape="2" offset', b'"f31" shape="2" offset', "unknown element type 'f31'"),
]


@pytest.mark.parametrize(("old", "new", "match"), CONSTANTS, ids=range(len(CONSTANTS)))
def test_bad_constants(old, new, match):
    with pytest.raises(ModelError, match=match) as caught:
        load(changed(old, new), weights=good().bin)
    assert "layer 1 'Const_1' (Const)" in str(caught.value)


GRAPHS = [
    (b'to-layer="2" to-port="0"', b'to-layer="1" to-port="0"', "layer 1 'Const_1' .* has no such input"),
    (b'from-layer="0" from-port="0" to-layer="2"', b'from-layer="9" from-port="0" to-layer="2"', "there is no layer 9"),
    (b'from-layer="0" from-port="0" to-layer="2"', b'from-layer="0" from-port="5" to-layer="2"', "has no such output"),
    (b'from-layer="0" from-port="0" to-layer="2"', b'from-layer="2" from-port="2" to-layer="2"', "have a cycle"),
    (b'to-layer="2" to-port="1"', b'to-layer="2" to-port="0"', "another edge enters that port of layer 2"),
    (b'<edge from-layer="0" from-port="0" to-layer="2" to-port="0"/>', b"", "no edge enters its input 0"),
    (b'<layer id="1" name="Const_1"', b'<layer id="0" name="Const_1"', "has the id of layer 0 'x'"),
    (b'<layer id="1" name="Const_1"', b'<layer id="one" name="Const_1"', "must be a number, got 'one'"),
    (b'<layer id="1" name="Const_1" type="Const"', b'<layer id="1" name="Const_1"', "has no type"),
    (b'"x" type="Parameter" version="opset1"><data shape="2" element_type="f32"',
     b'"x" type="Parameter" version="opset1"><data shape="2" element_type="dynamic"', "its element type is dynamic"),
    (b'<data shape="2" element_type', b'<data shape="5..2" element_type', "limits are in the wrong order"),
    (b'<data shape="2" element_type', b'<data shape="two" element_type', "`shape` is 'two'; it must be a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "match"), GRAPHS, ids=range(len(GRAPHS)))
def test_bad_graphs(old, new, match):
    with pytest.raises(ModelError, match=match):
        load(changed(old, new), weights=good().bin)


OPERATIONS = [
    ("NoSuchThing", 1, {}, UnsupportedError, "OpenVINO has no such operation"),
    ("Relu", 99, {}, UnsupportedError, "opset99: jaxops knows opsets 1 to 17"),
    ("Reverse", 2, {}, UnsupportedError, "opset 2 does not list it; the newest opset that has it is 1"),
    ("Relu", "my_extension", {}, UnsupportedError, "knows no operations of 'my_extension'"),
    ("Elu", 1, {}, SignatureError, "required attribute `alpha` is missing"),
    ("Elu", 1, {"alpha": "one"}, ModelError, "attribute `alpha` is 'one'; it must be a number"),
    ("Gelu", 7, {"approximation_mode": "sin"}, ModelError, "is 'sin'; it must be one of ERF, TANH"),
    ("Softmax", 8, {"axis": 5}, JaxopsError, "axis"),
]


@pytest.mark.parametrize("case", OPERATIONS, ids=lambda case: f"{case[0]}-{case[1]}")
def test_bad_operations(case):
    op_type, opset, attributes, error, match = case
    file = File()
    file.result(file.layer(op_type, opset, [file.parameter([2])], attributes))
    with pytest.raises(error, match=match):
        load(file.xml)(np.ones(2, "f4"))


def test_all_missing_operations_are_in_one_error():
    file = File()
    x = file.layer("One", 1, [file.parameter([2])], name="first")
    file.result(file.layer("Two", "extension", [x]))
    with pytest.raises(UnsupportedError) as caught:
        load(file.xml)
    text = str(caught.value)
    assert "One: OpenVINO has no such operation" in text
    assert "(layer 'first')" in text
    assert "operators={('opset1', 'One'): fn, ('extension', 'Two'): fn}" in text


def test_an_operator_of_the_caller():
    file = File()
    file.result(file.layer("Scale", "extension", [file.parameter([2])], {"by": "2.5", "name": "x", "steps": "1,2"}))
    seen = {}

    def scale(x, **attributes):
        seen.update(attributes)
        return x * attributes["by"]

    model = load(file.xml, operators={("extension", "Scale"): scale})
    np.testing.assert_array_equal(model(np.ones(2, "f4")), [2.5, 2.5])
    assert seen == {"by": 2.5, "name": "x", "steps": (1, 2)}


def test_types_that_clash():
    file = File()
    file.result(file.layer("Add", 1, [file.parameter([2], "f4"), file.parameter([2], "i4")]))
    model = load(file.xml)
    with pytest.raises(JaxopsError, match="must have one element type"):
        model(np.ones(2, "f4"), np.ones(2, "i4"))


def write(folder, file, name="model"):
    (folder / f"{name}.xml").write_bytes(file.xml)
    (folder / f"{name}.bin").write_bytes(file.bin)
    return folder / f"{name}.xml"


def test_weights_lie_beside_the_file(tmp_path):
    path = write(tmp_path, good())
    np.testing.assert_array_equal(load(path)(np.ones(2, "f4")), [2, 2])
    (tmp_path / "model.bin").rename(tmp_path / "other.bin")
    with pytest.raises(ModelError, match=r"weights 'model.bin' is missing"):
        load(path)
    for weights in (tmp_path / "other.bin", good().bin):
        np.testing.assert_array_equal(load(path, weights=weights)(np.ones(2, "f4")), [2, 2])
    with pytest.raises(ModelError, match="which need weights; give them"):
        load(path.read_bytes())
    with pytest.raises(SignatureError, match="`weights` is 5; it must be"):
        load(path, weights=5)


def test_names_in_a_cache_are_links_to_content(tmp_path):
    blobs, named = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    named.mkdir()
    (blobs / "1a").write_bytes(good().xml)
    (blobs / "2b").write_bytes(good().bin)
    (named / "model.xml").symlink_to(blobs / "1a")
    (named / "model.bin").symlink_to(blobs / "2b")
    np.testing.assert_array_equal(load(named / "model.xml")(np.ones(2, "f4")), [2, 2])


def test_links_out_of_the_folder_are_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = write(folder, good())
    (tmp_path / "secret").write_bytes(good().bin)
    (folder / "model.bin").unlink()
    (folder / "model.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="lies outside the model's folder"):
        load(path)
    (folder / "model.bin").unlink()
    os.mkfifo(folder / "model.bin")
    with pytest.raises(ModelError, match="is not a regular file"):
        load(path)


def test_weights_that_changed_since(tmp_path):
    file = File()
    x = file.parameter([1, 64], name="x")
    file.result(file.layer("MatMul", 1, [x, file.constant(np.ones((64, 64), "f4"))]))
    path = write(tmp_path, file)
    model = load(path)
    (tmp_path / "model.bin").write_bytes(b"short")
    with pytest.raises(ModelError, match="has 5 bytes, but had 16384 when the model was loaded"):
        model(np.ones((1, 64), "f4"))


def test_what_is_no_file(tmp_path):
    with pytest.raises(PathError, match="there is no file"):
        load(tmp_path / "no.xml")
    with pytest.raises(PathError, match="is a directory"):
        load(tmp_path)
    with pytest.raises(SignatureError, match=r"a model is the path of an \.xml"):
        load(7)


def test_a_cycle_in_a_long_chain_is_found_at_once():
    file = File()
    x = file.parameter([1])
    first = file.layer("Add", 1, [x, x])
    y = first
    for _ in range(20_000):
        y = file.layer("Relu", 1, [y])
    file.edges[1] = file.edges[1].replace('from-layer="0" from-port="0"', f'from-layer="{y[0]}" from-port="{y[1]}"')
    file.result(y)
    start = time.perf_counter()
    with pytest.raises(ModelError, match="the layers have a cycle"):
        load(file.xml)
    assert time.perf_counter() - start < 5


def test_a_body_in_a_body_beyond_the_limit():
    net = "<layers/>"
    for _ in range(40):
        net = f'<layers><layer id="0" name="x" type="Loop" version="opset5"><body>{net}</body></layer></layers>'
    with pytest.raises(ModelError, match="at most 32 bodies may nest"):
        load(f'<net name="m" version="11">{net}</net>'.encode())


LONG = b"a" * (4 << 20)
LARGE = [
    changed(b"<net ", b'<net note="' + LONG + b'" '),
    changed(b"<layers>", b"<!--" + LONG + b"--><layers>"),
    changed(b"<layers>", b"<?note " + LONG + b"?><layers>"),
]


@pytest.mark.parametrize("data", LARGE, ids=["attribute", "comment", "instruction"])
def test_long_parts_are_read_once(data):
    started = time.monotonic()
    load(data, weights=good().bin)
    assert time.monotonic() - started < 3


def test_a_long_document_type_is_refused_at_once():
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"declares 'aaa.*', a document type") as caught:
        load(good().xml.replace(b"?>", b"?><!DOCTYPE " + LONG + b">"), weights=b"")
    assert time.monotonic() - started < 3
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (b"<layers>", b"<layers></layers><layers>", "the model has two <layers>"),
        (b"<edges>", b"<edges></edges><edges>", "the model has two <edges>"),
        (b"<output>", b"<output></output><output>", r"layer 0 'x' \(Parameter\) has two <output>"),
        (b"<data ", b'<data shape="1"/><data ', r"layer 0 'x' \(Parameter\) has two <data>"),
    ],
)
def test_two_of_a_part(old, new, match):
    with pytest.raises(ModelError, match=match):
        load(good().xml.replace(old, new, 1), weights=good().bin)


@pytest.mark.parametrize("version", ["opset" + "9" * 5000, "opset²", "opset１"])
def test_versions_that_are_no_numbers(version):
    text = good().xml.decode().replace('type="Add" version="opset1"', f'type="Add" version="{version}"').encode()
    assert text != good().xml
    with pytest.raises(UnsupportedError, match="opset"):
        load(text, weights=good().bin)
