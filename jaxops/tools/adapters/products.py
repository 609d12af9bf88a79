"""Finds the products of a value and a matrix of weights in a prepared graph, and names the modules that they are of.

A weight is whatever follows from parameters and static values alone: a parameter, a transposed one, or integers that a
DequantizeLinear makes floats of. Weights of a few bits are read by an operator of their own, which tells the sizes.
"""

import re
from collections import ChainMap, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
# The attentions of onnxruntime-genai's builder, and the paths of the modules in which it puts them.
_ATTENTIONS = (microsoft.group_query_attention, microsoft.multi_head_attention, microsoft.sparse_attention)
_OF_BUILDER = re.compile(r"model\.layers\.\d+\.attn")
# Kinds of operators that have weights as the layers of a program do.
_LAYERS = ("linear", "convolution", "recurrent")


@dataclass(frozen=True, eq=False)
class Product:
    """A node that multiplies a value by a weight.

    sizes: the numbers of inputs and outputs. dtype: of the result. is_turned: whether the value is transposed first.
    parameters: those that the weight follows from; if there are none, its name. weight: the only one, if it is floats
    that the product reads as they are; else ''. by_rows: whether its shape is (outputs, inputs). factor: what the
    product is multiplied by. parts: the numbers of outputs that an attention takes as queries, keys and values; empty
    if none takes them apart.
    """

    node: Node
    sizes: tuple[int, int]
    dtype: np.dtype
    is_turned: bool
    parameters: tuple[str, ...]
    weight: str
    by_rows: bool
    factor: float
    parts: tuple[int, ...] = ()

    @property
    def matrix(self) -> Any:
        """The parameters and the numbers of inputs and outputs, which products of one adapter have in common."""
        return self.parameters, self.sizes


@dataclass
class Modules:
    """The products of a model.

    readers: the nodes that read each parameter, itself or its elements moved or converted; None for an output of a
    graph. by_module: the products of each module. other: the operators that read weights of modules without a product,
    by the path of the module. attentions: the paths of attentions that onnxruntime-genai's builder wrote. called: the
    last two names of a module in transformers, for those of the builder.
    """

    readers: Mapping[str, set[Node | None]]
    by_module: dict[str, list[Product]] = field(default_factory=dict)
    other: dict[str, str] = field(default_factory=dict)
    attentions: frozenset[str] = frozenset()
    called: Mapping[str, str] = field(default_factory=dict)

    def saved_as(self, module: str) -> str:
        """Returns the path of a module in a file of peft, which has `self_attn` for each of `attentions`."""
        parent, _, leaf = module.rpartition(".")
        name = f"{parent.removesuffix('attn')}self_attn.{leaf}" if parent in self.attentions else module
        last = ".".join(name.split(".")[-2:])
        return name.removesuffix(last) + self.called.get(last, last)

    def can_merge(self, products: Sequence[Product]) -> bool:
        """Returns True if these products read one parameter of floats in one way, and nothing else reads it."""
        forms = {(product.weight, product.by_rows, product.factor) for product in products}
        return len(forms) == 1 and self.readers.get(products[0].weight) == {product.node for product in products}


class _Layout(NamedTuple):
    """The form of a product: whether it transposes the value and the weight, and its factor. sizes: the numbers of
    inputs and outputs, if the node states them."""

    value: bool = False
    weight: bool = False
    factor: float = 1.0
    sizes: tuple[int, int] | None = None


def modules_with_products(
    graph: Graph, tensors: Mapping[str, Tensor], called: Mapping[str, str] | None = None
) -> Modules:
    """Returns the products of a prepared graph and of its subgraphs, by module. tensors: the parameters. called: see
    `Modules`."""
    finder = _Finder(tensors)
    finder.walk(graph)
    readers = defaultdict[str, set[Node | None]](set)
    _add_readers(graph, {}, readers, set())
    found = Modules(readers, attentions=frozenset(_attentions_of_builder(graph)), called=called or {})
    names = _Names(finder.products, readers, paths(graph).names)
    for product in finder.products:
        found.by_module.setdefault(names.of(product), []).append(product)
    for node, weight in finder.others.items():
        path = node.scope or _module_of_weight(names.path_of.get(weight, weight))
        if path not in found.by_module:
            found.other.setdefault(path, node.operator.name)
    return found


def _attentions_of_builder(graph: Graph) -> Iterator[str]:
    """Yields the paths that onnxruntime-genai's builder gives to attentions, whatever the model calls them."""
    for node in graph.nodes:
        if node.operator.function in _ATTENTIONS and _OF_BUILDER.fullmatch(node.scope):
            yield node.scope


class _Names:
    """The modules of products. path_of: the path of each parameter.

    The module of a product is that of its node. But it is the one in the name of the weight where the node is in none,
    where the module of the node has several weights, and where it has another name, such as that of a converted layer,
    and no other node reads the weight.
    """

    def __init__(
        self, products: Sequence[Product], readers: Mapping[str, set[Node | None]], path_of: Mapping[str, str]
    ) -> None:
        self._readers, self.path_of = readers, path_of
        self._weights, self._scopes = defaultdict[str, set[Any]](set), defaultdict[Any, set[str]](set)
        for product in products:
            self._weights[product.node.scope].add(product.matrix)
            self._scopes[product.matrix].add(product.node.scope)
        self._by_weight, self._taken = dict[Any, str](), set(self._weights)

    def of(self, product: Product) -> str:
        """The module of a product."""
        scope, matrix = product.node.scope, product.matrix
        if scope and len(self._weights[scope]) == 1 and not self._is_named_by_weight(product):
            return scope
        if matrix not in self._by_weight:
            module = _module_of_weight(self.path_of.get(product.parameters[0], product.parameters[0]))
            free = (name for name in _numbered(module) if name not in self._taken)
            is_own = module == scope and module not in self._by_weight.values()
            self._by_weight[matrix] = module if is_own else next(free)
            self._taken.add(self._by_weight[matrix])
        return self._by_weight[matrix]

    def _is_named_by_weight(self, product: Product) -> bool:
        scope, weight = product.node.scope, product.parameters[0]
        path = self.path_of.get(weight, weight)
        if path == _module_of_weight(path) or f"{path}.".startswith(f"{scope}."):
            return False
        return len(self._scopes[product.matrix]) == len(self._readers.get(weight, ())) == 1


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
    """The values of a graph that do not depend on inputs: by name, parameters, static values, and nodes that compute
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
        scope, readers = _Scope(graph, outer), defaultdict[str, list[Node]](list)
        for node in graph.nodes:
            for name in node.inputs:
                readers[name].append(node)
        for node in graph.nodes:
            for inner in node.subgraphs.values():
                self.walk(inner, scope)
            product = self._product(node, scope)
            if product is not None:
                parts = _parts(readers, node.outputs[0], product.sizes[1], scope.static)
                self.products.append(replace(product, parts=parts))
            else:
                self._add_other(node, scope)
            scope.add(node)

    def _add_other(self, node: Node, scope: _Scope) -> None:
        if node.body is None and node.operator.traits.kind not in _LAYERS:
            return
        for position, name in enumerate(node.inputs):
            is_weight = role(node.operator.function, position) == WEIGHT or node.body is not None
            if is_weight and scope.has(name):
                self.others[node] = scope.params.get(name) or name

    def _product(self, node: Node, scope: _Scope) -> Product | None:
        layout = _layout(node)
        if layout is None or scope.has(node.inputs[0]) or not scope.has(node.inputs[1]):
            return None
        part = scope.part(node.inputs[1])
        used = tuple(part.params.values()) or (node.inputs[1],)  # few integers are static values
        if layout.sizes is not None:
            kind = self._kind(scope.part(node.inputs[2]))  # the scales have the type of the value
            return Product(node, layout.sizes, kind.dtype, False, used, "", False, 1.0)
        kind = self._kind(part)
        if len(kind.shape) != 2 or not is_float(kind.dtype) or 0 in kind.shape:
            return None
        sizes = kind.shape[::-1] if layout.weight else kind.shape
        turned = _turned(part, node.inputs[1])
        is_its_values = (
            turned is not None
            and layout.factor != 0
            and used[0] in self.tensors
            and is_float(self.tensors[used[0]].dtype)
        )
        weight, by_rows = used[0] if is_its_values else "", layout.weight != bool(turned)
        return Product(node, sizes, np.dtype(kind.dtype), layout.value, used, weight, by_rows, layout.factor)

    def _kind(self, part: Graph) -> Any:
        """Returns the shape and type of a weight."""
        types = {
            name: jax.ShapeDtypeStruct(self.tensors[name].shape, canonical(self.tensors[name].dtype))
            for name in part.params.values()
        }
        return jax.eval_shape(lambda values: run_graph(part, {}, values, None)[0], types)


def _parts(
    readers: Mapping[str, Sequence[Node]], result: str, count: int, static: Mapping[str, Any]
) -> tuple[int, ...]:
    """Returns how many of `count` outputs are queries, keys and values, where one attention takes all of them.

    It may take them apart itself, or a Split does, so that queries and keys are normalized in between, as in Qwen3.
    """
    reading = readers.get(result, ())
    if len(reading) != 1:
        return ()
    (node,) = reading
    if node.operator.function is ops.add:  # of a bias
        return _parts(readers, node.outputs[0], count, static)
    if node.operator.function is ops.split and len(node.outputs) == 3:
        ends = [_end(readers, name) for name in node.outputs]
        attention, positions = ends[0][0], [position for _, position in ends]
        if positions != [0, 1, 2] or any(one is not attention for one, _ in ends) or attention is None:
            return ()
        parts = _heads(attention, count)
        return parts if np.array_equal(static.get((*node.inputs, "")[1], ()), parts) else ()
    if node.operator.function is not microsoft.group_query_attention or any(node.inputs[1:3]):
        return ()
    return _heads(node, count)


def _heads(attention: Node, count: int) -> tuple[int, ...]:
    heads, groups = (int(attention.attributes[name]) for name in ("num_heads", "kv_num_heads"))
    width, rest = divmod(count, heads + 2 * groups)
    return () if rest else (heads * width, groups * width, groups * width)


def _end(readers: Mapping[str, Sequence[Node]], name: str) -> tuple[Node | None, int]:
    """Returns the attention that alone reads what follows from a value, and at which position."""
    while len(reading := readers.get(name, ())) == 1:
        (node,) = reading
        if node.operator.function is microsoft.group_query_attention:
            return node, node.inputs.index(name)
        name = node.outputs[0]
    return None, -1


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
    batched = given("transBatchA") or given("transBatchB")
    if function is microsoft.fused_matmul and not (given("transA") or batched):
        return _Layout(weight=bool(given("transB")), factor=float(attributes.get("alpha", 1.0)))
    if function is microsoft.matmul_nbits or (function is microsoft.matmul_bnb4 and attributes.get("transB", 1) == 1):
        return _Layout(sizes=(int(attributes["K"]), int(attributes["N"])))
    return None


def _add_readers(
    graph: Graph, outer: Mapping[str, str], readers: dict[str, set[Node | None]], bodies: set[Graph]
) -> None:
    """Adds the readers of each parameter. outer: names around the graph that stand for a parameter. bodies: functions
    whose readers were added."""
    local = {**{name: outer[name] for name in graph.captures if name in outer}, **graph.params}
    for node in graph.nodes:
        copies = node.operator.function in _COPIES
        for parameter in {local[name] for name in node.inputs if name in local}:
            if copies:
                local[node.outputs[0]] = parameter
            else:
                readers[parameter].add(node)
        for inner in node.subgraphs.values():
            _add_readers(inner, local, readers, bodies)
        if node.body is not None and node.body not in bodies:
            bodies.add(node.body)
            _add_readers(node.body, {}, readers, bodies)
    for value in graph.outputs:
        if value.name in local:
            readers[local[value.name]].add(None)
