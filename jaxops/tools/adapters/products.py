"""Finds the products of a value and a matrix of weights in a prepared graph, and names the modules that they are of.

A weight is whatever follows from parameters and static values alone: a parameter, a transposed one, or integers that a
DequantizeLinear makes floats of. Weights of a few bits are read by an operator of their own, which tells the sizes.
"""

from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops import ops
from jaxops.dtypes import canonical, is_float
from jaxops.graph.interpreter import run_graph
from jaxops.graph.nodes import Graph, Node, Tensor, Value
from jaxops.ops import microsoft
from jaxops.signature import WEIGHT, role
from jaxops.tools.inspect.parameter_paths import paths

# Nodes whose result has the elements of a parameter.
_COPIES = (ops.transpose, ops.identity, ops.cast)


@dataclass(frozen=True, eq=False)
class Product:
    """A node that multiplies a value by a weight.

    sizes: the numbers of inputs and outputs. dtype: of the result. is_turned: whether the value is transposed first.
    parameters: those that the weight follows from. weight: the only one, if it is floats and the weight is its values;
    else ''. by_rows: whether its shape is (outputs, inputs). factor: what the product is multiplied by.
    """

    node: Node
    sizes: tuple[int, int]
    dtype: np.dtype
    is_turned: bool
    parameters: tuple[str, ...]
    weight: str
    by_rows: bool
    factor: float


@dataclass
class Modules:
    """The products of a model. by_module: those of each module. other: the operators that read weights of modules
    without a product, by the path of the module."""

    by_module: dict[str, list[Product]] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)


class _Layout(NamedTuple):
    """How a node multiplies: whether it transposes the value and the weight, and the factor of the product. sizes: the
    numbers of inputs and outputs, where the node states them."""

    value: bool = False
    weight: bool = False
    factor: float = 1.0
    sizes: tuple[int, int] | None = None


def modules_with_products(graph: Graph, tensors: Mapping[str, Tensor]) -> Modules:
    """Returns the products of a prepared graph and of its subgraphs, by module. tensors: the parameters."""
    finder = _Finder(tensors)
    finder.walk(graph)
    return _named(finder, paths(graph).names)


def _named(finder: "_Finder", path_of: Mapping[str, str]) -> Modules:
    """A module is the one of the node; but where it has several weights, or is unknown, the one in a weight's name."""
    found = Modules()
    weights = defaultdict(set)
    for product in finder.products:
        weights[product.node.scope].add(product.parameters)
    names: dict[tuple[str, ...], str] = {}  # weights of a module without a scope of its own → the module
    for product in finder.products:
        name = product.node.scope
        if not name or len(weights[name]) > 1:
            if product.parameters not in names:
                module = _module_of_weight(path_of[product.parameters[0]])
                taken = {*found.by_module, *names.values()}
                names[product.parameters] = next(m for m in _numbered(module) if m not in taken)
            name = names[product.parameters]
        found.by_module.setdefault(name, []).append(product)
    for node in finder.others:
        path = node.scope or _module_of_weight(path_of.get(finder.others[node], finder.others[node]))
        if path not in found.by_module:
            found.other.setdefault(path, node.operator.name)
    return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    count = 1
    while True:
        count += 1
        yield f"{name}_{count}"


def _module_of_weight(path: str) -> str:
    """Returns the module of a weight.

    >>> _module_of_weight("layers.0.fc.weight"), _module_of_weight("attn.in_proj_weight"), _module_of_weight("w")
    ('layers.0.fc', 'attn.in_proj', 'w')
    """
    module, _, leaf = path.rpartition(".")
    return module if module and leaf in ("weight", "kernel") else path.removesuffix("_weight")


class _Scope:
    """What a graph may read that does not depend on inputs: by name, parameters, static values, and nodes that compute
    a value of these."""

    def __init__(self, graph: Graph, outer: "_Scope | None" = None) -> None:
        hidden = dict.fromkeys(value.name for value in graph.inputs)
        self.params: ChainMap[str, Any] = ChainMap({**hidden, **graph.params}, *(outer.params.maps if outer else ()))
        self.static: ChainMap[str, Any] = ChainMap({**hidden, **graph.static}, *(outer.static.maps if outer else ()))
        self.nodes: ChainMap[str, Any] = ChainMap({**hidden}, *(outer.nodes.maps if outer else ()))

    def has(self, name: str) -> bool:
        """Returns True if a value does not depend on inputs."""
        return any(values.get(name) is not None for values in (self.params, self.static, self.nodes))

    def add(self, node: Node) -> None:
        """Adds the results of a node, if they do not depend on inputs."""
        if not (node.subgraphs or node.body is not None or node.draws) and all(
            map(self.has, filter(None, node.inputs))
        ):
            self.nodes.update(dict.fromkeys(filter(None, node.outputs), node))

    def part(self, name: str) -> Graph:
        """Returns the part of the graph that computes such a value."""
        nodes, params, static = dict[Node, None](), dict[str, str](), dict[str, Any]()

        def visit(name: str) -> None:
            if self.params.get(name) is not None:
                params[name] = self.params[name]
            elif self.static.get(name) is not None:
                static[name] = self.static[name]
            elif self.nodes[name] not in nodes:
                for read in filter(None, self.nodes[name].inputs):
                    visit(read)
                nodes[self.nodes[name]] = None

        visit(name)
        return Graph("", (), (Value(name, None, None),), tuple(nodes), {}, static, params)


class _Finder:
    """products: those found. others: nodes that read a weight in another way, each with the name of a parameter."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors, self.products, self.others = tensors, list[Product](), dict[Node, str]()
        self._walked: set[Graph] = set()

    def walk(self, graph: Graph, outer: _Scope | None = None) -> None:
        """Adds the products of a graph and of its subgraphs. outer: what the graph may capture."""
        if graph in self._walked:
            return
        self._walked.add(graph)
        scope = _Scope(graph, outer)
        for node in graph.nodes:
            for inner in node.subgraphs.values():
                self.walk(inner, scope)
            product = self._product(node, scope)
            if product is not None:
                self.products.append(product)
            else:
                self._add_other(node, scope)
            scope.add(node)

    def _add_other(self, node: Node, scope: _Scope) -> None:
        for position, name in enumerate(node.inputs):
            is_weight = role(node.operator.function, position) == WEIGHT or node.body is not None
            if is_weight and scope.params.get(name) is not None:
                self.others[node] = scope.params[name]

    def _product(self, node: Node, scope: _Scope) -> Product | None:
        layout = _layout(node)
        if layout is None or scope.has(node.inputs[0]) or not scope.has(node.inputs[1]):
            return None
        part = scope.part(node.inputs[1])
        used = tuple(part.params.values())
        if layout.sizes is not None:
            kind = self._kind(scope.part(node.inputs[2]))  # the scales have the type of the value
            return Product(node, layout.sizes, kind.dtype, False, used, "", False, 1.0) if used else None
        kind = self._kind(part)
        if not used or len(kind.shape) != 2 or not is_float(kind.dtype) or 0 in kind.shape:
            return None
        sizes = kind.shape[::-1] if layout.weight else kind.shape
        turned = _turned(part, node.inputs[1])
        is_its_values = turned is not None and layout.factor != 0 and is_float(self.tensors[used[0]].dtype)
        weight, by_rows = used[0] if is_its_values else "", layout.weight != bool(turned)
        return Product(node, sizes, np.dtype(kind.dtype), layout.value, used, weight, by_rows, layout.factor)

    def _kind(self, part: Graph) -> Any:
        """Returns the shape and type of a weight."""
        types = {
            name: jax.ShapeDtypeStruct(self.tensors[name].shape, canonical(self.tensors[name].dtype))
            for name in part.params.values()
        }
        return jax.eval_shape(lambda values: run_graph(part, {}, values, None)[0], types)


def _turned(part: Graph, name: str) -> bool | None:
    """Returns whether a weight is its parameter transposed; None if it is not the values of its parameter."""
    producers, turned = {node.outputs[0]: node for node in part.nodes}, False
    while name in producers:
        node = producers[name]
        if node.operator.function is ops.transpose:
            turned = not turned
        elif node.operator.function not in _COPIES:
            return None
        name = node.inputs[0]
    return turned


def _layout(node: Node) -> _Layout | None:
    """Returns how a node multiplies its first input by its second; None for any other node."""
    function, attributes = node.operator.function, node.attributes

    def given(name: str) -> Any:
        return attributes.get(name) or 0

    if function is ops.matmul and not given("transpose_a"):
        return _Layout(weight=bool(given("transpose_b")))
    if function is ops.gemm:
        alpha = attributes.get("alpha")
        return _Layout(bool(given("transA")), bool(given("transB")), 1.0 if alpha is None else float(alpha))
    if function is microsoft.matmul_nbits:
        return _Layout(sizes=(int(attributes["K"]), int(attributes["N"])))
    return None


def can_merge(products: Sequence[Product], graph: Graph) -> bool:
    """Returns True if these products read one parameter of floats in one way, and nothing else in a graph reads it."""
    forms = {(product.weight, product.by_rows, product.factor) for product in products}
    weight = products[0].weight
    return bool(weight) and len(forms) == 1 and _alone(graph, {}, weight, {product.node for product in products})


def _alone(graph: Graph, outer: Mapping[str, str], weight: str, nodes: set[Node]) -> bool:
    """Returns True if only these nodes read a parameter, itself or its elements moved or converted."""
    local = {**outer, **graph.params}
    for node in graph.nodes:
        if any(local.get(name) == weight for name in node.inputs) and node not in nodes:
            if node.operator.function not in _COPIES:
                return False
            local[node.outputs[0]] = weight
        if node.body is not None and not _alone(node.body, {}, weight, nodes):
            return False
        if not all(_alone(inner, local, weight, nodes) for inner in node.subgraphs.values()):
            return False
    return all(local.get(value.name) != weight for value in graph.outputs)
