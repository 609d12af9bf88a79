"""Checks of a file: names in UTF-8, one version of a domain, attributes once, and only those that a function has."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from jaxops.errors import ModelError
from jaxops.graph.nodes import Graph, Node
from jaxops.onnx.unbound import Function, Reference


def text_of(name: str | bytes) -> str:
    """Returns a name. Raises ModelError for bytes, which protobuf gives if the file does not hold UTF-8."""
    if isinstance(name, bytes):
        raise ModelError(f"the name {name!r} is not UTF-8; the model is damaged")
    return name


def domain_of(domain: str) -> str:
    """Returns the name of a domain; the standard's own domain has two, '' and 'ai.onnx', and gets the first."""
    return "" if domain == "ai.onnx" else domain


def opsets_of(imports: Any) -> dict[str, int]:
    """Returns the opset version of each domain. Raises ModelError for a domain with two versions or a negative one."""
    opsets: dict[str, int] = {}
    for o in imports:
        domain = domain_of(text_of(o.domain))
        if o.version < 0:
            raise ModelError(f"the opset of domain '{domain}' is {o.version}; versions start at 0")
        if opsets.setdefault(domain, o.version) != o.version:
            raise ModelError(f"two opsets of domain '{domain}' are imported: {opsets[domain]} and {o.version}")
    return opsets


def check_attributes(label: str, op_type: str, names: Sequence[str]) -> None:
    """Raises ModelError if a node has two attributes of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ModelError(f"node '{label or op_type}' ({op_type}) has the attribute `{min(twice)}` twice")


def check_references(name: str, function: Function) -> None:
    """Raises ModelError if a node of a function refers to an attribute that the function does not have."""
    for node in _nodes(function.graph):
        for key, value in node.attributes.items():
            if isinstance(value, Reference) and value.name not in function.attributes:
                raise ModelError(
                    f"the function '{name}': node '{node.label}' takes its attribute `{key}` from `{value.name}`, "
                    "an attribute that the function does not have"
                )


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs.values():
            yield from _nodes(inner)
