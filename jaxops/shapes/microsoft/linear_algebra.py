"""The order of axes that FusedMatMul multiplies in."""

from jaxops.errors import ShapeError, shape_text
from jaxops.static import Sizes


def order(op: str, operand: str, sizes: Sizes, transposed: bool, batch_transposed: bool) -> tuple[int, ...]:
    """The axes as (batch …, rows, columns).

    batch_transposed: first moves the first axis behind the batch. transposed: then swaps the last two axes.
    A single axis stays in place.
    """
    axes = list(range(len(sizes)))
    if batch_transposed:
        if len(sizes) < 3:
            raise ShapeError(
                f"{op}: `{operand}` of {shape_text(sizes)} has no batch axes to transpose; it needs at least 3 axes"
            )
        axes.insert(-1, axes.pop(0))
    if transposed and len(sizes) > 1:
        axes[-2:] = reversed(axes[-2:])
    return tuple(axes)
