"""Operators that the standard defines by other operators, in a way that depends on the types of the inputs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from jaxops.errors import UnsupportedError
from jaxops.onnx.bind import bind_body
from jaxops.onnx.graph import Graph, Node


def standard_body(node: Node, inputs: Sequence[Any]) -> Graph:
    """The function body of a node's operator, bound, for inputs of these types and shapes."""
    assert node.operator is not None
    schema = node.operator.schema
    graphs = sorted(node.subgraphs)
    if graphs:
        raise UnsupportedError(f"{node.op_type}: jaxops does not implement the attribute `{graphs[0]}`")
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
    proto = helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain, **node.attributes)
    types = [_type(value).SerializeToString() for value in inputs]
    data = schema.get_context_dependent_function_with_opset_version(max(versions), proto.SerializeToString(), types)
    return bind_body(node, onnx.FunctionProto.FromString(data))


def _type(value: Any) -> onnx.TypeProto:
    if value is None:
        return onnx.TypeProto()
    if isinstance(value, list | tuple):
        return helper.make_sequence_type_proto(_type(value[0]))
    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
    return helper.make_tensor_type_proto(dtype, [d if isinstance(d, int) else None for d in value.shape])
