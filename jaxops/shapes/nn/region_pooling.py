"""Sizes of pooled regions."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import agree
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.static import Sizes


def pooled(x: Sizes, rois: Sizes, shape: Sizes) -> Sizes:
    """(R, C, height, width) of R regions (R, 5) in images (N, C, H, W) (ONNX MaxRoiPool-22)."""
    problem = (
        f"max_roi_pool: `x` of {shape_text(x)} must be (N, C, H, W), and `rois` of {shape_text(rois)} (R, 5): "
        f"image, x1, y1, x2, y2"
    )
    if len(x) != 4 or len(rois) != 2 or not agree(problem, rois[1], 5):
        raise ShapeError(problem)
    if len(shape) != 2 or min(shape) < 1:
        raise ArgumentError(f"max_roi_pool: `pooled_shape` {shape_text(shape)} must be two positive numbers")
    check_inhabited("max_roi_pool: `x`", x, (0,), rois[:1])
    return (rois[0], x[1], *shape)
