"""What must be static: the paths the walk finds, through operators, functions and subgraphs."""

import jax
import numpy as np
import pytest
from graphs import build, function, info, model, node, tensor
from onnx import TensorProto, helper

from jaxops.errors import StaticError
from jaxops.graph.static_analysis import StaticInputs
from jaxops.onnx import load
from jaxops.onnx.bind import bind
from jaxops.onnx.read import read

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def paths(proto):
    return {name: str(need) for name, need in StaticInputs().walk(bind(read(proto))).items()}


CASES = {
    "the operand itself": (
        "main (float[N] x, int64[K] s) => (float[M] y) { y = Reshape(x, s) }",
        {"s": "Reshape 'y' `shape`"},
    ),
    "through what NumPy computes": (
        "main (float[N] x, int64[K] s, int64[1] n) => (float[M] y) { a = Concat<axis=0>(s, n) b = Mul(a, n) "
        "y = Reshape(x, b) }",
        {"s": "Concat 'a' → Mul 'b' → Reshape 'y' `shape`", "n": "Mul 'b' → Reshape 'y' `shape`"},
    ),
    "not through a shape": (
        "main (float[N] x, float[A,B] z) => (float[M] y) { s = Shape(z) y = Expand(x, s) }",
        {"s": "Expand 'y' `shape`"},
    ),
    "not through the data of the operand": (
        "main (float[N] x, int64[K] s) => (float[M] y) { a = Relu(x) y = Reshape(a, s) }",
        {"s": "Reshape 'y' `shape`"},
    ),
    "nor through an operator that NumPy does not compute": (
        "main (float[N] x) => (float[M] y) { a = Softmax(x) s = Cast<to=7>(a) y = Reshape(x, s) }",
        {"s": "Reshape 'y' `shape`", "a": "Cast 's' → Reshape 'y' `shape`"},
    ),
    "several operands of one node": (
        "main (float[N] x, int64[1] a, int64[1] b, int64[1] c) => (float[M] y) { y = Slice(x, a, b, c) }",
        {"a": "Slice 'y' `starts`", "b": "Slice 'y' `ends`", "c": "Slice 'y' `axes`"},
    ),
    "nothing": ("main (float[N] x) => (float[N] y) { y = Relu(x) }", {}),
}


@pytest.mark.parametrize("name", CASES)
def test_paths(name):
    text, expected = CASES[name]
    found = paths(model(text))
    outputs = {n for n in found if n not in {v.name for v in model(text).graph.input}}
    assert {n: p for n, p in found.items() if n in expected} == expected
    assert {n for n in found if n not in outputs} <= set(expected)


def test_what_is_reached_among_the_initializers_stays_static_and_the_rest_are_parameters():
    found = load(
        model(
            "main (float[N] x) => (float[M] y) { a = Mul(s, two) b = Reshape(x, a) y = Mul(b, w) }",
            initializers={"s": np.int64([1, 3]), "two": np.int64(1), "w": np.float32([2, 2, 2])},
        )
    )
    assert list(found.params) == ["w"]
    np.testing.assert_array_equal(found(X.ravel()[:3]), [[0, 2, 4]])


def test_an_input_that_must_be_static_says_so():
    found = load(model("main (float[N] x, int64[K] s) => (float[M] y) { t = Identity(s) y = Reshape(x, t) }"))
    assert [v.static for v in found.inputs] == ["", "Identity 't' → Reshape 'y' `shape`"]
    assert "s: int64[K]  static: Identity 't' → Reshape 'y' `shape`" in str(found)


def test_into_a_function_and_out_of_it():
    inner = function("F", ["a", "k"], node("Identity", ["k"], ["t"]), node("Reshape", ["a", "t"], ["b"], node_name="r"))
    proto = build(
        node("F", ["x", "s"], ["y"], domain="loc"),
        inputs=(info("x", ["N"]), info("s", ["K"], TensorProto.INT64)),
        functions=[inner],
        opsets=(("", 18), ("loc", 1)),
    )
    assert paths(proto)["s"] == "Identity 't' → Reshape 'r' `shape`"
    assert "x" not in paths(proto)
    twice = function("F", ["k"], node("Add", ["k", "k"], ["b"]))
    proto = build(
        node("F", ["s"], ["t"], domain="loc"),
        node("Reshape", ["x", "t"], ["y"]),
        inputs=(info("x", ["N"]), info("s", ["K"], TensorProto.INT64)),
        functions=[twice],
        opsets=(("", 18), ("loc", 1)),
    )
    assert paths(proto)["s"] == "Add 'b' → Reshape 'y' `shape`"


def branch(name, *nodes, output, kind=TensorProto.FLOAT):
    return helper.make_graph(nodes, name, [], [info(output, None, kind)])


def choice(**kwargs):
    then = branch("then", node("Reshape", ["x", "s"], ["a"], node_name="inner"), output="a")
    other = branch("other", node("Flatten", ["x"], ["b"]), output="b")
    return build(
        node("If", ["c"], ["y"], then_branch=then, else_branch=other, node_name="if"),
        inputs=(
            info("x", ["N", 3]),
            info("c", [], TensorProto.BOOL),
            *([] if kwargs else [info("s", ["K"], TensorProto.INT64)]),
        ),
        **kwargs,
    )


def test_into_the_branches_of_if_what_they_capture():
    found = paths(choice())
    assert found["s"] == "Reshape 'inner' `shape`"
    assert "x" not in found
    assert [v.name for v in load(choice()).inputs if v.static and v.name != "c"] == ["s"]


def test_an_initializer_that_a_branch_captures_stays_static():
    found = load(choice(initializers=[tensor([-1, 3], "s")]))
    assert found.params == {}
    assert found.apply({}, X, np.bool_(True)).shape == (2, 3)


def test_a_size_that_if_chooses():
    then = branch("then", node("Identity", ["s"], ["a"]), output="a", kind=TensorProto.INT64)
    other = branch("other", node("Neg", ["s"], ["b"]), output="b", kind=TensorProto.INT64)
    found = paths(
        build(
            node("If", ["c"], ["t"], then_branch=then, else_branch=other, node_name="if"),
            node("Reshape", ["x", "t"], ["y"]),
            inputs=(info("x", ["N"]), info("c", [], TensorProto.BOOL), info("s", ["K"], TensorProto.INT64)),
        )
    )
    assert found["t"] == "Reshape 'y' `shape`"
    assert found["s"] in ("Identity 'a' → Reshape 'y' `shape`", "Neg 'b' → Reshape 'y' `shape`")
    assert found["c"] == "If 'if' `cond`"


def test_a_static_input_under_jit_is_told_with_its_path():
    found = load(choice())
    with pytest.raises(StaticError, match=r"input 's' must be known while tracing(.|\n)*Reshape 'inner' `shape`"):
        jax.jit(lambda x, s: found(x, np.bool_(True), s))(X, np.array([6]))
