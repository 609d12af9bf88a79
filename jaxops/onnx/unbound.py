"""An ONNX file as dataclasses, before its nodes are bound to operators."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxops.graph.nodes import Graph


@dataclass(frozen=True)
class OperatorName:
    """The operator that a node asks for, by name; binding puts the operator in its place."""

    name: str
    domain: str = ""
    overload: str = ""  # distinguishes functions of the model that have one name


@dataclass(frozen=True)
class Reference:
    """An attribute inside a function body that stands for an attribute of the call."""

    name: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the model: formal names, attributes with their defaults, and the nodes of its body."""

    graph: Graph
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]
    opsets: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Source:
    """A model: its graph, the opset of each domain, and its functions."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[OperatorName, Function]
    producer: str
