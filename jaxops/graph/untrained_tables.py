"""Finds constants that no author trains: tables of rotary embeddings, and the frequencies that they are made of."""

from collections import defaultdict
from collections.abc import Iterator

from jaxops.graph.nodes import Graph, Node
from jaxops.signature import TABLE

# Kinds of operators that move elements, and functions of `jaxops.ops`.
_MOVES, _WAVES = {"form", "movement"}, {"cos", "sin"}
_PRODUCTS, _SUMS = {"mul", "matmul", "einsum"}, {"add", "sub"}


def untrained_tables(graph: Graph) -> frozenset[str]:
    """Returns the values of a graph that are read as tables, or of which only tables are made.

    A table is a `Table` operand, such as `cos_cache`, or a cosine or sine. A value may be moved, looked up, and
    multiplied by positions, which are integers, before that.
    """
    readers: dict[str, list[tuple[Node, int]]] = defaultdict(list)
    for node in graph.nodes:
        for position, name in enumerate(node.inputs):
            readers[name].append((node, position))
    positions = _positions(graph)
    elsewhere = {name for node in graph.nodes for inner in node.subgraphs.values() for name in inner.captures}
    elsewhere |= {value.name for value in graph.outputs}
    tables = set[str]()

    def makes_tables(node: Node, position: int) -> bool:
        if node.operator.mark(position) == TABLE or _name(node) in _WAVES:
            return True
        others = (name for k, name in enumerate(node.inputs) if k != position)
        scales = _name(node) in _PRODUCTS and positions.issuperset(others)
        return (scales or _moves(node, position)) and tables.issuperset(filter(None, node.outputs))

    for names in (*(node.outputs for node in reversed(graph.nodes)), graph.initializers):
        for name in names:
            if name and name not in elsewhere and readers[name] and all(makes_tables(*read) for read in readers[name]):
                tables.add(name)
    return frozenset(tables)


def chosen_tables(graph: Graph, tables: frozenset[str]) -> Iterator[tuple[Graph, str]]:
    """Yields constants of branches between which an If chooses a table: (the branch, the name there)."""
    for node in graph.nodes:
        for branch in node.subgraphs.values() if _name(node) == "if_" else ():
            read = {name for inner in branch.nodes for name in inner.uses()}
            for name, value in zip(node.outputs, branch.outputs, strict=False):
                if name in tables and value.name not in read:
                    yield branch, value.name


def _positions(graph: Graph) -> set[str]:
    """Returns the values that are integers of inputs or of ranges, moved, converted or counted from another number."""
    found = {v.name for v in graph.inputs if v.dtype is not None and v.dtype.kind in "iu"}
    for node in graph.nodes:
        counts = _name(node) in _SUMS and not found.isdisjoint(node.inputs)
        if _name(node) == "range" or counts or (_moves(node, 0) and node.inputs and node.inputs[0] in found):
            found.update(filter(None, node.outputs))
    return found


def _moves(node: Node, position: int) -> bool:
    return node.operator.traits.kind in _MOVES and (position == 0 or _name(node) == "concat")


def _name(node: Node) -> str:
    return getattr(node.operator.function, "__name__", "")
