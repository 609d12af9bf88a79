"""Sizes of features put side by side."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import must_agree
from jaxops.static import Sizes


def side_by_side(op: str, sizes: list[Sizes], widths: tuple[int, ...] | None) -> Sizes:
    """(rows, sum of the widths) of matrices of equally many rows; without widths they keep their own."""
    if widths is not None and len(widths) != len(sizes):
        raise ShapeError(f"{op}: `inputdimensions` has {len(widths)} values, but there are {len(sizes)} inputs")
    for index, size in enumerate(sizes):
        if size[0] != sizes[0][0]:
            must_agree(
                f"{op}: input {index} of {shape_text(size)} has {size[0]} rows, but the first has {sizes[0][0]}",
                size[:1],
                sizes[0][:1],
            )
    own = [size[1] for size in sizes]
    return sizes[0][0], sum(own if widths is None else widths)
