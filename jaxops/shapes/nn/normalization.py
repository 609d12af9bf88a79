"""Sizes of the parameters of normalizations."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import divided, must_agree
from jaxops.static import Dim, Sizes


def channels(sizes: Sizes) -> Dim:
    """The number of channels, the size of axis 1; an operand with one axis has one channel."""
    if not sizes:
        raise ShapeError("the operand is a scalar; it needs at least one axis")
    return sizes[1] if len(sizes) > 1 else 1


def per_channel(sizes: Sizes, **parameters: Sizes) -> None:
    """Raises ShapeError unless each of `parameters` has one number per channel."""
    count = channels(sizes)
    for name, shape in parameters.items():
        problem = (
            f"`{name}` has the shape {shape_text(shape)}, but x of {shape_text(sizes)} has {count} channels, so "
            f"it must be {shape_text((count,))}"
        )
        must_agree(problem, tuple(shape), (count,))


def groups(sizes: Sizes, num_groups: int) -> Sizes:
    """(N, C, …) as (N, groups, C / groups, …)."""
    if len(sizes) < 2:
        raise ShapeError(f"the operand of {shape_text(sizes)} has no channel axis; give (N, C, …)")
    if num_groups < 1:
        raise ArgumentError(f"`num_groups` is {num_groups}; it must be at least 1")
    problem = f"{sizes[1]} channels of {shape_text(sizes)} do not divide into {num_groups} groups"
    return (sizes[0], num_groups, divided(problem, sizes[1], num_groups), *sizes[2:])


def window(size: int, channels: Dim) -> tuple[int, int]:
    """The number of neighbours before and after the centre of a window of `size`, at most `channels` (ONNX LRN)."""
    before, after = (size - 1) // 2, size // 2
    return (min(before, channels), min(after, channels)) if isinstance(channels, int) else (before, after)
