"""Which constants of a model are parameters, and which stay static values of the program.

A weight embedded as a constant makes XLA fold it, slowly, and compile it in. So initializers, and what nodes without
traced operands make (Constant, ConstantOfShape, Range, a Cast of a table), enter the compiled function as arguments,
wherever they stand: subgraphs and function bodies included. Static stay: what the walk over static inputs reached;
integers and booleans (indices, axes, masks), as `jax.grad` over the parameters wants floating point, but not large
arrays of bytes, which are quantised weights; and single numbers (an epsilon, the 3.0 of a Pow, a mask's -inf), which
are constants of a formula: gradient descent must not train them.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops.dtypes import is_float
from jaxops.errors import JaxopsError
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.graph.static_inputs import Needs
from jaxops.graph.trace import step

# From this many elements on, bytes are data rather than structure.
_LARGE = 1024


def prepare(graph: Graph, needs: Mapping[Graph, Needs]) -> tuple[Graph, dict[str, Tensor]]:
    """(the graph with its constants in `static` and `params`, the parameters by name).

    needs: for each graph of the model, what must be static in it. A call may give another value for an initializer that
    is an input too, so nothing is computed from it here.
    """
    split = _Split(needs)
    return split.graph(graph, {}, ""), split.params


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A prepared graph whose parameters have other names, in its subgraphs and functions too."""
    done: dict[Graph, Graph] = {}  # a graph that several nodes share stays one

    def walk(graph: Graph) -> Graph:
        if graph not in done:
            params = {name: names[param] for name, param in graph.params.items()}
            done[graph] = dataclasses.replace(graph, params=params, nodes=tuple(map(node, graph.nodes)))
        return done[graph]

    def node(node: Node) -> Node:
        if node.body is not None:
            return dataclasses.replace(node, body=walk(node.body))
        inner = {name: walk(subgraph) for name, subgraph in node.subgraphs.items()}
        return dataclasses.replace(node, attributes={**node.attributes, **inner}) if inner else node

    return walk(graph)


class _Split:
    def __init__(self, needs: Mapping[Graph, Needs]) -> None:
        self.needs = needs
        self.params: dict[str, Tensor] = {}
        self._bodies: dict[Any, Graph] = {}  # a graph that several nodes share stays one, with the same parameters

    def graph(self, graph: Graph, outer: Mapping[str, Any], owner: str) -> Graph:
        """A graph with its constants told apart. outer: the static values of the graphs around it."""
        needed = self.needs.get(graph, {})
        static: dict[str, Any] = {}
        params: dict[str, str] = {}

        def keep(name: str, tensor: Tensor, value: Any = None) -> None:
            if name not in needed and _is_parameter(tensor):
                params[name] = self._enter(name, tensor, owner)
            else:
                static[name] = tensor.load() if value is None else value

        for name, tensor in graph.initializers.items():
            keep(name, tensor)
        hidden = {value.name for value in graph.inputs} | params.keys()
        # What it captures and not all that there is: else the cost of n subgraphs grows with n².
        known = {name: outer[name] for name in graph.captures if name in outer}
        known |= {k: v for k, v in static.items() if k not in hidden}
        nodes = []
        for node in graph.nodes:
            values = _computed(node, known, at_once=not owner)
            if values is None:
                nodes.append(self._node(node, known))
                continue
            for name, value in zip(node.outputs, values, strict=False):
                if name:
                    keep(name, _tensor(value), value)
            known |= {name: static[name] for name in node.outputs if name in static}
        return dataclasses.replace(graph, nodes=tuple(nodes), initializers={}, static=static, params=params)

    def _node(self, node: Node, known: Mapping[str, Any]) -> Node:
        if node.body is not None:
            if node.body not in self._bodies:
                self._bodies[node.body] = self.graph(node.body, {}, node.operator.name)
            return dataclasses.replace(node, body=self._bodies[node.body])
        inner = {key: self._inner(value, known, node.label) for key, value in node.subgraphs.items()}
        return dataclasses.replace(node, attributes={**node.attributes, **inner}) if inner else node

    def _inner(self, graph: Graph, known: Mapping[str, Any], owner: str) -> Graph:
        # Of the nodes that share it, one may know values that the other is given anew.
        key = graph, graph.captures.intersection(known)
        if key not in self._bodies:
            self._bodies[key] = self.graph(graph, known, owner)
        return self._bodies[key]

    def _enter(self, name: str, tensor: Tensor, owner: str) -> str:
        """The name of a new parameter: its own, or where that is taken, with the node it belongs to before it."""
        unique, count = name, 1
        while unique in self.params:
            unique, count = f"{owner}/{name}" if count == 1 else f"{owner}/{name}_{count}", count + 1
        self.params[unique] = tensor
        return unique


def _is_parameter(tensor: Tensor) -> bool:
    size = math.prod(tensor.shape)
    if is_float(tensor.dtype) or tensor.dtype.kind == "c":
        return size != 1
    return tensor.dtype.itemsize == 1 and tensor.dtype.kind != "b" and size >= _LARGE


def _computed(node: Node, known: Mapping[str, Any], *, at_once: bool) -> Sequence[np.ndarray] | None:
    """The outputs of a node that NumPy computes from static values; None for another node.

    at_once: the node is sure to run, so its errors are raised. In a subgraph it may never run; else it says so then.
    """
    if not node.operator.foldable or not all(name in known for name in node.inputs if name):
        return None
    inputs = [known[name] if name else None for name in node.inputs]
    try:
        found = step(node, inputs, {}, None)
    except JaxopsError:
        if at_once:
            raise
        return None
    return found if all(isinstance(value, np.ndarray) for value in found) else None


def _tensor(value: np.ndarray) -> Tensor:
    return Tensor(value.dtype, value.shape, functools.partial(np.asarray, value))
