"""A model as frozen dataclasses: readers make them, front ends bind operators to them, the interpreter runs them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxops.shown_text import clean

# The smallest and the largest size of an axis; None if there is no largest size.
Limits: TypeAlias = tuple[int, int | None]
# A path of more modules is none: each of them has a name of its own, so they take memory by the square of their number.
DEEPEST_MODULE = 100
# When a graph is printed, a constant of at most this many elements is shown in place of its name.
_INLINED = 8


def is_module_path(path: str) -> bool:
    """Returns True for the path of as many modules as a program may nest."""
    return path.count(".") < DEEPEST_MODULE


@dataclass(frozen=True)
class Tensor:
    """A constant of the model, which is read from the file when it is needed.

    part: reads the elements at a slice of each axis; None if the file does not allow reading parts.
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
    decides: bool = False  # whether the value may select a branch; if so, a NumPy number stays static
    aliases: tuple[str, ...] = ()  # further names that a caller may use for it
    limits: tuple[tuple[int, Limits], ...] = ()  # (axis, its limits) for axes with limits

    @property
    def type_text(self) -> str:
        """The type and sizes, such as float32[batch, 3]."""
        dims = "…" if self.shape is None else ", ".join("?" if d is None else str(d) for d in self.shape)
        dtype = "?" if self.dtype is None else "string" if self.dtype == object else self.dtype.name
        text = f"{dtype}[{dims}]"
        return text if self.kind == "tensor" else f"{self.kind}({text})"

    def __str__(self) -> str:
        return clean(f"{self.name}: {self.type_text}")


@dataclass(frozen=True, eq=False)
class Node:
    """One operation: an `Operator` on named values. A reader may use its name, which the front end binds later."""

    operator: Any
    name: str
    inputs: tuple[str, ...]  # '' if an optional input is left out
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    body: "Graph | None" = None  # the graph that defines the operator, such as the body of a function
    scope: str = ""  # the path of the module that the node came from, such as encoder.layer.0; empty if unknown
    block: str = ""  # the module that a derivative recomputes instead of storing its results; empty for none
    whole_axis: int | None = None  # the axis along which no mesh should split results of the first one's rank
    is_adapter: bool = False  # whether it is a part of an `Adapter`, the sum with the module's own product included

    @property
    def label(self) -> str:
        """The name, or the first output of a node without a name."""
        return self.name or next(filter(None, self.outputs), self.operator.name)

    @property
    def traced_as(self) -> str:
        """The node's name in profiles: its module, and its name there."""
        return f"{self.scope}/{self.label.rpartition('/')[2]}" if self.scope else self.label

    @property
    def title(self) -> str:
        """The node's name in messages."""
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
        """True if the node, or one inside it, has a bound: a fixed size for a result whose size depends on data."""
        return self.operator.bounded or any(graph.bounded for graph in self.nested)

    @cached_property
    def sized_by_data(self) -> bool:
        """True if the node, or one inside it, makes a result whose size depends on data, with or without a bound."""
        operator = self.operator
        return operator.sized_by_data or operator.bounded or any(graph.sized_by_data for graph in self.nested)

    @property
    def nested(self) -> Iterator["Graph"]:
        """The subgraphs, and the body."""
        yield from self.subgraphs.values()
        if self.body is not None:
            yield self.body

    def with_nested(self, rewrite: Callable[["Graph"], "Graph"]) -> "Node":
        """The node with rewritten subgraphs and body; the node itself if all stay the same."""
        subgraphs = {name: rewrite(graph) for name, graph in self.subgraphs.items()}
        body = None if self.body is None else rewrite(self.body)
        if body is self.body and all(graph is self.subgraphs[name] for name, graph in subgraphs.items()):
            return self
        return replace(self, attributes={**self.attributes, **subgraphs}, body=body)

    def uses(self) -> Iterator[str]:
        """The names that the node reads, including those that its subgraphs capture."""
        yield from filter(None, self.inputs)
        for graph in self.subgraphs.values():
            yield from graph.captures

    def text(self, constants: Mapping[str, Any]) -> str:
        """The node as a line, with small values of `constants` in place of their names, followed by its subgraphs."""
        shown = {k: v for k, v in self.attributes.items() if not isinstance(v, Graph)}
        inputs = [_inline(constants[name]) or name if name in constants else name for name in self.inputs]
        arguments = ", ".join([*inputs, *(f"{k}={_brief(v)}" for k, v in shown.items())])
        text = clean(f"{', '.join(self.outputs)} = {self.operator.name}({arguments})")
        for name, graph in self.subgraphs.items():
            text += f"\n  {clean(name)}:\n" + "\n".join(f"    {line}" for line in graph.text(constants).splitlines())
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

    before, after: the graph's input and output with the value before and after a call. initial: the tensor with the
    first value; empty for zeros.
    """

    name: str
    before: str
    after: str
    initial: str


class Piece(NamedTuple):
    """Some of the outputs of a module, by the name that files of adapters have for them.

    start: the first one. size: how many. first, total: where they begin in the module of that name, and how many
    outputs it has, if it joins several modules; else 0.
    """

    name: str
    start: int
    size: int
    first: int = 0
    total: int = 0


@dataclass(frozen=True)
class Adapter:
    """A low-rank addition to the products of a module: each is y + alpha / rank · x · aᵀ · bᵀ.

    a, b: the names of parameters of the model, of shapes (rank, inputs) and (outputs, rank). base: the parameter that
    the module's own product reads as its weight. weight: `base` if the addition can be merged into it, or ''. by_rows:
    whether its shape is (outputs, inputs). factor: what the module multiplies x · weight by.
    pieces: the modules of a file of peft that it is written as; mostly the one.
    """

    module: str
    rank: int
    alpha: float
    a: str
    b: str
    base: str
    weight: str
    by_rows: bool
    factor: float
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which they can run.

    `parameters.prepare` moves each of the `initializers` to `static` (known while tracing) or to `params` (name in the
    graph → name among the model's parameters). The inputs and outputs of `variables` come last.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, Tensor]
    static: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()  # in a part of a graph, the positions of the nodes in the complete graph
    variables: tuple[Variable, ...] = ()
    adapters: tuple[Adapter, ...] = ()
    # In a graph that trains: (an initializer with running statistics, the tensor with its next value). None: it infers.
    statistics: tuple[tuple[str, str], ...] | None = None

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The names of the outputs."""
        return tuple(value.name for value in self.outputs)

    @cached_property
    def defined(self) -> frozenset[str]:
        """The names that the graph defines."""
        names = {value.name for value in self.inputs} | {*self.initializers, *self.static, *self.params}
        return frozenset(names.union(*(node.outputs for node in self.nodes)) - {""})

    @cached_property
    def captures(self) -> frozenset[str]:
        """The names that the graph reads from the enclosing graph."""
        here = {value.name for value in self.inputs} | {"", *self.initializers, *self.static, *self.params}
        captured: set[str] = set()
        for node in self.nodes:
            captured.update(name for name in node.uses() if name not in here)
            here.update(node.outputs)
        return frozenset(captured.union(value.name for value in self.outputs if value.name not in here))

    def number(self, index: int) -> int:
        """The position of a node in the complete graph. Its random key depends on it, so that leaving out other nodes
        does not change its random numbers."""
        return self.numbers[index] if self.numbers else index

    def block_runs(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Divides a range of nodes where a block begins or ends; returns (start, stop) of each run.

        Nodes without a block, between nodes of the same block, belong to that block.
        """
        runs: list[tuple[int, int]] = []
        begin = end = start  # of a run; `end` follows its last node with that block
        for index in range(start, stop):
            block, current = self.nodes[index].block, self.nodes[begin].block
            if block == current:
                end = index + 1
            elif block:
                runs += [run for run in ((begin, end), (end, index)) if run[0] < run[1]]
                begin, end = index, index + 1
        return [*runs, *(run for run in ((begin, end), (end, stop)) if run[0] < run[1])]

    @cached_property
    def most_operands(self) -> int:
        """The largest number of operands that a node computes with, inside of subgraphs and bodies, too."""
        inside = [graph.most_operands for node in self.nodes for graph in node.nested]
        counts = [len(node.inputs) for node in self.nodes if node.operator.traits.kind != "movement"]
        return max([0, *counts, *inside])

    @cached_property
    def draws(self) -> bool:
        """True if a node draws random numbers."""
        return any(node.draws for node in self.nodes)

    @cached_property
    def bounded(self) -> bool:
        """True if a node has a bound."""
        return any(node.bounded for node in self.nodes)

    @cached_property
    def sized_by_data(self) -> bool:
        """True if a node makes a result whose size depends on data."""
        return any(node.sized_by_data for node in self.nodes)

    @property
    def nested(self) -> Iterator["Graph"]:
        """The subgraphs and bodies of the nodes."""
        for node in self.nodes:
            yield from node.nested

    @cached_property
    def depth(self) -> int:
        """The depth of nested graphs, this one included."""
        return 1 + max((graph.depth for graph in self.nested), default=0)

    @cached_property
    def inlined_nodes(self) -> int:
        """The number of nodes in bodies; a body counts once for each node that runs it."""
        bodies = (len(node.body.nodes) for node in self.nodes if node.body is not None)
        return sum(bodies) + sum(graph.inlined_nodes for graph in self.nested)

    @cached_property
    def dead_after(self) -> tuple[tuple[str, ...], ...]:
        """For each node, the names that no later node reads."""
        seen = {value.name for value in self.outputs} | {""}
        dead = []
        for node in reversed(self.nodes):
            unread = dict.fromkeys(name for name in (*node.uses(), *node.outputs) if name not in seen)
            seen.update(unread)
            dead.append(tuple(name for name in unread if name in self.defined))
        return tuple(reversed(dead))

    def text(self, constants: Mapping[str, Any]) -> str:
        """The graph as lines. constants: static values of the enclosing graphs."""
        formals = {value.name for value in self.inputs}  # a call may give them other values
        constants = {**{name: constants[name] for name in self.captures if name in constants}, **self.static}
        constants = {name: value for name, value in constants.items() if name not in formals}
        lines = [f"graph {clean(self.name)}"] if self.name else []
        lines += [f"  in   {value}" for value in self.inputs]
        lines += [f"  out  {value}" for value in self.outputs]
        lines += [f"  {line}" for node in self.nodes for line in node.text(constants).splitlines()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text({})
