"""Sizes of masks of pooled data."""

from jaxops.errors import ShapeError, shape_text
from jaxops.static import Sizes


def mask(op: str, x: Sizes, m: Sizes) -> None:
    """Raises ShapeError unless m has the shape of x, or 1 in place of batch or channels."""
    if len(m) != len(x) or tuple(m[2:]) != tuple(x[2:]) or m[0] not in (1, x[0]) or m[1] not in (1, x[1]):
        raise ShapeError(
            f"{op}: `m` of {shape_text(m)} must have the shape of x, {shape_text(x)}, or 1 in place of its first sizes"
        )
