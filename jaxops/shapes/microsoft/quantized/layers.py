"""Sizes of layers with quantized weights."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Sizes


def of_gates(op: str, operand: str, weights: Sizes, given: Sizes) -> Sizes:
    """The sizes in which it broadcasts to weights (D, …, 4 · hidden): one for each direction, or for each column."""
    if len(weights) != 3:
        raise ShapeError(f"{op}: weights of {shape_text(weights)} must have three axes, the last one for the gates")
    if given not in (weights[:1], (weights[0], weights[2])):
        raise ShapeError(
            f"{op}: `{operand}` of {shape_text(given)} does not fit weights of {shape_text(weights)}; it must be "
            f"{shape_text(weights[:1])} or {shape_text((weights[0], weights[2]))}"
        )
    return (weights[0], 1, 1 if len(given) == 1 else weights[2])


def tables(op: str, ids: Sizes, hidden: int, given: dict[str, Sizes]) -> None:
    """ShapeError unless ids are (batch, steps) and each table of embeddings has `hidden` columns."""
    if len(ids) != 2:
        raise ShapeError(f"{op}: `input_ids` of {shape_text(ids)} must have two axes, batch and steps")
    for operand, found in given.items():
        wanted = ids if operand in ("segment_ids", "mask") else None
        expected = shape_text(wanted) if wanted else f"of {hidden} columns, as the word embedding is"
        problem = f"{op}: `{operand}` of {shape_text(found)} must be {expected}"
        if not one_of(problem, found, *([wanted] if wanted else [(hidden,), (None, hidden)])):
            raise ShapeError(problem)
