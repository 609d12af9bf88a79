"""Finds the values that must be known while tracing, by a walk back from each operand that an operator marks `Static`.

The walk continues through operators that NumPy computes from static operands, stops at operands of which only the sizes
are read, and enters subgraphs and functions. Initializers that it reaches stay static; a caller must pass NumPy values
for inputs that it reaches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jaxops.graph.liveness import live
from jaxops.graph.nodes import Graph, Node, Value
from jaxops.signature import SHAPE_ONLY, STATIC, Subgraph

# The number of steps that a message shows at each end of a path.
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class Need:
    """The reason why a value must be static: a path of steps to an operand marked `Static`.

    step: the first step. then: the rest of the path, which several needs share.
    """

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
    """The names that must be static in each graph of a model, in subgraphs and bodies too.

    branches: True if conditions must be static as well, even if both branches could be compiled.
    """

    branches: bool = False
    of: dict[Graph, Needs] = field(default_factory=dict)
    _walked: dict[tuple[Graph, frozenset[str]], Needs] = field(default_factory=dict)

    def walk(self, graph: Graph, outputs: Mapping[str, Need] | None = None) -> Needs:
        """Returns each name that must be static, and the reason.

        outputs: outputs of the graph that must be static. The result includes names that a subgraph captures from the
        enclosing graph. Results are kept.
        """
        outputs = outputs or {}
        key = graph, frozenset(outputs)
        if key not in self._walked:
            needs = dict(outputs)
            for node in reversed(graph.nodes):
                needed = {name: needs[name] for name in node.outputs if name and name in needs}
                for name, need in self.of_node(node, needed).items():
                    needs.setdefault(name, need)
            self._walked[key] = needs
            self.of[graph] = {**needs, **self.of.get(graph, {})}
        return self._walked[key]

    def of_node(self, node: Node, needed: Mapping[str, Need]) -> Needs:
        """Returns the inputs of a node that must be static, given `needed`, its outputs that must be static."""
        if node.body is not None:
            formals = [value.name for value in node.body.outputs]
            of_outputs = {
                formal: needed[name] for formal, name in zip(formals, node.outputs, strict=False) if name in needed
            }
            inner = self.walk(node.body, of_outputs)
            pairs = zip(node.body.inputs, node.inputs, strict=False)
            return {name: inner[formal.name] for formal, name in pairs if name and formal.name in inner}
        needs: Needs = {}
        through = Need(node.title, next(iter(needed.values()))) if needed else None
        formals = node.operator.formals
        for position, name in enumerate(node.inputs):
            mark = node.operator.mark(position)
            if not name or mark == SHAPE_ONLY:
                continue
            if mark == STATIC:
                needs[name] = Need(f"{node.title} `{formals[min(position, len(formals) - 1)]}`")
            elif through and node.operator.foldable:
                needs[name] = through
        for key, graph in node.subgraphs.items():
            for name, need in self._of_subgraph(node, graph, node.operator.subgraphs[key], needed).items():
                needs.setdefault(name, need)
        return needs

    def _of_subgraph(self, node: Node, graph: Graph, flow: Subgraph, needed: Mapping[str, Need]) -> Needs:
        """Returns the inputs of a node and the captured names that must be static for one of its subgraphs."""
        if flow.modifies:
            local = {v.name for v in graph.inputs} | set(graph.initializers)
            local |= {name for n in graph.nodes for name in n.outputs}
            return {name: need for name, need in self.walk(graph, {}).items() if name not in local}
        operands = node.inputs[flow.first :]
        operand_of = dict(zip((value.name for value in graph.inputs), operands, strict=False))
        made_outputs = zip(node.outputs, graph.outputs[flow.leading :], strict=False)
        of_outputs = {value.name: needed[name] for name, value in made_outputs if name in needed}
        # Loop-carried values: if the body needs input k static, its output k must be static too.
        count = len(operands) - flow.leading - node.attributes.get(flow.not_carried, 0) if flow.carries else 0
        carried = list(zip(graph.inputs[flow.leading :], graph.outputs[:count], strict=False))
        # A compiled `lax.cond` or loop cannot have sequences and optionals.
        unrolled = next((v.name for v in (*graph.inputs, *graph.outputs) if v.kind != "tensor"), "")
        while True:
            inner = self.walk(graph, of_outputs)
            more = {output.name: inner[value.name] for value, output in carried if value.name in inner}
            if flow.leading and (unrolled or of_outputs or more or graph.inputs[0].name in inner):
                unrolled = unrolled or next(iter((*of_outputs, *more, graph.inputs[0].name)))
                more[graph.outputs[0].name] = Need(f"{node.title} makes '{unrolled}'")
            if more.keys() <= of_outputs.keys():
                break
            of_outputs = more | of_outputs
        inside = {name for n in graph.nodes for name in n.outputs} | set(graph.initializers)
        needs = {operand_of.get(name, name): need for name, need in inner.items() if name not in inside}
        # The loop has scan outputs, with one row per iteration. A bound replaces a number that is traced.
        grows = flow.leading and len(graph.outputs) > count and (self.branches or not node.operator.bounded)
        if flow.decided_by and (unrolled or of_outputs or grows or (self.branches and not flow.leading)):
            deciding = zip(node.inputs, flow.decided_by, strict=False)
            needs |= {name: Need(f"{node.title} `{formal}`") for name, formal in deciding}
        return {name: need for name, need in needs.items() if name}


def result_is_static(node: Node, inputs: Sequence[bool | None]) -> bool | None:
    """Returns whether the outputs of a node are static; None if unknown. inputs: the same for each input; True for an
    omitted one.
    """
    if not node.operator.foldable:
        return False
    facts = {fact for position, fact in enumerate(inputs) if node.operator.mark(position) != SHAPE_ONLY}
    return False if False in facts else None if None in facts else True


def marked_inputs(graph: Graph, needs: StaticInputs) -> tuple[Value, ...]:
    """Returns the inputs of a model with `static` (why it must be static) and `decides` (it may select a branch)."""
    needs.walk(graph)
    read = live(graph)  # a value that nothing reads does not make an input static
    needed, deciding = needs.walk(read), StaticInputs(branches=True).walk(read)
    return tuple(
        replace(v, static=reason(v, needed), decides=v.name in deciding and _is_number(v)) for v in graph.inputs
    )


def _is_number(value: Value) -> bool:
    """Returns True if a value is one integer, or one boolean."""
    kinds = value.kind == "tensor" and value.dtype is not None and value.dtype.kind in "iub"
    return kinds and value.shape is not None and set(value.shape) <= {1}


def reason(value: Value, needed: Mapping[str, Need]) -> str:
    """Returns the reason why an input must be static; empty if it need not be.

    An input with more than one axis is data, even if sizes are computed from it, and need not be static; so is a mask.
    """
    if value.dtype == object:
        return "it holds strings"
    if value.name not in needed or (value.shape is not None and (len(value.shape) > 1 or _is_mask(value))):
        return ""
    return str(needed[value.name])


def _is_mask(value: Value) -> bool:
    return value.dtype == bool and value.shape not in (None, (), (1,))
