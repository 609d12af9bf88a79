"""Sorts nodes so that each one follows the nodes whose outputs it reads, and checks names and subgraphs.

A front end sorts a graph before it binds operators to the nodes, and checks a subgraph when it binds its node.
"""

import dataclasses
import heapq
from collections.abc import Mapping

from jaxops.errors import ModelError, SignatureError, amount
from jaxops.graph.nodes import Graph, Node


def in_order(graph: Graph, outer: frozenset[str] = frozenset()) -> Graph:
    """The graph with each node after the nodes whose outputs it reads, in subgraphs too; the graph itself if sorted.

    Nodes that do not depend on each other keep the order of the file. outer: the names that the graph may capture.
    Raises ModelError for a cycle, for a name that nothing defines, and for one that two nodes define; not for those of
    subgraphs, which are checked when their node is bound.
    """
    graph = _reordered(graph, outer)
    _check_order(graph, outer)
    return graph


def _reordered(graph: Graph, outer: frozenset[str]) -> Graph:
    """The sorted graph of `in_order`, without checks. Nodes of a cycle, and nodes that depend on one, come last."""
    if _sorted(graph, outer):
        return graph
    names = outer | graph.defined
    nodes = [_sorted_inside(node, names) for node in graph.nodes]
    makers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    reads = [{makers[name] for name in node.uses() if name in makers} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for i, sources in enumerate(reads):
        for source in sources:
            readers[source].append(i)
    waiting = [len(sources) for sources in reads]
    ready = [i for i, count in enumerate(waiting) if not count]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    order += [i for i, count in enumerate(waiting) if count]
    return dataclasses.replace(graph, nodes=tuple(nodes[i] for i in order))


def _sorted(graph: Graph, outer: frozenset[str]) -> bool:
    defined = {value.name for value in graph.inputs} | set(graph.initializers)
    for node in graph.nodes:
        # An unsorted subgraph seems to capture names that it defines, so it is detected here, too.
        if not all(name in defined or name in outer for name in node.uses()):
            return False
        defined.update(node.outputs)
    return True


def _sorted_inside(node: Node, names: frozenset[str]) -> Node:
    inner = {key: _reordered(graph, names) for key, graph in node.subgraphs.items()}
    return dataclasses.replace(node, attributes={**node.attributes, **inner}) if inner else node


def _check_order(graph: Graph, outer: frozenset[str]) -> None:
    """Raises ModelError for a cycle, and for a name that is not defined exactly once."""
    defined = {v.name for v in graph.inputs} | set(graph.initializers)
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    for node in graph.nodes:
        for name in node.uses():
            if name in defined or name in outer:
                continue
            if name not in node.inputs and any(name in inner.defined for inner in node.subgraphs.values()):
                continue  # a cycle in that subgraph, which is reported when its node is bound
            if name not in producers:
                raise ModelError(f"node '{node.label}' ({node.operator.name}) reads '{name}', which nothing defines")
            if _reaches(producers, name, node):  # if not, the node depends on a later cycle, which is reported then
                raise ModelError(
                    f"the graph has a cycle: node '{node.label}' ({node.operator.name}) reads '{name}', which the "
                    f"later node '{producers[name].label}' ({producers[name].operator.name}) computes"
                )
        for name in filter(None, node.outputs):
            if name in defined:
                raise ModelError(f"node '{node.label}' ({node.operator.name}) defines '{name}' a second time")
            defined.add(name)
    for value in graph.outputs:
        if value.name and value.name not in defined and value.name not in outer:
            raise ModelError(f"no node computes output '{value.name}' of the graph")


def _reaches(producers: Mapping[str, Node], name: str, target: Node) -> bool:
    """Returns True if `target` must run before `name` exists."""
    seen, todo = set(), [name]
    while todo:
        node = producers.get(todo.pop())
        if node is target:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            todo.extend(node.uses())
    return False


def check_subgraph(node: Node, name: str, graph: Graph) -> None:
    """Raises ModelError for a subgraph with a wrong number of inputs or outputs for its operator."""
    flow = node.operator.subgraphs.get(name)
    if flow is None or flow.several:
        return
    count = node.attributes.get(flow.not_carried, 1)
    if not 1 <= count <= max(len(node.inputs), 1):
        raise SignatureError(
            f"{node.operator.name}: `{flow.not_carried}` is {count}; of {amount(len(node.inputs), 'input')}, 1 to "
            f"{len(node.inputs)} may be scanned"
        )
    takes = 0 if flow.first is None else max(len(node.inputs) - flow.first, 2 * flow.leading)
    gives = flow.leading + len(node.outputs)
    if flow.modifies:
        takes = gives = 1
    for noun, values, expected in (("input", graph.inputs, takes), ("output", graph.outputs, gives)):
        if len(values) != expected:
            raise ModelError(
                f"{node.operator.name}: the graph `{name}` has {amount(len(values), noun)}, but the node hands over "
                f"{expected}: {', '.join(v.name for v in values) or 'none'}"
            )
