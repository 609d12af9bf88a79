"""What a model must not say: a thing twice, in two ways, or of what is not there. It would mean what nobody meant."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jaxops.errors import ModelError
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.onnx.unbound import Function, Reference
from jaxops.runtime.arguments import unlike


def text_of(name: str | bytes) -> str:
    """A name; protobuf gives bytes where the file does not hold UTF-8."""
    if isinstance(name, bytes):
        raise ModelError(f"the name {name!r} is not UTF-8; the model is damaged")
    return name


def domain_of(domain: str) -> str:
    """A domain; the standard's own has two names."""
    return "" if domain == "ai.onnx" else domain


def opsets_of(imports: Any) -> dict[str, int]:
    """The version of each domain. Raises ModelError for two, or one that cannot be."""
    found: dict[str, int] = {}
    for o in imports:
        domain = domain_of(text_of(o.domain))
        if o.version < 0:
            raise ModelError(f"the opset of domain '{domain}' is {o.version}; versions are positive")
        if found.setdefault(domain, o.version) != o.version:
            raise ModelError(f"two opsets of domain '{domain}' are imported: {found[domain]} and {o.version}")
    return found


def check_names(what: str, names: Iterable[str], where: str = "the graph") -> None:
    """Raises ModelError for a name that is empty or stands there twice."""
    names = [text_of(name) for name in names]
    if "" in names:
        raise ModelError(f"{what} {names.index('')} of {where} has no name")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ModelError(f"{where} has two of {what} '{min(twice)}'")


def check_attributes(label: str, op_type: str, names: Sequence[str]) -> None:
    """Raises ModelError where a node has two attributes of one name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ModelError(f"node '{label or op_type}' ({op_type}) has the attribute `{min(twice)}` twice")


def check_declared(inputs: Sequence[Value], initializers: Mapping[str, Tensor]) -> None:
    """Raises ModelError for an input that is declared otherwise than its initializer; warns of two values of a size."""
    sizes: dict[str, tuple[str, int]] = {}
    for value in inputs:
        tensor = initializers.get(value.name)
        if tensor is None:
            continue
        shape = tensor.shape if value.shape is None else value.shape
        fits = len(shape) == len(tensor.shape) and value.dtype in (None, tensor.dtype) and value.kind == "tensor"
        if not fits or any(isinstance(a, int) and a != b for a, b in zip(shape, tensor.shape, strict=True)):
            own = Value(value.name, tensor.dtype, tensor.shape)
            raise ModelError(f"the input {value} has an initializer of another type or shape: {own}")
        for symbol, size in zip(shape, tensor.shape, strict=True):
            if isinstance(symbol, str) and sizes.setdefault(symbol, (value.name, size))[1] != size:
                other, first = sizes[symbol]
                warnings.warn(unlike(symbol, (other, first), (value.name, size)), stacklevel=2)


def check_references(name: str, function: Function) -> None:
    """Raises ModelError where a node of a function stands for an attribute that the function does not have."""
    for node in _nodes(function.graph):
        for key, value in node.attributes.items():
            if isinstance(value, Reference) and value.name not in function.attributes:
                raise ModelError(
                    f"the function '{name}': node '{node.label}' takes its attribute `{key}` from `{value.name}`, "
                    "which is no attribute of the function"
                )


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for inner in node.subgraphs.values():
            yield from _nodes(inner)
