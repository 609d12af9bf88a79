"""Bad files, bad graphs, bad calls: an error of the right type that says what is wrong and where."""

import numpy as np
import onnx
import pytest
from graphs import IN, build, function, info, model, node, tensor
from onnx import TensorProto, helper

from jaxops.errors import (
    ArgumentError,
    JaxopsError,
    ModelError,
    SignatureError,
    UnsupportedError,
)
from jaxops.onnx import load

X = np.ones((2, 3), np.float32)
GOOD = model("main (float[N,3] x) => (float[M] y) { y = Reshape(x, s) }", initializers={"s": np.int64([-1])})


def test_the_models_here_are_good_but_for_what_is_bad():
    np.testing.assert_array_equal(load(GOOD)(X), X.ravel())
    np.testing.assert_array_equal(load(build(node("Relu", ["x"], ["y"])))(X), X)


# Files


def test_every_truncation_is_told(tmp_path):
    data = GOOD.SerializeToString()
    for length in range(len(data)):
        with pytest.raises(JaxopsError):
            load(data[:length])
    path = tmp_path / "half.onnx"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=r"half.onnx: not an ONNX model, or a truncated one"):
        load(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the bytes: not an ONNX model: it has no graph"),
        (b"<html>not a model</html>", "the bytes: not an ONNX model, or a truncated one"),
        (bytes(range(256)), "the bytes: not an ONNX model, or a truncated one"),
        (np.ones(9).tobytes(), "the bytes: not an ONNX model"),
        (onnx.ModelProto(), "the ModelProto: not an ONNX model: it has no graph"),
    ],
)
def test_what_is_no_model(data, text):
    with pytest.raises(ModelError, match=text):
        load(data)


def test_paths_and_things_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nope\.onnx"):
        load(tmp_path / "nope.onnx")
    with pytest.raises(OSError, match=r"irectory|denied"):
        load(tmp_path)
    with pytest.raises(TypeError, match=r"not '?int"):
        load(3)


# Operators and versions


def test_all_missing_operators_come_in_one_error():
    bad = build(
        node("Nope", ["x"], ["a"], node_name="first"),
        node("Nada", ["a"], ["b"], domain="com.acme"),
        node("Nope", ["b"], ["y"], node_name="second"),
        opsets=(("", 18), ("com.acme", 1)),
    )
    with pytest.raises(UnsupportedError) as raised:
        load(bad)
    assert str(raised.value).splitlines() == [
        "the model uses operators that jaxops does not have:",
        "  Nada: jaxops knows no operators of domain 'com.acme'  (node 'b')",
        "  Nope: not in opset 18; the standard has no such operator  (node 'first', 'second')",
        "  hint    give a function for each: load(path, operators={('', 'Nope'): fn, ('com.acme', 'Nada'): fn})",
    ]


def test_a_missing_operator_is_told_with_those_like_it():
    bad = build(
        node("Flaten", ["x"], ["a"]),
        node("FusedMatMull", ["a", "a"], ["b"], domain="com.microsoft"),
        node("Gelu", ["b"], ["y"], domain="com.acme"),
        opsets=(("", 18), ("com.acme", 1), ("com.microsoft", 1)),
    )
    with pytest.raises(UnsupportedError) as raised:
        load(bad)
    text = str(raised.value)
    assert "Flaten: not in opset 18; the standard has no such operator; similar: 'Flatten'" in text
    assert "FusedMatMull: not in opset 1 of com.microsoft; the standard has no such operator; similar: 'Fused" in text
    assert (
        "Gelu: jaxops knows no operators of domain 'com.acme'; an operator of that name is in ai.onnx and com.microsoft"
        in text
    )
    assert "operators={('', 'Flaten'): fn, ('com.microsoft', 'FusedMatMull'): fn, ('com.acme', 'Gelu'): fn})" in text
    twenty = build(*(node(f"Nope{i}", ["x"], [f"y{i}"]) for i in range(20)), outputs=[info("y0", None)])
    with pytest.raises(UnsupportedError, match=r"load\(path, operators={\('', 'Nope0'\): fn, .*'Nope3'\): fn}\)$"):
        load(twenty)


def test_a_missing_operator_inside_a_function_is_found():
    body = [node("Nope", ["a"], ["b"])]
    function = helper.make_function("loc", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    bad = build(node("F", ["x"], ["y"], domain="loc"), opsets=(("", 18), ("loc", 1)), functions=[function])
    with pytest.raises(UnsupportedError, match="Nope: not in opset 18; the standard has no such operator"):
        load(bad)


VERSIONS = [
    ((("", 8),), node("ConstantOfShape", ["x"], ["y"]), UnsupportedError, "not in opset 8; it begins with opset 9"),
    ((("", 10),), node("Upsample", ["x", "x"], ["y"]), UnsupportedError, "Upsample: deprecated since opset 10"),
    ((("", 99),), node("Relu", ["x"], ["y"]), UnsupportedError, "opset 99: the installed onnx knows opsets up to"),
    ((("", 0),), node("Relu", ["x"], ["y"]), UnsupportedError, "Relu: not in opset 0; it begins with opset 1"),
    ((("", 18),), node("F", ["x"], ["y"], domain="loc"), UnsupportedError, "F: the model does not import .* 'loc'"),
]


@pytest.mark.parametrize(("opsets", "bad", "error", "text"), VERSIONS)
def test_versions(opsets, bad, error, text):
    with pytest.raises(error, match=text):
        load(build(bad, opsets=opsets))


def test_a_model_without_imports_is_of_opset_1():
    old = build(node("Relu", ["x"], ["y"]), opsets=())
    with pytest.raises(ModelError, match="it imports no opset, as models must from IR version 3 on"):
        load(old)
    old.ir_version = 2
    assert load(old).opsets == {"": 1}
    old = build(node("Reshape", ["x", "s"], ["y"]), opsets=(), initializers=[tensor([6], "s")])
    old.ir_version = 2
    with pytest.raises(SignatureError, match="got 2 inputs, but the version takes 1:"):
        load(old)


# Nodes that their version does not allow, said at load with the node


NODES = [
    (node("Reshape", ["x"], ["y"], node_name="r"), SignatureError, "Reshape-14: input 1 `shape` is missing"),
    (node("Reshape", ["", "x"], ["y"], node_name="r"), SignatureError, "Reshape-14: input 0 `data` is missing"),
    (node("Relu", ["x", "x"], ["y"], node_name="r"), SignatureError, "Relu-14: got 2 inputs"),
    (node("Relu", ["x"], ["y", "z"], node_name="r"), SignatureError, "Relu-14: 2 outputs asked for"),
    (node("Flatten", ["x"], ["y"], node_name="r", foo=1), SignatureError, "Flatten-13: unknown attribute `foo`"),
    (node("Concat", ["x"], ["y"], node_name="r"), SignatureError, "Concat-13: required attribute `axis` is missing"),
    (node("Flatten", ["x"], ["y"], node_name="r", axis=1.5), ArgumentError, "`axis` is 1.5; it must be of type INT"),
    (
        node("Flatten", ["x"], ["y"], node_name="r", axis=[1]),
        ArgumentError,
        r"`axis` is \(1,\); it must be of type INT",
    ),
    (node("Flatten", ["x"], ["y"], node_name="r", axis="1"), ArgumentError, "`axis` is '1'; it must be of type INT"),
    (
        node("Transpose", ["x"], ["y"], node_name="r", perm=1),
        ArgumentError,
        r"`perm` is 1; it must be a sequence \(INTS\)",
    ),
    (node("Flatten", ["x"], ["y"], node_name="r", axis=tensor([1])), ArgumentError, "`axis` is .*must be of type INT"),
    (node("Constant", [], ["y"], node_name="r", value=3), ArgumentError, "`value` is 3; it must be of type TENSOR"),
    (
        node("If", ["x"], ["y"], node_name="r", then_branch=3, else_branch=4),
        ArgumentError,
        "_branch` is .; it must be of type GRAPH",
    ),
]


@pytest.mark.parametrize(("bad", "error", "text"), NODES)
def test_nodes(bad, error, text):
    with pytest.raises(error, match=text) as raised:
        load(build(bad))
    assert raised.value.__notes__ == [f"in node 'r' ({bad.op_type}, opset 18)"]


# Names and order


GRAPHS = {
    "node 'r' (Relu) reads 'q', which nothing defines": build(node("Relu", ["q"], ["y"], node_name="r")),
    "no node computes output 'y' of the graph": build(node("Relu", ["x"], ["z"])),
    "the graph has a cycle: node 'a' (Add) reads 'b', which the later node 'b' (Relu) computes": build(
        node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["y"]), node("Relu", ["a"], ["b"])
    ),
    "the graph has a cycle: node 'y' (Add) reads 'y', which the later node 'y' (Add) computes": build(
        node("Add", ["x", "y"], ["y"])
    ),
    "the graph has a cycle: node 'a' (Neg) reads 'b', which the later node 'b' (Relu) computes": build(
        node("Relu", ["a"], ["y"]), node("Neg", ["b"], ["a"]), node("Relu", ["a"], ["b"])
    ),
    "node 'second' (Neg) defines 'y' a second time": build(
        node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"], node_name="second")
    ),
    "node 'y' (Split) defines 'y' a second time": build(node("Split", ["x"], ["y", "y"], num_outputs=2)),
    "node 'x' (Relu) defines 'x' a second time": build(node("Relu", ["x"], ["x"]), outputs=(info("x", None),)),
    "node 'w' (Relu) defines 'w' a second time": build(node("Relu", ["x"], ["w"]), initializers=[tensor([1.0])]),
    "the graph has two of input 'x'": build(node("Relu", ["x"], ["y"]), inputs=(IN, IN)),
    "the graph has two of initializer 'w'": build(
        node("Add", ["x", "w"], ["y"]), initializers=[tensor([1.0]), tensor([2.0])]
    ),
    "initializer 0 of the graph has no name": build(node("Relu", ["x"], ["y"]), initializers=[tensor([1.0], "")]),
    "input 1 of the graph has no name": build(node("Relu", ["x"], ["y"]), inputs=(IN, info("", [1]))),
}


def test_names_that_are_no_utf_8():
    data = build(node("Relu", ["x"], ["y"], node_name="ab")).SerializeToString()
    for name in (b"Relu", b"ab"):
        bad = data.replace(name, name[:-1] + b"\xff")
        with pytest.raises(ModelError, match=r"the name b'.*' is not UTF-8; the model is damaged"):
            load(bad)


def test_an_input_of_an_unknown_type():
    bad = info("x", [1])
    bad.type.tensor_type.elem_type = 77
    with pytest.raises(ModelError, match="'x': unknown element type 77"):
        load(build(node("Relu", ["x"], ["y"]), inputs=(bad,)))


def test_damage_is_always_told_as_such():
    """Random damage to a model that has a bit of everything: it loads, or a jaxops error says why not."""
    flat = function("F", ["a"], node("Flatten", ["a"], ["b"], axis=1))
    whole = build(
        node("F", ["x"], ["f"], domain="loc"),
        node("Constant", [], ["k"], value=tensor(np.float32([[1, 2, 3]]), "")),
        node("Add", ["f", "k"], ["g"]),
        node("Reshape", ["g", "s"], ["h"]),
        node("MatMul", ["h", "w"], ["y"]),
        initializers=[tensor([-1, 3], "s"), tensor(np.ones((3, 2), np.float32))],
        functions=[flat],
        opsets=(("", 18), ("loc", 1)),
    ).SerializeToString()
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(600):
        data = bytearray(whole)
        for at in rng.integers(len(data), size=rng.integers(1, 4)):
            data[at] = rng.integers(256)
        try:
            _ = load(bytes(data)).params
        except JaxopsError:
            told += 1
    assert told > 300


@pytest.mark.parametrize("text", GRAPHS)
def test_names_and_order(text):
    with pytest.raises(ModelError) as raised:
        load(GRAPHS[text])
    assert str(raised.value) == text


# Functions


A = function("A", ["a"], node("B", ["a"], ["b"], domain="loc"))
B = function("B", ["a"], node("A", ["a"], ["b"], domain="loc"))
F = function("F", ["a"], node("Relu", ["a"], ["b"]))
SELF = function("F", ["a"], node("F", ["a"], ["b"], domain="loc"))
FUNCTIONS = [
    ([SELF], node("F", ["x"], ["y"], domain="loc"), ModelError, "the function F calls itself"),
    ([A, B], node("A", ["x"], ["y"], domain="loc"), ModelError, "the function A calls itself"),
    ([F], node("F", ["x", "x"], ["y"], domain="loc"), SignatureError, "2 inputs and 1 output, but the function has 1"),
    ([F], node("F", ["x"], ["y", "z"], domain="loc"), SignatureError, "1 input and 2 outputs, but the function has 1"),
    ([F], node("F", ["x"], ["y"], domain="loc", k=1), SignatureError, "F: the function has no attribute `k`"),
    ([F, F], node("F", ["x"], ["y"], domain="loc"), ModelError, "the function 'F' of domain 'loc' is defined twice"),
    (
        [function("F", ["a"], node("Relu", ["q"], ["b"]))],
        node("F", ["x"], ["y"], domain="loc"),
        ModelError,
        "reads 'q'",
    ),
    (
        [function("F", ["a"], node("Relu", ["a"], ["c"]))],
        node("F", ["x"], ["y"], domain="loc"),
        ModelError,
        "output 'b'",
    ),
    (
        [function("F", ["a"], node("Relu", ["x"], ["b"]))],
        node("F", ["x"], ["y"], domain="loc"),
        ModelError,
        "reads 'x'",
    ),
]


@pytest.mark.parametrize(("functions", "call", "error", "text"), FUNCTIONS)
def test_functions(functions, call, error, text):
    with pytest.raises(error, match=text):
        load(build(call, functions=functions, opsets=(("", 18), ("loc", 1))))


def test_a_function_called_without_an_input_that_its_body_needs():
    add = function("F", ["a", "c"], node("Add", ["a", "c"], ["b"]))
    bad = load(build(node("F", ["x"], ["y"], domain="loc"), functions=[add], opsets=(("", 18), ("loc", 1))))
    with pytest.raises(SignatureError, match="Add-14: input 1 `B` is missing"):
        bad(X)


# Tensors


def damaged(**changes):
    found = tensor(np.float32([1, 2, 3]))
    for name, value in changes.items():
        found.ClearField(name)
        getattr(found, name).extend(value) if isinstance(value, list) else setattr(found, name, value)
    return found


TENSORS = [
    (damaged(raw_data=bytes(10)), "tensor 'w' of shape .3,.: its data is damaged: buffer size"),
    (damaged(raw_data=bytes(8)), "tensor 'w' of shape .3,.: its data is damaged: cannot reshape array of size 2"),
    (damaged(raw_data=bytes(16)), "its data is damaged: cannot reshape array of size 4"),
    (damaged(raw_data=b""), "its data is damaged: cannot reshape array of size 0"),
    (damaged(dims=[4]), "tensor 'w' of shape .4,.: its data is damaged: cannot reshape array of size 3"),
    (damaged(dims=[-3]), "tensor 'w': shape .-3,. holds a negative size"),
    (damaged(data_type=77), "tensor 'w': unknown element type 77"),
    (damaged(data_type=0), "tensor 'w': unknown element type 0"),
    (TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3], float_data=[1, 2]), "cannot reshape array of size 2"),
    (
        TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"a"]),
        "cannot reshape array of size 1",
    ),
]


@pytest.mark.parametrize(("bad", "text"), TENSORS)
def test_tensors(bad, text):
    with pytest.raises(ModelError, match=text):
        _ = load(build(node("Add", ["x", "w"], ["y"]), initializers=[bad])).params


def test_damaged_data_of_a_static_initializer_or_a_constant_is_found_at_load():
    shape = tensor([2, 3], "s")
    shape.raw_data = shape.raw_data[:-2]
    with pytest.raises(ModelError, match="tensor 's' of shape"):
        load(build(node("Reshape", ["x", "s"], ["y"]), initializers=[shape]))
    with pytest.raises(ModelError, match="tensor 'w' of shape"):
        load(build(node("Constant", [], ["y"], value=damaged(raw_data=bytes(3)))))


def sparse(values, indices, sizes):
    return helper.make_sparse_tensor(tensor(np.float32(values)), tensor(np.int64(indices), ""), sizes)


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (sparse([1, 2], [0, 3], [3]), r"sparse tensor 'w' of shape \(3,\): an index lies outside of it"),
        (sparse([1, 2], [0, -1], [3]), "an index lies outside of it"),
        (sparse([1, 2], [[0, 0], [0, 2]], [3, 2]), "an index lies outside of it"),
        (sparse([1, 2], [0, 1, 2], [3]), r"\(2,\) values cannot stand at indices of shape \(3,\)"),
        (sparse([1, 2], [[0, 1], [1, 2]], [3]), r"\(2,\) values cannot stand at indices of shape \(2, 2\)"),
    ],
)
def test_sparse_tensors(bad, text):
    with pytest.raises(ModelError, match=text):
        load(build(node("Add", ["x", "w"], ["y"]), sparse=[bad]))
