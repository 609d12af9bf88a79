"""Small ONNX models for tests, written as text."""

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

from jaxops.onnx import registry


def model(
    body: str,
    *,
    opset: int = 18,
    functions: str = "",
    initializers: dict[str, Any] | None = None,
    imports: str = "",
) -> onnx.ModelProto:
    """A model from the text form of ONNX: `main (float[N] x) => (float[N] y) { y = Relu(x) }`."""
    head = f'<ir_version: 10, opset_import: ["" : {opset}{imports}], producer_name: "tests">'
    proto = parser.parse_model(f"{head}\n{body}\n{functions}")
    for name, value in (initializers or {}).items():
        proto.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return proto


def node(op: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    """A node; the text form cannot say everything that a file can."""
    return helper.make_node(op, inputs, outputs, name=attributes.pop("node_name", ""), **attributes)


def info(name: str, shape: list[Any] | None, dtype: int = onnx.TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """An input or output of a graph."""
    return helper.make_tensor_value_info(name, dtype, shape)


# The type of the output follows from the nodes.
IN, OUT = info("x", ["N", 3]), onnx.ValueInfoProto(name="y")


def tensor(values: Any, name: str = "w") -> onnx.TensorProto:
    """An initializer."""
    return numpy_helper.from_array(np.asarray(values), name)


def build(
    *nodes: onnx.NodeProto,
    inputs: Any = (IN,),
    outputs: Any = (OUT,),
    initializers: Any = (),
    opsets: Any = (("", 18),),
    functions: Any = (),
    sparse: Any = (),
) -> onnx.ModelProto:
    """A model of these nodes, whatever they are; by default from float32[N, 3] `x` to `y`."""
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers, sparse_initializer=sparse)
    imports = [helper.make_opsetid(*o) for o in opsets]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def function(
    name: str, inputs: Any, *body: onnx.NodeProto, outputs: Any = ("b",), attributes: Any = ()
) -> onnx.FunctionProto:
    """A function of domain `loc`."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("loc", 1)]
    return helper.make_function("loc", name, inputs, outputs, body, opsets, attributes)


def at_opset(
    op: str, opset: int, *inputs: Any, n_outputs: int = 1, rng: Any = None, **attributes: Any
) -> tuple[Any, ...]:
    """The outputs of an operator as an opset has it, with the attributes checked and completed as in a model."""
    found = registry.find(op, "", opset)
    found.check_arity([x is not None for x in inputs], n_outputs)
    results = found.call(inputs, found.complete(attributes), n_outputs=n_outputs, rng=rng)
    found.check_results(results)
    return results
