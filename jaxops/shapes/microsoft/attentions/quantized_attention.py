"""Sizes of attention that projects its input with one matrix for queries, keys and values."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, must_agree, one_of
from jaxops.static import Dim, Sizes


def projection(op: str, x: Sizes, w: Sizes, bias: Sizes, heads: int) -> Dim:
    """The size of a head; ShapeError unless the columns of w and the bias are three times `heads` of them."""
    problem = f"{op}: `input` of {shape_text(x)} and `weight` of {shape_text(w)} must be (B, S, D) and (D, 3·N·H)"
    if len(x) != 3 or len(w) != 2 or not agree(problem, x[2], w[0]):
        raise ShapeError(problem)
    if heads < 1 or w[1] % (3 * heads):
        raise ArgumentError(f"{op}: `num_heads` is {heads}; three times it must divide the {w[1]} columns of `weight`")
    if bias != w[1:]:
        must_agree(f"{op}: `bias` of {shape_text(bias)} must be {shape_text(w[1:])}", bias, w[1:])
    return w[1] // (3 * heads)


def past(op: str, given: Sizes, batch: Dim, heads: int, size: Dim) -> Dim:
    """The number of keys in the past; ShapeError for other sizes."""
    problem = f"{op}: `past` of {shape_text(given)} must be (2, {batch}, {heads}, P, {size})"
    if not one_of(problem, given, (2, batch, heads, None, size)):
        raise ShapeError(problem)
    return given[3]
