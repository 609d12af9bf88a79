"""The operators of one opset as plain functions: `op = opset(9); op.Flatten(x, axis=1)`."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, near
from jaxops.frontend.opset import Opset
from jaxops.graph.nodes import Node
from jaxops.onnx.bind import with_body
from jaxops.onnx.registry import DOMAINS, Operator, find
from jaxops.onnx.schemas import newest_opset, operators
from jaxops.onnx.validate import domain_of


class OnnxOpset(Opset):
    """The operators of an opset of ONNX, or of another domain; `help` shows the standard's text."""

    def __init__(self, version: int, domain: str = "") -> None:
        super().__init__(version)
        self.domain = domain

    def __reduce__(self) -> Any:
        return type(self), (self.version, self.domain)

    def _find(self, name: str) -> Operator:
        return find(name, self.domain, self.version)

    def _listed(self) -> Sequence[str]:
        return operators(self.domain)

    def _bound(self, node: Node) -> Node:
        return with_body(node)

    def __repr__(self) -> str:
        return f"jaxops.onnx.opset({self.version}{f', domain={self.domain!r}' if self.domain else ''})"


def opset(version: int, *, domain: str = "ai.onnx") -> Opset:
    """Returns the operators with exactly the semantics of opset `version`.

    domain: "ai.onnx" for the operators of ONNX itself, "ai.onnx.ml", "com.microsoft", "ai.onnx.preview" or
    "ai.onnx.preview.training", each of which counts its versions from 1.
    Inputs are given by position or by the name in the standard, attributes by keyword. Python numbers take the element
    type of the other operands. An operator with a variable number of outputs takes `n_outputs`, a random one `rng`.
    Raises ArgumentError for an unknown domain, and for an opset that the installed onnx does not know. The operators
    raise what the opset forbids: DTypeError, SignatureError, AxisError, ShapeError.

    >>> op = opset(9)
    >>> op.Flatten(np.zeros((2, 3, 4)), axis=2).shape
    (6, 4)
    >>> opset(3, domain="ai.onnx.ml").Binarizer(np.array([[0.2, 0.7]]), threshold=0.5).tolist()
    [[0.0, 1.0]]
    """
    known = ["ai.onnx", *filter(None, DOMAINS)]
    if domain not in known:
        raise ArgumentError(f"domain {domain!r:.80}: jaxops knows {', '.join(known)}{near(str(domain), known)}")
    newest = newest_opset(domain_of(domain))
    if not isinstance(version, int | np.integer) or not 1 <= version <= newest:
        whose = "the installed onnx knows opsets" if domain == "ai.onnx" else f"{domain} has opsets"
        raise ArgumentError(f"opset {version!r}: {whose} 1 to {newest}")
    return _opset(int(version), domain_of(domain))


@functools.cache
def _opset(version: int, domain: str) -> Opset:
    return OnnxOpset(version, domain)  # one object per version, which keeps its functions and their list
