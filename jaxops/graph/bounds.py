"""The option `bounds`: fixed sizes for results whose size depends on data, so that a model runs as one program.

In a program, such a result is an array of the fixed size with the true elements first. While a graph is traced,
`COUNTED_SIZES` gives it a symbolic size instead, so that the nodes after it see the true elements alone.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from jaxops.errors import ArgumentError, near
from jaxops.graph.liveness import live
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.operator import WrappedOperator
from jaxops.graph.static_analysis import StaticInputs, result_is_static

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

    def from_value(self, node: str, x: Any, most: int) -> Any:
        """Returns a value that sets sizes: the integers that are computed from it alone, one at a time, are limited to
        the range from 0 to `most`, and may be sizes. node: the name of the input, or of the node that computes it.
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


class BoundedValue(BoundedOperator):
    """The identity, for a value that sets a size of at most the node's attribute `size`."""

    foldable = False

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The value itself."""
        (x,), sizes = inputs, COUNTED_SIZES.get()
        return (
            x if sizes is None or isinstance(x, np.ndarray) else sizes.from_value(self.node, x, attributes["size"]),
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
    the name of an input, or of a node, whose value sets a size → the largest one. operator: one that returns its
    operand.
    Raises ArgumentError for an unknown name, a node whose result has a size that does not depend on data, an input or a
    node that sets no size, the name of both an input and a node, and a bound that is not a positive integer.
    """
    sizes = {name: _size(name, bound) for name, bound in bounds.items()}
    if not sizes:
        return graph
    nodes = list(_nodes(graph, set()))
    inputs, computed = _values_that_size(graph)
    for name in sizes:
        _check(name, nodes, graph, inputs, list(computed))
    values = {name: (name, sizes[name]) for name in inputs if name in sizes}
    values |= {name: (node, sizes[node]) for node, names in computed.items() if node in sizes for name in names}
    return _with_bounded_values(_bounded(graph, sizes, {}), values, operator)


def _values_that_size(graph: Graph) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the inputs that must be known, as their values set sizes, and for each node that computes such a value
    from data its outputs that do, the last node first."""
    needs = StaticInputs().walk(live(graph))
    integers = [v.name for v in graph.inputs if v.kind == "tensor" and v.dtype is not None and v.dtype.kind in "iu"]
    static, computed = {"", *graph.static}, dict[str, list[str]]()
    for node in graph.nodes:
        if result_is_static(node, [name in static for name in node.inputs]):
            static.update(node.outputs)
        elif not node.operator.sized_by_data and (names := [name for name in node.outputs if name in needs]):
            computed[node.label] = names
    return [name for name in integers if name in needs], dict(reversed(computed.items()))


def _with_bounded_values(graph: Graph, bounds: Mapping[str, tuple[str, int]], operator: Any) -> Graph:
    """bounds: value → the name of the input or node that it comes from, and the largest size that it sets."""
    if not bounds:
        return graph
    renamed = {name: f"{name} (bounded)" for name in bounds}
    bounding = {
        name: Node(BoundedValue(operator, origin), "", (name,), (renamed[name],), {"size": size})
        for name, (origin, size) in bounds.items()
    }
    inputs = [value.name for value in graph.inputs if value.name in bounding]
    nodes, numbers = [bounding[name] for name in inputs], list[int]()
    # Random numbers depend on the numbers of nodes.
    known = [graph.number(k) for k in range(len(graph.nodes))]
    fresh = itertools.count(max([*known, len(graph.nodes)]) + 1)
    numbers += [next(fresh) for _ in nodes]
    for node, number in zip(graph.nodes, known, strict=True):
        after = [bounding[name] for name in node.outputs if name in bounding]
        read = tuple(renamed.get(name, name) for name in node.inputs)
        nodes += [dataclasses.replace(node, inputs=read), *after]
        numbers += [number, *(next(fresh) for _ in after)]
    return dataclasses.replace(graph, nodes=tuple(nodes), numbers=tuple(numbers))


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


def _check(name: str, nodes: Sequence[Node], graph: Graph, inputs: Sequence[str], computed: Sequence[str]) -> None:
    """inputs, computed: the names of inputs and nodes whose values set sizes."""
    named = [node for node in nodes if name in (node.label, node.operator.name)]
    is_input = any(name == value.name for value in graph.inputs)
    if named and is_input:
        raise ArgumentError(f"`bounds`: '{name}' is an input and {named[0].title}; rename one of them in the file")
    if name in (*inputs, *computed) or any(node.operator.sized_by_data for node in named):
        return
    operators = dict.fromkeys(node.operator.name for node in nodes if node.operator.sized_by_data)
    names = dict.fromkeys(node.label for node in nodes if node.operator.sized_by_data)
    kinds = [
        ", ".join(map(repr, operators)),
        _listed("the nodes", names),
        _listed("the nodes", computed, ", which compute a size"),
        _listed("the inputs", inputs, ", whose values set sizes"),
    ]
    choice = ", or ".join(filter(None, kinds))
    allowed = f"\n  hint    bounds can have: {choice}" if choice else "; no node of the model can have a bound"
    if is_input:
        raise ArgumentError(f"`bounds`: the value of input '{name}' sets no size{allowed}")
    if named:
        raise ArgumentError(f"`bounds`: {named[0].title} takes no bound: it does not find its size itself{allowed}")
    close = near(name, [*names, *operators, *inputs, *computed])
    raise ArgumentError(f"`bounds`: the model has no node and no operator '{name}'{close}{allowed}")


def _listed(kind: str, names: Collection[str], what: str = "") -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{kind} {', '.join(map(repr, list(names)[:_SHOWN]))}{more}{what}" if names else ""


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
