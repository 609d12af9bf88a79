"""Operators of `jaxops.ops.openvino` of which files have one more attribute, without effect, or another form of one."""

from collections.abc import Sequence
from typing import Any

from jaxops.errors import ArgumentError
from jaxops.openvino.registry import version
from jaxops.ops import openvino
from jaxops.signature import like
from jaxops.static import Array


@version("Proposal", 1, of=openvino.proposal)
@like(openvino.proposal)
def proposal_1(*inputs: Any, infer_probs: bool, **attributes: Any) -> Any:
    """`infer_probs` is ignored: it only announces that the second output is read."""
    boxes, probabilities = openvino.proposal(*inputs, **attributes)
    return boxes, probabilities


@version("ReorgYolo", 2, of=openvino.reorg_yolo)
def reorg_yolo(data: Array, *, stride: Sequence[int]) -> Array:
    """Files give one stride per axis, and all are equal."""
    if not stride:
        raise ArgumentError("ReorgYolo: `stride` is empty; it needs a number")
    return openvino.reorg_yolo(data, stride=stride[0])
