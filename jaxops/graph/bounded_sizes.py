"""Fixed sizes for results whose size depends on data, so that a model runs as one program."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, near
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.operator import WrappedOperator

# An error names at most so many nodes.
_SHOWN = 8


class BoundedOperator(WrappedOperator):
    """An operator whose result has the fixed size of the node's attribute `size`, not a size that depends on data.

    A result computed from static values keeps its true size, since it is mostly part of the computation of a shape.
    """

    sized_by_data = False
    bounded = True

    def sizes_result(self, position: int) -> bool:
        """Returns False: no operand decides the size."""
        return False

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the operator; those whose size would depend on data have the attribute's size."""
        # The operands of `to_python` are not arrays.
        if all(x is None or isinstance(x, np.ndarray) for k, x in enumerate(inputs) if self.inner.sizes_result(k)):
            attributes = {name: value for name, value in attributes.items() if name != "size"}
        return self.inner.call(inputs, attributes, n_outputs=n_outputs, rng=rng)


def with_bounds(graph: Graph, bounds: Mapping[str, Any]) -> Graph:
    """Returns the graph with fixed sizes for results whose size depends on data, in subgraphs and functions too.

    bounds: the name of a node → its size, or the name of an operator → the size for all its nodes without a bound.
    Raises ArgumentError for an unknown name, a node whose result has a size that does not depend on data, and a bound
    that is not a positive integer.
    """
    sizes = {name: _size(name, bound) for name, bound in bounds.items()}
    if not sizes:
        return graph
    nodes = list(_nodes(graph, set()))
    for name in sizes:
        _check(name, nodes)
    return _bounded(graph, sizes, {})


def _size(name: str, bound: Any) -> int:
    if isinstance(bound, bool) or not isinstance(bound, int | np.integer) or bound < 1:
        raise ArgumentError(f"`bounds`: '{name}' is {bound!r:.80}; it must be a positive integer")
    return int(bound)


def _nodes(graph: Graph, seen: set[Graph]) -> Iterator[Node]:
    """All nodes, also in subgraphs and functions; the nodes of a function once."""
    if graph not in seen:
        seen.add(graph)
        for node in graph.nodes:
            yield node
            for inner in node.nested:
                yield from _nodes(inner, seen)


def _check(name: str, nodes: Sequence[Node]) -> None:
    named = [node for node in nodes if name in (node.label, node.operator.name)]
    if any(node.operator.sized_by_data for node in named):
        return
    names = dict.fromkeys(node.label for node in nodes if node.operator.sized_by_data)
    operators = dict.fromkeys(node.operator.name for node in nodes if node.operator.sized_by_data)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = f"{', '.join(map(repr, operators))}, or the nodes {', '.join(map(repr, list(names)[:_SHOWN]))}{more}"
    allowed = f"\n  hint    bounds can have: {listed}" if names else "; no node of the model can have a bound"
    if named:
        raise ArgumentError(f"`bounds`: {named[0].title} takes no bound: it does not find its size itself{allowed}")
    close = near(name, [*names, *operators])
    raise ArgumentError(f"`bounds`: the model has no node and no operator '{name}'{close}{allowed}")


def _bounded(graph: Graph, sizes: Mapping[str, int], rebuilt: dict[Graph, Graph]) -> Graph:
    if graph not in rebuilt:
        nodes = tuple(_bounded_node(node, sizes, rebuilt) for node in graph.nodes)
        same = all(new is old for new, old in zip(nodes, graph.nodes, strict=True))
        rebuilt[graph] = graph if same else dataclasses.replace(graph, nodes=nodes)
    return rebuilt[graph]


def _bounded_node(node: Node, sizes: Mapping[str, int], rebuilt: dict[Graph, Graph]) -> Node:
    if node.operator.sized_by_data:
        size = sizes.get(node.label, sizes.get(node.operator.name))
        if size is not None:
            attributes = {**node.attributes, "size": size}
            node = dataclasses.replace(node, operator=BoundedOperator(node.operator), attributes=attributes)
    return node.with_nested(lambda inner: _bounded(inner, sizes, rebuilt))
