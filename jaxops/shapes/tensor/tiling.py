"""Sizes of repetition."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.static import Sizes


def tile(sizes: Sizes, repeats: Sizes) -> Sizes:
    """Each size times its repeats."""
    if len(repeats) != len(sizes):
        raise ShapeError(
            f"tile: `repeats` {shape_text(repeats)} must hold one number for each axis of {shape_text(sizes)}"
        )
    negative = [r for r in repeats if isinstance(r, int) and r < 0]
    if negative:
        raise ArgumentError(f"tile: `repeats` {shape_text(repeats)} holds {negative[0]}; it must not be negative")
    return tuple(d * r for d, r in zip(sizes, repeats, strict=True))
