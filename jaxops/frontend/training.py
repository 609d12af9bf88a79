"""Training mode: BatchNormalization normalizes by the statistics of the batch, and Dropout draws."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.graph.nodes import Graph, Node
from jaxops.ops import microsoft

# Function → the number of operands before the optional `training_mode`, which becomes an attribute.
_DROPOUTS: dict[Any, int] = {ops.dropout: 2, microsoft.bias_dropout: 4}


def with_training(graph: Graph, without: str) -> Graph:
    """Returns a bound graph whose BatchNormalization and Dropout train, as their operators say.

    Each BatchNormalization gives the next running mean and variance, too: see `Graph.statistics`. Dropout trains in
    subgraphs and functions, too.
    without: what to do if the graph has neither operator, for the message.
    Raises ArgumentError if the graph has neither operator, UnsupportedError for a BatchNormalization whose running
    statistics are no initializers of the main graph, or belong to another node as well.
    """
    statistics: dict[str, str] = {}
    taken = set(graph.defined)
    bodies: dict[Graph, Graph] = {}
    found = False

    def training(node: Node) -> Node:
        nonlocal found
        if node.operator.function in _DROPOUTS:
            found = True
            return _dropout(node)
        if not _trains(node):
            return node.with_nested(inner)
        found = True
        if _is_used(node, graph):
            raise UnsupportedError(
                f"training=True: {node.title} has statistics that other nodes or outputs read; load it without training"
            )
        return _batch_normalization(node, graph, statistics, taken)

    def inner(nested: Graph) -> Graph:
        if nested not in bodies:
            bodies[nested] = dataclasses.replace(nested, nodes=tuple(map(nested_training, nested.nodes)))
        return bodies[nested]

    def nested_training(node: Node) -> Node:
        if _trains(node):
            raise UnsupportedError(
                f"training=True: {node.title} is in a function, a branch or a loop; jaxops trains a BatchNormalization "
                "of the main graph only"
            )
        return training(node)

    nodes = tuple(map(training, graph.nodes))
    if not found:
        raise ArgumentError(f"training=True: the model has no BatchNormalization and no Dropout that train. {without}")
    return dataclasses.replace(graph, nodes=nodes, statistics=tuple(statistics.items()))


def _trains(node: Node) -> bool:
    """Returns True for a BatchNormalization; that of OpenVINO has one function, which infers."""
    operator = node.operator
    return operator.function is ops.batch_normalization and operator.name == "BatchNormalization"


def _dropout(node: Node) -> Node:
    if "is_test" in node.operator.parameters:
        return dataclasses.replace(node, attributes={**node.attributes, "is_test": 0})
    inputs = node.inputs[: _DROPOUTS[node.operator.function]]
    return dataclasses.replace(node, inputs=inputs, attributes={**node.attributes, "training_mode": np.True_})


def _is_used(node: Node, graph: Graph) -> bool:
    names = {name for name in node.outputs[1:] if name}
    read = {name for each in graph.nodes for name in each.uses()} if names else set()
    return not names.isdisjoint(read | set(graph.output_names))


def _batch_normalization(node: Node, graph: Graph, statistics: dict[str, str], taken: set[str]) -> Node:
    """Returns a node with three outputs. statistics: gets the initializers, and the names of their next values."""
    outputs = [node.outputs[0]]
    for name in node.inputs[3:5]:
        if name not in graph.initializers or name in {value.name for value in graph.inputs}:
            raise UnsupportedError(
                f"training=True: the running statistics '{name}' of {node.title} are no initializer of the main graph. "
                "An exporter may write equal tensors once, with an Identity; with PyTorch, call net.train() before "
                "torch.onnx.export(…, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, "
                "dynamo=False)"
            )
        if name in statistics:
            raise UnsupportedError(
                f"training=True: the running statistics '{name}' of {node.title} belong to another node, too; if these "
                "are two modules, load it with tied=False"
            )
        following = f"{name} after the step"
        while following in taken:
            following += "'"
        taken.add(following)
        statistics[name] = following
        outputs.append(following)
    # Versions tell training by an attribute of one of these names, or by the number of outputs.
    modes = {"training_mode": 1, "is_test": 0}
    known: Callable[[str], bool] = node.attributes.__contains__
    changed: dict[str, Any] = {name: value for name, value in modes.items() if known(name)}
    return dataclasses.replace(node, outputs=tuple(outputs), attributes={**node.attributes, **changed})
