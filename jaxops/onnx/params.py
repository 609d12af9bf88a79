"""Which constants of a model are parameters, and which stay static values of the program.

A weight embedded as a constant makes XLA fold it, slowly, and compile it in; so the tensors of initializers, and
those that Constant and ConstantOfShape nodes make, enter the compiled function as arguments. What the demand walk
reached stays static, and so do integers and booleans (indices, axes, masks), as `jax.grad` over the parameters
wants floating point; but not large arrays of bytes, which are quantised weights.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from jaxops.dtypes import is_float
from jaxops.onnx.graph import Graph, Node, Tensor

_MAKERS = {"Constant", "ConstantOfShape"}
# From this many elements on, bytes are data rather than structure.
_LARGE = 1024


def partition(graph: Graph, demanded: Mapping[str, str]) -> tuple[Graph, dict[str, np.ndarray], dict[str, Tensor]]:
    """(graph without the nodes that make parameters, static values, parameters), the latter two by name."""
    static: dict[str, np.ndarray] = {}
    params: dict[str, Tensor] = {}
    for name, tensor in graph.initializers.items():
        if name not in demanded and _is_parameter(tensor):
            params[name] = tensor
        else:
            static[name] = tensor.load()
    nodes = []
    given = {value.name for value in graph.inputs}  # a call may give another value than the initializer
    for node in graph.nodes:
        value = None if given & set(node.inputs) else _made(node, static)
        if value is None:
            nodes.append(node)
        elif node.outputs[0] not in demanded and value.ndim and _is_parameter(_tensor(value)):
            params[node.outputs[0]] = _tensor(value)
        else:
            static[node.outputs[0]] = value
    taken = {*given, *static, *params, *(name for node in nodes for name in node.outputs)}
    nodes = [_lift(node, demanded, params, taken) for node in nodes]
    return dataclasses.replace(graph, nodes=tuple(nodes), initializers={}), static, params


def _lift(node: Node, demanded: Mapping[str, str], params: dict[str, Tensor], taken: set[str]) -> Node:
    """The node without the parameters among the initializers of its subgraphs, which find them in the outer graph.

    One whose name is taken, as two branches may use the same, stays where it is.
    """
    attributes = dict(node.attributes)
    for key, graph in node.subgraphs.items():
        here = {value.name for value in graph.inputs}
        lifted = {
            n: t for n, t in graph.initializers.items() if _is_parameter(t) and n not in {*demanded, *taken, *here}
        }
        params.update(lifted)
        taken.update(lifted)
        attributes[key] = dataclasses.replace(
            graph,
            initializers={n: t for n, t in graph.initializers.items() if n not in lifted},
            nodes=tuple(_lift(n, demanded, params, taken) for n in graph.nodes),
        )
    return dataclasses.replace(node, attributes=attributes)


def _is_parameter(tensor: Tensor) -> bool:
    if is_float(tensor.dtype) or tensor.dtype.kind == "c":
        return True
    return tensor.dtype.itemsize == 1 and tensor.dtype.kind != "b" and int(np.prod(tensor.shape)) >= _LARGE


def _made(node: Node, static: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The tensor a node makes out of nothing but its attributes and static values."""
    if node.op_type not in _MAKERS or node.domain or node.operator is None:
        return None
    if not all(name in static for name in node.inputs):
        return None
    (value,) = node.operator([static[name] for name in node.inputs], node.attributes)
    return np.asarray(value)


def _tensor(value: np.ndarray) -> Tensor:
    return Tensor(value.dtype, value.shape, lambda: value)
