"""Nodes on uint64 whose results take all 64 bits: they refuse the uint32 that stands for uint64 while x64 is off.

An array does not say that it stands for uint64, only the model does. So the type is followed through a graph that has
such nodes.
"""

import dataclasses
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import OutOfRangeError, message
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.onnx.lenient import TolerantOperator

_WIDE = np.dtype(np.uint64)


class WideOperator(TolerantOperator):
    """An operator on uint64 that a program of 32 bits cannot run."""

    def call(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int | None, rng: Any
    ) -> Sequence[Any]:
        """As the version says; OutOfRangeError where uint32 stands for an operand."""
        if any(x.dtype == np.uint32 for x in inputs):  # a traced one, or what a piece of the model has computed
            raise OutOfRangeError(
                message(
                    self.name,
                    "its operands are uint64, and the result takes bits that uint32, which stands for uint64 while "
                    "x64 is off, does not have",
                    **dict(zip(self.formals, inputs, strict=True)),
                    hint="load the model with x64='auto' or True, or turn x64 on with "
                    "jax.config.update('jax_enable_x64', True)",
                )
            )
        return super().call(inputs, attributes, n_outputs=n_outputs, rng=rng)


def with_wide_operators(graph: Graph) -> Graph:
    """A bound graph whose BitwiseNot and BitShift 'LEFT' of uint64 are wide operators, its subgraphs' too."""
    walk = _Walk()
    return walk.graph(graph, {}, ChainMap())[0] if walk.concerns(graph) else graph


def _needs_bits(node: Node) -> bool:
    """Returns True if 32 bits cannot hold the result. Those of right shifts and of operators that combine bits fit."""
    function = node.operator.function
    left = function is ops.bit_shift and node.attributes.get("direction") == "LEFT"
    return isinstance(node.operator, TolerantOperator) and (left or function is ops.bitwise_not)


class _Walk:
    def __init__(self) -> None:
        self._concerns: dict[Graph, bool] = {}
        self._bodies: dict[tuple[Graph, tuple[bool, ...]], tuple[Graph, list[bool]]] = {}

    def concerns(self, graph: Graph) -> bool:
        """Returns True if such a node is in the graph or inside it, whatever its type."""
        if graph not in self._concerns:
            self._concerns[graph] = any(map(_needs_bits, graph.nodes)) or any(map(self.concerns, graph.nested))
        return self._concerns[graph]

    def graph(self, graph: Graph, inputs: Mapping[str, bool], outer: ChainMap[str, bool]) -> tuple[Graph, list[bool]]:
        """The graph, and for each output whether it is uint64. inputs, outer: likewise for its inputs and captures."""
        wide = outer.new_child({v.name: _declared(v, inputs.get(v.name, False)) for v in graph.inputs})
        wide.update((name, tensor.dtype == _WIDE) for name, tensor in graph.initializers.items())
        nodes = tuple(self.node(node, wide) for node in graph.nodes)
        if any(new is not old for new, old in zip(nodes, graph.nodes, strict=True)):
            graph = dataclasses.replace(graph, nodes=nodes)
        return graph, [wide.get(v.name, False) for v in graph.outputs]

    def node(self, node: Node, wide: ChainMap[str, bool]) -> Node:
        inputs = [wide.get(name, False) for name in node.inputs]
        if node.body is not None:
            body, outputs = self.body(node.body, inputs)
            node = node if body is node.body else dataclasses.replace(node, body=body)
        elif node.subgraphs:
            node, outputs = self.subgraphs(node, inputs, wide)
        else:
            outputs = [
                t == _WIDE for t in node.operator.output_types(node, [_WIDE if is_wide else None for is_wide in inputs])
            ]
        wide.update((name, is_wide) for name, is_wide in zip(node.outputs, outputs, strict=False) if name)
        if inputs and inputs[0] and _needs_bits(node):
            operator = node.operator
            return dataclasses.replace(node, operator=WideOperator(operator.schema, operator.fn, operator.opset))
        return node

    def body(self, body: Graph, inputs: Sequence[bool]) -> tuple[Graph, list[bool]]:
        """The body of a function, walked once for the same types."""
        key = body, tuple(inputs)
        if key not in self._bodies:
            formals = {value.name: is_wide for value, is_wide in zip(body.inputs, inputs, strict=False)}
            self._bodies[key] = self.graph(body, formals, ChainMap())
        return self._bodies[key]

    def subgraphs(self, node: Node, inputs: Sequence[bool], wide: ChainMap[str, bool]) -> tuple[Node, Sequence[bool]]:
        graphs: dict[str, Graph] = {}
        outputs: Sequence[bool] = ()
        for name, graph in node.subgraphs.items():
            flow = node.operator.subgraphs[name]
            entering = [] if flow.first is None else inputs[flow.first :]
            formals = {value.name: is_wide for value, is_wide in zip(graph.inputs, entering, strict=False)}
            graphs[name], outputs = self.graph(graph, formals, wide)
            outputs = outputs[flow.leading :]
        if all(graph is node.subgraphs[name] for name, graph in graphs.items()):
            return node, outputs
        return dataclasses.replace(node, attributes={**node.attributes, **graphs}), outputs


def _declared(value: Value, otherwise: bool) -> bool:
    return otherwise if value.dtype is None else value.dtype == _WIDE
