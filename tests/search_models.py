"""Small models of text: decoders like GPT-2 as graphs, and searches over them."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, HEAD_SIZE, LAYERS, PLACES = 23, 2, 4, 2, 64
HIDDEN = HEADS * HEAD_SIZE
INT, FLOAT = TensorProto.INT32, TensorProto.FLOAT
_SHAPES = {
    "GreedySearch": [["b", "length"]],
    "Sampling": [["b", "length"], ["b", "v"]],
    "BeamSearch": [["b", "r", "length"], ["b", "r"], ["t", "b", "k", "v"]],
}
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


def gpt(seed=0, sharp=3.0):
    """A decoder: tokens, places, a mask and caches in, logits and longer caches out. sharp: how sure it is."""
    rng = np.random.default_rng(seed)
    weights, nodes = {}, []

    def weight(name, *shape, scale=1.0):
        weights[name] = (scale * rng.normal(size=shape)).astype(np.float32)
        return name

    def node(op, inputs, outputs, **attributes):
        nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    node("Gather", [weight("wte", VOCABULARY, HIDDEN), "input_ids"], ["tokens"])
    node("Gather", [weight("wpe", PLACES, HIDDEN), "position_ids"], ["places"])
    x = node("Add", ["tokens", "places"], ["x"])
    for k in range(LAYERS):
        operands = [weight(f"qkv_{k}", HIDDEN, 3 * HIDDEN, scale=0.5), weight(f"bias_{k}", 3 * HIDDEN, scale=0.1)]
        operands = [x, *operands, "attention_mask", f"past_{k}"]
        outputs = [f"a_{k}", f"present_{k}"]
        attention = {"num_heads": HEADS, "unidirectional": 1, "domain": "com.microsoft"}
        x = node("Add", [x, node("Attention", operands, outputs, **attention)], [f"b_{k}"])
        h = node("MatMul", [x, weight(f"up_{k}", HIDDEN, HIDDEN, scale=0.5)], [f"c_{k}"])
        x = node("Add", [x, node("Tanh", [h], [f"d_{k}"])], [f"e_{k}"])
    node("MatMul", [x, weight("head", HIDDEN, VOCABULARY, scale=sharp / HIDDEN)], ["logits"])
    value = helper.make_tensor_value_info
    caches = [2, "batch", HEADS, "past", HEAD_SIZE], [2, "batch", HEADS, "total", HEAD_SIZE]
    return helper.make_graph(
        nodes,
        "gpt",
        [
            *(value(name, INT, ["batch", "new"]) for name in ("input_ids", "position_ids")),
            value("attention_mask", INT, ["batch", "total"]),
            *(value(f"past_{k}", FLOAT, caches[0]) for k in range(LAYERS)),
        ],
        [
            value("logits", FLOAT, ["batch", "new", VOCABULARY]),
            *(value(f"present_{k}", FLOAT, caches[1]) for k in range(LAYERS)),
        ],
        [numpy_helper.from_array(x, name) for name, x in weights.items()],
    )


def model_of_search(op, inputs, outputs=1, **attributes):
    """A model of one search. inputs: values by name, in order; None is left out."""
    values = {name: x for name, x in inputs.items() if x is not None}
    names = [name if name in values else "" for name in inputs]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, domain="com.microsoft", **attributes)
    infos = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape if x.size == 1 else [None] * x.ndim
        )
        for name, x in values.items()
    ]
    types = [INT] + [FLOAT] * (outputs - 1)
    ends = [
        helper.make_tensor_value_info(*pair, _SHAPES[op][k]) for k, pair in enumerate(zip(results, types, strict=True))
    ]
    model = helper.make_model(helper.make_graph([node], "search", infos, ends), opset_imports=OPSETS, ir_version=8)
    return model, values


def runtime(model, values):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, values)
