"""What is refused at load: attributes out of range, subgraphs that do not fit, unknown opsets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor
from jax.export import export, symbolic_shape
from onnx import TensorProto, helper

from jaxops.errors import ArgumentError, DTypeError, ModelError, SignatureError, UnsupportedError
from jaxops.onnx import load, opset

X = np.arange(6, dtype=np.float32).reshape(2, 3)
INT, BOOL = TensorProto.INT64, TensorProto.BOOL
K = tensor(np.int64([0, 1]), "k")


def one(op, *inputs, opsets=(("", 24),), **attributes):
    return build(node(op, ["x", *inputs], ["y"], **attributes), initializers=[K], opsets=opsets)


STATE = node("CausalConvWithState", ["x", "x"], ["y", "z"], activation="x")
LINEAR = node("LinearAttention", ["x"] * 3, ["y", "z"], update_rule="x", q_num_heads=1, kv_num_heads=1)
ENUMERATED = [
    (one("Pad", "k", mode="refl"), "Pad-24: `mode` is 'refl'; it must be one of 'constant', 'reflect', 'edge', 'wrap'"),
    (
        one("ScatterND", "k", "k", reduction="avg"),
        "ScatterND-18: `reduction` is 'avg'; it must be one of 'none', 'add'",
    ),
    (
        one("ScatterND", "k", "k", reduction="avg", opsets=(("", 16),)),
        "ScatterND-16: `reduction` is 'avg'; it must be one of 'none', 'add', 'mul', 'max'",
    ),
    (one("BitShift", "k", direction="UP"), "BitShift-11: `direction` is 'UP'; it must be one of 'LEFT', 'RIGHT'"),
    (one("NegativeLogLikelihoodLoss", "k", reduction="nosuch"), "Loss-22: `reduction` is 'nosuch'; it must be one of"),
    (one("SoftmaxCrossEntropyLoss", "k", reduction="nosuch"), "Loss-13: `reduction` is 'nosuch'; it must be one of"),
    (one("Conv", "k", auto_pad="SAME"), "Conv-22: `auto_pad` is 'SAME'; it must be one of 'NOTSET'"),
    (one("Gelu", approximate="erf"), "Gelu-20: `approximate` is 'erf'; it must be one of 'none', 'tanh'"),
    (one("DepthToSpace", blocksize=2, mode="X"), "DepthToSpace-13: `mode` is 'X'; it must be one of 'DCR', 'CRD'"),
    (one("Cast", to=1, round_mode="zero"), "Cast-24: `round_mode` is 'zero'; it must be one of 'up'"),
    (one("TensorScatter", "k", mode="round"), "TensorScatter-24: `mode` is 'round'; it must be one of 'linear'"),
    (one("StringNormalizer", case_change_action="x"), "StringNormalizer-10: `case_change_action` is 'x'; it must be"),
    (one("LpNormalization", p=3), "LpNormalization-22: `p` is 3; it must be one of 1, 2"),
    (one("Cast", to=99), "Cast-24: `to` is 99, which is not an element type of the standard"),
    (one("EyeLike", dtype=99), "EyeLike-22: `dtype` is 99, which is not an element type of the standard"),
    (
        one("LayerNormalization", "k", stash_type=99),
        "LayerNormalization-17: `stash_type` is 99, which is not an element",
    ),
    (build(STATE, opsets=(("", 27),)), "`activation` is 'x'; it must be one of 'silu', 'swish', 'none'"),
    (build(LINEAR, opsets=(("", 27),)), "`update_rule` is 'x'; it must be one of 'linear', 'gated', 'delta'"),
    (one("Attention", "x", "x", softmax_precision=7), "`softmax_precision` is 7; it must be one of 1, 10, 11, 16"),
    (one("Attention", "x", "x", qk_matmul_output_mode=4), "`qk_matmul_output_mode` is 4; it must be one of 0, 1, 2, 3"),
    (one("HannWindow", output_datatype=99), "HannWindow-17: `output_datatype` is 99, which is not an element type"),
]


@pytest.mark.parametrize(("proto", "match"), ENUMERATED, ids=[p.graph.node[0].op_type for p, _ in ENUMERATED])
def test_an_enumerated_attribute_or_element_type_is_checked_at_load(proto, match):
    with pytest.raises(ArgumentError, match=match):
        load(proto)


def test_an_element_type_that_the_result_may_not_have_is_refused_at_load():
    with pytest.raises(
        DTypeError, match="EyeLike-22: output `output` would be string, as `dtype` says; this version gives"
    ):
        load(one("EyeLike", dtype=TensorProto.STRING))


def test_other_domains_are_checked_by_the_same_rules():
    imports = (("", 18), ("com.microsoft", 1), ("ai.onnx.ml", 3))
    fused = build(node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1, alpha=0.5), opsets=imports)
    np.testing.assert_array_equal(load(fused)(X), X @ X.T / 2)
    with pytest.raises(SignatureError, match="FusedMatMul-1: unknown attribute `beta`; the version has: alpha, transA"):
        load(build(node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", beta=1.0), opsets=imports))
    with pytest.raises(SignatureError, match="FusedMatMul-1: input 1 `B` is missing"):
        load(build(node("FusedMatMul", ["x"], ["y"], domain="com.microsoft"), opsets=imports))
    formal = [info("x", ["N", 3], TensorProto.INT32)]
    whole = load(build(node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft"), inputs=formal, opsets=imports))
    with pytest.raises(DTypeError, match="FusedMatMul-1: input 0 `A` is int32"):
        whole(X.astype(np.int32))
    coded = node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=[1.0, 2.0], values_int64s=[7, 8])
    assert load(build(coded, opsets=imports))(X).tolist() == [[-1, 7, 8], [-1, -1, -1]]
    with pytest.raises(UnsupportedError, match=r"NGram: not in opset 1 of com\.microsoft; the standard has no such"):
        load(build(node("NGram", ["x"], ["y"], domain="com.microsoft"), opsets=imports))


def test_the_schemas_of_other_domains_are_not_registered():
    from onnx import defs

    load(
        build(node("FusedMatMul", ["x", "x"], ["y"], domain="com.microsoft", transB=1), opsets=(("com.microsoft", 1),))
    )
    assert not defs.has("FusedMatMul", domain="com.microsoft")


@pytest.mark.parametrize(("domain", "version", "op"), [("", 99, "Relu"), ("ai.onnx.ml", 99, "LabelEncoder")])
def test_an_opset_that_is_not_there(domain, version, op):
    with pytest.raises(UnsupportedError, match=r"opset 99.*: the installed onnx knows opsets up to"):
        load(build(node(op, ["x"], ["y"], domain=domain), opsets=((domain, version),)))


def body(inputs, outputs):
    made = [node("Identity", [inputs[0] if inputs else "x"], [name]) for name in outputs]
    return helper.make_graph(made, "b", [info(n, None) for n in inputs], [info(n, None) for n in outputs])


SUBGRAPHS = [
    (node("If", ["c"], ["y"], then_branch=body((), ("a", "b")), else_branch=body((), ("d",))),
     "If: the graph `then_branch` has 2 outputs, but the node hands over 1: a, b"),
    (node("If", ["c"], ["y"], then_branch=body(("i",), ("a",)), else_branch=body((), ("d",))),
     "If: the graph `then_branch` has 1 input, but the node hands over 0: i"),
    (node("Loop", ["m", "c", "x"], ["y"], body=body(("i", "k"), ("k2", "s2"))),
     "Loop: the graph `body` has 2 inputs, but the node hands over 3: i, k"),
    (node("Loop", ["m", "c", "x"], ["y"], body=body(("i", "k", "s"), ("k2",))),
     "Loop: the graph `body` has 1 output, but the node hands over 2: k2"),
    (node("Scan", ["x", "x"], ["y", "z"], num_scan_inputs=1, body=body(("s",), ("s2", "r"))),
     "Scan: the graph `body` has 1 input, but the node hands over 2: s"),
    (node("Scan", ["x", "x"], ["y", "z"], num_scan_inputs=1, body=body(("s", "v"), ("s2",))),
     "Scan: the graph `body` has 1 output, but the node hands over 2: s2"),
    (node("SequenceMap", ["q"], ["y"], body=body(("v", "w"), ("r",))),
     "SequenceMap: the graph `body` has 2 inputs, but the node hands over 1: v, w"),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "match"), SUBGRAPHS, ids=[m.partition(",")[0] for _, m in SUBGRAPHS])
def test_a_subgraph_with_too_many_or_too_few_values_is_refused_at_load(bad, match):
    first = node("SequenceConstruct", ["x"], ["q"])
    values = [tensor(np.bool_(True), "c"), tensor(np.int64(2), "m")]
    with pytest.raises(ModelError, match=match):
        load(build(first, bad, initializers=values))


def test_a_float_is_called_a_float_in_messages():
    with pytest.raises(DTypeError, match=r"must have one element type \(T\), got tensor\(float\) and tensor\(int32\)"):
        opset(18).Add(jnp.float32([1]), jnp.int32([1]))


def test_shape_arithmetic_of_exported_transformers_under_a_symbolic_batch():
    """Slices and scalars of a shape, compared, chosen, joined: what exporters write around each attention."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["batch"]),
        node("Slice", ["s", "one", "two"], ["width"]),
        node("Gather", ["s", "index"], ["n"]),
        node("Equal", ["n", "minus"], ["same"]),
        node("Where", ["same", "three", "n"], ["chosen"]),
        node("Unsqueeze", ["chosen", "zero"], ["rows"]),
        node("Div", ["width", "three1"], ["part"]),
        node("Concat", ["rows", "three1", "part"], ["t"], axis=0),
        node("Reshape", ["x", "t"], ["r"]),
        node("Concat", ["batch", "width"], ["u"], axis=0),
        node("Reshape", ["r", "u"], ["y"]),
    ]
    values = {"zero": [0], "one": [1], "two": [2], "index": 0, "minus": -1, "three": 3, "three1": [3]}
    model = load(
        build(*nodes, inputs=[info("x", ["N", 6])], initializers=[tensor(np.int64(v), k) for k, v in values.items()])
    )
    spec = jax.ShapeDtypeStruct(symbolic_shape("b, 6"), np.float32)
    program = export(jax.jit(lambda x: model.apply({}, x)))(spec)
    for size in (1, 4):
        x = np.random.default_rng(size).normal(size=(size, 6)).astype(np.float32)
        np.testing.assert_array_equal(program.call(x), x)
        np.testing.assert_array_equal(model(x), x)
