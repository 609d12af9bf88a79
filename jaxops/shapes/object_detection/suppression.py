"""Sizes of boxes and their scores."""

from jaxops.errors import ShapeError, shape_text
from jaxops.static import Sizes


def scored(boxes: Sizes, scores: Sizes) -> None:
    """Boxes (B, S, 4) with scores (B, C, S) (ONNX NonMaxSuppression-11)."""
    if len(boxes) != 3 or len(scores) != 3 or boxes[2] != 4 or boxes[:2] != (scores[0], scores[2]):
        raise ShapeError(
            f"non_max_suppression: `boxes` of {shape_text(boxes)} must be (B, S, 4), and `scores` of "
            f"{shape_text(scores)} must be (B, C, S)"
        )
