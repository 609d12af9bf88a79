"""Follows the features that products make through a graph, from the first product of a pair to the last one.

A value is split if a first product made its features, and only work on each feature or each head came after it. Then it
has one of three forms: its features are the last axis, they are cut into heads, or they are the channels of an image
(axis 1). The product that contracts split features is the last one of its pair. Where all features are needed at once
(a normalization, a sum with a value that is not split), the pair is incomplete, and the product is a single one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxops.graph.nodes import Graph, Node
from jaxops.graph.weight_operands import FILTER, FIRST, LAST, Product, Reading, Weight, WeightOperands, name_of
from jaxops.signature import SHAPE_ONLY, STATIC

FEATURES, HEADS, CHANNELS = "features", "heads", "channels"
# Functions of `jaxops.ops` and `jaxops.microsoft` that need all elements of an axis.
_OVER_FEATURES = {"softmax", "log_softmax", "hardmax", "arg_max", "arg_min", "top_k", "lp_normalization", "cum_sum"}
_SUMS = {"add", "sub", "mul", "div"}
# A value of more products is not followed, so that the cost of a long sum grows with its length, not by its square.
_MOST_MAKERS = 64
# A pass may find that a product is a single one, which changes those after it.
_MOST_PASSES = 8


@dataclass
class Followed:
    """The readings of all parameters, and the axis of each node's first result that must not be split."""

    readings: list[Reading] = field(default_factory=list)
    whole_axes: dict[Node, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Split:
    """A split value. makers: the products that made its features. head: the size of a head; 0 if unknown."""

    makers: tuple[Product, ...]
    form: str
    head: int = 0
    rank: int = 0


def follow(graph: Graph, shapes: Mapping[str, tuple[int, ...]]) -> Followed:
    """Follows the features of a prepared graph, and of its subgraphs and functions. shapes: of the parameters."""
    found, seen, waiting = Followed(), set[Graph](), [(graph, dict[str, Weight]())]
    while waiting:
        graph, outer = waiting.pop()
        if graph in seen:
            continue
        seen.add(graph)
        products: dict[int, Product] = {}
        walk, passes = _walked(graph, shapes, outer, products), 1
        while walk.changed and passes < _MOST_PASSES:
            walk, passes = _walked(graph, shapes, outer, products), passes + 1
        found.readings += walk.weights.readings
        found.whole_axes |= walk.whole_axes()
        for node in graph.nodes:
            waiting += [(inner, walk.weights.by_name if inner is not node.body else {}) for inner in node.nested]
    return found


def _walked(graph: Graph, shapes: Any, outer: Mapping[str, Weight], products: dict[int, Product]) -> "_Walk":
    walk = _Walk(graph, shapes, outer, products)
    walk.run()
    return walk


class _Walk:
    def __init__(self, graph: Graph, shapes: Any, outer: Mapping[str, Weight], products: dict[int, Product]) -> None:
        self.graph, self.shapes, self.products = graph, shapes, products
        self.weights = WeightOperands(graph, shapes, outer)
        self.constants: dict[str, Any] = dict(graph.static)
        self.split: dict[str, _Split] = {}
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
                self.producers[name] = node

    def whole_axes(self) -> dict[Node, int]:
        """Returns the axis of the features of each first result that must be whole."""
        axes = dict.fromkeys(self.whole_results, -1)
        for node, product in self.by_node:
            if product.kind == LAST or product.whole:
                axes[node] = 1 if product.kind == FILTER else -1
        return axes

    def _visit(self, index: int, node: Node) -> _Split | None:
        """Notes how a node reads parameters. Returns the form of its results if they are split."""
        kind, name = node.operator.traits.kind, name_of(node)
        if node.is_adapter:  # its parameters follow the weight of the product that it adds to
            return self.split.get(node.inputs[0]) if name == "add" else None
        if self.weights.is_reordered(node, name):
            return None
        if (name in ("gather", "torch_embedding") or kind == "embedding") and self.weights.looks_up(node):
            self.whole_results.append(node)
            return None
        if kind in ("linear", "convolution") or (kind == "attention" and self.weights.of(node)):
            return self._product(index, node, kind)
        if name in ("moe", "qmoe"):
            self.weights.note_experts(node)
            return None
        self.weights.note_others(node)
        if not self._split_operands(node):
            if name == "concat":
                self._note_sizes(node)
            return None
        if node.body is not None or node.subgraphs:
            return None
        return self._passed(node, kind, name)

    def _product(self, index: int, node: Node, kind: str) -> _Split | None:
        found = next(((k, w) for k, w in self.weights.of(node) if k > 0), None)
        if found is None:
            self.weights.note_others(node)
            return self._passed(node, kind, name_of(node)) if self._split_operands(node) else None
        operand, product = self.split.get(node.inputs[0]), self.products.setdefault(index, Product(FIRST))
        if operand is not None and operand.form == CHANNELS and kind == "linear":
            self._need_whole(operand)
            operand = None
        product.kind = FILTER if kind == "convolution" else FIRST if operand is None or kind == "attention" else LAST
        product.cut |= kind == "attention"  # one weight makes its queries, keys and values
        self.by_node.append((node, product))
        if operand is None and kind == "linear" and not node.attributes.get("transA"):
            # A compiler that splits what a weight contracts would split all that it is computed from.
            self.whole_results += [self.producers[n] for n in node.inputs[:1] if n in self.producers]
        self.weights.note_product(node, *found, product)
        self.weights.note_others(node)
        if product.kind == LAST or (product.whole and product.kind != FILTER):
            return None
        return _Split((product,), CHANNELS if product.kind == FILTER else FEATURES)

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
        if len(makers) > _MOST_MAKERS:
            return None
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
        made = (n for n in node.inputs if n in self.producers and n not in self.weights.by_name)
        return name in _SUMS and any(n not in self.split for n in made)

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
        made = [r for r in self.weights.readings if r.product is product and r.by_output is not None and not r.of]
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
