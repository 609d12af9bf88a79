"""Gives each module that reads a shared initializer its own parameter.

Exporters write equal tensors once: biases of zeros, scales of ones, all weights of a layer that was copied. Trained as
one parameter they would stay equal, but the exported model trains each of them. These stay tied: a matrix that an
embedding looks up, a table that no author trains, and a tensor that one module reads several times.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from jaxops import ops
from jaxops.dtypes import is_float
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.parameters import single_weights
from jaxops.graph.untrained_tables import untrained_tables
from jaxops.signature import role
from jaxops.tools.inspect.parameter_paths import path_in_name

# True: one parameter for each initializer; False: one for each module; or a function from module paths to one of these.
Tied: TypeAlias = bool | Callable[[tuple[str, ...]], bool]


class _Read(NamedTuple):
    """The use of an initializer by a node.

    node, position: the number of the node, and of its input. module, leaf: the path of the parameter there; '' if
    unknown. looks_up: whether it is the table of an embedding. alias: the name that an Identity gives the tensor, if
    that is the path of another parameter.
    """

    node: int
    position: int
    module: str
    leaf: str
    looks_up: bool = False
    alias: str = ""


def untied(graph: Graph, tied: Tied | None) -> Graph:
    """Returns the graph with an initializer for each module that reads a shared one. tied: None for the default.

    The original initializer stays for subgraphs that capture it, for inputs and outputs of the model, and for nodes
    without a module.
    """
    if tied is True:
        return graph
    reads = _Reads(graph)
    nodes: list[Node | None] = list(graph.nodes)
    initializers, names = dict(graph.initializers), set(graph.defined)
    singles, untrained = single_weights(graph), untrained_tables(graph)
    fixed = reads.captured | {value.name for value in (*graph.inputs, *graph.outputs)}
    fixed |= {variable.initial for variable in graph.variables}
    waiting = list(initializers)
    while waiting:
        name = waiting.pop()
        tensor = initializers[name]
        if name in fixed or not (is_float(tensor.dtype) and (math.prod(tensor.shape) > 1 or name in singles)):
            continue
        groups: dict[tuple[str, str], list[_Read]] = {}
        for read in reads.of(name):
            groups.setdefault((read.module, read.leaf if read.module else ""), []).append(read)
        modules = tuple(sorted({module for module, _ in groups if module}))
        is_table = len(tensor.shape) == 2 and any(read.looks_up for group in groups.values() for read in group)
        is_table = is_table or name in untrained
        if len(groups) < 2 or (tied(modules) if callable(tied) else tied is None and is_table):
            continue
        owner = _owner(name, list(groups))
        for key, group in groups.items():
            if key == owner:
                continue
            alias = next((read.alias for read in group if read.alias), "")
            unique = alias or _unique(_path(name, *key), names)
            names.add(unique)
            initializers[unique] = tensor
            waiting += [unique] * bool(alias)  # which several modules may read
            for read in group:
                node = nodes[read.node]
                if node is None or read.alias == unique:
                    nodes[read.node] = None
                    continue
                inputs = list(node.inputs)
                inputs[read.position] = unique
                nodes[read.node] = dataclasses.replace(node, inputs=tuple(inputs))
    return dataclasses.replace(graph, nodes=tuple(filter(None, nodes)), initializers=initializers)


def _owner(name: str, keys: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Returns the key of the readers that keep the initializer: those without a module, the module in its name, the
    closest module around that one, or the first one."""
    path = f"{(path_in_name(name) or '').rpartition('.')[0]}."
    return min(keys, key=lambda key: (key[0] != "", -len(key[0]) * path.startswith(f"{key[0]}."), keys.index(key)))


def _path(name: str, module: str, leaf: str) -> str:
    return f"{module}.{leaf or (path_in_name(name) or name).rpartition('.')[2]}"


def _unique(path: str, names: set[str]) -> str:
    unique, count = path, 1
    while unique in names:
        count += 1
        unique = f"{path}_{count}"
    return unique


class _Reads:
    """The uses of the values of a graph. captured: the values that its subgraphs read."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: Sequence[Node] = graph.nodes
        self.captured = {name for node in graph.nodes for inner in node.subgraphs.values() for name in inner.captures}
        self.places: dict[str, list[tuple[int, int]]] = {}
        for index, node in enumerate(graph.nodes):
            for position, name in enumerate(node.inputs):
                self.places.setdefault(name, []).append((index, position))

    def of(self, name: str) -> Iterator[_Read]:
        """The uses of a value. A node that only moves its elements counts for the module that reads its result."""
        for index, position in self.places.get(name, ()):
            node = self.nodes[index]
            if node.operator.traits.kind != "form" or position != 0:
                looks_up = position == 0 and (node.operator.function is ops.gather or _embeds(node))
                leaf = role(node.operator.function, position) if node.operator.traits.kind != "recurrent" else None
                yield _Read(index, position, node.scope, leaf or "", looks_up)
                continue
            # PyTorch's exporter writes another path of a tensor as an Identity of this name.
            alias = node.outputs[0] if node.operator.function is ops.identity else ""
            path = path_in_name(alias)
            behind = list(self.of(node.outputs[0]))
            keys = {(read.module, read.leaf) for read in behind}
            module, leaf = keys.pop() if len(keys) == 1 and node.outputs[0] not in self.captured else ("", "")
            if path:
                module, _, leaf = path.rpartition(".")
            yield _Read(index, position, module, leaf, any(read.looks_up for read in behind), alias if path else "")


def _embeds(node: Node) -> bool:
    return node.operator.traits.kind == "embedding"
