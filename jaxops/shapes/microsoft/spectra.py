"""Sizes of signals and of pairs that stand for complex numbers."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.static import Sizes


def pairs(op: str, *shapes: Sizes) -> Sizes:
    """The common shape of operands whose last axis is (real, imaginary)."""
    for sizes in shapes:
        if not sizes or sizes[-1] != 2:
            raise ShapeError(f"{op}: an operand of {shape_text(sizes)} must end with an axis of 2, real and imaginary")
    return broadcast(op, *shapes)


def inverse(op: str, sizes: Sizes, count: int) -> Sizes:
    """The sizes of the last `count` axes of a real signal, from its transform of (…, m, 2)."""
    if len(sizes) < count + 1 or sizes[-1] != 2:
        raise ShapeError(
            f"{op}: x of {shape_text(sizes)} must have {count} axes and an axis of 2, real and imaginary, behind them"
        )
    if isinstance(sizes[-2], int) and sizes[-2] < 2:
        raise ShapeError(f"{op}: x of {shape_text(sizes)} is the transform of no element; it needs two points or more")
    return (*sizes[-1 - count : -2], 2 * (sizes[-2] - 1))
