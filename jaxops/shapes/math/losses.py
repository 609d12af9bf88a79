"""Sizes of losses: one number per sample."""

from jaxops.errors import ShapeError, shape_text
from jaxops.static import Sizes


def samples(op: str, names: tuple[str, str, str], scores: Sizes, labels: Sizes, weights: Sizes | None) -> Sizes:
    """(N, d1, …) of scores (N, C, d1, …): the sizes of the labels; weights are (C,). `names`: of the three operands."""
    if len(scores) < 2:
        raise ShapeError(f"{op}: `{names[0]}` of {shape_text(scores)} must be (N, C) or (N, C, d1, …)")
    wanted = (scores[0], *scores[2:])
    if labels != wanted:
        raise ShapeError(
            f"{op}: `{names[1]}` of {shape_text(labels)} does not fit `{names[0]}` of {shape_text(scores)}; "
            f"it must be {shape_text(wanted)}, one label per sample"
        )
    if weights is not None and weights != (scores[1],):
        raise ShapeError(
            f"{op}: `{names[2]}` of {shape_text(weights)} does not fit `{names[0]}` of {shape_text(scores)}; "
            f"it must be {shape_text((scores[1],))}, one weight per class"
        )
    return wanted
