"""Sizes of the pieces of an axis."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import agree, at_least, ceiled, divided
from jaxops.static import Dim, Sizes


def pieces(size: Dim, lengths: Sizes) -> Sizes:
    """Lengths that fill an axis of `size` exactly; one of them may be -1, the remaining size."""
    free = None
    for i, length in enumerate(lengths):
        if isinstance(length, int) and length < 0:
            if length < -1:
                raise ShapeError(f"length {length} at position {i} of {shape_text(lengths)} is negative")
            if free is not None:
                raise ShapeError(f"{shape_text(lengths)} has -1 at positions {free} and {i}; only one is allowed")
            free = i
    total = sum(length for i, length in enumerate(lengths) if i != free)
    if free is None:
        problem = f"lengths {shape_text(lengths)} sum to {total}, but the axis has size {size}"
        if not agree(problem, total, size):
            raise ShapeError(problem)
        return lengths
    remaining = size - total
    problem = f"lengths {shape_text(lengths)} take {total}, more than the axis of size {size} has"
    if not at_least(f"{problem} for some sizes", size, total):
        raise ShapeError(problem)
    return (*lengths[:free], remaining, *lengths[free + 1 :])


def ceil_chunks(size: Dim, parts: int) -> Sizes:
    """`parts` chunks of ceil(size / parts); the last holds the remaining elements (ONNX Split-18)."""
    if parts < 1:
        raise ArgumentError(f"`num_outputs` is {parts}; it must be at least 1")
    chunk = ceiled(size, parts)
    last = size - chunk * (parts - 1)
    if not at_least(f"{size} elements may be too few for {parts} chunks of {chunk}", last, 0):
        raise ShapeError(f"{parts} chunks of {chunk} do not fit into {size} elements")
    return (chunk,) * (parts - 1) + (last,)


def equal_chunks(size: Dim, parts: int) -> Sizes:
    """`parts` chunks of one size, as Split before opset 18 requires."""
    problem = (
        f"an axis of size {size} does not divide into {parts} equal outputs; "
        f"give `split`, or use opset 18, where the last output may be smaller"
    )
    return (divided(problem, size, parts),) * parts
