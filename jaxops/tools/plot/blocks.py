"""A graph as boxes for drawing: modules within modules, the operators between them, and their tensors."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxops import ops
from jaxops.errors import amount
from jaxops.graph.nodes import Graph, Node
from jaxops.signature import SHAPE_ONLY, STATIC
from jaxops.tools.inspect.modules import Modules, modules, parameters

# The kind of a box is the first of these that one of its operators has.
KINDS = (*("attention", "convolution", "linear", "recurrent", "normalization", "pooling", "activation", "embedding"),)


@dataclass
class Block:
    """A box: an input or output, operators, or a module, which may show its inner blocks.

    detail: a second line. edges: between inner blocks, by index; −1 is the upper border, −2 the lower one.
    """

    name: str
    kind: str
    detail: str = ""
    nodes: list[Node] = field(default_factory=list)
    module: bool = False
    inside: list["Block"] = field(default_factory=list)
    edges: dict[tuple[int, int], list[str]] = field(default_factory=dict)


TOP, BOTTOM = -1, -2


def blocks(graph: Graph, weights: Mapping[str, Any], depth: int) -> Block:
    """The model as a block, with modules down to `depth`. Nodes that only compute sizes are left out."""
    tree = modules(graph)
    carrying = _carrying(graph)
    nodes = [node for node in graph.nodes if id(node) in carrying]
    root = _block(tree.path(()) or graph.name or "model", nodes, (), tree, depth, _Facts(graph, weights, carrying))
    if not root.inside:
        root = dataclasses.replace(root, inside=[root])
    read = {name for node in nodes for name in _data(node)}
    inputs = [v for v in graph.inputs if v.name in read]
    outputs = [v for v in graph.outputs if v.name]
    root.edges = {ends: names for ends, names in root.edges.items() if TOP not in ends and BOTTOM not in ends}
    start = len(root.inside)
    root.inside += [Block(v.name, "input", _type(v)) for v in inputs]
    root.inside += [Block(v.name, "output", _type(v)) for v in outputs]
    makers = {name: start + k for k, name in enumerate(v.name for v in inputs)}
    makers |= {name: k for k, block in enumerate(root.inside[:start]) for node in block.nodes for name in node.outputs}
    input_names = {v.name for v in inputs}
    for k, block in enumerate(root.inside[:start]):
        _connect(root, makers, k, (name for node in block.nodes for name in _data(node) if name in input_names))
    for k, value in enumerate(outputs):
        _connect(root, makers, start + len(inputs) + k, [value.name])
    return root


@dataclass(frozen=True, eq=False)
class _Facts:
    graph: Graph
    weights: Mapping[str, Any]
    carrying: set[int]

    @functools.cached_property
    def flowing(self) -> set[str]:
        """The tensors that are data."""
        outputs = {name for node in self.graph.nodes if id(node) in self.carrying for name in node.outputs}
        return outputs | {value.name for value in self.graph.inputs}

    @functools.cached_property
    def readers(self) -> Mapping[str, set[int]]:
        """The nodes that read each tensor as data; 0 stands for the output of the graph."""
        reading: dict[str, set[int]] = {value.name: {0} for value in self.graph.outputs}
        for node in self.graph.nodes:
            for name in _data(node):
                reading.setdefault(name, set()).add(id(node))
        return reading

    def leaves(self, name: str, inside: set[int]) -> bool:
        """Returns True if a node outside of `inside` reads a tensor."""
        return not self.readers.get(name, set()) <= inside

    def detail(self, nodes: Sequence[Node]) -> str:
        used: set[str] = set()
        for node in nodes:
            used |= parameters(node, self.graph)
        total = sum(math.prod(self.weights[name].shape) for name in used if name in self.weights)
        parts = [f"{len(nodes)} operators"] if len(nodes) > 1 else []
        return " · ".join([*parts, *([amount(total, "parameter")] if total else [])])

    def kind(self, nodes: Sequence[Node]) -> str:
        """The main kind of the nodes, for a colour."""
        operators = [node.operator for node in _opened(nodes, set())]
        functions, kinds = [o.function for o in operators], [o.traits.kind for o in operators]
        if ops.softmax in functions and kinds.count("linear") > 1:
            return "attention"
        if any(node.operator.function is ops.gather and parameters(node, self.graph) for node in nodes):
            kinds.append("embedding")
        spelt_out = ops.sqrt in functions and ops.reduce_mean in functions  # x / sqrt(mean(x²))
        return next(filter(kinds.__contains__, KINDS), "normalization" if spelt_out else "operators")


def _opened(nodes: Iterable[Node], seen: set[Graph]) -> Iterator[Node]:
    """The nodes; those of a function's body replace its first call. seen: bodies that were visited."""
    for node in nodes:
        if node.body is None:
            yield node
        elif node.body not in seen:
            seen.add(node.body)
            yield from _opened(node.body.nodes, seen)


def _type(value: Any) -> str:
    return str(value).partition(": ")[2]


def _data(node: Node) -> list[str]:
    """The tensors that a node reads as data, without static ones and those of which it only reads the sizes."""
    marks = (node.operator.mark(k) for k in range(len(node.inputs)))
    data = [name for name, mark in zip(node.inputs, marks, strict=True) if name and mark not in (STATIC, SHAPE_ONLY)]
    return data + [name for graph in node.subgraphs.values() for name in sorted(graph.captures)]


def _carrying(graph: Graph) -> set[int]:
    """The nodes through which data flow from an input or a parameter to an output; all other nodes compute sizes."""
    moving = {value.name for value in graph.inputs} - set(graph.params)
    fed = set()
    for node in graph.nodes:
        learned = node.operator.traits.kind != "form" and parameters(node, graph)
        if learned or moving.intersection(_data(node)) or node.draws:
            fed.add(id(node))
            moving.update(node.outputs)
    read = {value.name for value in graph.outputs}
    carrying = set()
    for node in reversed(graph.nodes):
        if id(node) in fed and read.intersection(node.outputs):
            carrying.add(id(node))
            read.update(_data(node))
    return carrying


def _block(name: str, nodes: list[Node], key: tuple[str, ...], tree: Modules, depth: int, facts: _Facts) -> Block:
    block = Block(name, facts.kind(nodes), facts.detail(nodes), nodes, module=True)
    if (len(key) >= depth and not tree.flat) or (tree.flat and key):
        return block
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        inner = () if tree.flat else tree.of(node, len(key) + 1)[len(key) :]
        groups.setdefault(inner[0] if inner else id(node), []).append(node)
    children = [
        _block(child, members, (*key, child), tree, depth, facts)
        if isinstance(child, str)
        else _operators(members, facts)
        for child, members in groups.items()
    ]
    block.inside = children if tree.flat else _joined(children, facts)
    if key and len(block.inside) == 1 and not block.inside[0].module:
        block.inside = []  # operators alone are one box, which is the module itself
    _inner_edges(block, nodes, facts)
    return block


def _operators(nodes: list[Node], facts: _Facts) -> Block:
    names = list(dict.fromkeys(node.operator.name for node in nodes))
    label = " · ".join(names[:2]) + (" …" if len(names) > 2 else "")
    return Block(label, facts.kind(nodes) if len(nodes) == 1 else "operators", facts.detail(nodes), nodes)


def _joined(blocks: list[Block], facts: _Facts) -> list[Block]:
    """The blocks; operators between modules are merged with the block that alone reads them."""
    makers = {name: k for k, block in enumerate(blocks) for node in block.nodes for name in node.outputs}
    inside = {id(node) for block in blocks for node in block.nodes}
    readers: list[set[int]] = [set() for _ in blocks]
    for k, block in enumerate(blocks):
        for node in block.nodes:
            for name in _data(node):
                if makers.get(name, k) != k:
                    readers[makers[name]].add(k)
    owner = list(range(len(blocks)))
    for k in reversed(range(len(blocks))):  # readers come later, so the merged block of each is known
        into = {owner[reader] for reader in readers[k]}
        names = [name for node in blocks[k].nodes for name in node.outputs]
        if len(into) == 1 and _is_loose(blocks[k]) and not any(facts.leaves(name, inside) for name in names):
            (other,) = into
            owner[k] = other if _is_loose(blocks[other]) else k
    joined: dict[int, list[Node]] = {}
    for k, block in enumerate(blocks):
        joined.setdefault(owner[k], []).extend(block.nodes)
    return [
        blocks[k] if len(nodes) == len(blocks[k].nodes) else _operators(nodes, facts) for k, nodes in joined.items()
    ]


def _is_loose(block: Block) -> bool:
    """Returns True if a block holds operators between modules that have no weights of their own."""
    return not block.module and block.kind in ("operators", "activation")


def _inner_edges(block: Block, nodes: list[Node], facts: _Facts) -> None:
    makers = {name: k for k, inner in enumerate(block.inside) for node in inner.nodes for name in node.outputs}
    for k, inner in enumerate(block.inside):
        reads = [name for node in inner.nodes for name in _data(node) if name in facts.flowing]
        _connect(block, {**dict.fromkeys(reads, TOP), **makers}, k, reads)
    inside = set(map(id, nodes))
    for name, k in makers.items():
        if facts.leaves(name, inside):
            block.edges.setdefault((k, BOTTOM), []).append(name)


def _connect(block: Block, makers: Mapping[str, int], reader: int, names: Iterable[str]) -> None:
    for name in names:
        maker = makers.get(name)
        if maker is not None and maker != reader:
            tensors = block.edges.setdefault((maker, reader), [])
            if name not in tensors:
                tensors.append(name)
