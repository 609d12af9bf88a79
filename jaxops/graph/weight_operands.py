"""The operands of nodes that are weights of a model, with their axes and scales."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxops.graph.nodes import Graph, Node
from jaxops.signature import BIAS, STATISTICS, WEIGHT, role

FIRST, LAST, FILTER, EXPERTS = "first", "last", "filter", "experts"
# Operators that dequantize a weight in blocks.
_BLOCKWISE = {"matmul_nbits", "gather_block_quantized"}
# They keep the order of a weight's axes.
_SAME_AXES = {"identity", "cast", "dequantize_linear", "quantize_linear"}


@dataclass(eq=False)
class Product:
    """A product of an activation with a weight.

    kind: `first`, `last`, `filter` or `experts`. cut: whether its result is cut into several. whole: whether all of its
    features are needed at once. heads: how many heads its features are cut into; 0 if unknown.
    """

    kind: str
    cut: bool = False
    whole: bool = False
    heads: int = 0


@dataclass(frozen=True)
class Reading:
    """A parameter and how a node reads it: as an operand of `product`, or else as `kind`.

    by_output, by_input: axes of the parameter, as in `Role`. of: the weight whose scale or zero point it is, or "".
    """

    parameter: str
    kind: str
    product: Product | None = None
    by_output: int | None = None
    by_input: int | None = None
    of: str = ""


@dataclass(frozen=True)
class Weight:
    """A parameter with its axes in another order. axes: for each axis of the value, that of the parameter.

    followers: its scales and zero points: (parameter, has the axes of the weight).
    """

    parameter: str
    axes: tuple[int, ...]
    followers: tuple[tuple[str, tuple[int | None, ...]], ...] = ()


class WeightOperands:
    """The weights of a graph by the names of values, and what was read of them so far.

    shapes: of the parameters. outer: weights by name in the enclosing graphs.
    """

    def __init__(self, graph: Graph, shapes: Mapping[str, tuple[int, ...]], outer: Mapping[str, Weight]) -> None:
        self.shapes, self.constants = shapes, graph.static
        own = {name: Weight(param, tuple(range(len(shapes[param])))) for name, param in graph.params.items()}
        self.by_name: dict[str, Weight] = {**{n: outer[n] for n in graph.captures if n in outer}, **own}
        self.readings: list[Reading] = []

    def is_reordered(self, node: Node, name: str) -> bool:
        """Notes a weight whose elements or axes are in another form."""
        weight = self.by_name.get(node.inputs[0]) if node.inputs else None
        if weight is None:
            return False
        if name == "transpose":
            perm = node.attributes.get("perm") or tuple(reversed(range(len(weight.axes))))
            followers = tuple((of, tuple(axes[k] for k in perm)) for of, axes in weight.followers)
            weight = replace(weight, axes=tuple(weight.axes[k] for k in perm), followers=followers)
        elif name in _SAME_AXES:
            others = [self.by_name[n].parameter for n in node.inputs[1:] if n in self.by_name]
            rank, axis = len(weight.axes), node.attributes.get("axis", 1)
            for other in others:
                axes: list[int | None] = list(weight.axes)
                if len(self.shapes[other]) != rank:  # a scale for each index of `axis`
                    axes = [None] * rank
                    if len(self.shapes[other]) == 1 and -rank <= axis < rank:
                        axes[axis] = 0
                weight = replace(weight, followers=(*weight.followers, (other, tuple(axes))))
        else:
            return False
        self.by_name[node.outputs[0]] = weight
        return True

    def of(self, node: Node) -> list[tuple[int, Weight]]:
        """Returns the operands of a node that are weights of two or more axes, with their positions.

        An attention has operands that are none, such as tables of cosines, so there the role of the operand decides.
        """
        found = [(k, self.by_name[n]) for k, n in enumerate(node.inputs) if n in self.by_name]
        is_attention = node.operator.traits.kind == "attention"
        return [(k, w) for k, w in found if len(w.axes) > 1 and (not is_attention or _is_weight(node, k))]

    def looks_up(self, node: Node) -> bool:
        """Notes the tables of which a node looks up rows; returns whether there are any."""
        tables = [(k, weight) for k, weight in self.of(node) if k == 0 or _is_weight(node, k)]
        tables = [(k, w) for k, w in tables if len(w.axes) == 2 or name_of(node) == "gather_block_quantized"]
        if name_of(node) == "gather" and (node.attributes.get("axis", 0) != 0 or node.inputs[1] in self.constants):
            tables = []
        for position, table in tables:
            self._note(node, position, table, "table", None, 0, -1)
        if tables:
            self.note_others(node)
        return bool(tables)

    def note_product(self, node: Node, position: int, weight: Weight, product: Product) -> None:
        """Notes the weight of a product, which is the operand at `position`."""
        if name_of(node) == "matmul_nbits" or product.kind == FILTER:
            by_output, by_input = 0, 1
        else:
            is_transposed = node.attributes.get("transB") or node.attributes.get("transpose_b")
            by_output, by_input = (-2, -1) if is_transposed else (-1, -2)
        self._note(node, position, weight, product.kind, product, by_output, by_input)

    def _note(
        self, node: Node, position: int, weight: Weight, kind: str, product: Any, by_output: int, by_input: int
    ) -> None:
        """Notes a weight, its scales and its zero points: those it came with, and operands of the node behind it."""
        axes = weight.axes[by_output], weight.axes[by_input]
        self.readings.append(Reading(weight.parameter, kind, product, *axes))
        for parameter, axes in weight.followers:
            self.readings.append(Reading(parameter, kind, product, axes[by_output], axes[by_input], weight.parameter))
        for k, name in enumerate(node.inputs) if name_of(node) in _BLOCKWISE else ():
            if name in self.by_name and k > position and _operand(node, k) in ("scales", "zero_points"):
                rank = len(self.by_name[name].axes)
                axes = (0, None) if rank == 1 else (0, min(by_input % len(weight.axes), rank - 1))
                self.readings.append(Reading(self.by_name[name].parameter, kind, product, *axes, weight.parameter))

    def note_experts(self, node: Node) -> None:
        """Notes the weights, scales and biases of experts."""
        product = Product(EXPERTS)
        for name in node.inputs:
            if name in self.by_name:
                self.readings.append(Reading(self.by_name[name].parameter, "experts", product, 0))

    def note_others(self, node: Node) -> None:
        """Notes vectors: scales of a normalization, and what is added to features."""
        for position, name in enumerate(node.inputs):
            weight = self.by_name.get(name)
            if weight is None or node.operator.mark(position) == STATISTICS:
                continue
            if node.operator.traits.kind == "normalization":
                self.readings.append(Reading(weight.parameter, "norm"))
            elif len(weight.axes) < 2 or role(node.operator.function, position) == BIAS:
                self.readings.append(Reading(weight.parameter, "bias"))


def name_of(node: Node) -> str:
    """The name of the function of an operator, without the version of the standard at its end."""
    return re.sub(r"_\d+$", "", getattr(node.operator.function, "__name__", ""))


def _operand(node: Node, position: int) -> str:
    formals: Sequence[str] = node.operator.formals
    return formals[min(position, len(formals) - 1)] if formals else ""


def _is_weight(node: Node, position: int) -> bool:
    return role(node.operator.function, position) == WEIGHT or node.operator.traits.kind == "embedding"
