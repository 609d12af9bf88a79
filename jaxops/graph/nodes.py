"""A model as frozen dataclasses: what reading gives, binding completes and tracing walks over."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

# The smallest and the largest size of an axis; None for no largest one.
Limits: TypeAlias = tuple[int, int | None]
# Up to this many elements, a constant stands where it is used when a graph is printed.
_INLINED = 8


@dataclass(frozen=True)
class Tensor:
    """A constant of the model that is read when it is needed.

    part: reads the elements at a slice of each axis, where the file can be read without the rest of the tensor.
    """

    dtype: np.dtype
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray] = field(repr=False)
    part: Callable[[tuple[slice, ...]], np.ndarray] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Value:
    """An input or output: a size is a number, a symbolic name, or None when the model does not say."""

    name: str
    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
    kind: str = "tensor"  # or "sequence", "optional": of tensors; "map": to scalars of this dtype
    static: str = ""  # why the value must be known while tracing; empty when it need not be
    decides: bool = False  # whether a number of NumPy is known while tracing, as it says which branch is taken
    aliases: tuple[str, ...] = ()  # further names under which a caller may give it
    limits: tuple[tuple[int, Limits], ...] = ()  # (axis, its limits) for axes that have any

    @property
    def type_text(self) -> str:
        """Its type and sizes, such as float32[batch, 3]."""
        dims = "…" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        dtype = "?" if self.dtype is None else "string" if self.dtype == object else self.dtype.name
        text = f"{dtype}[{dims}]"
        return text if self.kind == "tensor" else f"{self.kind}({text})"

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}"


@dataclass(frozen=True, eq=False)
class Node:
    """One operation: an `Operator` on named values. A reader may put there what its front end binds to one."""

    operator: Any
    name: str
    inputs: tuple[str, ...]  # '' where an optional input is left out
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    body: "Graph | None" = None  # what the operator does, where nodes say it
    scope: str = ""  # the path of the module that it came from, such as encoder.layer.0; empty where nothing says it
    block: str = ""  # the module whose nodes a derivative computes once more, instead of keeping what they make

    @property
    def label(self) -> str:
        """The name, or the first output of a node that has none."""
        return self.name or next(filter(None, self.outputs), self.operator.name)

    @property
    def traced_as(self) -> str:
        """The node in profiles: its module, and its own name in it."""
        return f"{self.scope}/{self.label.rpartition('/')[2]}" if self.scope else self.label

    @property
    def title(self) -> str:
        """The node in messages."""
        return f"{self.operator.name} '{self.label}'"

    @cached_property
    def subgraphs(self) -> dict[str, "Graph"]:
        """The graphs among the attributes."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, Graph)}

    @cached_property
    def draws(self) -> bool:
        """True if running the node draws random numbers."""
        return self.operator.draws or any(graph.draws for graph in self.nested)

    @cached_property
    def bounded(self) -> bool:
        """True if a result, or what follows from one inside, has a fixed size where its size depends on data."""
        return self.operator.bounded or any(graph.bounded for graph in self.nested)

    @property
    def nested(self) -> Iterator["Graph"]:
        """Its subgraphs, and its body."""
        yield from self.subgraphs.values()
        if self.body is not None:
            yield self.body

    def with_nested(self, rewrite: Callable[["Graph"], "Graph"]) -> "Node":
        """The node with rewritten subgraphs and body; the node itself where all stay the same."""
        subgraphs = {name: rewrite(graph) for name, graph in self.subgraphs.items()}
        body = None if self.body is None else rewrite(self.body)
        if body is self.body and all(graph is self.subgraphs[name] for name, graph in subgraphs.items()):
            return self
        return replace(self, attributes={**self.attributes, **subgraphs}, body=body)

    def uses(self) -> Iterator[str]:
        """The names it reads, those that its subgraphs capture included."""
        yield from filter(None, self.inputs)
        for graph in self.subgraphs.values():
            yield from graph.captures

    def text(self, constants: Mapping[str, Any]) -> str:
        """The node as a line, with small values of `constants` in place of their names; its subgraphs below."""
        shown = {k: v for k, v in self.attributes.items() if not isinstance(v, Graph)}
        inputs = [_inline(constants[name]) or name if name in constants else name for name in self.inputs]
        arguments = ", ".join([*inputs, *(f"{k}={_brief(v)}" for k, v in shown.items())])
        text = f"{', '.join(self.outputs)} = {self.operator.name}({arguments})"
        for name, graph in self.subgraphs.items():
            text += f"\n  {name}:\n" + "\n".join(f"    {line}" for line in graph.text(constants).splitlines())
        return text

    def __str__(self) -> str:
        return self.text({})


def _inline(value: Any) -> str:
    """A static value of a few elements as Python writes it; empty for a larger one."""
    if not isinstance(value, np.ndarray) or value.size > _INLINED or value.ndim > 1:
        return ""
    items = [f"{item:g}" if isinstance(item, float) else repr(item) for item in value.reshape(-1).tolist()]
    return f"[{', '.join(items)}]" if value.ndim else items[0]


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        values = np.array2string(value, threshold=6, edgeitems=2, separator=", ").replace("\n", "")
        return f"{value.dtype.name}{list(value.shape)} {values}" if value.ndim else values
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return repr(value) if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Variable:
    """A part of a model's state.

    before, after: the input and the output of the graph that are its value before and after a call. initial: the tensor
    that it begins with; empty for zeros.
    """

    name: str
    before: str
    after: str
    initial: str


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which each can be run after those before it.

    Preparing moves each of `initializers` to `static`, what is known while tracing, or to `params`: from the name here
    to the name among the model's parameters. variables: their inputs and outputs come last.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, Tensor]
    static: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()  # of its nodes in the whole graph, where it is a part of one
    variables: tuple[Variable, ...] = ()

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(value.name for value in self.outputs)

    @cached_property
    def defined(self) -> frozenset[str]:
        """The names that are defined here."""
        names = {value.name for value in self.inputs} | {*self.initializers, *self.static, *self.params}
        return frozenset(names.union(*(node.outputs for node in self.nodes)) - {""})

    @cached_property
    def captures(self) -> frozenset[str]:
        """The names that it reads from the graph around it."""
        here = {value.name for value in self.inputs} | {"", *self.initializers, *self.static, *self.params}
        captured: set[str] = set()
        for node in self.nodes:
            captured.update(name for name in node.uses() if name not in here)
            here.update(node.outputs)
        return frozenset(captured.union(value.name for value in self.outputs if value.name not in here))

    def number(self, index: int) -> int:
        """The number of a node, which its random key is made of: other nodes that are left out do not change it."""
        return self.numbers[index] if self.numbers else index

    def block_runs(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Divides a range of nodes where a block begins or ends: (start, stop) of each run.

        Nodes without a block belong to that around them.
        """
        runs: list[tuple[int, int]] = []
        begin = end = start  # of a run; its last node with that block is before `end`
        for index in range(start, stop):
            block, current = self.nodes[index].block, self.nodes[begin].block
            if block == current:
                end = index + 1
            elif block:
                runs += [run for run in ((begin, end), (end, index)) if run[0] < run[1]]
                begin, end = index, index + 1
        return [*runs, *(run for run in ((begin, end), (end, stop)) if run[0] < run[1])]

    @cached_property
    def draws(self) -> bool:
        """True if one of its nodes draws random numbers."""
        return any(node.draws for node in self.nodes)

    @cached_property
    def bounded(self) -> bool:
        """True if one of its nodes is."""
        return any(node.bounded for node in self.nodes)

    @property
    def nested(self) -> Iterator["Graph"]:
        """The subgraphs and bodies of its nodes."""
        for node in self.nodes:
            yield from node.nested

    @cached_property
    def depth(self) -> int:
        """The depth of nested graphs, this one included."""
        return 1 + max((graph.depth for graph in self.nested), default=0)

    @cached_property
    def inlined_nodes(self) -> int:
        """The number of nodes that bodies add to those of the graph when it runs, as each node runs its own."""
        bodies = (len(node.body.nodes) for node in self.nodes if node.body is not None)
        return sum(bodies) + sum(graph.inlined_nodes for graph in self.nested)

    @cached_property
    def dead_after(self) -> tuple[tuple[str, ...], ...]:
        """For each node, the names that nothing after it reads."""
        seen = {value.name for value in self.outputs} | {""}
        dead = []
        for node in reversed(self.nodes):
            unread = dict.fromkeys(name for name in (*node.uses(), *node.outputs) if name not in seen)
            seen.update(unread)
            dead.append(tuple(name for name in unread if name in self.defined))
        return tuple(reversed(dead))

    def text(self, constants: Mapping[str, Any]) -> str:
        """The graph as lines. constants: static values of the graphs around it."""
        formals = {value.name for value in self.inputs}  # a call may give them other values
        constants = {**{name: constants[name] for name in self.captures if name in constants}, **self.static}
        constants = {name: value for name, value in constants.items() if name not in formals}
        lines = [f"graph {self.name}"] if self.name else []
        lines += [f"  in   {value}" for value in self.inputs]
        lines += [f"  out  {value}" for value in self.outputs]
        lines += [f"  {line}" for node in self.nodes for line in node.text(constants).splitlines()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text({})
