"""`opset(n)`: what each opset lists, and the table of all operations against OpenVINO's own."""

import inspect
import warnings
from pathlib import Path

import numpy as np
import openvino_peer
import pytest
from openvino_files import single

from jaxops.errors import ArgumentError, BoundsError, DTypeError, SignatureError
from jaxops.openvino import load, opset, schemas
from jaxops.openvino.registry import find

X = np.arange(6, dtype="f4").reshape(2, 3)
# Done by the graph itself.
MISSING = {
    *("Parameter-1", "Result-1", "Constant-1", "If-8", "TensorIterator-1"),
    *("ReadValue-3", "ReadValue-6", "Assign-3", "Assign-6"),
}


def test_an_operation_means_what_the_opset_says():
    np.testing.assert_array_equal(opset(8).Gather(X, np.array([-1, 9]), 1), [[2, 0], [5, 0]])
    np.testing.assert_array_equal(opset(1).ReduceSum(X, [1]), [3, 12])
    np.testing.assert_array_equal(opset(1).Select(np.array([True, False, True]), X, 0), [[0, 0, 2], [3, 0, 5]])
    window = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "kernel": [2, 3], "exclude_pad": True}
    np.testing.assert_array_equal(opset(14).AvgPool(X[None, None], **window), [[[[2.5]]]])
    values, places = opset(11).TopK(X, 1, axis=1, mode="max", sort="value")
    assert (values.tolist(), places.tolist(), np.asarray(places).dtype) == ([[2], [5]], [[2], [2]], np.int32)


def test_what_an_opset_does_not_list():
    assert "Reverse" in dir(opset(1))
    with pytest.raises(AttributeError, match="opset 2 does not list it; the newest opset that has it is 1"):
        opset(2).Reverse(X, [1], mode="index")
    with pytest.raises(AttributeError, match="OpenVINO has no such operation"):
        opset(8).Gathr(X)
    with pytest.raises(AttributeError, match="does not implement"):
        opset(8).If(X)
    assert "ErfInv" in dir(opset(17))
    assert "Swish" not in dir(opset(17))
    for bad in (0, 18, "8"):
        with pytest.raises(ArgumentError, match="OpenVINO has opsets 1 to 17"):
            opset(bad)


def test_bad_calls():
    op = opset(8)
    with pytest.raises(SignatureError, match="unknown attribute `batch_dim`; did you mean `batch_dims`"):
        op.Gather(X, [0], 0, batch_dim=1)
    with pytest.raises(SignatureError, match="required attribute `mode` is missing"):
        opset(1).TopK(X, 1, axis=1, sort="value")
    with pytest.raises(ArgumentError, match="`mode` is 'largest'; it must be one of 'min', 'max'"):
        opset(1).TopK(X, 1, axis=1, sort="value", mode="largest")
    with pytest.raises(ArgumentError, match=r"attribute `axis` is 1\.5; it must be of kind int"):
        op.Softmax(X, axis=1.5)
    with pytest.raises(DTypeError, match=r"input 0 `data` is .*int64.*; this version takes .*; convert with Convert"):
        op.Softmax(np.arange(3), axis=0)
    with pytest.raises(DTypeError, match="must have one element type"):
        opset(1).Add(X, np.arange(3))
    assert inspect.signature(op.Gather).parameters["batch_dims"].default == 0


@pytest.mark.parametrize("name", schemas.classes())
def test_every_class_has_a_function_that_takes_what_the_table_says(name):
    op_type, _, since = name.rpartition("-")
    if name in MISSING:
        with pytest.raises(AttributeError):
            getattr(opset(int(since)), op_type)
        return
    operator = find(op_type, int(since))
    assert operator.schema.since == int(since)
    if operator.subgraphs:
        return
    assert callable(getattr(opset(int(since)), op_type))
    required = {n for n, p in operator.parameters.items() if p.default is p.empty and p.kind is p.KEYWORD_ONLY}
    assert required <= operator.schema.attributes.keys()
    assert operator.schema.attributes.keys() <= operator.parameters.keys()


def test_the_opsets_list_what_openvino_lists():
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # its import starts a process
        openvino = openvino_peer.imported()
    headers = sorted((Path(openvino.__file__).parent / "include/openvino/opsets").glob("*_tbl.hpp"))
    assert len(headers) == 17
    for header in headers:
        lines = [line for line in header.read_text().splitlines() if line.startswith("_OPENVINO_OP_REG(")]
        listed = {line.partition("(")[2].partition(",")[0].strip() for line in lines}
        assert set(schemas.operations(int(header.name[5:-8]))) == listed


def test_negative_numbers_of_later_versions():
    """A file may have them all the same."""
    with pytest.raises(ArgumentError, match=r"Pad-1: input 1 `pads_begin` holds -1; this version takes no negative"):
        opset(1).Pad(X, [0, -1], [0, 0], 0.0, pad_mode="constant")
    with pytest.raises(ArgumentError, match=r"Pad-1: input 2 `pads_end` holds -2; .* \(it crops from version 12 on\)"):
        opset(11).Pad(X, [0, 0], [0, -2], 0.0, pad_mode="constant")
    np.testing.assert_array_equal(opset(12).Pad(X, [0, -1], [0, 0], 0.0, pad_mode="constant"), X[:, 1:])
    for number in (1, 6, 7):
        with pytest.raises(BoundsError, match=r"Gather-[17]: input 1 `indices` holds -1; .* from version 8 on\)"):
            opset(number).Gather(X, [0, -1], 1)
    np.testing.assert_array_equal(opset(8).Gather(X, [0, -1], 1), X[:, [0, -1]])
    for op_type, number, operands, attributes in [
        ("Pad", 1, [X, (np.array([0, -1]),), (np.array([0, 0]),)], {"pad_mode": "constant"}),
        ("Gather", 1, [X, (np.array([1, -1]),), (np.array(1),)], {}),
        ("Gather", 7, [X, (np.array([1, -1]),), (np.array(1),)], {"batch_dims": 0}),
    ]:
        file, inputs = single(op_type, number, operands, attributes)
        np.testing.assert_array_equal(load(file.xml, weights=file.bin)(*inputs), X[:, 1:])
