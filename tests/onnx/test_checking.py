"""`jaxops.onnx.check`: what a model asks for, and what of it is missing, without loading it."""

import numpy as np
import onnx
import pytest
from graphs import build, function, info, node, tensor
from onnx import TensorProto, helper

from jaxops.errors import ModelError, UnsupportedError
from jaxops.onnx import bind, carried, check, checking, lenient, load

NCHWC = (("", 18), ("com.microsoft.nchwc", 1))
IMPORTS = (("", 18), ("loc", 1), ("com.acme", 2))


def branch(*nodes):
    return helper.make_graph(nodes, "branch", [], [info("r", None)])


def mixed():
    """Operators in the graph, in subgraphs and in functions, some of them missing."""
    f = function("F", ["a"], node("Relu", ["a"], ["m"]), node("Nada", ["m"], ["b"]))
    unused = function("G", ["a"], node("Never", ["a"], ["b"]))
    inner = branch(node("Neg", ["x"], ["q"]), node("Nope", ["q"], ["r"], domain="com.acme"))
    return build(
        node("F", ["x"], ["f"], domain="loc"),
        node("F", ["f"], ["g"], domain="loc"),
        node("Relu", ["g"], ["h"]),
        node("HardSwish", ["h"], ["i"]),
        node("Upsample", ["i", "s"], ["j"]),
        node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        initializers=[tensor(np.bool_(True), "c"), tensor(np.float32([1, 2]), "s")],
        functions=[f, unused],
        opsets=IMPORTS,
    )


def test_every_operator_has_a_row():
    rows = {(r.domain, r.operator): (r.version, r.count, r.status, r.hint) for r in check(mixed())}
    assert rows == {
        ("ai.onnx", "HardSwish"): (14, 1, "function", ""),
        ("ai.onnx", "If"): (16, 1, "function", ""),
        ("ai.onnx", "Nada"): (None, 1, "missing", "not in opset 18; the standard has no such operator"),
        ("ai.onnx", "Neg"): (13, 2, "function", ""),
        ("ai.onnx", "Relu"): (14, 2, "function", ""),
        ("ai.onnx", "Upsample"): (None, 1, "missing", "deprecated since opset 10"),
        ("com.acme", "Nope"): (None, 2, "missing", "jaxops knows no operators of domain 'com.acme'"),
        ("loc", "F"): (None, 2, "local", ""),
    }


def test_the_missing_are_those_that_load_lists():
    found = check(mixed())
    with pytest.raises(UnsupportedError) as raised:
        load(mixed())
    listed = {line.split(":")[0].strip() for line in str(raised.value).splitlines()[1:-1]}
    assert listed == {row.operator for row in found.missing} == {"Nada", "Nope", "Upsample"}


def test_the_table():
    text = str(check(mixed()))
    assert text.splitlines()[:3] == [
        "operator   domain    version  count  status",
        "HardSwish  ai.onnx   14       1      supported",
        "If         ai.onnx   16       1      supported",
    ]
    assert "F          loc       -        2      a function of the model" in text
    assert "missing: deprecated since opset 10" in text
    assert text.splitlines()[-1] == "g: 8 operators, 12 nodes; 3 operators with 4 nodes are missing"
    fine = check(build(node("Relu", ["x"], ["y"])))
    assert str(fine).endswith("g: 1 operator, 1 node; jaxops has them all")
    assert (len(fine), fine.missing) == (1, ())


def without(monkeypatch, *missing):
    """jaxops without some operators, and without a function for Swish, which the standard defines by others."""
    found = lenient.tolerant

    def poor(op_type, domain, opset):
        if op_type in missing:
            raise UnsupportedError(f"{op_type}: jaxops does not implement it")
        operator = found(op_type, domain, opset)
        if op_type == "Swish":
            return lenient.TolerantOperator(operator.schema, None, operator.opset)
        return operator

    monkeypatch.setattr(checking, "tolerant", poor)
    monkeypatch.setattr(bind, "tolerant", poor)
    return build(node("Swish", ["x"], ["h"]), node("Swish", ["h"], ["y"]), opsets=(("", 24),))


def test_operators_behind_a_body_of_the_standard_are_counted(monkeypatch):
    proto = without(monkeypatch, "Mul", "Sigmoid")
    rows = {row.operator: row for row in check(proto)}
    assert rows["Swish"].status == "missing"
    assert rows["Swish"].hint == "its function body needs Mul, Sigmoid"
    assert (rows["Mul"].count, rows["Sigmoid"].count) == (4, 2)
    assert rows["Mul"].hint == "jaxops does not implement it; in the function body of Swish-24"
    with pytest.raises(
        UnsupportedError, match=r"Mul: jaxops does not implement it, in the body of Swish-24  \(node 'h'"
    ):
        load(proto)


def test_an_operator_that_its_body_defines_says_so(monkeypatch):
    found = check(without(monkeypatch))
    assert [(row.status, row.count) for row in found] == [("body", 2)]
    assert "Swish     ai.onnx  24       2      supported, by the standard's function body" in str(found)


def test_weights_are_not_needed(tmp_path):
    proto = build(node("Add", ["x", "w"], ["y"]), initializers=[tensor(np.ones(3, np.float32))])
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "m.data").unlink()
    assert [row.operator for row in check(path)] == ["Add"]
    with pytest.raises(ModelError, match=r"external data 'm\.data' is missing"):
        load(path)


def test_other_faults_are_left_to_load():
    bad = build(node("Flatten", ["x"], ["y"], axis="1", foo=2))
    assert [row.status for row in check(bad)] == ["function"]
    attribute = function("F", ["a"], node("Flatten", ["a"], ["b"]), attributes=["axis"])
    attribute.node[0].attribute.add(name="axis", ref_attr_name="axis", type=onnx.AttributeProto.INT)
    whole = build(node("F", ["x"], ["y"], domain="loc", axis=1), functions=[attribute], opsets=IMPORTS)
    assert [row.operator for row in check(whole)] == ["Flatten", "F"]


def test_what_is_no_model(tmp_path):
    with pytest.raises(ModelError, match="not an ONNX model"):
        check(b"abc")
    with pytest.raises(FileNotFoundError):
        check(tmp_path / "nope.onnx")


def test_an_unknown_operator_of_one_processor_is_told():
    (row,) = check(build(node("Gemm", ["x"], ["y"], domain="com.microsoft.nchwc"), opsets=NCHWC))
    assert (row.status, row.hint) == (
        "missing",
        "jaxops knows no operators of domain 'com.microsoft.nchwc'; an operator of that name is in ai.onnx",
    )


def test_a_carried_model_is_whole():
    assert check(carried("light_resnet50")).missing == ()


def test_an_element_type_that_an_operator_lacks():
    """The first call of such a model would be a DTypeError."""
    booleans = build(node("Relu", ["x"], ["y"]), inputs=[info("x", ["N"], TensorProto.BOOL)])
    (row,) = check(booleans).missing
    assert (row.operator, row.hint[:31]) == ("Relu", "input 0 `X` is bool[…]; this ve")
    late = build(
        node("Cast", ["x"], ["b"], to=TensorProto.INT32), node("Add", ["x", "b"], ["c"]), node("Relu", ["c"], ["y"])
    )
    (row,) = check(late).missing
    assert row.operator == "Add"
    assert "inputs `A` and `B` must have one element type (T), got tensor(float) and tensor(int32)" in row.hint
    assert "1 operator with 1 node is missing" in str(check(late))
    fits = build(node("Cast", ["x"], ["b"], to=TensorProto.FLOAT), node("Add", ["x", "b"], ["y"]))
    assert not check(fits).missing


def test_an_element_type_that_an_operator_lacks_in_a_subgraph():
    inner = branch(node("Relu", ["b"], ["r"]))
    shadowing = helper.make_graph(
        [node("Relu", ["b"], ["r"])], "branch", [], [info("r", None)], [tensor(np.zeros(2, np.float32), "b")]
    )

    def choosing(one, other):
        return build(
            node("Cast", ["x"], ["b"], to=TensorProto.BOOL),
            node("If", ["c"], ["y"], then_branch=one, else_branch=other),
            inputs=[info("x", ["N"]), info("c", [], TensorProto.BOOL)],
        )

    (row,) = check(choosing(inner, shadowing)).missing
    assert (row.operator, row.count, row.hint[:22]) == ("Relu", 1, "input 0 `X` is bool[…]")
    assert not check(choosing(shadowing, shadowing)).missing
    body = function(
        "F", ["a"], node("Cast", ["a"], ["b"], to=TensorProto.BOOL), node("Relu", ["b"], ["r"]), outputs=["r"]
    )
    (row,) = check(build(node("F", ["x"], ["y"], domain="loc"), opsets=IMPORTS, functions=[body])).missing
    assert row.operator == "Relu"
