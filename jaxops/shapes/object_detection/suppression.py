"""Sizes of boxes and their scores."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Sizes


def scored(boxes: Sizes, scores: Sizes) -> None:
    """Boxes (B, S, 4) with scores (B, C, S) (ONNX NonMaxSuppression-11)."""
    problem = (
        f"non_max_suppression: `boxes` of {shape_text(boxes)} must be (B, S, 4), and `scores` of "
        f"{shape_text(scores)} must be (B, C, S)"
    )
    if len(scores) != 3 or not all_agree(problem, boxes, (scores[0], scores[2], 4)):
        raise ShapeError(problem)
