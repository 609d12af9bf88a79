"""Earlier versions of operators of object detection."""

from typing import Any

from jaxops import ops
from jaxops.onnx.registry import version
from jaxops.signature import like


@version("RoiAlign", 10)
@like(ops.roi_align, without=["coordinate_transformation_mode"])
def roi_align_10(*inputs: Any, **attributes: Any) -> Any:
    return ops.roi_align(*inputs, coordinate_transformation_mode="output_half_pixel", **attributes)


version("RoiAlign", 16)(ops.roi_align)
