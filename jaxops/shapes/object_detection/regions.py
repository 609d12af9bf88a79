"""Sizes of regions of interest."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.static import Sizes


def aligned(x: Sizes, rois: Sizes, batch_indices: Sizes, height: int, width: int) -> Sizes:
    """(R, C, height, width) of R regions (R, 4) in images (N, C, H, W) (ONNX RoiAlign-22)."""
    if len(x) != 4:
        raise ShapeError(f"roi_align: `x` of {shape_text(x)} must be (N, C, H, W)")
    problem = (
        f"roi_align: `rois` of {shape_text(rois)} must be (R, 4), and `batch_indices` of "
        f"{shape_text(batch_indices)} must be (R,)"
    )
    if len(rois) != 2 or not all_agree(problem, (*batch_indices, rois[1]), (rois[0], 4)):
        raise ShapeError(problem)
    if height < 1 or width < 1:
        raise ArgumentError(f"roi_align: `output_height` {height} and `output_width` {width} must be positive")
    check_inhabited("roi_align: `x`", x, (0, 2, 3), rois[:1])
    return (rois[0], x[1], height, width)
