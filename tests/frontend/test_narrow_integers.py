"""Sizes that a model casts to int32, as TensorFlow's do: what is computed of them has that type in an export, too."""

import pickle

import numpy as np
import onnxruntime
import pytest
from symbolic_graphs import inputs, model

import jaxops.onnx
from jaxops.errors import DTypeError
from jaxops.frontend.integer_types import NarrowOperator, with_integer_types
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.onnx.registry import find as onnx_operator
from jaxops.openvino.registry import find as openvino_operator

START = """sizes = Shape(x)  narrow = Cast<to=6>(sizes)
    one = Constant<value_ints=[1]>()  last = Constant<value_ints=[2]>()  two = Constant<value=int32[1] {2}>()"""
ROWS = {
    "a size that is a number": ("int32[1] y", "g = Gather(narrow, last)  y = Mul(g, two)"),
    "a quotient that is a number": ("int32[1] y", "g = Gather(narrow, one)  h = Div(g, g)  y = Mul(h, two)"),
    "sizes that stay symbolic": ("int32[3] y", "y = Mul(narrow, two)"),
    "sizes of uint64": (
        "uint64[1] y",
        "w = Cast<to=13>(sizes)  h = Gather(w, last)  u = Constant<value=uint64[1] {3}>()  y = Add(h, u)",
    ),
    "numbers beside traced ones": ("int32[b] y", "g = Gather(narrow, last)  h = Sub(g, two)  y = Mul(h, z)"),
    "a target of Reshape": (
        "float[n,m] y",
        """g = Gather(narrow, last)  h = Mul(g, two)  minus = Constant<value=int32[1] {-1}>()
        t = Concat<axis=0>(minus, h)  wide = Cast<to=7>(t)  w = Concat<axis=2>(x, x)  y = Reshape(w, wide)""",
    ),
    "in a branch": (
        "int32[1] y",
        """g = Gather(narrow, last)  c = Constant<value=bool {1}>()
        y = If(c) <then_branch = a () => (int32[1] p) { p = Mul(g, two) }, else_branch = b () => (int32[1] q) {
        q = Add(g, two) }>""",
    ),
    "in branches that data choose": (
        "int32[3] y",
        """f = ReduceMax<keepdims=0>(z)  c = Greater(f, zero)  zero = Constant<value=int32 {0}>()
        y = If(c) <then_branch = a () => (int32[3] p) { p = Identity(narrow) }, else_branch = b () => (int32[3] q) {
        q = Neg(narrow) }>""",
    ),
    "in the state of a loop": (
        "int32[1] y",
        """g = Gather(narrow, one)  f = ReduceMax(z)  n = Constant<value=int64 {2}>()  c = Constant<value=bool {1}>()
        y = Loop(n, c, g) <body = a (int64 i, bool k, int32[1] s) => (bool l, int32[1] t) {
        l = Identity(k)  t = Add(s, f) }>""",
    ),
    "the largest of them": ("int32[1] y", "y, i = TopK(narrow, one)"),
    "the largest of them and a number": ("int32[1] y", "j = Concat<axis=0>(narrow, two)  y, i = TopK(j, one)"),
    "in a product": ("int32 y", "y = MatMul(narrow, narrow)"),
    "in a product with traced ones": (
        "int32 y",
        "g = Concat<axis=0>(f, f, f)  f = ReduceMax(z)  y = MatMul(g, narrow)",
    ),
    "in an equation": ("int32 y", 'y = Einsum<equation="i,i->">(narrow, narrow)'),
    "bits of them": ("int32[3] y", "y = BitwiseAnd(narrow, two)"),
    "beside sizes": ("int32[5] y", "p = Constant<value_ints=[1, 1]>()  y = Pad(narrow, p)"),
}


def loaded(row):
    out, body = ROWS[row]
    proto = model(f"(float[b,t,5] x, int32[b] z) => ({out})", f"{START}  {body}")
    return proto, jaxops.onnx.load(proto)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("x64", [False, True])
def test_types_of_sizes(row, x64):
    proto, found = loaded(row)
    found = jaxops.onnx.load(proto, x64=x64)
    program = found.export()
    runtime = onnxruntime.InferenceSession(proto.SerializeToString())
    for sizes in ({"b": 2, "t": 3}, {"b": 1, "t": 7}):
        values = inputs(found, sizes)
        [want] = runtime.run(None, {"x": values[0], "z": values[1]})
        got = program.call(found.params, *values)
        assert got.dtype == want.dtype or (not x64 and want.dtype == np.uint64 and got.dtype == np.uint32)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(found(*values), want)


def test_it_is_the_same_when_it_was_pickled():
    _, found = loaded("a size that is a number")
    nodes = [pickle.loads(pickle.dumps(node.operator)) for node in found.graph.nodes]
    assert [type(node) for node in nodes] == [type(node.operator) for node in found.graph.nodes]
    assert "NarrowOperator" in {type(node).__name__ for node in nodes}


def test_types_that_differ_are_refused():
    body = "sizes = Shape(x)  two = Constant<value=int32[1] {2}>()  y = Mul(sizes, two)"
    proto = model("(float[b,t,5] x) => (int32[3] y)", body)
    with pytest.raises(DTypeError, match=r"inputs `A` and `B` must have one element type .* got tensor\(int64\)"):
        jaxops.onnx.load(proto)(np.zeros((1, 2, 5), np.float32))


@pytest.mark.parametrize(
    ("operator", "attribute"),
    [(onnx_operator("Cast", "", 18), "to"), (openvino_operator("Convert", 1), "destination_type")],
)
def test_a_cast_is_one_whatever_its_format_calls_the_attribute(operator, attribute):
    def converted(dtype):
        node = Node(operator, "", ("x",), ("y",), {attribute: np.dtype(dtype)})
        x, y = (Value(name, np.dtype(np.int64), ("n",)) for name in "xy")
        return with_integer_types(Graph("g", (x,), (y,), (node,), {})).nodes[0].operator

    assert isinstance(converted(np.int32), NarrowOperator)
    assert converted(np.float32) is operator
