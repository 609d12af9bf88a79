"""The option `bounds`: fixed sizes for results whose size depends on data, so that a model runs as one program.

In a program, such a result is an array of the fixed size with the true elements first. While a graph is traced,
`COUNTED_SIZES` gives it a symbolic size instead, so that the nodes after it see the true elements alone.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from jaxops.errors import ArgumentError, near
from jaxops.graph.liveness import live
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.operator import WrappedOperator
from jaxops.graph.static_analysis import StaticInputs

# An error names at most so many nodes.
_SHOWN = 8


class CountedSizes(Protocol):
    """Gives results of data-dependent size a symbolic size."""

    def results(
        self,
        node: str,
        operator: Any,
        inputs: Sequence[Any],
        attributes: Mapping[str, Any],
        call: Callable[..., Sequence[Any]],
    ) -> Sequence[Any]:
        """Returns the results of an operator that has a bound. node: its name. call: calls it."""
        ...

    def outputs(
        self, node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any], call: Callable[..., Sequence[Any]]
    ) -> Sequence[Any]:
        """Returns the outputs of any node. call: calls its operator for inputs, and perhaps other attributes."""
        ...

    def from_input(self, node: str, x: Any, most: int) -> Any:
        """Returns the value of an input that sets sizes: the integers that are computed from it alone, one at a time,
        are limited to the range from 0 to `most`, and may be sizes. node: the name of the input.
        """
        ...

    def border(self, node: Node) -> "Border":
        """Returns the border around the subgraphs of a node."""
        ...


class Border(Protocol):
    """Hands results with a symbolic size out of a branch, or of the body of a loop."""

    def inside(self, name: str, run: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        """Returns the function of a subgraph, by the name of its attribute, that the operator calls."""
        ...

    def outside(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """Returns the outputs of the node, from those of its operator."""
        ...


# Set while a graph is traced for `jaxops.runtime.counted_sizes`.
COUNTED_SIZES: ContextVar[CountedSizes | None] = ContextVar("COUNTED_SIZES", default=None)


class BoundedOperator(WrappedOperator):
    """An operator whose result has the fixed size of the node's attribute `size`, not a size that depends on data.

    A result computed from static values keeps its true size, since it is mostly part of the computation of a shape.
    """

    sized_by_data = False
    bounded = True

    def __init__(self, inner: Any, node: str) -> None:
        """node: the name of the node."""
        super().__init__(inner)
        self.node = node

    def sizes_result(self, position: int) -> bool:
        """Returns False: no operand decides the size."""
        return False

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the operator; those whose size would depend on data have the attribute's size."""

        def run(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Sequence[Any]:
            return self.inner.call(inputs, attributes, n_outputs=n_outputs, rng=rng)

        # A loop knows whether data decide its number of iterations. The operands of `to_python` are not arrays.
        if not self.inner.subgraphs and all(
            x is None or isinstance(x, np.ndarray) for k, x in enumerate(inputs) if self.inner.sizes_result(k)
        ):
            return run(inputs, {name: value for name, value in attributes.items() if name != "size"})
        sizes = COUNTED_SIZES.get()
        return (
            run(inputs, attributes) if sizes is None else sizes.results(self.node, self.inner, inputs, attributes, run)
        )


class BoundedInput(BoundedOperator):
    """The identity, for an input whose value sets a size of at most the node's attribute `size`."""

    foldable = False

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The value of the input."""
        (x,), sizes = inputs, COUNTED_SIZES.get()
        return (
            x if sizes is None or isinstance(x, np.ndarray) else sizes.from_input(self.node, x, attributes["size"]),
        )


def outputs_of(node: Node, inputs: Sequence[Any], attributes: Mapping[str, Any], rng: Any) -> Sequence[Any]:
    """The outputs of a node's operator; if data decide their size, a symbolic one if `COUNTED_SIZES` is set."""

    def call(inputs: Sequence[Any], attributes: Mapping[str, Any] = attributes) -> Sequence[Any]:
        return node.operator.call(inputs, attributes, n_outputs=len(node.outputs), rng=rng)

    sizes = COUNTED_SIZES.get()
    return call(inputs) if sizes is None else sizes.outputs(node, inputs, attributes, call)


def with_bounds(graph: Graph, bounds: Mapping[str, Any], operator: Any) -> Graph:
    """Returns the graph with fixed sizes for results whose size depends on data, in subgraphs and functions too.

    bounds: the name of a node → its size, or the name of an operator → the size for all its nodes without a bound, or
    the name of an input → the largest size that its value sets. operator: one that returns its operand.
    Raises ArgumentError for an unknown name, a node whose result has a size that does not depend on data, an input that
    sets no size, the name of both an input and a node, and a bound that is not a positive integer.
    """
    sizes = {name: _size(name, bound) for name, bound in bounds.items()}
    if not sizes:
        return graph
    nodes = list(_nodes(graph, set()))
    sizing = _inputs_that_size(graph)
    for name in sizes:
        _check(name, nodes, graph, sizing)
    return _with_bounded_inputs(_bounded(graph, sizes, {}), {n: sizes[n] for n in sizing if n in sizes}, operator)


def _inputs_that_size(graph: Graph) -> list[str]:
    """Returns the names of the inputs that must be known, as their values set sizes."""
    needs = StaticInputs().walk(live(graph))
    integers = [v.name for v in graph.inputs if v.kind == "tensor" and v.dtype is not None and v.dtype.kind in "iu"]
    return [name for name in integers if name in needs]


def _with_bounded_inputs(graph: Graph, sizes: Mapping[str, int], operator: Any) -> Graph:
    if not sizes:
        return graph
    renamed = {name: f"{name} (bounded)" for name in sizes}
    entering = [
        Node(BoundedInput(operator, name), "", (name,), (renamed[name],), {"size": size})
        for name, size in sizes.items()
    ]
    nodes = [dataclasses.replace(n, inputs=tuple(renamed.get(name, name) for name in n.inputs)) for n in graph.nodes]
    # Random numbers depend on the numbers of nodes.
    first, numbers = len(graph.nodes), [graph.number(k) for k in range(len(graph.nodes))]
    numbers = (*(max([*numbers, first]) + 1 + k for k in range(len(entering))), *numbers)
    return dataclasses.replace(graph, nodes=(*entering, *nodes), numbers=numbers)


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


def _check(name: str, nodes: Sequence[Node], graph: Graph, sizing: Sequence[str]) -> None:
    named = [node for node in nodes if name in (node.label, node.operator.name)]
    is_input = any(name == value.name for value in graph.inputs)
    if named and is_input:
        raise ArgumentError(f"`bounds`: '{name}' is an input and {named[0].title}; rename one of them in the file")
    if name in sizing or any(node.operator.sized_by_data for node in named):
        return
    names = dict.fromkeys(node.label for node in nodes if node.operator.sized_by_data)
    operators = dict.fromkeys(node.operator.name for node in nodes if node.operator.sized_by_data)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = f"{', '.join(map(repr, operators))}, or the nodes {', '.join(map(repr, list(names)[:_SHOWN]))}{more}"
    allowed = f"\n  hint    bounds can have: {listed}" if names else "; no node of the model can have a bound"
    if sizing:
        inputs = f"the inputs {', '.join(map(repr, sizing[:_SHOWN]))}, whose values set sizes"
        allowed = f"{allowed}, or {inputs}" if names else f"\n  hint    bounds can have: {inputs}"
    if is_input:
        raise ArgumentError(f"`bounds`: the value of input '{name}' sets no size{allowed}")
    if named:
        raise ArgumentError(f"`bounds`: {named[0].title} takes no bound: it does not find its size itself{allowed}")
    close = near(name, [*names, *operators, *sizing])
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
            node = dataclasses.replace(node, operator=BoundedOperator(node.operator, node.label), attributes=attributes)
    return node.with_nested(lambda inner: _bounded(inner, sizes, rebuilt))
