"""Which values must be known while tracing: a walk back from every operand that an operator marks `Static`.

The walk goes through the operators that NumPy computes while their operands are static, stops where only sizes
are asked for, and enters subgraphs and functions. What it reaches among the initializers stays static; what it
reaches among the inputs of the graph must be given as NumPy values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from jaxops.graph.liveness import live
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.signature import SHAPE_ONLY, STATIC, Subgraph

# Steps of a path that a message shows at either end.
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Need:
    """Why a value must be static: a step, and the need that it serves. Needs share their tails."""

    step: str
    then: "Need | None" = None

    def __str__(self) -> str:
        steps, need = [], self
        while need is not None:
            steps.append(need.step)
            need = need.then
        if len(steps) > 2 * _SHOWN:
            steps[_SHOWN:-_SHOWN] = [f"… {len(steps) - 2 * _SHOWN} more …"]
        return " → ".join(steps)


Needs = dict[str, Need]


@dataclass
class StaticInputs:
    """What must be static, in each graph of a model: those inside it, and bodies that several nodes share, too.

    branches: so that it is known which branch is taken, also where both could be compiled.
    """

    branches: bool = False
    of: dict[Graph, Needs] = field(default_factory=dict)
    _walked: dict[tuple[Graph, frozenset[str]], Needs] = field(default_factory=dict)

    def walk(self, graph: Graph, wanted: Mapping[str, Need] | None = None) -> Needs:
        """Each name that must be static, and why.

        wanted: outputs of the graph that must be static. Names that a subgraph captures from the graph around it are
        in the result too. The same question is answered once.
        """
        wanted = wanted or {}
        key = graph, frozenset(wanted)
        if key not in self._walked:
            found = dict(wanted)
            for node in reversed(graph.nodes):
                needed = {name: found[name] for name in node.outputs if name and name in found}
                for name, need in self._of_node(node, needed).items():
                    found.setdefault(name, need)
            self._walked[key] = found
            self.of[graph] = {**found, **self.of.get(graph, {})}
        return self._walked[key]

    def _of_node(self, node: Node, needed: Mapping[str, Need]) -> Needs:
        """What a node needs static, when `needed` are those of its outputs that must be."""
        if node.body is not None:
            formals = [value.name for value in node.body.outputs]
            wanted = {
                formal: needed[name] for formal, name in zip(formals, node.outputs, strict=False) if name in needed
            }
            inner = self.walk(node.body, wanted)
            pairs = zip(node.body.inputs, node.inputs, strict=False)
            return {name: inner[formal.name] for formal, name in pairs if name and formal.name in inner}
        found: Needs = {}
        through = Need(node.title, next(iter(needed.values()))) if needed else None
        formals = node.operator.formals
        for position, name in enumerate(node.inputs):
            mark = node.operator.mark(position)
            if not name or mark == SHAPE_ONLY:
                continue
            if mark == STATIC:
                found[name] = Need(f"{node.title} `{formals[min(position, len(formals) - 1)]}`")
            elif through and node.operator.foldable:
                found[name] = through
        for key, graph in node.subgraphs.items():
            for name, need in self._of_subgraph(node, graph, node.operator.subgraphs[key], needed).items():
                found.setdefault(name, need)
        return found

    def _of_subgraph(self, node: Node, graph: Graph, flow: Subgraph, needed: Mapping[str, Need]) -> Needs:
        """What a subgraph needs static, among the inputs of its node and the names that it captures."""
        if flow.modifies:
            own = {v.name for v in graph.inputs} | set(graph.initializers)
            own |= {name for n in graph.nodes for name in n.outputs}
            return {name: need for name, need in self.walk(graph, {}).items() if name not in own}
        operands = node.inputs[flow.first :]
        given = dict(zip((value.name for value in graph.inputs), operands, strict=False))
        made = zip(node.outputs, graph.outputs[flow.own :], strict=False)
        wanted = {value.name: needed[name] for name, value in made if name in needed}
        # The state goes round: an input that must be static makes the output static that becomes it.
        count = len(operands) - flow.own - node.attributes.get(flow.not_carried, 0) if flow.carries else 0
        back = list(zip(graph.inputs[flow.own :], graph.outputs[:count], strict=False))
        # Sequences and optionals have no place in a compiled choice or loop.
        unrolled = next((v.name for v in (*graph.inputs, *graph.outputs) if v.kind != "tensor"), "")
        while True:
            inner = self.walk(graph, wanted)
            more = {output.name: inner[value.name] for value, output in back if value.name in inner}
            if flow.own and (unrolled or wanted or more or graph.inputs[0].name in inner):
                unrolled = unrolled or next(iter((*wanted, *more, graph.inputs[0].name)))
                more[graph.outputs[0].name] = Need(f"{node.title} makes '{unrolled}'")
            if more.keys() <= wanted.keys():
                break
            wanted = more | wanted
        inside = {name for n in graph.nodes for name in n.outputs} | set(graph.initializers)
        found = {given.get(name, name): need for name, need in inner.items() if name not in inside}
        grows = flow.own and len(graph.outputs) > count  # outputs with one row an iteration
        if flow.decided_by and (unrolled or wanted or grows or (self.branches and not flow.own)):
            deciding = zip(node.inputs, flow.decided_by, strict=False)
            found |= {name: Need(f"{node.title} `{formal}`") for name, formal in deciding}
        return {name: need for name, need in found.items() if name}


def marked_inputs(graph: Graph, needs: StaticInputs) -> tuple[Value, ...]:
    """The inputs of a model, each with why it must be static, and whether it decides between branches."""
    needs.walk(graph)
    read = live(graph)  # what nothing reads needs no input
    needed, deciding = needs.walk(read), StaticInputs(branches=True).walk(read)
    return tuple(
        replace(v, static=reason(v, needed), decides=v.name in deciding and _is_number(v)) for v in graph.inputs
    )


def _is_number(value: Value) -> bool:
    """Whether a value is one whole number, or one boolean."""
    kinds = value.kind == "tensor" and value.dtype is not None and value.dtype.kind in "iub"
    return kinds and value.shape is not None and set(value.shape) <= {1}


def reason(value: Value, needed: Mapping[str, Need]) -> str:
    """Why an input must be static; empty where it need not be.

    Sizes come as numbers or vectors; from a larger one, they are computed as data.
    """
    if value.dtype == object:
        return "it holds strings"
    if value.name not in needed or (value.shape is not None and len(value.shape) > 1):
        return ""
    return str(needed[value.name])
