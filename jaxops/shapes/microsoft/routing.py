"""Sizes of routers, which choose among experts by groups."""

import math

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Dim, Sizes


def scores(op: str, logits: Sizes, bias: Sizes, projection: Sizes | None) -> tuple[Dim, int]:
    """(tokens, experts) of logits (…, E), or of activations (T, W) with a projection (E, W), and a bias (E,)."""
    if projection is not None:
        problem = f"{op}: `projection_weight` of {shape_text(projection)} must be (E, W) for `logits` of (T, W)"
        if len(logits) != 2 or not one_of(f"{problem}, got {shape_text(logits)}", projection, (None, logits[1])):
            raise ShapeError(f"{problem}, got {shape_text(logits)}")
    if len(logits) < 2:
        raise ShapeError(f"{op}: `logits` of {shape_text(logits)} must have at least 2 axes, (…, experts)")
    experts = logits[-1] if projection is None else projection[0]
    problem = f"{op}: `expert_bias` of {shape_text(bias)} must be ({experts},), a number for each expert"
    if not one_of(problem, bias, (experts,)):
        raise ShapeError(problem)
    if not isinstance(experts, int):
        raise ShapeError(f"{op}: the number of experts, {experts}, must be known")
    return math.prod(logits[:-1]), experts


def choice(op: str, experts: int, **counts: int) -> None:
    """Checks how many groups there are and are chosen, and how many experts."""
    for name, count in counts.items():
        if count < 1:
            raise ArgumentError(f"{op}: `{name}` is {count}; it must be at least 1")
    groups = counts["n_group"]
    if experts % groups or counts["topk_group"] > groups or counts["top_k"] > experts:
        raise ArgumentError(
            f"{op}: `n_group` {groups} must divide the {experts} experts, `topk_group` {counts['topk_group']} must not "
            f"exceed it, nor `top_k` {counts['top_k']} the experts"
        )
