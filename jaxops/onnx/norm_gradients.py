"""Roots of sums of squares: the norms and deviations that exporters write as several nodes.

At zero the derivative of the root is infinite and that of the squares zero, so a chain of nodes would give NaN where
the norm of PyTorch that was exported has gradient zero. A root of anything else keeps its infinite derivative.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.graph.nodes import Graph, Node, Tensor
from jaxops.kernels.xla_workarounds import flat_at_zero
from jaxops.onnx.lenient import TolerantOperator
from jaxops.static import is_static

# What makes a sum of squares where its first operand is one, beside another form of it, …
_OF_FIRST = (ops.reduce_sum, ops.reduce_mean, ops.div)
# … and where all of its operands are.
_OF_ALL = (ops.add, ops.sum, ops.concat)


class NormRoot(TolerantOperator):
    """Sqrt, or Pow by a fraction, of a sum of squares: its derivative at zero is zero."""

    flat_at_zero = True

    def call(
        self, inputs: Sequence[Any], attributes: Mapping[str, Any], *, n_outputs: int | None, rng: Any
    ) -> Sequence[Any]:
        """As the version says; static operands have no derivative."""
        total, *rest = inputs

        def root(x: Any) -> Any:
            return super(NormRoot, self).call([x, *rest], attributes, n_outputs=n_outputs, rng=rng)[0]

        return (root(total) if is_static(total) else flat_at_zero(root, total),)


def with_norms(graph: Graph) -> Graph:
    """A bound graph in which the roots of sums of squares are `NormRoot`; its subgraphs are done before."""
    squares: set[str] = set()
    constants: dict[str, Any] = dict(graph.initializers)
    nodes = []
    for node in graph.nodes:
        operator = node.operator
        if isinstance(operator, TolerantOperator):  # and not one that is missing, or the caller's
            if operator.function is ops.constant:
                [constants[node.outputs[0]]] = operator.call((), node.attributes, n_outputs=1, rng=None)
            elif _is_root(node, squares, constants):
                node = replace(node, operator=NormRoot(operator.schema, operator.fn, operator.opset))
            elif _squared(node, squares, constants):
                squares.update(node.outputs)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _squared(node: Node, squares: set[str], constants: Mapping[str, Any]) -> bool:
    """Whether the result is a sum of squares, or of powers above 1: where it is zero, so is its derivative."""
    function, inputs = node.operator.function, node.inputs
    if function is ops.reduce_sum_square:
        return True
    if function is ops.mul:
        return inputs[0] == inputs[1] or not squares.isdisjoint(inputs)
    if function is ops.pow:
        return _exponent(node, constants) > 1
    if function in _OF_ALL:
        return squares.issuperset(inputs)
    return (node.operator.traits.kind == "form" or function in _OF_FIRST) and squares.issuperset(inputs[:1])


def _is_root(node: Node, squares: set[str], constants: Mapping[str, Any]) -> bool:
    function = node.operator.function
    root = function is ops.sqrt or (function is ops.pow and 0 < _exponent(node, constants) < 1)
    return root and node.inputs[0] in squares


def _exponent(node: Node, constants: Mapping[str, Any]) -> float:
    """The exponent of a Pow that has one constant; else 0."""
    found = constants.get(node.inputs[1])
    if isinstance(found, Tensor):
        found = found.load() if math.prod(found.shape) == 1 else None
    return float(found.item()) if isinstance(found, np.ndarray) and found.size == 1 else 0.0
