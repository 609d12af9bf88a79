"""Follows the features that products make through a graph, from the first product of a pair to the last one.

A value is split if a first product made its features, and only work on each feature or each head came after it. Then it
has one of three forms: its features are the last axis, they are cut into heads, or they are the channels of an image
(axis 1). The product that contracts split features is the last one of its pair. Where all features are needed at once
(a normalization, a sum with a value that is not split), the pair is incomplete, and the product is a single one.
"""


import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxops.graph.nodes import Graph, Node
from jaxops.signature import BIAS, SHAPE_ONLY, STATIC, STATISTICS, WEIGHT, role

FEATURES, HEADS, CHANNELS = "features", "heads", "channels"
# Functions of `jaxops.ops` and `jaxops.microsoft` that need all elements of an axis.
_OVER_FEATURES = {"softmax", "log_softmax", "hardmax", "arg_max", "arg_min", "top_k", "lp_normalization", "cum_sum"}
_SUMS = {"add", "sub", "mul", "div"}
# They keep the order of a weight's axes.
_SAME_AXES = {"identity", "cast", "dequantize_linear", "quantize_linear"}
# A pass may find that a product is a single one, which changes those after it.
_MOST_PASSES = 8


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


@dataclass
class Followed:
    """The readings of all parameters, and the axis of each node's first result that must not be split."""

    readings: list[Reading] = field(default_factory=list)
    whole_axes: dict[Node, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Weight:
    """A parameter with its axes in another order. axes: for each axis of the value, that of the parameter.

    followers: its scales and zero points: (parameter, has the axes of the weight).
    """

    parameter: str
    axes: tuple[int, ...]
    followers: tuple[tuple[str, tuple[int | None, ...]], ...] = ()


@dataclass(frozen=True)
class _Split:
    """A split value. makers: the products that made its features. head: the size of a head; 0 if unknown."""

    makers: tuple[Product, ...]
    form: str
    head: int = 0
    rank: int = 0


def follow(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> Followed:
    """Follows the features of a prepared graph, and of its subgraphs and functions. shapes: of the parameters."""
    found, seen, waiting = Followed(), set[Graph](), [(graph, dict[str, _Weight]())]
    while waiting:
        graph, outer = waiting.pop()
        if graph in seen:
            continue
        seen.add(graph)
        products: dict[int, Product] = {}
        for _ in range(_MOST_PASSES):
            walk = _Walk(graph, shapes, outer, products)
            walk.run()
            if not walk.changed:
                break
        found.readings += walk.readings
        found.whole_axes |= walk.whole_axes()
        for node in graph.nodes:
            waiting += [(inner, walk.weights if inner is not node.body else {}) for inner in node.nested]
    return found


class _Walk:
    def __init__(self, graph: Graph, shapes: Any, outer: Mapping[str, _Weight], products: dict[int, Product]) -> None:
        self.graph, self.shapes, self.products = graph, shapes, products
        own = {name: _Weight(param, tuple(range(len(shapes[param])))) for name, param in graph.params.items()}
        self.weights: dict[str, _Weight] = {**{n: outer[n] for n in graph.captures if n in outer}, **own}
        self.constants: dict[str, Any] = dict(graph.static)
        self.split: dict[str, _Split] = {}
        self.activations: set[str] = set()
        self.readings: list[Reading] = []
        self.whole_results: list[Node] = []  # of lookups, and what is cut into several operands
        self.producers: dict[str, Node] = {}
        self.by_node: list[tuple[Node, Product]] = []
        self.last_entries: dict[str, tuple[int, int]] = {}  # of a list of sizes: (its length, its last entry or 0)
        self.changed = False

    def run(self) -> None:
        """Visits the nodes in order."""
        for index, node in enumerate(self.graph.nodes):
            result = self._visit(index, node)
            for name in filter(None, node.outputs):
                if result is not None:
                    self.split[name] = result
                self.activations.add(name)
                self.producers[name] = node

    def whole_axes(self) -> dict[Node, int]:
        """Returns the axis of the features of each first result that must be whole."""
        axes = dict.fromkeys(self.whole_results, -1)
        for node, product in self.by_node:
            if product.kind == "filter":
                if product.whole:
                    axes[node] = 1
            elif product.kind == "last" or product.whole:
                axes[node] = -1
        return axes

    def _visit(self, index: int, node: Node) -> _Split | None:
        """Notes how a node reads parameters. Returns the form of its results if they are split."""
        kind, name = node.operator.traits.kind, _name(node)
        if self._is_reordered(node, name):
            return None
        if (name in ("gather", "torch_embedding") or kind == "embedding") and self._looks_up(node):
            return None
        if kind in ("linear", "convolution") or (kind == "attention" and self._weights_of(node)):
            return self._product(index, node, kind)
        if name in ("moe", "qmoe"):
            self._experts(node)
            return None
        self._read_others(node)
        if not self._split_operands(node):
            if name == "concat":
                self._note_sizes(node)
            return None
        if node.body is not None or node.subgraphs:
            return None
        return self._passed(node, kind, name)

    # How parameters are read.

    def _is_reordered(self, node: Node, name: str) -> bool:
        """Notes a weight whose elements or axes are in another form."""
        weight = self.weights.get(node.inputs[0]) if node.inputs else None
        if weight is None:
            return False
        if name == "transpose":
            perm = node.attributes.get("perm") or tuple(reversed(range(len(weight.axes))))
            followers = tuple((of, tuple(axes[k] for k in perm)) for of, axes in weight.followers)
            weight = replace(weight, axes=tuple(weight.axes[k] for k in perm), followers=followers)
        elif name in _SAME_AXES:
            others = [self.weights[n].parameter for n in node.inputs[1:] if n in self.weights]
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
        self.weights[node.outputs[0]] = weight
        return True

    def _weights_of(self, node: Node) -> list[tuple[int, _Weight]]:
        """Returns the operands of a node that are weights of two or more axes, with their positions."""
        found = [(k, self.weights[n]) for k, n in enumerate(node.inputs) if n in self.weights]
        return [(k, weight) for k, weight in found if len(weight.axes) > 1]

    def _looks_up(self, node: Node) -> bool:
        tables = [(k, weight) for k, weight in self._weights_of(node) if k == 0 or _is_weight(node, k)]
        tables = [(k, w) for k, w in tables if len(w.axes) == 2 or _name(node) == "gather_block_quantized"]
        if _name(node) == "gather" and (node.attributes.get("axis", 0) != 0 or node.inputs[1] in self.constants):
            tables = []
        for position, table in tables:
            axes = table.axes[0], table.axes[-1]
            self.readings.append(Reading(table.parameter, "table", None, *axes))
            self._follow_weight(node, position, table, None, "table", 0, len(table.axes) - 1)
        if tables:
            self.whole_results.append(node)
            self._read_others(node)
        return bool(tables)

    def _product(self, index: int, node: Node, kind: str) -> _Split | None:
        weights = self._weights_of(node)
        weights = [(k, w) for k, w in weights if k > 0][:1]
        if not weights:
            self._read_others(node)
            return self._passed(node, kind, _name(node)) if self._split_operands(node) else None
        position, weight = weights[0]
        operand = self.split.get(node.inputs[0])
        product = self.products.setdefault(index, Product("first"))
        if kind == "convolution":
            product.kind, by_output, by_input = "filter", 0, 1
        else:
            transposed = any(node.attributes.get(a) for a in ("transB", "transpose_b")) or _name(node) == "matmul_nbits"
            by_output, by_input = (-2, -1) if transposed else (-1, -2)
            if _name(node) == "matmul_nbits":
                by_output, by_input = 0, 1
            product.kind = "last" if operand is not None and operand.form != CHANNELS else "first"
            if kind == "attention":
                product.kind, product.cut = "first", True
            if operand is not None and operand.form == CHANNELS:
                self._need_whole(operand)
        self.by_node.append((node, product))
        if operand is None and kind == "linear" and node.inputs[0] in self.producers:
            # A compiler that splits what a weight contracts would split all that it is computed from.
            self.whole_results.append(self.producers[node.inputs[0]])
        axes = weight.axes[by_output], weight.axes[by_input]
        self.readings.append(Reading(weight.parameter, product.kind, product, *axes))
        self._follow_weight(node, position, weight, product, product.kind, by_output, by_input)
        self._read_others(node)
        if product.kind == "last" or (product.whole and product.kind != "filter"):
            return None
        return _Split((product,), CHANNELS if kind == "convolution" else FEATURES)

    def _follow_weight(
        self, node: Node, position: int, weight: _Weight, product: Any, kind: str, by_output: int, by_input: int
    ) -> None:
        """Notes the scales and zero points of a weight: those it came with, and operands of the node behind it."""
        for parameter, axes in weight.followers:
            self.readings.append(Reading(parameter, kind, product, axes[by_output], axes[by_input], weight.parameter))
        if _name(node) not in ("matmul_nbits", "gather_block_quantized"):
            return
        rank = len(weight.axes)
        for k, name in enumerate(node.inputs):
            other = self.weights.get(name)
            if other is None or k <= position or _operand(node, k) not in ("scales", "zero_points"):
                continue
            is_flat = len(other.axes) < rank and len(other.axes) == 1
            axes = (0, None) if is_flat else (0, min(by_input % rank, len(other.axes) - 1))
            self.readings.append(Reading(other.parameter, kind, product, *axes, weight.parameter))

    def _experts(self, node: Node) -> None:
        product = Product("experts")
        for name in node.inputs:
            if name in self.weights:
                self.readings.append(Reading(self.weights[name].parameter, "experts", product, 0))

    def _read_others(self, node: Node) -> None:
        """Notes vectors: scales of a normalization, and what is added to features."""
        for position, name in enumerate(node.inputs):
            weight = self.weights.get(name)
            if weight is None or node.operator.mark(position) == STATISTICS:
                continue
            if node.operator.traits.kind == "normalization":
                self.readings.append(Reading(weight.parameter, "norm"))
            elif len(weight.axes) < 2 or role(node.operator.function, position) == BIAS:
                self.readings.append(Reading(weight.parameter, "bias"))

    # What becomes of split values.

    def _split_operands(self, node: Node) -> list[_Split]:
        """Returns the operands that are split. A node that asks for sizes alone reads no features."""
        read = (n for k, n in enumerate(node.inputs) if node.operator.mark(k) not in (STATIC, SHAPE_ONLY))
        return [self.split[n] for n in read if n in self.split]

    def _need_whole(self, *values: _Split) -> None:
        """Marks the products whose features are needed at once."""
        for value in values:
            for product in value.makers:
                if not product.whole:
                    product.whole = self.changed = True

    def _cut(self, value: _Split) -> None:
        for product in value.makers:
            product.cut = True

    def _passed(self, node: Node, kind: str, name: str) -> _Split | None:
        """Returns the form of the results of a node that reads split values; None if they are whole."""
        values = self._split_operands(node)
        makers = tuple(dict.fromkeys(product for value in values for product in value.makers))
        forms = {value.form for value in values}
        form = HEADS if HEADS in forms else FEATURES if FEATURES in forms else CHANNELS
        result = _Split(makers, form, max(v.head for v in values), max(v.rank for v in values))
        if form == CHANNELS:
            return self._passed_channels(node, kind, name, result)
        if kind == "attention":
            return self._attended(node, result)
        if form == FEATURES and (self._is_over_features(node, kind, name) or self._meets_whole(node, name)):
            self._need_whole(*values)
            return None
        if name in ("reshape", "flatten"):
            return self._reshaped(node, result)
        if name == "transpose":
            perm = node.attributes.get("perm") or ()
            return result if perm and perm[-1] == len(perm) - 1 and form == FEATURES else replace(result, form=HEADS)
        if kind == "movement" and self._cuts(node, name, result):
            self._cut(result)
            if form == FEATURES:  # a compiler would split them across the parts, and move pieces of each
                self.whole_results.append(node)
        return result

    def _passed_channels(self, node: Node, kind: str, name: str, result: _Split) -> _Split | None:
        if kind == "normalization" and name in ("layer_normalization", "rms_normalization", "skip_layer_normalization"):
            self._need_whole(result)
            return None
        return None if kind in ("pooling", "linear", "attention") or name.startswith("reduce_") else result

    def _is_over_features(self, node: Node, kind: str, name: str) -> bool:
        """Tells whether a node needs all features, which are its last axis, at once."""
        if kind == "normalization" or name in _OVER_FEATURES:
            return True
        if not name.startswith("reduce_"):
            return False
        axes = node.attributes.get("axes")
        axes = self._constant(node, 1) if axes is None else axes
        return axes is None or any(a in (-1, 2) for a in np.ravel(axes))

    def _meets_whole(self, node: Node, name: str) -> bool:
        """Tells whether a node combines features with a value that is not split."""
        whole = (n for n in node.inputs if n in self.activations and n not in self.split and n not in self.weights)
        return name in _SUMS and any(whole)

    def _attended(self, node: Node, result: _Split) -> _Split:
        attributes = node.attributes
        heads = attributes.get("q_num_heads") or attributes.get("num_heads") or 0
        groups = attributes.get("kv_num_heads") or heads
        for position, count in enumerate((heads, groups, groups)):
            value = self.split.get(node.inputs[position]) if position < len(node.inputs) else None
            for product in value.makers if value is not None and count else ():
                product.heads = count
        query = self.split.get(node.inputs[0])
        if query is not None and (len(node.inputs) < 2 or not node.inputs[1]):  # queries, keys and values in one
            self._cut(query)
        return replace(result, form=FEATURES if query is not None and query.form == FEATURES else HEADS)

    def _reshaped(self, node: Node, value: _Split) -> _Split:
        rank, last = self._sizes(node.inputs[1]) if len(node.inputs) > 1 else (2, 0)
        if value.form == HEADS and not (rank and rank <= 3 and (not value.head or last != value.head)):
            return replace(value, rank=rank)
        if value.form == FEATURES and rank > 3:
            for product in value.makers if last > 0 else ():
                product.heads = self._width(product) // last
            return replace(value, form=HEADS, head=max(last, 0), rank=rank)
        return replace(value, form=FEATURES, rank=rank)

    def _width(self, product: Product) -> int:
        made = [r for r in self.readings if r.product is product and r.by_output is not None and not r.of]
        return self.shapes[made[0].parameter][made[0].by_output or 0] if made else 0

    def _cuts(self, node: Node, name: str, value: _Split) -> bool:
        """Tells whether a node takes one of several parts that lie side by side in the features."""
        axis = node.attributes.get("axis", 0)
        if name in ("split", "variadic_split"):
            is_last = axis == -1 or (value.rank and axis == value.rank - 1)
            return len(node.outputs) > 1 and (not is_last if value.form == HEADS else axis != 0)
        if name == "gather":
            index = self._constant(node, 1)
            return value.form == HEADS and value.rank > 4 and index is not None and index.size == 1
        if name == "slice" and value.form == FEATURES:
            axes = self._constant(node, 3)
            return axes is not None and any(a in (-1, 2) for a in np.ravel(axes))
        return False

    # Sizes that a graph gives as constants.

    def _constant(self, node: Node, position: int) -> Any:
        return self.constants.get(node.inputs[position]) if position < len(node.inputs) else None

    def _sizes(self, name: str) -> tuple[int, int]:
        """Returns the length of a list of sizes and its last entry; 0 for what is not known."""
        value = self.constants.get(name)
        if value is not None:
            return (value.size, int(value.reshape(-1)[-1])) if value.size else (0, 0)
        return self.last_entries.get(name, (0, 0))

    def _note_sizes(self, node: Node) -> None:
        last = self.constants.get(node.inputs[-1])
        entry = int(last.reshape(-1)[-1]) if last is not None and last.size and last.dtype.kind == "i" else 0
        counts = [self.constants[n].size if n in self.constants else 1 for n in node.inputs]
        self.last_entries[node.outputs[0]] = sum(counts), entry


def _name(node: Node) -> str:
    """The name of the function of an operator, without the version of the standard at its end."""
    return re.sub(r"_\d+$", "", getattr(node.operator.function, "__name__", ""))


def _operand(node: Node, position: int) -> str:
    formals: Sequence[str] = node.operator.formals
    return formals[min(position, len(formals) - 1)] if formals else ""


def _is_weight(node: Node, position: int) -> bool:
    return role(node.operator.function, position) == WEIGHT or node.operator.traits.kind == "embedding"
