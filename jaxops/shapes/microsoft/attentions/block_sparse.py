"""Sizes of attention whose mask is given by blocks."""

from jaxops.errors import ArgumentError, ShapeError, SizeError, shape_text
from jaxops.shapes.arithmetic import must_fit
from jaxops.static import Dim, Sizes, Undecided


def layouts(op: str, rows: Sizes, columns: Sizes, heads: int) -> tuple[Dim, Dim]:
    """(layouts, blocks) of block_row_indices (layouts, blocks + 1) and block_col_indices (layouts, n)."""
    if len(rows) != 2 or (isinstance(rows[1], int) and rows[1] < 2):
        raise ShapeError(f"{op}: `block_row_indices` of {shape_text(rows)} must be (layouts, blocks + 1)")
    if not isinstance(rows[0], int) or rows[0] < 1 or heads % rows[0]:
        raise ShapeError(f"{op}: the {rows[0]} layouts of `block_row_indices` must divide the {heads} heads")
    must_fit(op, "block_col_indices", columns, (rows[0], "n"), reason=", as the row indices")
    return rows[0], rows[1] - 1


def room(op: str, new: Dim, buffer: Dim) -> None:
    """Checks that the new tokens fit into the rows of a buffer. SizeError where that depends on a symbolic size."""
    problem = f"{op}: the {new} new tokens do not fit into the {buffer} rows of `past_key`"
    try:
        if new > buffer:
            raise ShapeError(problem)
    except Undecided as error:
        raise SizeError(problem, new, buffer, needs=f"{new} <= {buffer}") from error


def total(op: str, count: Dim, new: Dim, buffer: Dim, masked: Dim) -> None:
    """Checks `total_sequence_length`: it covers the new tokens, and fits into the rows of buffer and mask."""
    concrete = all(isinstance(d, int) for d in (count, new, buffer, masked))
    if concrete and not new <= count <= min(buffer, masked):
        raise ArgumentError(
            f"{op}: `total_sequence_length` is {count}; it must be at least {new}, the new tokens, and at most "
            f"{buffer}, the rows of `past_key`, and {masked}, those of the block mask"
        )
