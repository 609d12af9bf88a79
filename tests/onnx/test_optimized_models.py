"""Models that optimizers have fused run under one `jit`, and agree with what onnxruntime makes of the original."""

import collections
import logging

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
import transformer_graphs as graphs
from onnx import helper, numpy_helper

import jaxops.onnx

EXTENDED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
BASIC = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC


def original(model, inputs):
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)[0]


def of_microsoft(model):
    """How many nodes of each operator of com.microsoft a model has."""
    return collections.Counter(n.op_type for n in model.graph.node if n.domain == "com.microsoft")


def agrees(path, inputs, expected):
    model = jaxops.onnx.load(path)
    found = jax.jit(model.apply)(model.params, **inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


FUSED = {
    "bert": ("bert", {"SkipLayerNormalization": 4, "BiasGelu": 2}),
    "gpt2": ("gpt2", {"SkipLayerNormalization": 4, "FastGelu": 2}),
    "llama": ("gpt2", {"SkipSimplifiedLayerNormalization": 5}),
    "whisper": ("bart", {"SkipLayerNormalization": 4, "BiasGelu": 2, "Gelu": 2}),
    "vit": ("vit", {"SkipLayerNormalization": 4, "BiasGelu": 2}),
    "unet": ("unet", {"NhwcConv": 5, "GroupNorm": 2, "SkipGroupNorm": 1, "BiasSplitGelu": 1}),
}


@pytest.mark.parametrize("name", FUSED)
def test_the_optimizer_of_transformers(name, tmp_path, monkeypatch):
    pytest.importorskip("sympy")  # the optimizer infers shapes with it
    from onnxruntime.transformers import fusion_options, optimizer

    monkeypatch.setattr(logging.root, "disabled", True)
    model, inputs = getattr(graphs, name)()
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path)
    family, fused = FUSED[name]
    options = fusion_options.FusionOptions(family)
    made = optimizer.optimize_model(
        path,
        family,
        num_heads=graphs.HEADS,
        hidden_size=graphs.WIDTH,
        optimization_options=options,
        opt_level=0,
        use_gpu=name == "unet",
    )
    made.save_model_to_file(path)
    found = of_microsoft(onnx.load(path))
    assert fused.items() <= found.items()
    agrees(path, inputs, original(model, inputs))


@pytest.mark.parametrize("name", ["bert", "whisper", "unet"])
def test_the_optimizer_of_onnxruntime(name, tmp_path):
    model, inputs = getattr(graphs, name)()
    path = str(tmp_path / "model.onnx")
    expected = original(model, inputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = EXTENDED
    options.optimized_model_filepath = path
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    assert of_microsoft(onnx.load(path))
    agrees(path, inputs, expected)


@pytest.mark.parametrize("level", [BASIC, EXTENDED], ids=["basic", "extended"])
def test_a_small_network_of_convolutions(level, tmp_path):
    rng = np.random.default_rng(16)

    def weight(name, *shape):
        return numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("LeakyRelu", ["c1"], ["r1"], alpha=0.1),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c2", "r1"], ["s"]),
        helper.make_node("Relu", ["s"], ["r2"]),
        helper.make_node("GlobalAveragePool", ["r2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["g"]),
        helper.make_node("Sigmoid", ["g"], ["y"]),
    ]
    weights = [weight("w1", 4, 3, 3, 3), weight("b1", 4), weight("w2", 4, 4, 3, 3), weight("w3", 4, 5), weight("b3", 5)]
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, 6, 6])
    graph = helper.make_graph(
        nodes, "g", [given], [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 5])], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"x": rng.normal(size=(2, 3, 6, 6)).astype(np.float32)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(tmp_path / "model.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    found = of_microsoft(onnx.load(options.optimized_model_filepath))
    assert found == ({} if level == BASIC else {"FusedConv": 1, "FusedGemm": 1})
    agrees(options.optimized_model_filepath, inputs, original(model, inputs))
