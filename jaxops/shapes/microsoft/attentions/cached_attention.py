"""Sizes that the attention operators of com.microsoft share: masks, biases, caches."""

from collections.abc import Sequence

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, divided, sizes_fit
from jaxops.static import Dim, Sizes


def head_size(operand: str, hidden: Dim, heads: int) -> Dim:
    """The size of a head."""
    problem = f"`num_heads` is {heads}; the {hidden} features of `{operand}` must be a multiple of that"
    if heads < 1 or (isinstance(hidden, int) and hidden % heads):
        raise ArgumentError(problem)
    return divided(problem, hidden, heads)


def projections(
    input: Sizes, weights: Sizes, bias: Sizes | None, hidden: Sequence[int] | None, heads: int
) -> tuple[int, int]:
    """The features of the queries, which are those of the keys, and of the values.

    weights: (Di, D + D + Dv) for an input of Di features. bias: (D + D + Dv,). hidden: D, D and Dv, equal by default.
    """
    problem = (
        f"`input` of {shape_text(input)} needs `weights` of ({input[-1]}, D + D + Dv) and a `bias` of "
        f"(D + D + Dv,), got {shape_text(weights)} and {None if bias is None else shape_text(bias)}"
    )
    fits = len(weights) == 2 and agree(problem, input[-1], weights[0]) and sizes_fit(problem, bias, weights[1:])
    if not fits:
        raise ShapeError(problem)
    if not hidden:
        if weights[1] % 3:
            raise ShapeError(f"`weights` of {shape_text(weights)} must have 3 · D columns")
        hidden = (weights[1] // 3,) * 3
    if len(hidden) != 3 or hidden[0] != hidden[1] or sum(hidden) != weights[1]:
        raise ArgumentError(f"`qkv_hidden_sizes` is {tuple(hidden)}; it must be D, D and Dv whose sum is {weights[1]}")
    for size in (hidden[0], hidden[2]):
        head_size("weights", size, heads)
    return hidden[0], hidden[2]


def mask(name: str, sizes: Sizes | None, batch: Dim, queries: Dim, keys: Dim | None) -> None:
    """Checks a mask against the kinds of `mask_bias`; keys is None if the length of the past is traced."""
    if sizes is None:
        return
    total = "T" if keys is None else keys
    problem = (
        f"`{name}` of {shape_text(sizes)} must be ({batch},), ({2 * batch},), ({3 * batch + 2},), "
        f"({batch}, {total}), ({batch}, {queries}, {total}) or ({batch}, 1, M, M)"
    )
    square = (batch, 1, *sizes[-1:] * 2)
    fits = sizes_fit(
        problem,
        sizes,
        (batch,),
        (2 * batch,),
        (3 * batch + 2,),
        (batch, keys),
        (batch, 1),
        (1, 1),
        (batch, queries, keys),
        square,
    )
    if not fits or (len(sizes) == 4 and isinstance(sizes[3], int) and isinstance(keys, int) and sizes[3] < keys):
        raise ShapeError(problem)


def bias(sizes: Sizes | None, batch: Dim, heads: Dim, queries: Dim, keys: Dim | None) -> None:
    """Checks `attention_bias`, (1 or B, 1 or N, S, T)."""
    problem = (
        f"`attention_bias` of {shape_text(sizes or ())} must be "
        f"(1 or {batch}, 1 or {heads}, {queries}, {'T' if keys is None else keys})"
    )
    if not sizes_fit(problem, sizes, *((b, n, queries, keys) for b in (batch, 1) for n in (heads, 1))):
        raise ShapeError(problem)


def buffer(rows: Dim, before: int | None, new: Dim) -> None:
    """Checks that the new tokens fit into a buffer; before is None if it is traced."""
    if isinstance(before, int) and isinstance(rows, int) and isinstance(new, int) and not 0 <= before <= rows - new:
        raise ShapeError(
            f"`past_sequence_length` is {before}; a buffer of {rows} rows has no room for {new} more tokens"
        )
