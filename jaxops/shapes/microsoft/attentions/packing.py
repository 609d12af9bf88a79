"""Sizes of packed batches: their tokens, offsets and lengths."""

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import must_fit
from jaxops.static import Sizes


def offsets(operand: str, tokens: Sizes, offset: Sizes) -> None:
    """Checks packed tokens, an operand of (T, D), and their token_offset (B, S)."""
    must_fit(operand, tokens, ("T", "D"))
    places(tokens, offset, None)


def places(tokens: Sizes, offset: Sizes, cumulative: Sizes | None) -> None:
    """Checks token_offset (B, S) and cumulative lengths (B + 1,) of packed `tokens` (T, …)."""
    concrete = [d for d in (tokens[0], *offset) if isinstance(d, int)]
    if len(offset) != 2 or (len(concrete) == 3 and tokens[0] > offset[0] * offset[1]):
        raise ShapeError(f"`token_offset` of {shape_text(offset)} must be (B, S) with room for {tokens[0]} tokens")
    must_fit("cumulative_sequence_length", cumulative, (offset[0] + 1,))
