"""Sizes that a model casts to int32: what is computed of them is int32, too, when it turns out to be numbers.

Symbolic sizes have no element type of their own, and the numbers among them, such as the last of (batch, length, 5),
would be int64. So the type is followed through a graph that casts to such a type.
"""

import dataclasses
import functools
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.graph.nodes import Graph, Node
from jaxops.onnx.lenient import TolerantOperator

# What symbolic sizes may be cast to and stay sizes, but for the type that they have.
_NARROW = {np.dtype(t) for t in (np.int32, np.uint32, np.uint64)}
_Type = np.dtype | None


class NarrowOperator(TolerantOperator):
    """An operator on static values; types: of its results, None where that is int64 or open."""

    def __init__(self, operator: TolerantOperator, types: tuple[_Type, ...]) -> None:
        super().__init__(operator.schema, operator.fn, operator.opset)
        self.types = types

    def __reduce__(self) -> Any:
        return _narrow, (TolerantOperator(self.schema, self.fn, self.opset), self.types)

    def call(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int | None, rng: Any
    ) -> Sequence[Any]:
        """As the version says; numbers that were sizes get the type that the model says."""
        outputs = super().call(inputs, attributes, n_outputs=n_outputs, rng=rng)
        kinds = (*self.types, *[None] * len(outputs))
        return tuple(
            y.astype(kind) if kind and isinstance(y, np.ndarray) and y.dtype == np.int64 else y
            for y, kind in zip(outputs, kinds, strict=False)
        )


@functools.cache
def _narrow(operator: TolerantOperator, types: tuple[_Type, ...]) -> NarrowOperator:
    """One operator for equal nodes, as `tolerant` gives them."""
    return NarrowOperator(operator, types)


def with_narrow_operators(graph: Graph) -> Graph:
    """A bound graph in which operators say the types of the sizes that it casts, its subgraphs' too."""
    walk = _Walk()
    return walk.graph(graph, {}, ChainMap()) if walk.casts(graph) else graph


class _Walk:
    def __init__(self) -> None:
        self._casts: dict[Graph, bool] = {}
        self._bodies: dict[Graph, Graph] = {}

    def casts(self, graph: Graph) -> bool:
        """Returns True if the graph, or one inside it, casts to such a type."""
        if graph not in self._casts:
            here = any(n.operator.function is ops.cast and n.attributes.get("to") in _NARROW for n in graph.nodes)
            self._casts[graph] = here or any(map(self.casts, graph.nested))
        return self._casts[graph]

    def graph(self, graph: Graph, inputs: Mapping[str, _Type], outer: ChainMap[str, _Type]) -> Graph:
        """inputs, outer: the types of its inputs and of its captures, as far as they are known."""
        types = outer.new_child({v.name: v.dtype or inputs.get(v.name) for v in graph.inputs})
        types.update((name, tensor.dtype) for name, tensor in graph.initializers.items())
        return dataclasses.replace(graph, nodes=tuple(self.node(node, types) for node in graph.nodes))

    def node(self, node: Node, types: ChainMap[str, _Type]) -> Node:
        if node.body is not None:
            return dataclasses.replace(node, body=self.body(node.body))
        inputs = [types.get(name) for name in node.inputs]
        if node.subgraphs:
            return dataclasses.replace(node, attributes={**node.attributes, **self.subgraphs(node, inputs, types)})
        results = node.operator.output_types(node, inputs)
        types.update((name, kind) for name, kind in zip(node.outputs, results, strict=False) if name)
        operator = node.operator
        if type(operator) is not TolerantOperator or not operator.foldable or _NARROW.isdisjoint(results):
            return node
        narrow = tuple(kind if kind in _NARROW else None for kind in results)
        return dataclasses.replace(node, operator=_narrow(operator, narrow))

    def body(self, body: Graph) -> Graph:
        """The body of a function, walked once; which types it gets is open."""
        if body not in self._bodies:
            self._bodies[body] = self.graph(body, {}, ChainMap()) if self.casts(body) else body
        return self._bodies[body]

    def subgraphs(self, node: Node, inputs: Sequence[_Type], types: ChainMap[str, _Type]) -> dict[str, Graph]:
        graphs: dict[str, Graph] = {}
        for name, graph in node.subgraphs.items():
            flow = node.operator.subgraphs[name]
            entering = [] if flow.first is None else inputs[flow.first :]
            formals = {value.name: kind for value, kind in zip(graph.inputs, entering, strict=False)}
            graphs[name] = self.graph(graph, formals, types)
        return graphs
