"""Sizes of tables of embeddings."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, all_agree, must_agree, sizes_fit
from jaxops.static import Dim, Sizes


def table(op: str, name: str, sizes: Sizes, width: Dim | None = None) -> Dim:
    """The width of a table of vectors, one a row; it must be `width` where that is given."""
    expected = "(rows, width)" if width is None else f"(rows, {width})"
    problem = f"{op}: `{name}` has the shape {shape_text(sizes)}; it must be {expected}"
    if len(sizes) != 2 or not (width is None or agree(problem, sizes[1], width)):
        raise ShapeError(problem)
    return sizes[1]


def ids(op: str, sizes: Sizes, positions: Sizes | None, **like: Sizes) -> None:
    """input_ids is (N, S); each of `like` has its shape; positions is (N, S) or (1, S)."""
    if len(sizes) != 2:
        raise ShapeError(f"{op}: `input_ids` has the shape {shape_text(sizes)}; it must be (N, S)")
    for name, shape in like.items():
        problem = f"{op}: `{name}` of {shape_text(shape)} must have the shape of input_ids, {shape_text(sizes)}"
        if not all_agree(problem, shape, sizes):
            raise ShapeError(problem)
    one = (1, *sizes[1:])
    problem = f"{op}: `position_ids` of {shape_text(positions or ())} must be {shape_text(sizes)} or {shape_text(one)}"
    if not sizes_fit(problem, positions, tuple(sizes), one):
        raise ShapeError(problem)


def word_filters(op: str, sequence: Sizes, w: Sizes, b: Sizes, c: Sizes) -> None:
    """sequence is (words, letters), w (M, 1, width, size), b (M,) and c (rows, size)."""
    if len(sequence) != 2:
        raise ShapeError(f"{op}: `sequence` has the shape {shape_text(sequence)}; it must be (words, letters)")
    if len(w) != 4 or w[1] != 1:
        raise ShapeError(f"{op}: `w` has the shape {shape_text(w)}; it must be (filters, 1, width, size)")
    if tuple(b) != (w[0],):
        must_agree(f"{op}: `b` has the shape {shape_text(b)}; it must be {shape_text((w[0],))}", tuple(b), (w[0],))
    table(op, "c", c, w[3])
    if w[2] == 0:
        raise ShapeError(f"{op}: `w` has the shape {shape_text(w)}; filters must be at least one letter wide")
    if isinstance(sequence[1], int) and sequence[1] < w[2]:
        raise ShapeError(f"{op}: words of {sequence[1]} letters are shorter than the filters, which are {w[2]} wide")
