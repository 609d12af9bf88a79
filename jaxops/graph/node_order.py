"""The order of nodes: each after those whose outputs it reads, every name defined once, subgraphs that fit their node.

A front end puts a graph in order while the nodes still ask for operators, and checks subgraphs when they are bound.
"""

import dataclasses
import heapq
from collections.abc import Mapping

from jaxops.errors import ModelError, SignatureError
from jaxops.graph.nodes import Graph, Node


def in_order(graph: Graph, outer: frozenset[str] = frozenset()) -> Graph:
    """The graph with each node after those whose outputs it reads, its subgraphs too; unchanged if it is so.

    Nodes that are ready keep the order of the file. outer: the names that the graph may capture.
    Raises ModelError for a cycle, and for a name that nothing defines, or two nodes; not in subgraphs, which are
    put in order by themselves when their node is bound.
    """
    graph = _reordered(graph, outer)
    _check_order(graph, outer)
    return graph


def _reordered(graph: Graph, outer: frozenset[str]) -> Graph:
    """The graph with each node after those whose outputs it reads, its subgraphs too; unchanged if it is so.

    Nodes that are ready keep the order of the file; those of a cycle, and those that depend on them, come last.
    """
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
        # An inner graph out of order seems to capture its own names, so it is found here too.
        if not all(name in defined or name in outer for name in node.uses()):
            return False
        defined.update(node.outputs)
    return True


def _sorted_inside(node: Node, names: frozenset[str]) -> Node:
    inner = {key: _reordered(graph, names) for key, graph in node.subgraphs.items()}
    return dataclasses.replace(node, attributes={**node.attributes, **inner}) if inner else node


def _check_order(graph: Graph, outer: frozenset[str]) -> None:
    """Raises ModelError unless every name is defined once, by a node that does not need it itself."""
    defined = {v.name for v in graph.inputs} | set(graph.initializers)
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    for node in graph.nodes:
        for name in node.uses():
            if name in defined or name in outer:
                continue
            if name not in node.inputs and any(name in inner.defined for inner in node.subgraphs.values()):
                continue  # a cycle in that subgraph, which says so when it is bound
            if name not in producers:
                raise ModelError(f"node '{node.label}' ({node.operator.name}) reads '{name}', which nothing defines")
            if _reaches(producers, name, node):  # else it waits for a cycle, which comes later
                raise ModelError(
                    f"the graph has a cycle: node '{node.label}' ({node.operator.name}) reads '{name}', which the "
                    f"later node '{producers[name].label}' ({producers[name].operator.name}) makes"
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
    """Raises ModelError for a graph that takes or gives more or fewer values than its operator hands over."""
    flow = node.operator.subgraphs.get(name)
    if flow is None or flow.several:
        return
    count = node.attributes.get(flow.not_carried, 1)
    if not 1 <= count <= max(len(node.inputs), 1):
        raise SignatureError(
            f"{node.operator.name}: `{flow.not_carried}` is {count}; of {len(node.inputs)} inputs, 1 to "
            f"{len(node.inputs)} may be scanned"
        )
    takes = 0 if flow.first is None else max(len(node.inputs) - flow.first, 2 * flow.leading)
    gives = flow.leading + len(node.outputs)
    if flow.modifies:
        takes = gives = 1
    for nouns, values, expected in (("inputs", graph.inputs, takes), ("outputs", graph.outputs, gives)):
        if len(values) != expected:
            raise ModelError(
                f"{node.operator.name}: the graph `{name}` has {len(values)} {nouns}, but the node hands over "
                f"{expected}: {', '.join(v.name for v in values) or 'none'}"
            )
