"""Sizes of rotary embedding: how many elements of a head turn, and the tables of cosines and sines."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Dim, Sizes


def turned(op: str, rotary_embedding_dim: int, head_size: Dim) -> Dim:
    """The number of elements at the start of each head that turn, in pairs; an attribute of 0 means all."""
    count = rotary_embedding_dim or head_size
    if isinstance(count, int) and isinstance(head_size, int) and not (0 <= count <= head_size and count % 2 == 0):
        raise ArgumentError(
            f"{op}: `rotary_embedding_dim` is {rotary_embedding_dim} with heads of {head_size} elements; an even "
            f"number of them must turn, at most all"
        )
    return count


def tables(op: str, positions: Sizes | None, batch: Dim, length: Dim, count: Dim, **given: Sizes) -> None:
    """Raises ShapeError unless the tables are (positions, count / 2), or (B, S, count / 2) without `position_ids`."""
    if positions is not None:
        problem = f"{op}: `position_ids` of {shape_text(positions)} must be ({batch}, {length}), one per token"
        if not all_agree(problem, positions, (batch, length)):
            raise ShapeError(problem)
    wanted = ("positions", count // 2) if positions is not None else (batch, length, count // 2)
    kept = slice(1 if positions is not None else 0, None)
    for name, sizes in given.items():
        without = "with" if positions is not None else "without"
        problem = (
            f"{op}: `{name}` of {shape_text(sizes)} must be {shape_text(wanted)} {without} `position_ids`, as "
            f"{count} elements of each head turn"
        )
        if len(sizes) != len(wanted) or not all_agree(problem, sizes[kept], wanted[kept]):
            raise ShapeError(problem)
