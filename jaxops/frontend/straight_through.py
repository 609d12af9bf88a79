"""Straight-through gradients: a derivative passes through the rounding of a quantization.

That is a quantization followed by a dequantization, or one operator for both.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.graph.nodes import Graph, Node
from jaxops.graph.operator import WrappedOperator
from jaxops.ops import microsoft
from jaxops.ops.quantization.straight_through_estimator import Quantization, straight_through
from jaxops.static import is_static

_QUANTIZE = (ops.quantize_linear, microsoft.quantize_linear, ops.dynamic_quantize_linear)
_DEQUANTIZE = (ops.dequantize_linear, microsoft.dequantize_linear)
# Operators that may be between the two; PyTorch writes a Clip for 7-bit types.
_BETWEEN = (ops.identity, ops.clip)


class StraightThrough(WrappedOperator):
    """A dequantization whose node has three more inputs: the floats that were quantized, their scale and zero point."""

    straight_through = True

    def __init__(self, inner: Any, attributes: Quantization) -> None:
        super().__init__(inner)
        self.quantization = attributes

    @property
    def formals(self) -> Sequence[str]:
        """The operands of the dequantization and of the quantization."""
        return [*self.inner.formals, "origin", "y_scale", "y_zero_point"]

    def mark(self, position: int) -> str | None:
        """The mark of an input of the dequantization; None for the inputs of the quantization."""
        return self.inner.mark(position) if position < 3 else None

    def check(self, inputs: Sequence[Any]) -> None:
        """Raises an error for operands that the dequantization does not accept."""
        self.inner.check(inputs[:3])

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the dequantization."""

        def dequantize(*quantized: Any) -> Any:
            return self.inner.call(quantized, attributes, n_outputs=n_outputs, rng=rng)[0]

        if is_static(inputs[3]):
            return (dequantize(*inputs[:3]),)
        return (straight_through(dequantize, inputs[:3], inputs[3:], self.quantization),)


class StraightThroughRounding(WrappedOperator):
    """An operator that rounds and gives floats; a derivative passes its rounding."""

    straight_through = True

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The outputs of the operator."""
        passing = self.inner.with_function(self.inner.traits.straight_through)
        return passing.call(inputs, attributes, n_outputs=n_outputs, rng=rng)


def with_straight_through(graph: Graph) -> Graph:
    """Returns a bound graph in which each DequantizeLinear also reads the floats that its operand was quantized from,
    and a derivative passes each operator that simulates quantization.

    This includes subgraphs and functions, if the quantization is a node of the same graph or function.
    """
    return _rewritten(graph, {}, {})


def _rewritten(graph: Graph, outer: Mapping[str, Node], bodies: dict[Graph, Graph]) -> Graph:
    """Returns the rewritten graph. outer: the nodes that compute the values which a subgraph may capture. bodies: of
    functions → the rewritten ones."""
    makers = dict(outer)
    nodes = []

    def nested(inner: Graph, node: Node) -> Graph:
        if inner is not node.body:
            return _rewritten(inner, makers, bodies)
        if inner not in bodies:
            bodies[inner] = _rewritten(inner, {}, bodies)
        return bodies[inner]

    for node in graph.nodes:
        node = _joined(node.with_nested(functools.partial(nested, node=node)), makers)
        makers.update((name, node) for name in node.outputs if name)
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _joined(node: Node, makers: Mapping[str, Node]) -> Node:
    """Returns a dequantization that also reads the inputs of the quantization before it, an operator that passes a
    derivative, or any other node as it is.
    """
    if node.operator.traits.straight_through is not None:
        return dataclasses.replace(node, operator=StraightThroughRounding(node.operator))
    if _function(node) not in _DEQUANTIZE:
        return node
    name = node.inputs[0]
    while (maker := makers.get(name)) is not None and _function(maker) in _BETWEEN:
        name = maker.inputs[0]
    if maker is None or _function(maker) not in _QUANTIZE or name != maker.outputs[0]:
        return node
    function = _function(maker)
    dynamic = function is ops.dynamic_quantize_linear
    origin = (maker.inputs[0], *maker.outputs[1:]) if dynamic else maker.inputs
    attributes = Quantization(
        axis=_or(maker, "axis", 1),
        block_size=_or(maker, "block_size", 0),
        precision=np.dtype(np.float32) if function is microsoft.quantize_linear else maker.attributes.get("precision"),
        back_axis=_or(node, "axis", 1),
        back_block_size=_or(node, "block_size", 0),
        dynamic=dynamic,
    )
    inputs = [*node.inputs, *[""] * (3 - len(node.inputs)), *origin, *[""] * (3 - len(origin))]
    return dataclasses.replace(node, operator=StraightThrough(node.operator, attributes), inputs=tuple(inputs))


def _function(node: Node) -> Callable[..., Any] | None:
    return node.operator.function


def _or(node: Node, name: str, default: int) -> int:
    value = node.attributes.get(name)
    return default if value is None else value
