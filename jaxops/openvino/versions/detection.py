"""Operators of `jaxops.ops.openvino`, where files have an attribute that changes nothing, or another form of one."""

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
    """`infer_probs` only says that the second output is read."""
    boxes, probabilities = openvino.proposal(*inputs, **attributes)
    return boxes, probabilities


@version("ReorgYolo", 2, of=openvino.reorg_yolo)
def reorg_yolo(data: Array, *, stride: Sequence[int]) -> Array:
    """Files have the stride of each axis, all of which are equal."""
    if not stride:
        raise ArgumentError("ReorgYolo: `stride` is empty; it needs a number")
    return openvino.reorg_yolo(data, stride=stride[0])
