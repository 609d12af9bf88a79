"""Earlier versions of operators of object detection."""

from jaxops import ops
from jaxops.onnx.registry import version
from jaxops.ops.object_detection.regions import RoiPooling
from jaxops.static import Array


@version("RoiAlign", 10)
def roi_align_10(
    x: Array,
    rois: Array,
    batch_indices: Array,
    *,
    mode: RoiPooling,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Array:
    return ops.roi_align(
        x,
        rois,
        batch_indices,
        coordinate_transformation_mode="output_half_pixel",
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


version("RoiAlign", 16)(ops.roi_align)
