"""The sizes of images that are cropped or shifted channel by channel."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import must_agree
from jaxops.static import Dim, Sizes


def channel_biases(op: str, sizes: Sizes, count: int) -> None:
    """Raises ShapeError unless the sizes are (N, C, H, W) with one bias for each channel."""
    _image(op, sizes)
    if sizes[1] != count:
        must_agree(
            f"{op}: `bias` holds {count} numbers, but `input` of {shape_text(sizes)} has {sizes[1]} channels",
            (sizes[1],),
            (count,),
        )


def cropped(op: str, sizes: Sizes, border: Sizes, scale: Sizes) -> tuple[tuple[Dim, Dim], tuple[Dim, Dim]]:
    """Begin and end of the rows and of the columns that are left."""
    _image(op, sizes)
    if len(border) != 4 or min(border) < 0:
        raise ArgumentError(f"{op}: `border` is {border}; it must be left, top, right and bottom, each 0 or more")
    if len(scale) not in (0, 2) or min(scale, default=0) < 0:
        raise ArgumentError(f"{op}: `scale` is {scale}; it must be height and width, each 0 or more, or empty")
    left, top, right, bottom = border
    spans = []
    for axis, name, low, high in ((2, "height", top, bottom), (3, "width", left, right)):
        size = sizes[axis]
        end = low + scale[axis - 2] if scale else size - high
        # A symbolic size is taken to be large enough.
        needed = max(end, low + high) if scale else low + high
        if isinstance(size, int) and size < needed:
            raise ShapeError(f"{op}: `input` of {shape_text(sizes)} has {name} {size}; the result needs {needed}")
        spans.append((low, end))
    return spans[0], spans[1]


def _image(op: str, sizes: Sizes) -> None:
    if len(sizes) != 4:
        raise ShapeError(f"{op}: `input` of {shape_text(sizes)} must have 4 axes: (N, C, H, W)")
