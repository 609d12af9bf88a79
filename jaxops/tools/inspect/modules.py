"""The modules of a graph: groups of nodes, according to their scopes."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from jaxops.graph.nodes import Graph, Node


@dataclass(frozen=True)
class Modules:
    """The modules of a graph. root: the deepest module that has all nodes with a scope; levels count from there."""

    root: tuple[str, ...]
    flat: bool  # whether no node has a scope

    def of(self, node: Node, depth: int) -> tuple[str, ...]:
        """The modules of a node below the root, at most `depth`; without scopes, each operator counts as a module."""
        if self.flat:
            return (node.operator.name,)
        return levels(node.scope)[len(self.root) :][:depth] if node.scope else ()

    def path(self, module: Iterable[str]) -> str:
        """The full path of a module."""
        return ".".join((*self.root, *module))


def modules(graph: Graph) -> Modules:
    """The modules of a graph."""
    scopes = [levels(node.scope) for node in graph.nodes if node.scope]
    if not scopes:
        return Modules((), True)
    first, last = min(scopes), max(scopes)
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return Modules(first[:shared], False)


def levels(scope: str) -> tuple[str, ...]:
    """The modules of a path; a list and the index in it are one level.

    >>> levels("bert.encoder.layer.0.attention")
    ('bert', 'encoder', 'layer.0', 'attention')
    """
    return tuple(re.sub(r"\.(?=\d+(\.|$))", "\0", scope).replace(".", "\1").replace("\0", ".").split("\1"))


def parameters(node: Node, graph: Graph) -> set[str]:
    """The parameters that a node uses, also in its subgraphs and its function."""
    names = {graph.params[name] for name in node.uses() if name in graph.params}
    for body in node.nested:
        names.update(body.params.values())
        for other in body.nodes:
            names |= parameters(other, body)
    return names


def inputs_of(nodes: Iterable[Node]) -> list[str]:
    """The tensors that these nodes read and do not compute, in order."""
    nodes = list(nodes)
    outputs = {name for node in nodes for name in node.outputs}
    return list(dict.fromkeys(name for node in nodes for name in node.uses() if name not in outputs))
