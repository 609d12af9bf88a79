"""Inlining of functions that call functions, if the calls are nested too deeply.

The interpreter calls itself for the body of a function, so a long chain of calls would overflow Python's stack. Such a
chain becomes one body with the nodes of all functions.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from jaxops.errors import UnsupportedError
from jaxops.graph.interpreter import check_called
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.graph.operator import Operator

# Bodies that are nested more deeply are inlined.
_DEEPEST_CALLS = 32
# The limit of nested graphs after inlining: subgraphs cannot be inlined.
_DEEPEST = 100


def inline_deep_calls(name: str, body: Graph, identity: Operator) -> Graph:
    """A bound body; the functions that it calls are inlined if they are nested too deeply.

    name: of the function. identity: the operator Identity, for an output of a function that is one of its inputs.
    Raises UnsupportedError if the inlined body has too many nodes, or subgraphs that are nested too deeply.
    """
    if body.depth <= _DEEPEST_CALLS:
        return body
    check_called(body, name)
    flat = _Inliner(body, identity).graph(body)
    if flat.depth > _DEEPEST:
        raise UnsupportedError(
            f"{name}: with the functions that it calls, its subgraphs are nested {flat.depth} levels deep; "
            f"the limit is {_DEEPEST}"
        )
    return flat


class _Inliner:
    """Replaces calls of functions by the functions' nodes, whose values get unique names."""

    def __init__(self, graph: Graph, identity: Operator) -> None:
        self.identity = identity
        self.taken = set(_names(graph))
        self.count = 0

    def graph(self, graph: Graph) -> Graph:
        nodes = [new for node in graph.nodes for new in self.node(node)]
        return dataclasses.replace(graph, nodes=tuple(nodes))

    def node(self, node: Node) -> Sequence[Node]:
        inner = {name: self.graph(graph) for name, graph in node.subgraphs.items()}
        node = dataclasses.replace(node, attributes={**node.attributes, **inner}) if inner else node
        body = node.body
        if body is None:
            return [node]
        inputs = [*node.inputs, *[""] * (len(body.inputs) - len(node.inputs))]
        names = {value.name: name for value, name in zip(body.inputs, inputs, strict=True)}
        inner_outputs = {name for inner in body.nodes for name in inner.outputs}
        copies = []  # outputs that are inputs, or a repeated output
        for value, name in zip(body.outputs, node.outputs, strict=False):
            if name and value.name in inner_outputs and value.name not in names:
                names[value.name] = name
            elif name:
                copies.append((value.name, name))
        if not all(names.get(source) for source, _ in copies):
            return [node]  # an output is an omitted input
        after = [Node(self.identity, name, (names[source],), (name,), {}) for source, name in copies]
        return [*self.graph(self.renamed(body, names)).nodes, *after]

    def renamed(self, graph: Graph, names: dict[str, str]) -> Graph:
        """A graph with new names, in subgraphs too. names: old name → new name; names that are missing get unique ones
        and are added."""

        def new(name: str) -> str:
            if not name:
                return ""
            if name not in names:
                names[name] = self.fresh(name)
            return names[name]

        def value(old: Value) -> Value:
            return dataclasses.replace(old, name=new(old.name))

        def node(old: Node) -> Node:
            inner = {key: self.renamed(graph, names) for key, graph in old.subgraphs.items()}
            return dataclasses.replace(
                old,
                inputs=tuple(map(new, old.inputs)),
                outputs=tuple(map(new, old.outputs)),
                attributes={**old.attributes, **inner},
            )

        return dataclasses.replace(
            graph,
            inputs=tuple(map(value, graph.inputs)),
            outputs=tuple(map(value, graph.outputs)),
            nodes=tuple(map(node, graph.nodes)),
            initializers={new(name): tensor for name, tensor in graph.initializers.items()},
        )

    def fresh(self, name: str) -> str:
        name = name.partition("@")[0]
        while f"{name}@{self.count}" in self.taken:
            self.count += 1
        self.taken.add(f"{name}@{self.count}")
        return f"{name}@{self.count}"


def _names(graph: Graph) -> Iterator[str]:
    """All names in a graph and its subgraphs, but not in bodies of functions."""
    yield from graph.defined
    for node in graph.nodes:
        yield from node.inputs
        for inner in node.subgraphs.values():
            yield from _names(inner)
