"""Strings of rank 0 in a file: constants, initializers, inputs and outputs, in each operator that takes strings."""

import jax
import numpy as np
import onnxruntime
import pytest
from graphs import build, info, node, tensor
from onnx import TensorProto, helper

import jaxops as jo
import jaxops.onnx

STRING = TensorProto.STRING
HI, LO = (helper.make_tensor(name, STRING, [], [text]) for name, text in (("hi", b"hi"), ("lo", b"lo")))
PAIR = helper.make_tensor("pair", STRING, [2], [b"x", b"hi"])
ZERO, ONE, TWO, NONE = tensor([0], "zero"), tensor(1, "one"), tensor([2], "two"), tensor(np.zeros(0, np.int64), "none")
CONSTANT = node("Constant", [], ["k"], value_string="lo")


def body(*nodes, inputs=(), outputs=("t",)):
    types = {"i": TensorProto.INT64, "c": TensorProto.BOOL, "d": TensorProto.BOOL}
    values = [[info(name, [], types.get(name, STRING)) for name in names] for names in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *values)


GROW = body(
    node("StringConcat", ["s", "hi"], ["t"]),
    node("Identity", ["t"], ["u"]),
    node("Identity", ["c"], ["d"]),
    inputs=("i", "c", "s"),
    outputs=("d", "t", "u"),
)
SCAN = body(node("StringConcat", ["s", "e"], ["t"]), node("Identity", ["t"], ["u"]), inputs=("s", "e"), outputs="tu")
BRANCHES = {"then_branch": body(CONSTANT, outputs="k"), "else_branch": body(node("Identity", ["hi"], ["t"]))}
# The nodes that make `y` of a string `x` of rank 0, and of initializers.
CASES = {
    "identity": [node("Identity", ["x"], ["y"])],
    "output of a constant": [node("Identity", ["x"], ["z"]), node("Constant", [], ["y"], value_string="lo")],
    "where": [node("Equal", ["pair", "x"], ["q"]), CONSTANT, node("Where", ["q", "hi", "k"], ["y"])],
    "concat": [node("StringConcat", ["x", "hi"], ["y"])],
    "concat pair": [node("StringConcat", ["pair", "x"], ["y"])],
    "equal": [node("Equal", ["x", "hi"], ["y"])],
    "split": [node("StringSplit", ["x"], ["y", "z"], delimiter="i")],
    "match": [node("RegexFullMatch", ["x"], ["y"], pattern="h.")],
    "if": [node("Equal", ["x", "hi"], ["q"]), node("If", ["q"], ["y"], **BRANCHES)],
    "loop": [node("Loop", ["one", "", "x"], ["y", "z"], body=GROW)],
    "scan": [node("Scan", ["x", "pair"], ["y", "z"], body=SCAN, num_scan_inputs=1)],
    "squeeze": [node("Unsqueeze", ["x", "zero"], ["a"]), node("Squeeze", ["a"], ["y"])],
    "reshape": [node("Expand", ["x", "two"], ["a"]), node("Gather", ["a", "one"], ["b"]),
                node("Reshape", ["b", "none"], ["y"])],
    "gather": [node("Gather", ["pair", "one"], ["a"]), node("StringConcat", ["a", "x"], ["y"])],
    "join": [node("Unsqueeze", ["x", "zero"], ["a"]), node("Unsqueeze", ["hi", "zero"], ["b"]),
             node("Concat", ["a", "b"], ["y"], axis=0)],
    "sequence": [node("SequenceConstruct", ["x", "lo"], ["a"]), node("SequenceAt", ["a", "one"], ["y"])],
    "insert": [node("SequenceConstruct", ["lo"], ["a"]), node("SequenceInsert", ["a", "x"], ["b"]),
               node("ConcatFromSequence", ["b"], ["y"], axis=0, new_axis=1)],
    "optional": [node("Optional", ["x"], ["a"]), node("OptionalGetElement", ["a"], ["y"])],
    "unique": [node("Unique", ["x"], ["y"])],
    "scatter": [node("ScatterND", ["pair", "zero", "x"], ["y"])],
    "cast": [node("Cast", ["one"], ["a"], to=STRING), node("StringConcat", ["a", "x"], ["y"])],
    "encode": [node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["hi"], values_int64s=[4])],
    "shape": [node("Shape", ["x"], ["y"])],
}  # fmt: skip
OF_NUMBERS = {"equal": TensorProto.BOOL, "match": TensorProto.BOOL}
OF_NUMBERS |= {"encode": TensorProto.INT64, "shape": TensorProto.INT64}


@pytest.mark.parametrize("name", CASES)
def test_operator(name):
    """The string is an input, then an initializer."""
    output = info("y", None, OF_NUMBERS.get(name, STRING))
    x = np.array("hi", object)
    for inputs, given in (([info("x", [], STRING)], [x]), ([], [])):
        constants = [HI, LO, PAIR, ZERO, ONE, TWO, NONE]
        if not inputs:
            constants.append(helper.make_tensor("x", STRING, [], [b"hi"]))
        proto = build(
            *CASES[name],
            inputs=inputs,
            outputs=[output],
            initializers=constants,
            opsets=[("", 21), ("ai.onnx.ml", 3)],
        )
        theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x} if inputs else {})[0]
        model = jaxops.onnx.load(proto)
        for y in (model(*given), model.apply(model.params, *given)):
            assert np.shape(y) == np.shape(theirs)
            assert np.asarray(y).tolist() == theirs.tolist()
        assert "y" in str(model)


def test_chosen_by_a_traced_condition():
    proto = build(
        CONSTANT,
        node("Where", ["q", "hi", "k"], ["y"]),
        inputs=[info("q", ["n"], TensorProto.BOOL)],
        outputs=[info("y", ["n"], STRING)],
        initializers=[HI],
    )
    model, q = jaxops.onnx.load(proto), np.array([True, False])
    for y in (model(q), jax.jit(model.apply)(model.params, q), model.export().call(model.params, q)):
        assert np.asarray(y).tolist() == ["hi", "lo"]


def test_functions():
    q = np.array([True, False])
    op = jaxops.onnx.opset(21)
    hi, lo = np.array("hi", object), np.array("lo")
    assert op.Where(q, hi, lo).tolist() == jo.where(q, "hi", "lo").tolist() == ["hi", "lo"]
    assert op.StringConcat(hi, lo).tolist() == jo.string_concat("hi", "lo").tolist() == "hilo"
    assert op.Equal(hi, lo).tolist() is jo.equal("hi", "lo").tolist() is False
    assert op.Constant(value_string="hi").tolist() == op.Identity(hi).tolist() == "hi"
    assert op.Squeeze(hi[None]).tolist() == op.Gather(hi[None], np.array(0)).tolist() == "hi"
    assert op.Unsqueeze(hi, np.array([0])).tolist() == op.Reshape(hi, np.array([1])).tolist() == ["hi"]
    assert [part.tolist() for part in op.StringSplit(np.array("a b"))] == [["a", "b"], 2]
    assert op.RegexFullMatch(hi, pattern="h.").tolist() is True
