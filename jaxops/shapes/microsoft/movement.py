"""The number of windows along an axis."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import floored
from jaxops.static import Dim, Sizes


def windows(op: str, sizes: Sizes, axis: int, size: int, step: int) -> Dim:
    """How many slices of `size` elements, `step` apart, an axis has."""
    if size < 1 or step < 1:
        raise ArgumentError(f"{op}: `size` is {size} and `step` is {step}; both must be at least 1")
    length = sizes[axis]
    if isinstance(length, int) and size > length:
        raise ShapeError(f"{op}: `size` is {size}, but axis {axis} of {shape_text(sizes)} has {length} elements")
    return floored(length - size, step) + 1
