"""Finds a swap of the last two axes that is written as Reshape, Transpose and Reshape.

PyTorch (`dynamo=True`) writes the transposed keys of an attention so: it joins batch and heads, swaps the others, and
parts them again. Where the heads are split over devices, no sharding describes batch and heads as one axis, and all
devices gather all keys. One Einsum in place of the last Reshape computes the same for any number of axes.
"""

from dataclasses import replace

import numpy as np

from jaxops import ops
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.graph.nodes import Graph, Node

_EINSUM = SignatureOperator("Einsum", ops.einsum, ["Inputs"], variadic=True)
_LEADING, _ROWS, _COLUMNS, _JOINED = "all but two", "the last but one", "the last", "what is left"
_ENDS = {(-2, -1): _ROWS, (-1, None): _COLUMNS, (None, -2): _LEADING}
_FAR = 1 << 31


def with_swapped_axes(graph: Graph) -> Graph:
    """Returns a graph in which these swaps are an Einsum. The other nodes stay, as a caller may ask for any tensor."""
    finder = _Finder(graph)
    swapped = {node: source for node in graph.nodes if (source := finder.swapped(node)) is not None}
    if not swapped:
        return graph
    equation = {"equation": "...ij->...ji"}
    nodes = (
        replace(n, operator=_EINSUM, inputs=(swapped[n],), attributes=equation) if n in swapped else n
        for n in graph.nodes
    )
    return replace(graph, nodes=tuple(nodes))


class _Finder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.makers = {name: node for node in graph.nodes for name in node.outputs if name}

    def swapped(self, node: Node) -> str | None:
        """Returns the value whose last two axes a node swaps, together with the nodes before it; None for none."""
        if not _is(node, ops.reshape):
            return None
        swap = self.makers.get(node.inputs[0])
        join = self.makers.get(swap.inputs[0]) if swap is not None and _is(swap, ops.transpose) else None
        if swap is None or join is None or not _is(join, ops.reshape) or swap.attributes.get("perm") != (0, 2, 1):
            return None
        source = join.inputs[0]
        joined, parted = self._sizes(join.inputs[1], source), self._sizes(node.inputs[1], source)
        is_swap = joined == [_JOINED, _ROWS, _COLUMNS] and parted == [_LEADING, _COLUMNS, _ROWS]
        return source if is_swap else None

    def _sizes(self, name: str, source: str) -> list[str | None]:
        """Returns the parts of a list of sizes, by their place in the sizes of `source`."""
        concat = self.makers.get(name)
        return [self._part(n, source) for n in concat.inputs] if concat is not None and _is(concat, ops.concat) else []

    def _part(self, name: str, source: str) -> str | None:
        if self._number(name) == -1:
            return _JOINED
        node = self.makers.get(name)
        if node is None or not _is(node, ops.slice) or any(node.inputs[4:]):
            return None
        if any(node.inputs[3:4]) and self._number(node.inputs[3]) != 0:
            return None
        shape = self.makers.get(node.inputs[0])
        whole = shape is not None and _is(shape, ops.shape) and not shape.attributes.get("start")
        if shape is None or not whole or shape.attributes.get("end") is not None or shape.inputs[0] != source:
            return None
        start, stop = (self._number(n) for n in node.inputs[1:3])
        if start is None or stop is None:
            return None
        return _ENDS.get((None if start <= -_FAR or start == 0 else start, None if stop >= _FAR else stop))

    def _number(self, name: str) -> int | None:
        """Returns the number in a constant of one element; a constant that a call may replace is none."""
        tensor = self.graph.initializers.get(name)
        if tensor is None or tensor.dtype.kind != "i" or np.prod(tensor.shape) != 1:
            return None
        return None if any(value.name == name for value in self.graph.inputs) else int(tensor.load().reshape(()))


def _is(node: Node, fn: object) -> bool:
    return node.operator.function is fn
