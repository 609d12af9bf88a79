"""Sizes of packed batches whose sequences are given by the sums of their lengths."""

from collections.abc import Mapping

from jaxops.errors import ShapeError, shape_text
from jaxops.shapes.arithmetic import sizes_fit
from jaxops.static import Dim, Sizes


def offsets(op: str, operand: str, sizes: Sizes) -> Dim:
    """The number of sequences B of `sizes`, (B + 1,), the shape of the sums of their lengths; at least one."""
    concrete = len(sizes) == 1 and isinstance(sizes[0], int)
    if len(sizes) != 1 or (concrete and sizes[0] < 2):
        raise ShapeError(f"{op}: `{operand}` of {shape_text(sizes)} must be (B + 1,), for at least one sequence")
    return sizes[0] - 1


def by_sequence(op: str, operands: Mapping[str, tuple[Sizes | None, Sizes]]) -> None:
    """Checks operands; each comes with its sizes, None if it is left out, and the sizes that it must have."""
    for name, (sizes, expected) in operands.items():
        problem = f"{op}: `{name}` of {shape_text(sizes or ())} must be {shape_text(expected)}"
        if not sizes_fit(problem, sizes, expected):
            raise ShapeError(problem)
