"""Sizes of losses: one number per sample."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Sizes


def samples(op: str, names: tuple[str, str, str], scores: Sizes, labels: Sizes, weights: Sizes | None) -> Sizes:
    """(N, d1, …) of scores (N, C, d1, …): the sizes of the labels; weights are (C,). `names`: of the three operands."""
    if len(scores) < 2:
        raise ShapeError(f"{op}: `{names[0]}` of {shape_text(scores)} must be (N, C) or (N, C, d1, …)")
    wanted = (scores[0], *scores[2:])
    needed = [(names[1], labels, wanted, "label per sample"), (names[2], weights, (scores[1],), "weight per class")]
    for name, given, sizes, what in needed:
        problem = (
            f"{op}: `{name}` of {shape_text(given or ())} does not fit `{names[0]}` of {shape_text(scores)}; "
            f"it must be {shape_text(sizes)}, one {what}"
        )
        if not one_of(problem, given, sizes):
            raise ShapeError(problem)
    return wanted
