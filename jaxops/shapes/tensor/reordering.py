"""Sizes of reordered elements."""

from jaxops.errors import ArgumentError, AxisError, ShapeError, shape_text
from jaxops.shapes.arithmetic import divided
from jaxops.static import Dim, Sizes


def permutation(perm: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes of a transpose; None reverses them."""
    if perm is None:
        return tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise AxisError(f"transpose: `perm` {perm} is not a permutation of the {rank} axes {tuple(range(rank))}")
    return perm


def blocks(op: str, sizes: Sizes, block: int) -> Sizes:
    """(N, C, H, W), checked."""
    if len(sizes) != 4:
        raise ShapeError(f"{op}: the operand must be (N, C, H, W), but it is {shape_text(sizes)}")
    if block < 1:
        raise ArgumentError(f"{op}: `blocksize` is {block}; it must be at least 1")
    return sizes


def part(op: str, what: str, size: Dim, count: int) -> Dim:
    """size / count, which must be an integer."""
    return divided(f"{op}: {what} {size} is not a multiple of {count}", size, count)
