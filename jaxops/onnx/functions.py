"""Functions of a model: the attributes of the nodes in them, and which functions they call."""

from collections.abc import Iterator, Mapping
from typing import Any

from jaxops.errors import ModelError
from jaxops.graph.nodes import Graph, Node
from jaxops.onnx.unbound import Function, Reference


def resolved(node: Node, references: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the attributes of a node in a function body, without those that refer to an attribute the call omits.

    references: the attributes that the call gives the function; None outside of a function.
    """
    attributes = {}
    for name, value in node.attributes.items():
        if not isinstance(value, Reference):
            attributes[name] = value
        elif references is None:
            raise ModelError(
                f"the attribute `{name}` refers to `{value.name}` of a function, but the node is not in a function"
            )
        elif value.name in references:
            attributes[name] = references[value.name]
    return attributes


def calls(function: Function, attributes: Mapping[str, Any]) -> Iterator[tuple[Node, dict[str, Any]]]:
    """Yields each node in a function body and its subgraphs that has no subgraph of its own, with its attributes."""
    references = {**function.defaults, **attributes}
    graphs = [function.graph]
    while graphs:
        for node in graphs.pop().nodes:
            graphs += node.subgraphs.values()
            call_attributes = resolved(node, references)
            if not any(isinstance(value, Graph) for value in call_attributes.values()):
                yield node, call_attributes
