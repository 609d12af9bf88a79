"""A model as frozen dataclasses: what reading gives, binding completes and tracing walks over."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxops.onnx.registry import Operator


@dataclass(frozen=True)
class Tensor:
    """A constant of the model that is read when it is needed."""

    dtype: np.dtype
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray] = field(repr=False)


@dataclass(frozen=True)
class Value:
    """An input or output: a size is a number, a symbolic name, or None when the model does not say."""

    name: str
    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"  # or "sequence", "optional": of tensors
    static: str = ""  # why the value must be known while tracing; empty when it need not be

    def __str__(self) -> str:
        dims = "…" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        dtype = "?" if self.dtype is None else "string" if self.dtype == object else self.dtype.name
        text = f"{self.name}: {dtype}[{dims}]"
        return text if self.kind == "tensor" else f"{self.name}: {self.kind}({text.split(': ')[1]})"


@dataclass(frozen=True)
class Reference:
    """An attribute inside a function body that stands for an attribute of the call."""

    name: str


@dataclass(frozen=True, eq=False)
class Node:
    """One operation. Binding sets `operator`, or `body` when a function of the model defines it."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]  # '' where an optional input is left out
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    overload: str = ""  # which of the model's functions of one name
    opset: int = 0
    operator: Operator | None = None
    body: "Graph | None" = None

    @property
    def label(self) -> str:
        """The name, or the first output of a node that has none."""
        return self.name or next(filter(None, self.outputs), self.op_type)

    @property
    def subgraphs(self) -> dict[str, "Graph"]:
        """The graphs among the attributes."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, Graph)}

    def __str__(self) -> str:
        shown = {k: v for k, v in self.attributes.items() if not isinstance(v, Graph)}
        attributes = "".join(f", {k}={_brief(v)}" for k, v in shown.items())
        text = f"{', '.join(self.outputs)} = {self.op_type}({', '.join(self.inputs)}{attributes})"
        for name, graph in self.subgraphs.items():
            text += f"\n  {name}:\n" + "\n".join(f"    {line}" for line in str(graph).splitlines())
        return text


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        values = np.array2string(value, threshold=6, edgeitems=2, separator=", ").replace("\n", "")
        return f"{value.dtype.name}{list(value.shape)} {values}" if value.ndim else values
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return repr(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which each can be run after those before it."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, Tensor]

    def __str__(self) -> str:
        lines = [f"graph {self.name}"] if self.name else []
        lines += [f"  in   {value}" for value in self.inputs]
        lines += [f"  out  {value}" for value in self.outputs]
        lines += [f"  {line}" for node in self.nodes for line in str(node).splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the model: formal names, attributes with their defaults, and the nodes of its body."""

    graph: Graph
    attributes: tuple[str, ...]
    defaults: Mapping[str, Any]
    opsets: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Source:
    """What a file says, before anything is bound."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str, str], Function]
    producer: str
