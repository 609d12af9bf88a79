"""The nodes of a graph as lines of text."""

import re

from jaxops.errors import ArgumentError, amount
from jaxops.graph.nodes import Graph


def listing(graph: Graph, grep: str = "", head: int | None = None) -> list[str]:
    """The lines of the nodes, small constants in place of their names.

    grep: a regular expression; only nodes whose text it matches. head: how many nodes at most.
    Raises ArgumentError for an invalid regular expression, or a negative number.
    """
    if head is not None and head < 0:
        raise ArgumentError(f"show: head is {head}; it must be at least 0")
    try:
        pattern = re.compile(grep)
    except re.error as error:
        raise ArgumentError(f"show: {grep!r} is not a regular expression: {error}") from error
    formals = {value.name for value in graph.inputs}
    constants = {name: value for name, value in graph.static.items() if name not in formals}
    texts = [(node, node.text(constants)) for node in graph.nodes]
    matching = [text for node, text in texts if pattern.search(text) or pattern.search(node.name)]
    shown = matching if head is None else matching[:head]
    lines = [f"  {line}" for text in shown for line in text.splitlines()]
    return [*lines, f"  … {amount(len(matching) - len(shown), 'more node')}"] if len(shown) < len(matching) else lines
