"""Sizes of packed batches whose sequences are given by the sums of their lengths."""

from jaxops.errors import ShapeError, shape_text
from jaxops.static import Dim, Sizes


def offsets(operand: str, sizes: Sizes) -> Dim:
    """Returns the number of sequences B, at least 1. sizes: (B + 1,), the shape of the sums of their lengths."""
    concrete = len(sizes) == 1 and isinstance(sizes[0], int)
    if len(sizes) != 1 or (concrete and sizes[0] < 2):
        raise ShapeError(f"`{operand}` of {shape_text(sizes)} must be (B + 1,), for at least one sequence")
    return sizes[0] - 1
