"""Sizes of distances and of products of matrices."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Sizes


def rows(op: str, a: Sizes, b: Sizes) -> Sizes:
    """(M, K) of rows (M, C) and (K, C)."""
    problem = f"{op}: a of {shape_text(a)} and b of {shape_text(b)} must be matrices with as many columns"
    if len(a) != 2 or not one_of(problem, b, (None, a[1])):
        raise ShapeError(problem)
    return a[0], b[0]


def matrices(op: str, **given: Sizes) -> None:
    """Raises ShapeError unless each of `given` has two axes."""
    for name, sizes in given.items():
        if len(sizes) != 2:
            raise ShapeError(f"{op}: `{name}` must be a matrix, got {shape_text(sizes)}")
