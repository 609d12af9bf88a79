"""Sizes of scales and zero points of a convolution's filters: one for all, or one an output channel."""

from jaxops.errors import shape_text
from jaxops.shapes.arithmetic import must_agree
from jaxops.static import Sizes


def of_filters(op: str, operand: str, sizes: Sizes, w: Sizes) -> Sizes:
    """The sizes in which it broadcasts to weights (M, …): M elements on their first axis; one element fits all."""
    if sizes in ((), (1,)):
        return ()
    if sizes != w[:1]:
        must_agree(
            f"{op}: `{operand}` of {shape_text(sizes)} does not fit `w` of {shape_text(w)}; it must be a scalar, or "
            f"{shape_text(w[:1])}, one an output channel",
            sizes,
            w[:1],
        )
    return (*sizes, *(1,) * (len(w) - 1))
