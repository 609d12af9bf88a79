"""Gives norms and standard deviations that exporters write as several nodes the gradient zero at zero.

At zero the derivative of a root is infinite and that of a sum of squares is zero. So the chain of nodes would have the
gradient NaN, where the exported PyTorch norm has zero. Any other root keeps its infinite derivative.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.graph.operator import WrappedOperator
from jaxops.kernels.xla_workarounds import flat_at_zero
from jaxops.ops import openvino
from jaxops.static import is_static

# Operators whose result is a sum of squares if the first operand is one, …
_OF_FIRST = (ops.reduce_sum, ops.reduce_mean, ops.div, ops.relu, ops.clip)
# … and operators whose result is a sum of squares if all operands are.
_OF_ALL = (ops.add, ops.sum, ops.concat)


class SafeRoot(WrappedOperator):
    """A square root, or a power by a fraction, of a sum of squares: its derivative at zero is zero."""

    flat_at_zero = True

    def call(self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int, rng: Any) -> Sequence[Any]:
        """The root that the operator computes; for static operands without a derivative."""
        total, *operands = inputs

        def root(x: Any) -> Any:
            return self.inner.call([x, *operands], attributes, n_outputs=n_outputs, rng=rng)[0]

        return (root(total) if is_static(total) else flat_at_zero(root, total),)


def with_safe_norms(graph: Graph) -> Graph:
    """Returns a bound graph with safe roots of sums of squares. Its subgraphs must have been rewritten before."""
    squares: set[str] = set()
    constants: dict[str, Any] = dict(graph.initializers)
    nodes = []
    for node in graph.nodes:
        function = getattr(node.operator, "function", None)  # a missing operator has no function
        if function is ops.constant:
            [constants[node.outputs[0]]] = node.operator.call((), node.attributes, n_outputs=1, rng=None)
        elif function in (ops.cast, ops.cast_like, ops.identity) and node.inputs[0] in constants:
            constants[node.outputs[0]] = constants[node.inputs[0]]
        elif _is_root(function, node, squares, constants):
            node = replace(node, operator=SafeRoot(node.operator))
        elif function is not None and _is_squared(function, node, squares, constants):
            squares.update(node.outputs)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _is_squared(function: Any, node: Node, squares: set[str], constants: Mapping[str, Any]) -> bool:
    """Returns True for a sum of squares, or of powers above 1: its derivative is zero if the sum is zero."""
    inputs = node.inputs
    if function in (ops.reduce_sum_square, openvino.squared_difference):
        return True
    if function is ops.mul:
        return inputs[0] == inputs[1] or not squares.isdisjoint(inputs)
    if function is ops.pow:
        return _exponent(node, constants) > 1
    if function is ops.max:  # with a constant above zero it is never zero
        return not squares.isdisjoint(inputs) and squares.issuperset(name for name in inputs if name not in constants)
    if function in _OF_ALL:
        return squares.issuperset(inputs)
    return (node.operator.traits.kind == "form" or function in _OF_FIRST) and squares.issuperset(inputs[:1])


def _is_root(function: Any, node: Node, squares: set[str], constants: Mapping[str, Any]) -> bool:
    root = function is ops.sqrt or (function is ops.pow and 0 < _exponent(node, constants) < 1)
    return root and node.inputs[0] in squares


def _exponent(node: Node, constants: Mapping[str, Any]) -> float:
    """Returns the exponent of a power if it is one constant number; 0 otherwise."""
    exponent = constants.get(node.inputs[1])
    if isinstance(exponent, Tensor):
        exponent = exponent.load() if math.prod(exponent.shape) == 1 else None
    return float(exponent.item()) if isinstance(exponent, np.ndarray) and exponent.size == 1 else 0.0
