"""Sizes of vectors that are added to the last axis."""

import math

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import divided, must_agree, must_fit
from jaxops.static import Dim, Sizes


def last_axis(sizes: Sizes, **vectors: Sizes) -> None:
    """Raises ShapeError unless each of `vectors` has one number for each element of the last axis of x."""
    if not sizes:
        raise ShapeError("x is a scalar; it needs at least one axis")
    for name, shape in vectors.items():
        problem = (
            f"`{name}` has the shape {shape_text(shape)}, but x of {shape_text(sizes)} has {sizes[-1]} "
            f"elements on its last axis, so it must be {shape_text((sizes[-1],))}"
        )
        must_agree(problem, tuple(shape), (sizes[-1],))


def same(sizes: Sizes, **operands: Sizes) -> None:
    """Raises ShapeError unless each of `operands` has the sizes of x."""
    for name, shape in operands.items():
        must_fit(name, tuple(shape), tuple(sizes), reason=", the shape of x")


def halves(sizes: Sizes) -> Sizes:
    """The sizes of one half of x, whose last axis is cut in two."""
    problem = f"the last axis of x of {shape_text(sizes)} does not divide into two halves"
    return (*sizes[:-1], divided(problem, sizes[-1], 2))


def softmax_rows(data: Sizes, bias: Sizes, axis: int) -> tuple[Dim, Dim, Dim]:
    """Returns (rows of bias, rows of data that share each of them, length of a row).

    A row holds the axes of data from `axis` on.
    """
    length, rows, elements = (math.prod(sizes) for sizes in (data[axis:], data[:axis], bias))
    bias_rows = elements // length if length != 0 else 0
    times = rows // bias_rows if bias_rows != 0 else 0
    if bias_rows * length != elements or bias_rows * times != rows:
        raise ShapeError(
            f"`bias` of {shape_text(bias)} does not fit data of {shape_text(data)}: its size must be a multiple "
            f"of that of a row, which begins at axis {axis}, and its rows must divide those of data"
        )
    return bias_rows, times, length
