"""The operators of one opset as plain functions: `op = opset(9); op.Flatten(x, axis=1)`."""

import functools
from collections.abc import Sequence

import numpy as np

from jaxops.errors import ArgumentError
from jaxops.frontend.opset import Opset
from jaxops.graph.nodes import Node
from jaxops.onnx.bind import with_body
from jaxops.onnx.registry import Operator, find
from jaxops.onnx.schemas import newest_opset, operators


class OnnxOpset(Opset):
    """The operators of an opset of ONNX; `help` shows the standard's text."""

    def _find(self, name: str) -> Operator:
        return find(name, "", self.version)

    def _listed(self) -> Sequence[str]:
        return operators("")

    def _bound(self, node: Node) -> Node:
        return with_body(node)

    def __repr__(self) -> str:
        return f"jaxops.onnx.opset({self.version})"


def opset(version: int) -> Opset:
    """Returns the operators with exactly the semantics of ONNX opset `version`.

    Inputs are given by position or by the name in the standard, attributes by keyword. Python numbers take the element
    type of the other operands. An operator with a variable number of outputs takes `n_outputs`, a random one `rng`.
    Raises ArgumentError for an opset that the installed onnx does not know. The operators raise what the opset
    forbids: DTypeError, SignatureError, AxisError, ShapeError.

    >>> op = opset(9)
    >>> op.Flatten(np.zeros((2, 3, 4)), axis=2).shape
    (6, 4)
    """
    newest = newest_opset()
    if not isinstance(version, int | np.integer) or not 1 <= version <= newest:
        raise ArgumentError(f"opset {version!r}: the installed onnx knows opsets 1 to {newest}")
    return _opset(int(version))


@functools.cache
def _opset(version: int) -> Opset:
    return OnnxOpset(version)  # one object per version, which keeps its functions and their list
