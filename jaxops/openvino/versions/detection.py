"""Operators of `jaxops.ops.openvino`, where files have attributes that change nothing, or write one in another form."""

from collections.abc import Sequence
from typing import Any, Literal

from jaxops import ops
from jaxops.errors import SignatureError
from jaxops.openvino.registry import version
from jaxops.ops import openvino
from jaxops.signature import ElementType, like
from jaxops.static import Array


@version("DetectionOutput", 1, of=openvino.detection_output)
@like(openvino.detection_output)
def detection_output_1(*inputs: Any, num_classes: int, **attributes: Any) -> Array:
    """`num_classes` follows from the operands too."""
    return openvino.detection_output(*inputs, **attributes)


version("DetectionOutput", 8)(openvino.detection_output)


@version("Proposal", 1, of=openvino.proposal)
@like(openvino.proposal)
def proposal_1(*inputs: Any, infer_probs: bool, **attributes: Any) -> Any:
    """`infer_probs` only says that the second output is read."""
    boxes, probabilities = openvino.proposal(*inputs, **attributes)
    return boxes, probabilities


@version("ReorgYolo", 2, of=openvino.reorg_yolo)
def reorg_yolo(data: Array, *, stride: Sequence[int]) -> Array:
    """Files have the stride of each axis, all of which are equal."""
    return openvino.reorg_yolo(data, stride=stride[0])


@version("ROIPooling", 2, of=openvino.roi_pooling)
def roi_pooling(
    data: Array,
    rois: Array,
    *,
    pooled_h: int,
    pooled_w: int,
    output_size: Sequence[int] | None = None,
    output_roi: Sequence[int] | None = None,
    spatial_scale: float,
    method: Literal["max", "bilinear"],
) -> Array:
    """The size of the result has three names."""
    size = output_roi or output_size or (pooled_h, pooled_w)
    if len(size) != 2 or not all(size):
        raise SignatureError(f"ROIPooling: `pooled_h` and `pooled_w` are {tuple(size)}; both must be above 0")
    return openvino.roi_pooling(
        data, rois, pooled_h=size[0], pooled_w=size[1], spatial_scale=spatial_scale, method=method
    )


@version("SearchSorted", 15, of=openvino.search_sorted)
def search_sorted(sorted_sequence: Array, values: Array, *, right_mode: bool, output_type: ElementType) -> Array:
    return ops.cast(openvino.search_sorted(sorted_sequence, values, right_mode=right_mode), to=output_type)
