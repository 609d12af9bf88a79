"""Sizes of a concatenation."""

from collections.abc import Sequence

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import agree
from jaxops.static import Sizes


def concat(shapes: Sequence[Sizes], axis: int) -> Sizes:
    """Sizes of a concatenation: all operands have equal sizes except along `axis`, where they add up."""
    first = shapes[0]
    for i, sizes in enumerate(shapes[1:], 1):
        problem = (
            f"concat: operand {i} of {shape_text(sizes)} does not fit operand 0 of {shape_text(first)}; "
            f"they may differ only along axis {axis}"
        )
        if len(sizes) != len(first) or not all(
            agree(problem, a, b) for j, (a, b) in enumerate(zip(first, sizes, strict=True)) if j != axis
        ):
            raise ShapeError(problem)
    return (*first[:axis], sum(s[axis] for s in shapes), *first[axis + 1 :])
