"""An operator of a schema and a function, for a format whose types are called as NumPy calls them."""

import inspect
import pickle

import jax
import numpy as np
import pytest

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, SignatureError, UnsupportedError
from jaxops.frontend.opset import Opset
from jaxops.frontend.schema import Attribute, Formal, Schema
from jaxops.frontend.schema_operator import SchemaOperator
from jaxops.frontend.versions import Versions, by_type, newest
from jaxops.graph.nodes import Node
from jaxops.signature import ElementType

FLOATS, INTEGERS = frozenset({"float32", "float16"}), frozenset({"int32", "int64"})


class PlainSchema(Schema):
    cast = "Convert"

    def type_names(self, value):
        return (value.dtype.name,)

    def listing(self, types):
        return " or ".join(sorted(types))

    def element_types(self, types):
        return frozenset(map(np.dtype, types))

    def element_type(self, value):
        return np.dtype(value) if value in FLOATS | INTEGERS else None

    def check_kind(self, attribute, value):
        if type(value).__name__ != attribute.kind:
            raise ArgumentError(f"{self.name}: `{attribute.name}` is {value!r}")


def concat(data, rest, *, axis: int, mode: str = "plain"):
    return jo.concat([data, *rest], axis=axis)


DATA = Formal("data", "T", FLOATS)
CONCAT = PlainSchema(
    name="Join",
    since=3,
    inputs=[DATA, Formal("rest", "T", FLOATS, "variadic", least=0)],
    outputs=[DATA],
    attributes={
        "axis": Attribute("axis", "int", default=0),
        "mode": Attribute("mode", "str", words=("plain", "fast")),
        "hint": Attribute("hint", "str", ignored=True),
    },
    doc="Joins.",
)


def counted(x, w=None, *, to: ElementType = None):  # pyright: ignore[reportArgumentType]
    return np.size(x)


COUNTED = PlainSchema(
    name="Count",
    since=1,
    inputs=[DATA, Formal("w", "float32", frozenset({"float32"}), "optional")],
    outputs=[Formal("n", "I", INTEGERS), Formal("rest", "T", FLOATS, "optional")],
    attributes={"to": Attribute("to", "str", required=True)},
)
JOIN, COUNT = SchemaOperator(CONCAT, concat, 5, jo.concat), SchemaOperator(COUNTED, counted, 5)
X = np.ones((1, 2), np.float32)


def test_the_schema_says_names_and_counts():
    assert (JOIN.name, JOIN.version, JOIN.label) == ("Join", "Join-3", "Join, opset 5")
    assert (JOIN.formals, JOIN.function, JOIN.foldable) == (("data", "rest"), jo.concat, True)
    assert (CONCAT.input_counts, CONCAT.output_counts) == ((1, None), (1, 1))
    assert (COUNTED.input_counts, COUNTED.output_counts) == ((1, 2), (1, 2))
    JOIN.check_arity([True, True, True], 1)
    two = SchemaOperator(PlainSchema("Two", 1, [Formal("xs", "T", FLOATS, "variadic", 2)], [], {}), concat, 1)
    for operator, present, outputs, text in [
        (JOIN, [], 1, "Join-3: input 0 `data` is missing"),
        (COUNT, [True, True, True], 1, "Count-1: got 3 inputs, but the version takes 1 to 2"),
        (COUNT, [True], 3, "Count-1: 3 outputs asked for, but the version has 1 to 2"),
        (two, [True], 0, "Two-1: got 1 input, but the version takes at least 2"),
    ]:
        with pytest.raises(SignatureError, match=text):
            operator.check_arity(present, outputs)


def test_attributes_are_checked_and_completed():
    assert JOIN.complete({}) == {"axis": 0}
    assert JOIN.complete({"mode": "fast", "axis": 1, "hint": "x"}) == {"axis": 1, "mode": "fast"}
    assert COUNT.complete({"to": "int64"}) == {"to": np.int64}
    other = PlainSchema("Join", 4, CONCAT.inputs, [DATA], {"axes": Attribute("axes", "int")})
    for operator, attributes, error, text in [
        (
            JOIN,
            {"axes": 1},
            SignatureError,
            "Join-3: unknown attribute `axes`; did you mean `axis`. the version has",
        ),
        (JOIN, {"axis": "1"}, ArgumentError, "Join: `axis` is '1'"),
        (JOIN, {"mode": "slow"}, ArgumentError, "Join-3: `mode` is 'slow'; it must be one of 'plain', 'fast'"),
        (COUNT, {}, SignatureError, "Count-1: required attribute `to` is missing"),
        (COUNT, {"to": "float"}, ArgumentError, "Count-1: `to` is 'float', which is not an element type"),
        (COUNT, {"to": "float16"}, DTypeError, "`n` would be float16, as `to` says; this version gives int32 or int64"),
        (SchemaOperator(other, concat, 5), {}, SignatureError, "Join-4: attribute `axis` is missing"),
        (SchemaOperator(other, concat, 5), {"axes": 1}, UnsupportedError, "does not implement the attribute `axes`"),
    ]:
        with pytest.raises(error, match=text):
            operator.complete(attributes)
    assert SchemaOperator(other, None, 5).complete({"axes": 1}) == {"axes": 1}  # a body takes what there is


def test_types_of_operands():
    JOIN.check([X, X, X])
    COUNT.check([X.astype(np.float16), X])  # a stated type need not be that of the variable
    for operator, operands, text in [
        (JOIN, [X.astype(np.int8)], "`data` is int8.*; this version takes float16 or float32; convert with Conv"),
        (JOIN, [X, X.astype(np.float16)], r"`data` and `rest` must have one element type \(T\), got float32 and fl"),
        (COUNT, [X, X.astype(np.float16)], "input 1 `w` is float16.*; this version takes float32"),
    ]:
        with pytest.raises(DTypeError, match=text):
            operator.check(operands)
    with pytest.raises(SignatureError, match="Join-3: input 0 `data` is missing"):
        JOIN.check([None, X])
    empty = Formal("data", "T", FLOATS, holds_none=True)
    SchemaOperator(PlainSchema("Maybe", 1, [empty], [DATA], {}), concat, 5).check([None])


def test_types_of_results():
    assert JOIN.call([X, X], {"axis": 0}, n_outputs=1, rng=None)[0].shape == (2, 2)
    wrong = JOIN.with_function(lambda data, rest, *, axis: data.astype(np.float16))
    with pytest.raises(AssertionError, match="Join-3, output data"):
        jax.eval_shape(lambda x: wrong.call([x], {"axis": 0}, n_outputs=1, rng=None), X)
    COUNT.check_results([np.int32(1), X])
    with pytest.raises(DTypeError, match=r"Count-1: output `n` would be float32.*; this version gives int32 or i"):
        COUNT.check_results([X])
    node = Node(COUNT, "", ("x",), ("n", "rest"), {"to": np.dtype(np.int64)})
    assert COUNT.output_types(node, [np.dtype(np.float16)]) == [np.int64, np.float16]
    assert COUNT.output_types(node, [None]) == [np.int64, None]


class PlainOpset(Opset):
    def _find(self, name):
        if name not in ("Join", "If"):
            raise UnsupportedError(f"{name}: not in opset {self.version}")
        condition = Formal("cond", "bool", frozenset({"bool"}))
        branches = {name: Attribute(name, "Graph") for name in ("then_branch", "else_branch")}
        return JOIN if name == "Join" else SchemaOperator(PlainSchema("If", 1, [condition], [], branches), jo.if_, 5)

    def _listed(self):
        return ["If", "Join", "Meet"]


def test_the_operators_of_an_opset_are_functions():
    op = PlainOpset(5)
    assert set(dir(op)) - set(dir(object)) >= {"Join"}
    assert not {"If", "Meet"} & set(dir(op))
    assert op.Join(X, [X, X], axis=1).shape == (1, 6)
    assert op.Join(X, X).shape == (2, 2)
    assert op.Join(data=X, mode="fast").shape == (1, 2)
    assert (
        op.Join(np.zeros((1, 2)).tolist(), X).dtype == np.float32
    )  # Python numbers take the type of the other operand
    assert str(inspect.signature(op.Join)) == "(data, *rest, axis=0, mode=None, hint=None)"
    assert op.Join.__doc__.startswith("Join, version 3 (opset 5)\n\nJoins.\n\nInputs\n  data: T\n")
    assert "Types\n  T\n      float16, float32" in op.Join.__doc__
    assert pickle.loads(pickle.dumps(op)).Join(X).shape == (1, 2)
    with pytest.raises(AttributeError, match="Meet: not in opset 5"):
        op.Meet  # noqa: B018
    with pytest.raises(AttributeError, match="If: an operator with subgraphs can only be called from a model"):
        op.If  # noqa: B018
    with pytest.raises(ArgumentError, match=r"Join: `axis` is 1\.5"):
        op.Join(X, axis=1.5)


def test_functions_by_name_and_by_version():
    versions = Versions("jaxops.shapes.ml")  # a package that registers nothing
    first, third = (versions.version("Join", since)(lambda xs: xs) for since in (1, 3))
    registered = versions.adapters()["", "Join"]
    assert [newest(registered, opset) for opset in (0, 1, 2, 3, 9)] == [None, first, first, third, third]
    assert by_type(jo)["variadicsplit"] is jo.variadic_split
