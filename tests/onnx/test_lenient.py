"""What `load` accepts beyond the text of an opset, as onnxruntime does, and `opset(n)` does not."""

import math
import pickle

import jax
import numpy as np
import onnxruntime
import pytest
from graphs import IN, OUT, build, function, info, model, node, tensor
from onnx import TensorProto, helper

from jaxops.errors import ArgumentError, DTypeError, ModelError, ShapeError, SignatureError, UnsupportedError
from jaxops.onnx import check, load, opset

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
INT, BOOL = TensorProto.INT64, TensorProto.BOOL
ONE = tensor(np.float32([1, 1, 1]), "k")


def agrees(proto, *values):
    """Whether the model gives what onnxruntime gives."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(zip([i.name for i in session.get_inputs()], values, strict=True)))
    found = load(proto)(*values)
    for want, got in zip(expected, found if isinstance(found, tuple) else (found,), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert np.shape(got) == np.shape(want)


# The order of nodes


def branch(*nodes, output="r"):
    return helper.make_graph(nodes, "branch", [], [info(output, None)])


TRUE = tensor(np.bool_(True), "c")
LATE = (node("Relu", ["a"], ["r"]), node("Neg", ["x"], ["a"]))


def test_nodes_out_of_order_are_sorted():
    agrees(build(node("Add", ["b", "a"], ["y"]), node("Relu", ["a"], ["b"]), node("Neg", ["x"], ["a"])), X)


def test_what_a_subgraph_captures_may_be_made_by_a_later_node():
    inner = branch(node("Relu", ["q"], ["r"]))
    choose = node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    agrees(build(choose, node("Neg", ["p"], ["q"]), node("Neg", ["x"], ["p"]), initializers=[TRUE]), X)


def test_subgraphs_and_functions_are_sorted_too():
    inner = branch(*LATE)
    nested = branch(node("If", ["c"], ["s"], then_branch=inner, else_branch=inner), output="s")
    choose = node("If", ["c"], ["y"], then_branch=nested, else_branch=nested)
    np.testing.assert_array_equal(load(build(choose, initializers=[TRUE]))(X), np.maximum(-X, 0))
    f = function("F", ["x"], *LATE, outputs=("r",))
    call = build(node("F", ["x"], ["y"], domain="loc"), functions=[f], opsets=(("", 18), ("loc", 1)))
    np.testing.assert_array_equal(load(call)(X), np.maximum(-X, 0))


def test_a_sorted_model_keeps_the_order_of_its_nodes():
    names = [f"n{i}" for i in range(6)]
    parallel = [node("Neg", ["x"], [name]) for name in names]
    total = node("Sum", names, ["y"])
    assert [n.outputs[0] for n in load(build(*parallel, total)).graph.nodes] == [*names, "y"]
    assert [n.outputs[0] for n in load(build(total, *parallel)).graph.nodes] == [*names, "y"]


def test_a_cycle_in_a_subgraph_is_an_error():
    inner = branch(node("Add", ["x", "b"], ["r"]), node("Neg", ["r"], ["b"]))
    with pytest.raises(ModelError, match=r"cycle: node 'r' \(Add\) reads 'b', which the later .* computes"):
        load(build(node("If", ["c"], ["y"], then_branch=inner, else_branch=inner), initializers=[TRUE]))


# Single numbers and int32


SCALARS = [
    ("Slice", {"s": 1, "e": 3, "a": 1}, X[:, 1:3]),
    ("Reshape", {"s": -1}, X.reshape(-1)),
    ("Unsqueeze", {"s": 0}, X[None]),
    ("Expand", {"s": 3}, X),
    ("ReduceSum", {"s": 0}, X.sum(0, keepdims=True)),
    ("Split", {"s": 2}, X),
    ("ConstantOfShape", {"s": 3}, np.zeros(3)),
    ("CenterCropPad", {"s": 1}, X[:, 1:2]),
]


@pytest.mark.parametrize(("op", "operands", "expected"), SCALARS, ids=[op for op, *_ in SCALARS])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_a_single_number_stands_for_a_list_of_one(op, operands, expected, dtype):
    initializers = [tensor(dtype(value), name) for name, value in operands.items()]
    attributes = {"axes": [1]} if op == "CenterCropPad" else {}
    proto = build(
        node(op, [*["x"] * (op != "ConstantOfShape"), *operands], ["y"], **attributes), initializers=initializers
    )
    np.testing.assert_array_equal(load(proto)(X), expected)


def test_a_single_size_of_resize_is_as_in_onnxruntime():
    agrees(build(node("Resize", ["x", "", "", "n"], ["y"], axes=[1]), initializers=[tensor(np.int64(6), "n")]), X)


@pytest.mark.parametrize("x64", [False, True])
def test_int32_where_the_version_says_int64(x64):
    """Static ones and indices that are traced, under one `jit`."""
    nodes = [
        node("Reshape", ["x", "s"], ["f"]),
        node("GatherND", ["f", "i"], ["g"]),
        node("ScatterND", ["f", "i", "g"], ["h"]),
        node("TopK", ["h", "k"], ["y", "at"]),
    ]
    values = [tensor(np.int32([6]), "s"), tensor(np.int32([2]), "k")]
    inputs = [IN, info("i", ["M", 1], TensorProto.INT32)]
    with jax.enable_x64(x64):
        np.testing.assert_array_equal(
            load(build(*nodes, inputs=inputs, initializers=values))(X, np.int32([[4], [5]])), [3, 2]
        )


# Attributes and types of later versions


@pytest.mark.parametrize("version", [2, 10, 11, 13, 18])
def test_pad_wraps_before_19(version):
    pads = [1, 1, 1, 2]
    if version < 11:
        agrees(build(node("Pad", ["x"], ["y"], mode="wrap", pads=pads), opsets=(("", version),)), X)
    else:
        given = [tensor(np.int64(pads), "p")]
        agrees(build(node("Pad", ["x", "p"], ["y"], mode="wrap"), initializers=given, opsets=(("", version),)), X)


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_scatters_reduce_by_max_and_min_before_18(reduction):
    indices, updates = tensor(np.int64([[0, 1], [1, 0]]), "i"), tensor(np.float32([[5, -9], [7, -7]]), "u")
    for op, inputs, values in (
        ("ScatterElements", ["x", "i", "u"], [indices, updates]),
        ("ScatterND", ["x", "i", "u"], [tensor(np.int64([[0, 1], [1, 0]]), "i"), tensor(np.float32([5, -9]), "u")]),
    ):
        agrees(build(node(op, inputs, ["y"], reduction=reduction), initializers=values, opsets=(("", 16),)), X)


def test_resize_modes_of_later_versions():
    image = np.random.default_rng(0).normal(size=(1, 1, 4, 5)).astype(np.float32)
    formal = [info("x", [1, 1, 4, 5])]
    double = tensor(np.float32([1, 1, 2, 2]), "s")
    cubic = node("Resize", ["x", "s"], ["y"], mode="cubic")
    agrees(build(cubic, inputs=formal, initializers=[double], opsets=(("", 10),)), image)
    scales = tensor(np.float32([1, 1, 1.5, 1.7]), "s")
    symmetric = node(
        "Resize", ["x", "", "s"], ["y"], mode="linear", coordinate_transformation_mode="half_pixel_symmetric"
    )
    agrees(build(symmetric, inputs=formal, initializers=[scales], opsets=(("", 13),)), image)


@pytest.mark.parametrize("version", [7, 9])
def test_upsample_takes_the_mode_of_resize(version):
    image = np.random.default_rng(1).normal(size=(1, 2, 3, 5)).astype(np.float32)
    scales = np.float32([1, 1, 2, 3])
    given = {"initializers": [tensor(scales, "s")]} if version == 9 else {}
    said = {} if version == 9 else {"scales": scales.tolist()}
    cubic = node("Upsample", ["x", "s"] if version == 9 else ["x"], ["y"], mode="cubic", **said)
    agrees(build(cubic, inputs=[info("x", [1, 2, 3, 5])], opsets=[("", version)], **given), image)


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.bool_, np.uint8])
def test_a_constant_of_any_type_before_9(version, dtype):
    value = node("Constant", [], ["c"], value=tensor(np.array([2, 0, 1], dtype), ""))
    nodes = [value, node("Cast", ["c"], ["k"], to=TensorProto.FLOAT), node("Mul", ["x", "k"], ["y"])]
    agrees(build(*nodes, opsets=(("", version),)), X)


def test_a_value_that_no_later_version_adds_stays_an_error():
    with pytest.raises(ArgumentError, match="Pad-18: `mode` is 'mirror'; it must be one of 'constant', 'reflect'"):
        load(build(node("Pad", ["x", "p"], ["y"], mode="mirror"), initializers=[tensor(np.int64([0] * 4), "p")]))
    grid = [tensor(np.zeros((1, 1, 1, 2), np.float32), "g")]
    with pytest.raises(ArgumentError, match="GridSample-16: `mode` is 'linear'"):  # the names changed with 20
        load(build(node("GridSample", ["x", "g"], ["y"], mode="linear"), initializers=grid))
    with pytest.raises(DTypeError, match="Cast-13: output `output` would be float8e4m3fn"):
        load(build(node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)))


def test_auto_pad_left_empty_and_the_notes_of_tools():
    kernel = tensor(np.ones((1, 1, 2, 2), np.float32))
    conv = node("Conv", ["x", "w"], ["y"], auto_pad="", __quant_info="a note")
    agrees(build(conv, inputs=[info("x", [1, 1, 2, 3])], initializers=[kernel]), X[None, None])


def test_an_empty_reduction_of_a_scatter():
    given = [tensor(np.int64([[0], [1]]), "i"), tensor(np.float32([[5, 6, 7], [8, 9, 10]]), "u")]
    for version in (16, 18):
        scatter = node("ScatterND", ["x", "i", "u"], ["y"], reduction="")
        agrees(build(scatter, initializers=given, opsets=[("", version)]), X)
        scatter = node("ScatterElements", ["x", "i", "i"], ["y"], reduction="")
        integers = node("Cast", ["x"], ["k"], to=INT)
        scatter.input[0] = "k"
        agrees(build(integers, scatter, initializers=given, outputs=[info("y", None, INT)], opsets=[("", version)]), X)


def test_flags_are_0_or_1():
    # Another number is true to some kernels of onnxruntime (transA) and false to others (keepdims).
    with pytest.raises(ArgumentError, match="`keepdims` is 2; it must be 0 or 1"):
        load(build(node("ReduceMax", ["x"], ["y"], keepdims=2)))(X)


# Initializers


def test_an_initializer_that_is_repeated():
    add = node("Add", ["x", "k"], ["y"])
    agrees(build(add, initializers=[ONE, ONE]), X)
    with pytest.raises(ModelError, match="the graph has two of initializer 'k'"):
        load(build(add, initializers=[ONE, ONE, tensor(np.float32([1, 2, 3]), "k")]))


# Domains


def test_a_known_domain_need_not_be_imported():
    agrees(build(node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1)), X)
    agrees(build(node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.5)), X)
    agrees(build(node("Relu", ["x"], ["y"]), opsets=(("ai.onnx.ml", 3),)), X)


@pytest.mark.parametrize("version", [8, 11, 16])
def test_operators_of_old_optimizers_in_the_empty_domain(version):
    agrees(build(node("LayerNormalization", ["x", "k"], ["y"]), initializers=[ONE], opsets=(("", version),)), X)
    if version == 8:
        agrees(build(node("ThresholdedRelu", ["x"], ["y"], alpha=1.0), opsets=(("", version),)), X)


def test_a_signal_without_its_last_axis(tmp_path, monkeypatch):
    """PyTorch's exporter writes STFT so."""
    proto = model(
        "main (float[b, n] x) => (float[b, f, k, 2] y) { y = STFT(x, step, w) }",
        opset=17,
        initializers={"step": np.int64(4), "w": np.hanning(16).astype(np.float32)},
    )
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    agrees(proto, x)
    loaded = load(proto)
    monkeypatch.syspath_prepend(tmp_path)
    loaded.to_python(tmp_path / "short_time")
    package = __import__("short_time")
    np.testing.assert_array_equal(package.apply(package.load_params(), x), loaded(x))


# Declared shapes


def test_a_split_18_without_a_number_of_pieces():
    """One equal piece for each output; onnxruntime runs it where it does not know the sizes at load."""
    outputs = [info(name, None) for name in "abc"]
    proto = build(node("Split", ["x"], ["a", "b", "c"], axis=-1), inputs=[info("x", None)], outputs=outputs)
    agrees(proto, X)
    with pytest.raises(ShapeError, match="an axis of size 2 does not divide into 3 equal outputs; the node needs"):
        load(proto)(X[:, :2])
    with pytest.raises(SignatureError, match="give either the lengths `split` or `num_outputs`"):
        opset(18).Split(X, n_outputs=3)


def test_the_erfc_of_tf2onnx():
    """No operator of ONNX, but in each transformer of Keras."""
    proto = build(node("Erfc", ["x"], ["y"]))
    model, x = load(proto), np.array([[-6, 0, 0.5], [5, np.inf, np.nan]], np.float32)
    expected = [[2, 1, math.erfc(0.5)], [math.erfc(5), 0, np.nan]]
    np.testing.assert_allclose(model(x), expected, rtol=1e-5)
    slope = jax.grad(lambda x: model.apply({}, x).sum())(x[:1])
    np.testing.assert_allclose(slope, -2 / np.sqrt(np.pi) * np.exp(-(x[:1] ** 2)), rtol=1e-5)
    assert not hasattr(opset(23), "Erfc")
    assert not check(proto).missing
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(x), model(x))
    with pytest.raises(DTypeError, match="erfc: "):
        load(build(node("Erfc", ["x"], ["y"]), inputs=[info("x", [1], INT)]))(np.ones(1, np.int64))
    with pytest.raises(UnsupportedError, match="not in opset 18"):
        load(build(node("Erfcx", ["x"], ["y"])))


def test_a_domain_that_is_neither_known_nor_imported():
    proto = build(node("Twice", ["x"], ["y"], domain="my.domain"))
    problem = (
        r"Twice: the model does not import an opset of domain 'my.domain'[\s\S]*operators=\{\('my.domain', 'Twice'\)"
    )
    with pytest.raises(UnsupportedError, match=problem):
        load(proto)
    assert [row.hint for row in check(proto).missing] == ["the model does not import an opset of domain 'my.domain'"]
    twice = load(proto, operators={("my.domain", "Twice"): lambda x: x + x})
    np.testing.assert_array_equal(twice(X), 2 * X)


def test_shapes_that_are_declared_as_unknown():
    for shape in ([-1, 3], []):
        agrees(build(node("Relu", ["x"], ["y"]), inputs=[info("x", shape)]), X)
    wrong = build(node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["y"]), outputs=[info("y", [7])])
    wrong.graph.value_info.append(info("a", [1]))
    agrees(wrong, X)


# opset(n) stays strict


STRICT = [
    (lambda: opset(18).Pad(X, [0, 1, 0, 1], mode="wrap"), ArgumentError, "Pad-18: `mode` is 'wrap'"),
    (lambda: opset(18).Slice(X, 0, 1), ShapeError, "Slice-13: input 1 `starts` must be 1-D, but has 0 axes"),
    (lambda: opset(18).Reshape(X, np.int32([-1])), DTypeError, "Reshape-14: input 1 `shape` is int32"),
    (lambda: opset(8).Constant(value=np.int64([1])), DTypeError, "Constant-1: output `output` would be int64"),
    (lambda: opset(18).Relu(X, __note=1), SignatureError, "Relu-14: unknown attribute `__note`"),
    (lambda: opset(18).ScatterND(X, [[0]], X[:1], reduction=""), ArgumentError, "`reduction` is ''"),
    (lambda: opset(9).Upsample(X, [1.0, 2.0], mode="cubic"), ArgumentError, "Upsample-9: `mode` is 'cubic'"),
    (lambda: opset(16).LayerNormalization(X, X), AttributeError, "it begins with opset 17"),
]


@pytest.mark.parametrize(("call", "error", "match"), STRICT)
def test_opset_stays_strict(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_difference_from_onnxruntime_would_be_seen():
    proto = build(node("Relu", ["a"], ["y"]), node("Neg", ["x"], ["a"]), outputs=[OUT])
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(load(proto)(X), np.maximum(X, 0))
