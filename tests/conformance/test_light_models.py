"""The topologies of the nine light models with dense random weights, against onnxruntime.

The outputs shipped beside these models are nearly constant, as all their weights are splats; here each weight is
random, scaled so that activations keep their size, and what goes into the last Softmax is compared too.
"""

from pathlib import Path

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
from jax import export
from onnx import helper, numpy_helper

import jaxops.onnx

pytestmark = pytest.mark.optimized

FOLDER = Path(onnx.__file__).parent / "backend/test/data/light"
# Those whose layers differ; the other four repeat them, and run in the standard's suite.
NAMES = ["resnet50", "densenet121", "inception_v2", "shufflenet", "squeezenet"]


def dense_model(name: str) -> onnx.ModelProto:
    """The light model with random weights, a free batch size, and the input of the last Softmax as an output.

    Seven of the nine reshape to a batch of 1; a 0 there, which copies the size, frees them.
    """
    model = onnx.load(FOLDER / f"light_{name}.onnx")
    graph, random = model.graph, np.random.default_rng(0)
    sizes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    nodes = list(graph.node)
    del graph.node[:]
    for tensor in graph.initializer:
        if any(n.op_type == "Reshape" and tensor.name == n.input[1] for n in nodes):
            target = sizes[tensor.name].copy()
            target[0] *= target[0] != 1
            tensor.CopyFrom(numpy_helper.from_array(target, tensor.name))
    for node in nodes:
        if node.op_type != "ConstantOfShape":
            graph.node.append(node)
            continue
        shape = tuple(sizes[node.input[0]])
        if len(shape) > 1:
            values = random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        else:
            values = random.uniform(0.5, 1.0, shape)  # a variance among them must be positive
        graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    weights = {t.name for t in graph.initializer}
    (data,) = (value for value in graph.input if value.name not in weights)
    data.type.tensor_type.shape.dim[0].dim_param = "N"
    del graph.value_info[:]
    graph.output[0].type.tensor_type.shape.dim[0].dim_param = "N"
    if nodes[-1].op_type == "Softmax":
        graph.output.append(helper.make_tensor_value_info(nodes[-1].input[0], onnx.TensorProto.FLOAT, None))
    return model


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_dense_weights_agree_with_onnxruntime(name):
    data = dense_model(name).SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    model = jaxops.onnx.load(data)
    (batch,) = export.symbolic_shape("batch")
    shape = model.inputs[0].shape[1:]
    specs = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), model.params)
    exported = export.export(jax.jit(model.apply))(specs, jax.ShapeDtypeStruct((batch, *shape), np.float32))

    # One import serves both batch sizes, and so does one export.
    calls = [(1, model), (2, model), (2, lambda x: exported.call(model.params, x))]
    for size, call in calls:
        x = np.random.default_rng(size).standard_normal((size, *shape)).astype(np.float32)
        expected = session.run(None, {model.inputs[0].name: x})
        found = jax.tree.leaves(call(x))
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            assert np.std(theirs) > 1e-6, "the outputs must not be constant"
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
