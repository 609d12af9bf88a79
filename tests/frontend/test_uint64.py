"""Operators on uint64 of a model while x64 is off: exact, or refused."""

import pickle

import jax
import numpy as np
import pytest
from graphs import build, function, info, node, tensor
from onnx import TensorProto, helper

from jaxops.errors import OutOfRangeError
from jaxops.onnx import load, opset

U64, U32, BOOL = TensorProto.UINT64, TensorProto.UINT32, TensorProto.BOOL
X = np.uint64([1, 5, 2**31])
TEXT = (
    r"the uint64 operands are uint32 arrays, since x64 is off.*\n(.*\n)*"
    r".*load the model with x64='auto' or True, or turn x64 on with jax\.config"
)


def model(*nodes, dtype=U64, **options):
    return build(*nodes, inputs=[info("x", [3], dtype)], outputs=[info("y", None, U64)], **options)


NOT = node("BitwiseNot", ["x"], ["y"])
TRUE, TWO = tensor(np.bool_(True), "c"), tensor(np.uint64([40, 2, 1]), "n")
SHIFT = [node("BitShift", ["x", "n"], ["y"], direction=d) for d in ("LEFT", "RIGHT")]
BRANCH = [
    helper.make_graph([node("BitwiseNot", ["k"], ["r"])], "b", [], [info("r", None, U64)]),
    helper.make_graph([node("Identity", ["x"], ["s"])], "b", [], [info("s", None, U64)]),
]
BODY = helper.make_graph(
    [node("BitwiseNot", ["a"], ["r"]), node("Identity", ["q"], ["p"])],
    "b",
    [info("i", [], TensorProto.INT64), info("q", [], BOOL), helper.make_empty_tensor_value_info("a")],
    [info("p", [], BOOL), info("r", None, U64)],
)
INVERT = function("F", ["a"], node("Identity", ["a"], ["k"]), node("BitwiseNot", ["k"], ["b"]))
LOCAL = {"opsets": (("", 18), ("loc", 1)), "functions": [INVERT]}
REFUSED = {
    "not": model(NOT),
    "left shift": model(SHIFT[0], initializers=[TWO]),
    "through movement": model(
        node("Identity", ["x"], ["a"]), node("Concat", ["a", "a"], ["k"], axis=0), node("BitwiseNot", ["k"], ["y"])
    ),
    "after a cast": model(node("Cast", ["x"], ["k"], to=U64), node("BitwiseNot", ["k"], ["y"]), dtype=U32),
    "captured": model(
        node("Identity", ["x"], ["k"]),
        node("If", ["c"], ["y"], then_branch=BRANCH[0], else_branch=BRANCH[1]),
        initializers=[TRUE],
    ),
    "after a branch": model(
        node("If", ["c"], ["k"], then_branch=BRANCH[1], else_branch=BRANCH[1]),
        node("BitwiseNot", ["k"], ["y"]),
        initializers=[TRUE],
    ),
    "in a loop": model(node("Loop", ["m", "", "x"], ["y"], body=BODY), initializers=[tensor(np.int64(1), "m")]),
    "in a function": model(node("F", ["x"], ["y"], domain="loc"), **LOCAL),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_32_bits_cannot_say_is_refused(name):
    x = X.astype(np.uint32) if name == "after a cast" else X
    with pytest.raises(OutOfRangeError, match=TEXT):
        load(REFUSED[name], x64=False)(x)


def test_the_error_names_the_operator_and_the_node():
    with pytest.raises(OutOfRangeError, match="BitwiseNot: the result may need 64 bits") as caught:
        load(model(NOT), x64=False)(X)
    assert "in node 'y' (BitwiseNot, opset 18)" in "\n".join(caught.value.__notes__)
    with pytest.raises(OutOfRangeError, match="BitShift: the result may need 64 bits"):
        load(REFUSED["left shift"], x64=False)(X)


@pytest.mark.parametrize("name", REFUSED)
def test_by_default_such_models_run_in_64_bits(name):
    x = X.astype(np.uint32) if name == "after a cast" else X
    with jax.enable_x64(True):
        expected = load(REFUSED[name])(x)
    found = load(REFUSED[name])(x)
    assert found.dtype == expected.dtype == np.uint64
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_the_values_with_x64_on():
    with jax.enable_x64(True):
        np.testing.assert_array_equal(load(model(NOT))(X), ~X)
        np.testing.assert_array_equal(load(REFUSED["left shift"])(X), X << np.uint64([40, 2, 1]))
        np.testing.assert_array_equal(load(REFUSED["in a function"])(X), ~X)
        np.testing.assert_array_equal(load(REFUSED["in a loop"])(X), ~X)


def test_what_32_bits_can_say_runs():
    np.testing.assert_array_equal(load(model(SHIFT[1], initializers=[TWO]))(X), X >> np.uint64([40, 2, 1]))
    for dtype, values in ((U32, X.astype(np.uint32)), (TensorProto.INT64, np.int64([1, -7, 0]))):
        proto = build(NOT, inputs=[info("x", [3], dtype)], outputs=[info("y", None, dtype)])
        np.testing.assert_array_equal(load(proto)(values), ~values)
    narrow = [node("Cast", ["x"], ["k"], to=U32), node("BitwiseNot", ["k"], ["j"]), node("Cast", ["j"], ["y"], to=U64)]
    np.testing.assert_array_equal(load(model(*narrow))(X), ~X.astype(np.uint32))
    called = [node("Cast", ["x"], ["k"], to=U32), node("F", ["k"], ["j"], domain="loc")]
    called.append(node("Cast", ["j"], ["y"], to=U64))
    np.testing.assert_array_equal(load(model(*called, **LOCAL))(X), ~X.astype(np.uint32))


def test_static_values_are_exact():
    np.testing.assert_array_equal(opset(18).BitwiseNot(X), ~X)
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Cast", ["s"], ["u"], to=U64),
        node("BitwiseNot", ["u"], ["v"]),
        node("BitwiseNot", ["v"], ["w"]),
        node("Cast", ["w"], ["r"], to=TensorProto.INT64),
        node("Expand", ["x", "r"], ["y"]),
    ]
    np.testing.assert_array_equal(load(model(*nodes))(X), X)


def test_a_static_result_beside_a_traced_one():
    proto = model(node("BitwiseNot", ["n"], ["k"]), node("BitwiseAnd", ["x", "k"], ["y"]), initializers=[TWO])
    with pytest.raises(OutOfRangeError, match="the uint64 value 18446744073709551614 does not fit uint32"):
        load(proto, x64=False)(X)
    np.testing.assert_array_equal(load(proto)(X), X & ~np.uint64([40, 2, 1]))


def test_a_loaded_node_can_be_copied():
    operator = load(model(NOT)).graph.nodes[0].operator
    assert type(pickle.loads(pickle.dumps(operator))) is type(operator)
