"""Models that onnxruntime's own tools quantize run under one jit and agree with onnxruntime.

A quantized result may be a step of its scale away: where a sum lies at a tie, or a scale is applied in another order.
"""

import logging

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import build, info, model, node, tensor
from onnxruntime.capi._pybind_state import quantize_matmul_4bits
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.transformers.float16 import convert_float_to_float16
from whole_numbers import SATURATES

import jaxops.onnx

RNG = np.random.default_rng(11)
OPSETS = (("", 21), ("com.microsoft", 1))


def weights(*shape):
    return (RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)


def mlp():
    named = {"w0": weights(48, 64), "b0": weights(64), "w1": weights(64, 64), "b1": weights(64), "w2": weights(64, 10)}
    nodes = [
        node("MatMul", ["x", "w0"], ["a"]),
        node("Add", ["a", "b0"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("Gemm", ["c", "w1", "b1"], ["d"], transB=1),
        node("LeakyRelu", ["d"], ["e"]),
        node("MatMul", ["e", "w2"], ["f"]),
        node("Sigmoid", ["f"], ["y"]),
    ]
    return made(nodes, named, ["N", 48]), (6, 48)


def convolutional():
    named = {"k0": weights(8, 3, 3, 3), "k1": weights(8, 8, 3, 3), "k2": weights(16, 1, 3, 3), "w": weights(16, 10)}
    named |= {"s": 1 + weights(8) / 9, "t": weights(8), "m": weights(8), "v": abs(weights(8)) + 1, "b": weights(10)}
    nodes = [
        node("Conv", ["x", "k0"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "s", "t", "m", "v"], ["b0"]),
        node("Relu", ["b0"], ["c"]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["d", "k1"], ["e"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "e"], ["f"]),
        node("Concat", ["d", "f"], ["g"], axis=1),
        node("Conv", ["g", "k2"], ["h"], group=16),
        node("AveragePool", ["h"], ["i"], kernel_shape=[2, 2]),
        node("GlobalAveragePool", ["i"], ["j"]),
        node("Flatten", ["j"], ["l"]),
        node("Gemm", ["l", "w", "b"], ["o"]),
        node("Softmax", ["o"], ["y"]),
    ]
    return made(nodes, named, ["N", 3, 12, 12]), (2, 3, 12, 12)


def transformer():
    size, heads = 32, 4
    named = {name: weights(size, size) for name in ("q", "k", "v", "o")}
    named |= {"up": weights(size, 64), "down": weights(64, size), "s": np.ones(size, "f4"), "t": weights(size)}
    named |= {"split": np.int64([0, 0, heads, -1]), "join": np.int64([0, 0, -1]), "by": np.float32(8**-0.5)}
    nodes = []
    for name in "qkv":
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", ["x", name], [f"{name}0"]),
            node("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [f"{name}2"], perm=order),
        ]
    nodes += [
        node("MatMul", ["q2", "k2"], ["scores"]),
        node("Mul", ["scores", "by"], ["scaled"]),
        node("Softmax", ["scaled"], ["p"]),
        node("MatMul", ["p", "v2"], ["found"]),
        node("Transpose", ["found"], ["turned"], perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "join"], ["joined"]),
        node("MatMul", ["joined", "o"], ["projected"]),
        node("Add", ["x", "projected"], ["r"]),
        node("LayerNormalization", ["r", "s", "t"], ["n"]),
        node("MatMul", ["n", "up"], ["u"]),
        node("Gelu", ["u"], ["g"]),
        node("MatMul", ["g", "down"], ["d"]),
        node("Add", ["n", "d"], ["y"]),
    ]
    return made(nodes, named, ["N", 5, size]), (2, 5, size)


def recurrent():
    named = {"w": weights(1, 32, 12), "r": weights(1, 32, 8), "b": weights(1, 64), "o": weights(8, 4)}
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["", "h"], hidden_size=8),
        node("Squeeze", ["h", "first"], ["s"]),
        node("MatMul", ["s", "o"], ["y"]),
    ]
    return made(nodes, named | {"first": np.int64([0])}, [7, "N", 12]), (7, 3, 12)


def made(nodes, named, shape):
    inits = [tensor(value, name) for name, value in named.items()]
    proto = build(*nodes, inputs=[info("x", shape)], outputs=[info("y", None)], initializers=inits, opsets=(("", 21),))
    return onnx.shape_inference.infer_shapes(proto)


class Samples(CalibrationDataReader):
    def __init__(self, shape):
        self.left = [{"x": RNG.normal(size=shape).astype(np.float32)} for _ in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


@pytest.fixture
def quantized(tmp_path):
    """Quantizes a model: (a function from (model, shape) to the quantized model)."""
    logging.getLogger().setLevel(logging.ERROR)

    def run(proto, shape, way, **options):
        before, after = str(tmp_path / "before.onnx"), str(tmp_path / "after.onnx")
        onnx.save(proto, before)
        if way == "dynamic":
            quantize_dynamic(before, after, **options)
        else:
            quantize_static(before, after, Samples(shape), quant_format=way, **options)
        return onnx.load(after)

    return run


def check(proto, shape, tolerance, operators=()):
    """Both give the same under one jit. operators: what the tool must have written."""
    written = {n.op_type for n in proto.graph.node}
    assert set(operators) <= written, written
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    # Else onnxruntime fuses, and the steps between are no longer those of the file.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), settings)
    model = jaxops.onnx.load(proto)
    x = RNG.normal(size=shape).astype((session.get_inputs()[0].type == "tensor(float16)" and np.float16) or np.float32)
    (theirs,) = session.run(None, {"x": x})
    found = np.asarray(jax.jit(model.apply)(model.params, x))
    assert (found.dtype, found.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(found.astype("f4"), theirs.astype("f4"), rtol=tolerance, atol=tolerance)
    return model


S8, U8, S16, U16, S4 = QuantType.QInt8, QuantType.QUInt8, QuantType.QInt16, QuantType.QUInt16, QuantType.QInt4


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("make", [mlp, convolutional, transformer, recurrent])
def test_dynamic(quantized, make, channels):
    proto, shape = make()
    kind = S8 if channels else U8
    operators = {"convolutional": ["ConvInteger"], "recurrent": ["DynamicQuantizeLSTM"]}.get(
        make.__name__, ["MatMulInteger"]
    )
    # What is quantized anew at run time may be a step away, and so is what follows.
    written = quantized(proto, shape, "dynamic", weight_type=kind, per_channel=channels, reduce_range=SATURATES)
    model = check(written, shape, 0.03, operators)
    large = [t for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT and np.prod(t.dims) >= 1024]
    bytes_ = [v for v in model.params.values() if v.dtype in (np.int8, np.uint8)]
    assert len(bytes_) == len(large)  # weights stay packed; those of less than 1,024 bytes are constants


QDQ, QOPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
STATIC = [
    ("qdq", mlp, QDQ, {"activation_type": U8, "weight_type": S8}),
    ("qdq channels", convolutional, QDQ, {"activation_type": U8, "weight_type": S8, "per_channel": True}),
    ("qdq 8 bits", transformer, QDQ, {"activation_type": S8, "weight_type": S8}),
    ("qdq 16 bits", mlp, QDQ, {"activation_type": U16, "weight_type": S8}),
    ("qdq 16 bits signed", transformer, QDQ, {"activation_type": S16, "weight_type": S8}),
    ("qdq 4 bits", mlp, QDQ, {"activation_type": U8, "weight_type": S4}),
    ("operators", mlp, QOPERATOR, {"activation_type": U8, "weight_type": S8}),
    ("operators", convolutional, QOPERATOR, {"activation_type": U8, "weight_type": S8}),
    ("operators channels", convolutional, QOPERATOR, {"activation_type": S8, "weight_type": S8, "per_channel": True}),
    ("operators", transformer, QOPERATOR, {"activation_type": U8, "weight_type": U8}),
]
WRITTEN = {
    "mlp": {"QGemm", "QLinearMatMul", "QLinearSigmoid", "QLinearLeakyRelu"},
    "convolutional": {"QLinearConv", "QLinearAdd", "QLinearConcat", "QLinearAveragePool", "QLinearGlobalAveragePool"},
    "transformer": {"QLinearMatMul", "QLinearMul", "QLinearAdd", "QLinearSoftmax"},
}


@pytest.mark.parametrize(("name", "make", "way", "options"), STATIC, ids=[f"{n} {m.__name__}" for n, m, *_ in STATIC])
def test_static(quantized, name, make, way, options):
    proto, shape = make()
    operators = ["QuantizeLinear", "DequantizeLinear"] if way == QDQ else WRITTEN[make.__name__]
    # Up to two steps: the scales are about 1/128 (8 bits) of numbers of size 1 to 4; those of 16 bits are finer.
    tolerance = 0.002 if "16" in name else 0.07
    check(quantized(proto, shape, way, **options), shape, tolerance, operators)


def packed(proto, block, symmetric):
    """The model with MatMulNBits in place of MatMul by a weight, packed by the function of onnxruntime's own tool."""
    found = onnx.ModelProto.FromString(proto.SerializeToString())
    tables = {t.name: onnx.numpy_helper.to_array(t) for t in found.graph.initializer}
    for at, old in enumerate(found.graph.node):
        if old.op_type != "MatMul" or old.input[1] not in tables:
            continue
        w = tables[old.input[1]]
        (k, n), name = w.shape, old.input[1]
        blocks = -(-k // block)
        b, by = np.zeros((n, blocks, block // 2), np.uint8), np.zeros(n * blocks, np.float32)
        zeros = np.zeros(n * -(-blocks // 2), np.uint8)
        quantize_matmul_4bits(b, w, by, zeros, block, n, k, symmetric)
        parts = {f"{name}_q4": b, f"{name}_scales": by} | ({} if symmetric else {f"{name}_zeros": zeros})
        found.graph.initializer.extend(tensor(value, part) for part, value in parts.items())
        attributes = {"K": k, "N": n, "bits": 4, "block_size": block}
        new = node("MatMulNBits", [old.input[0], *parts], list(old.output), domain="com.microsoft", **attributes)
        found.graph.node[at].CopyFrom(new)
    found.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return found


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("make", [mlp, transformer])
def test_packed_4_bit_weights(make, symmetric):
    proto, shape = make()
    model = check(packed(proto, 32, symmetric), shape, 1e-4, ["MatMulNBits"])
    weight = model.params["w0_q4" if make is mlp else "up_q4"]
    assert (weight.dtype, weight.nbytes) == (np.uint8, 64 * 32 if make is mlp else 64 * 16)


@pytest.mark.parametrize("make", [mlp, convolutional, transformer])
def test_float16(make):
    proto, shape = make()
    check(convert_float_to_float16(proto), shape, 0.02)


def with_subgraphs():
    """A loop that captures a weight, and a choice by its result."""
    text = """main (float[N, 6] x) => (float[N, 6] y) {
        a, all = Loop <body = step (int64 i, bool go, float[N, 6] s) => (bool on, float[N, 6] t, float[N, 6] u) {
            on = Identity (go)  p = MatMul (s, w)  t = Tanh (p)  half = Constant <value = float {0.5}> ()
            u = Mul (t, half)
        }> (trips, yes, x)
        sum = ReduceSum <keepdims = 0> (all)  positive = Greater (sum, zero)
        y = If (positive) <
            then_branch = yes () => (float[N, 6] b) { b = Softmax (a) },
            else_branch = no () => (float[N, 6] c) { two = Constant <value = float {2.0}> ()  c = Mul (a, two) }
        >
    }"""
    named = {"w": weights(6, 6), "zero": np.float32(0), "trips": np.int64(3), "yes": np.bool_(True)}
    return model(text, initializers=named), (4, 6)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (transformer, {"keep_io_types": True}),
        (transformer, {"op_block_list": ["Softmax", "LayerNormalization", "Add"]}),
        (transformer, {"keep_io_types": True, "min_positive_val": 0.05, "max_finite_val": 0.2}),
        (with_subgraphs, {}),
        (with_subgraphs, {"keep_io_types": True, "op_block_list": ["ReduceSum"]}),
    ],
)
def test_float16_with_options(make, options):
    proto, shape = make()
    for number, one in enumerate(proto.graph.node):
        one.name = f"n{number}"  # the converter names its casts by them
    converted = convert_float_to_float16(proto, **options)
    kinds = {i.type.tensor_type.elem_type for i in (*converted.graph.input, *converted.graph.output)}
    assert kinds == {onnx.TensorProto.FLOAT if options.get("keep_io_types") else onnx.TensorProto.FLOAT16}
    check(converted, shape, 0.01)
