"""Sizes of rotary embedding: heads, positions, and the tables of cosines and sines."""

from collections.abc import Sequence

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, all_agree, at_least, divided, must_fit
from jaxops.static import Dim, Sizes


def by_heads(sizes: Sizes, num_heads: int, rotary_dim: int, width: Dim) -> tuple[Dim, Dim, Dim, Dim]:
    """Returns B, S, N and H of input (B, S, N · H) or (B, N, S, H). width: of the tables.

    If `rotary_dim` is 0, whole heads are rotated, so H is twice the width; else the input is split into `num_heads`.
    """
    must_fit("input", sizes, ("B", "S", "N · H"), ("B", "N", "S", "H"))
    if len(sizes) == 4:
        return sizes[0], sizes[2], sizes[1], sizes[3]
    batch, length, hidden = sizes
    if rotary_dim and num_heads < 1:
        raise ArgumentError(f"`num_heads` is {num_heads}; with `rotary_embedding_dim` it must be at least 1")
    heads = num_heads if rotary_dim or num_heads else hidden // (2 * width) if width else 0
    problem = f"the {hidden} features of `input` do not make {heads} heads of equal size"
    if heads == 0:
        raise ShapeError(problem)
    return batch, length, heads, divided(problem, hidden, heads)


def tables(cos: Sizes, sin: Sizes, head_size: Dim, rotary_dim: int) -> None:
    """Checks the tables (M, R / 2) of cosines and sines: R is `rotary_dim`, or the size of a head if that is 0."""
    problem = f"`cos_cache` of {shape_text(cos)} and `sin_cache` of {shape_text(sin)} must both be (M, R / 2)"
    if len(cos) != 2 or not all_agree(problem, cos, sin):
        raise ShapeError(problem)
    turned = rotary_dim or head_size
    problem = (
        f"`cos_cache` of {shape_text(cos)} rotates {cos[1] * 2} elements, but heads of {head_size} elements with "
        f"rotary_embedding_dim={rotary_dim} need {turned}"
    )
    if not agree(problem, cos[1] * 2, turned) or not at_least(problem, head_size, turned):
        raise ShapeError(problem)


def positions(ids: Sizes, expected: Sizes) -> None:
    """Checks the sizes of `position_ids`; one number is the position of the first token."""
    single: list[Sizes] = [(), (1,)] if len(expected) == 2 else []
    must_fit("position_ids", ids, expected, *single)


def streams(sections: Sequence[int], layout: int, width: int) -> list[int]:
    """Returns the stream of positions, 0, 1 or 2, that each column of the tables takes.

    layout 0: sections[0] columns of stream 0, then sections[1] of stream 1, then sections[2] of stream 2.
    layout 1: streams 1 and 2 take every third column from 1 and 2 on, as many as their sections; 0 takes the remaining
    ones.
    """
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != width:
        raise ArgumentError(
            f"`mrope_section` is {tuple(sections)}; it must be 3 numbers of at least 0 whose sum is {width}"
        )
    if layout == 0:
        return [stream for stream, count in enumerate(sections) for _ in range(count)]
    stream_of_column = [0] * width
    for stream in (1, 2):
        for column in range(stream, min(3 * sections[stream], width), 3):
            stream_of_column[column] = stream
    return stream_of_column
