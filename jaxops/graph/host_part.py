"""Divides a graph whose inputs set sizes: NumPy computes the sizes before a call, and a program computes the rest.

The program needs the sizes while it is traced, but not the inputs: of `arange(lengths.max())` it needs the maximum. So
one program serves all inputs that set the same sizes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from jaxops.graph.liveness import live
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.graph.static_analysis import Need, StaticInputs
from jaxops.signature import SHAPE_ONLY


@dataclass(frozen=True, eq=False)
class Divided:
    """The two parts of a graph.

    host: computes values from inputs of the graph. sized: inputs of which it reads only the sizes. program: the rest;
    its last inputs are the results of `host`. known: those results that must be known while the program is traced.
    traced: static inputs of the graph that are traced in the program.
    """

    host: Graph
    sized: tuple[str, ...]
    program: Graph
    known: frozenset[str]
    traced: frozenset[str]

    @property
    def facts(self) -> dict[str, bool]:
        """For each input that the program has of the host, or that was static in the graph, whether it is static."""
        return {name: name in self.known for name in (*self.host.output_names, *self.traced)}


def divided_at_load(graph: Graph, formals: Sequence[Value]) -> Divided | None:
    """Returns the parts of what a call computes, for a model with these inputs; None if it stays whole."""
    static = [value.name for value in formals if value.static and value.dtype != object]
    return divided(live(graph), static) if static else None


def divided(graph: Graph, static: Collection[str]) -> Divided | None:
    """Returns the parts of a graph; None if the program needs all of its static inputs. static: names of inputs."""
    host = _Host(graph, static)
    known, traced_results, numbers = _results_for_program(graph, host)
    traced = frozenset(name for name in static if name not in known)
    if not traced:
        return None
    targets = [name for name in (*known, *traced_results) if name not in static]
    nodes, read = host.nodes_for(targets)
    by_name = {value.name: value for value in graph.inputs}
    part = Graph(
        f"{graph.name}: sizes",
        tuple(value for name, value in by_name.items() if name in read),
        tuple(Value(name, None, None) for name in targets),
        nodes,
        {},
        graph.static,
    )
    program = replace(
        graph,
        inputs=(*graph.inputs, *part.outputs),
        nodes=tuple(graph.nodes[index] for index in numbers),
        numbers=tuple(map(graph.number, numbers)),
    )
    sized = tuple(name for name in by_name if name in read and name not in static)
    return Divided(part, sized, program, frozenset(known), traced)


class _Host:
    """The values that NumPy can compute from the static inputs of a graph, and from the sizes of its inputs."""

    def __init__(self, graph: Graph, static: Collection[str]) -> None:
        self._graph, self._maker = graph, dict[str, int]()  # name → the index of its node
        inputs = {value.name for value in graph.inputs if value.kind == "tensor"}
        self.of_inputs = set(static)  # values that depend on static inputs, which are among them
        known = {*graph.static, *static, ""}
        for index, node in enumerate(graph.nodes):
            if not node.operator.foldable or node.operator.bounded or node.body is not None or node.subgraphs:
                continue
            sizes = {name for k, name in enumerate(node.inputs) if node.operator.mark(k) == SHAPE_ONLY}
            if all(name in known or (name in sizes and name in inputs) for name in node.inputs):
                names = list(filter(None, node.outputs))
                known.update(names)
                self._maker.update(dict.fromkeys(names, index))
                if any(name in self.of_inputs for name in node.inputs if name not in sizes):
                    self.of_inputs.update(names)

    def nodes_for(self, targets: Sequence[str]) -> tuple[tuple[Node, ...], set[str]]:
        """Returns the nodes that compute values, and the names that these nodes read."""
        indices, read, pending = set[int](), set[str](), list(targets)
        while pending:
            index = self._maker.get(pending.pop())
            if index is not None and index not in indices:
                indices.add(index)
                names = list(filter(None, self._graph.nodes[index].inputs))
                read.update(names)
                pending += names
        return tuple(self._graph.nodes[index] for index in sorted(indices)), read


def _results_for_program(graph: Graph, host: _Host) -> tuple[dict[str, None], list[str], list[int]]:
    """Returns the values of the host that the program needs while it is traced, its further values of the host, and
    the indices of its nodes.

    The further values are integers that may exceed 32 bits on the way, as NumPy computes with 64 bits.
    """
    analysis = StaticInputs()
    read = set(graph.output_names)
    static: dict[str, Need] = {}  # must be static in the program, and are not values of the host
    known: dict[str, None] = {}
    traced: list[str] = []
    numbers: list[int] = []
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        outputs = [name for name in node.outputs if name in read and name not in known]
        if not outputs:
            continue
        if node.operator.traits.grows and all(name in host.of_inputs for name in outputs):
            traced += outputs
            continue
        numbers.append(index)
        read.update(node.uses())
        demanded = analysis.of_node(node, {name: static[name] for name in outputs if name in static})
        for name in (*demanded, *_deciding(node)):
            if name in host.of_inputs:
                known[name] = None
            elif name in demanded:
                static[name] = demanded[name]
    return known, [name for name in traced if name not in known], numbers[::-1]


def _deciding(node: Node) -> list[str]:
    """Returns the operands that decide which branch runs, how often a loop runs, or the size of a result."""
    operator, names = node.operator, list[str]()
    for position, name in enumerate(node.inputs):
        formal = operator.formals[min(position, len(operator.formals) - 1)] if operator.formals else ""
        decides = any(formal in flow.decided_by for flow in operator.subgraphs.values())
        if name and (decides or operator.sizes_result(position)):
            names.append(name)
    return names
