"""Sizes of images and of regions in them."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.static import Sizes


def crops(op: str, x: Sizes, rois: Sizes, batch_indices: Sizes) -> None:
    """x is (N, C, H, W), rois (R, 4) and batch_indices (R,)."""
    if len(x) != 4:
        raise ShapeError(f"{op}: x of {shape_text(x)} must be (N, C, H, W)")
    if len(rois) != 2 or rois[1] != 4:
        raise ShapeError(f"{op}: `rois` of {shape_text(rois)} must be (R, 4)")
    problem = f"{op}: `batch_indices` of {shape_text(batch_indices)} must have one index for each of {rois[0]} regions"
    if not all_agree(problem, batch_indices, rois[:1]):
        raise ShapeError(problem)
    check_inhabited(f"{op}: x", x, (0, 2, 3), rois[:1])
