"""Sizes of scales and zero points of a convolution's filters: one for all, or one per output channel."""

from jaxops.errors import shape_text
from jaxops.shapes.arithmetic import must_agree
from jaxops.static import Sizes


def of_filters(operand: str, sizes: Sizes, w: Sizes) -> Sizes:
    """Returns the sizes in which an operand broadcasts to weights (M, …).

    sizes: of the operand, (M,), or one element, for which the result is ().
    """
    if sizes in ((), (1,)):
        return ()
    if sizes != w[:1]:
        must_agree(
            f"`{operand}` of {shape_text(sizes)} does not fit `w` of {shape_text(w)}; it must be a scalar, or "
            f"{shape_text(w[:1])}, one per output channel",
            sizes,
            w[:1],
        )
    return (*sizes, *(1,) * (len(w) - 1))
