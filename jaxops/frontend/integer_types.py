"""Follows integer types through a graph in two cases where arrays do not have the declared type.

With x64 off, uint64 values are uint32 arrays. Operators on uint64 whose results may need more than 32 bits raise an
error for these. Symbolic sizes have no dtype, and a vector of them such as (batch, length, 5) is int64. If a model
casts sizes to int32, the results computed from them become int32; an operator that is not computed by NumPy takes the
sizes as int32 arrays.
"""

import dataclasses
import functools
import itertools
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.dtypes import as_declared, as_traced
from jaxops.errors import OutOfRangeError, message
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.operator import WrappedOperator
from jaxops.static import is_symbolic

_Type = np.dtype | None
_WIDE = np.dtype(np.uint64)
# If symbolic sizes are cast to one of these types, they stay sizes; int64 is the type that they have.
_NARROW = {np.dtype(t) for t in (np.int32, np.uint32, np.uint64)}


class WideOperator(WrappedOperator):
    """An operator on uint64 that cannot run with x64 off, since its results may need more than 32 bits."""

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the operator. Raises OutOfRangeError for an operand that is a uint32 array."""
        if any(x.dtype == np.uint32 for x in inputs):  # a tracer, or an array that a piece of the model computed
            raise OutOfRangeError(
                message(
                    f"{self.name}: the result may need 64 bits, but the uint64 operands are uint32 arrays, "
                    "since x64 is off",
                    **dict(zip(self.formals, inputs, strict=True)),
                    hint="load the model with x64='auto' or True, or turn x64 on with "
                    "jax.config.update('jax_enable_x64', True)",
                )
            )
        return self.inner.call(inputs, attributes, n_outputs=n_outputs, rng=rng)


class NarrowOperator(WrappedOperator):
    """An operator on integers that may have been computed from sizes.

    types, operand_types: of its results, and of the operands that become arrays; None for int64 and for unknown types.
    """

    def __init__(self, inner: Any, types: tuple[_Type, ...], operand_types: tuple[_Type, ...] = ()) -> None:
        super().__init__(inner)
        self.types, self.operand_types = types, operand_types

    def __reduce__(self) -> Any:
        return _narrow, (self.inner, self.types, self.operand_types)

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the operator; integers that were computed from sizes get the type that the model declares."""
        operands = [
            as_traced(x, dtype) if dtype and is_symbolic(x) else x
            for x, dtype in itertools.zip_longest(inputs, self.operand_types)
        ]
        outputs = self.inner.call(operands, attributes, n_outputs=n_outputs, rng=rng)
        types = (*self.types, *[None] * len(outputs))
        return tuple(as_declared(y, dtype) if dtype else y for y, dtype in zip(outputs, types, strict=False))


@functools.cache
def _narrow(inner: Any, types: tuple[_Type, ...], operand_types: tuple[_Type, ...]) -> NarrowOperator:
    """Returns one operator object for equal arguments, so that equal nodes share it."""
    return NarrowOperator(inner, types, operand_types)


def _only_narrow(types: Sequence[_Type]) -> tuple[_Type, ...]:
    return tuple(dtype if dtype in _NARROW else None for dtype in types)


def with_integer_types(graph: Graph) -> Graph:
    """Returns a bound graph whose operators respect the declared integer types, in subgraphs and bodies too."""
    walk = _Walk()
    return walk.graph(graph, {}, ChainMap())[0] if walk.concerns(graph) else graph


def _needs_bits(node: Node) -> bool:
    """Returns True if the result may need more than 32 bits. Right shifts and bitwise operators do not."""
    function = node.operator.function
    left = function is ops.bit_shift and node.attributes.get("direction") != "RIGHT"
    return left or function is ops.bitwise_not


def _casts(node: Node) -> bool:
    # The attribute has another name in each format.
    types = (value for value in node.attributes.values() if isinstance(value, np.dtype))
    return node.operator.function is ops.cast and any(dtype in _NARROW for dtype in types)


class _Walk:
    def __init__(self) -> None:
        self._concerns: dict[Graph, bool] = {}
        self._bodies: dict[tuple[Graph, tuple[_Type, ...]], tuple[Graph, list[_Type]]] = {}

    def concerns(self, graph: Graph) -> bool:
        """Returns True if the graph, or a graph inside it, has a node that may need to be replaced."""
        if graph not in self._concerns:
            here = any(_needs_bits(node) or _casts(node) for node in graph.nodes)
            self._concerns[graph] = here or any(map(self.concerns, graph.nested))
        return self._concerns[graph]

    def graph(
        self, graph: Graph, inputs: Mapping[str, _Type], outer: ChainMap[str, _Type]
    ) -> tuple[Graph, list[_Type]]:
        """Returns the graph and the types of its outputs. inputs, outer: the known types of inputs and captures."""
        types = outer.new_child({v.name: v.dtype or inputs.get(v.name) for v in graph.inputs})
        types.update((name, tensor.dtype) for name, tensor in graph.initializers.items())
        nodes = tuple(self.node(node, types) for node in graph.nodes)
        if any(new is not old for new, old in zip(nodes, graph.nodes, strict=True)):
            graph = dataclasses.replace(graph, nodes=nodes)
        return graph, [types.get(v.name) for v in graph.outputs]

    def node(self, node: Node, types: ChainMap[str, _Type]) -> Node:
        inputs = [types.get(name) for name in node.inputs]
        if node.body is not None:
            body, outputs = self.body(node.body, inputs)
            node = node if body is node.body else dataclasses.replace(node, body=body)
        elif node.subgraphs:
            node, outputs = self.subgraphs(node, inputs, types)
        else:
            outputs = node.operator.output_types(node, inputs)
            if inputs and inputs[0] == _WIDE and _needs_bits(node):
                node = dataclasses.replace(node, operator=WideOperator(node.operator))
            elif not _NARROW.isdisjoint((*outputs, *inputs)):
                # NumPy computes with sizes; to JAX, they are arrays.
                traced = (
                    []
                    if node.operator.foldable
                    else [None if node.operator.mark(k) else dtype for k, dtype in enumerate(inputs)]
                )
                node = dataclasses.replace(
                    node, operator=_narrow(node.operator, _only_narrow(outputs), _only_narrow(traced))
                )
        types.update((name, dtype) for name, dtype in zip(node.outputs, outputs, strict=False) if name)
        return node

    def body(self, body: Graph, inputs: Sequence[_Type]) -> tuple[Graph, list[_Type]]:
        """Returns the body of a function and the types of its outputs; computed once for equal types of the inputs."""
        key = body, tuple(inputs)
        if key not in self._bodies:
            formals = {value.name: dtype for value, dtype in zip(body.inputs, inputs, strict=False)}
            self._bodies[key] = self.graph(body, formals, ChainMap())
        return self._bodies[key]

    def subgraphs(
        self, node: Node, inputs: Sequence[_Type], types: ChainMap[str, _Type]
    ) -> tuple[Node, Sequence[_Type]]:
        graphs: dict[str, Graph] = {}
        outputs: Sequence[_Type] = ()
        for name, graph in node.subgraphs.items():
            flow = node.operator.subgraphs[name]
            entering = [] if flow.first is None else inputs[flow.first :]
            formals = {value.name: dtype for value, dtype in zip(graph.inputs, entering, strict=False)}
            graphs[name], results = self.graph(graph, formals, types)
            outputs = () if flow.modifies or flow.several else results[flow.leading :]
        if not _NARROW.isdisjoint(outputs):
            node = dataclasses.replace(node, operator=_narrow(node.operator, _only_narrow(outputs), ()))
        if all(graph is node.subgraphs[name] for name, graph in graphs.items()):
            return node, outputs
        return dataclasses.replace(node, attributes={**node.attributes, **graphs}), outputs
