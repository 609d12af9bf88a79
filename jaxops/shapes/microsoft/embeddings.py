"""Sizes of tables of embeddings."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import must_fit
from jaxops.static import Dim, Sizes


def table(op: str, name: str, sizes: Sizes, width: Dim | None = None) -> Dim:
    """The width of a table of vectors, one a row; it must be `width` where that is given."""
    must_fit(op, name, sizes, ("rows", "width" if width is None else width))
    return sizes[1]


def ids(op: str, sizes: Sizes, positions: Sizes | None, **like: Sizes) -> None:
    """input_ids is (N, S); each of `like` has its shape; positions is (N, S) or (1, S)."""
    must_fit(op, "input_ids", sizes, ("N", "S"))
    for name, shape in like.items():
        must_fit(op, name, shape, sizes, reason=", the shape of `input_ids`")
    must_fit(op, "position_ids", positions, tuple(sizes), (1, *sizes[1:]))


def word_filters(op: str, sequence: Sizes, w: Sizes, b: Sizes, c: Sizes) -> None:
    """sequence is (words, letters), w (M, 1, width, size), b (M,) and c (rows, size)."""
    must_fit(op, "sequence", sequence, ("words", "letters"))
    must_fit(op, "w", w, ("filters", 1, "width", "size"))
    must_fit(op, "b", b, (w[0],))
    table(op, "c", c, w[3])
    if w[2] == 0:
        raise ShapeError(f"{op}: `w` has the shape {shape_text(w)}; filters must be at least one letter wide")
    if isinstance(sequence[1], int) and sequence[1] < w[2]:
        raise ShapeError(f"{op}: words of {sequence[1]} letters are shorter than the filters, which are {w[2]} wide")
