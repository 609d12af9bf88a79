"""Sizes of padding and cropping."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import at_least
from jaxops.static import Dim, Sizes, Undecided


def pads(sizes: Sizes, numbers: Sizes, axes: tuple[int, ...]) -> tuple[tuple[Dim, Dim], ...]:
    """ONNX's list (begins, then ends) for some axes, as (begin, end) for every axis of `sizes`."""
    if len(numbers) != 2 * len(axes):
        raise ShapeError(
            f"pad: `pads` {shape_text(numbers)} has {len(numbers)} numbers; {len(axes)} axes need {2 * len(axes)}, "
            f"all begins, then all ends"
        )
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * len(sizes)
    for i, axis in enumerate(axes):
        pairs[axis] = (numbers[i], numbers[i + len(axes)])
    for i, (size, (low, high)) in enumerate(zip(sizes, pairs, strict=True)):
        left = size + low + high
        if not at_least(f"pad: the new size {left} of axis {i} of {shape_text(sizes)} may be negative", left, 0):
            raise ShapeError(f"pad: `pads` ({low}, {high}) crop axis {i} of {shape_text(sizes)} to {left} elements")
    return tuple(pairs)


def centre(sizes: Sizes, shape: Sizes, axes: tuple[int, ...]) -> list[tuple[Dim, Dim] | None]:
    """The pads (negative: crops) that change each of `axes` to `shape` (ONNX CenterCropPad-18); None if a symbolic size
    decides whether to pad or to crop.
    """
    if len(shape) != len(axes):
        raise ShapeError(
            f"center_crop_pad: `shape` {shape_text(shape)} must hold one size for each of {len(axes)} axes"
        )
    negative = [d for d in shape if isinstance(d, int) and d < 0]
    if negative:
        raise ArgumentError(f"center_crop_pad: `shape` {shape_text(shape)} holds {negative[0]}; sizes are not negative")
    pairs: list[tuple[Dim, Dim] | None] = []
    for axis, want in zip(axes, shape, strict=True):
        more = want - sizes[axis]
        try:
            # An odd difference has its larger half at the end, for padding and for cropping.
            low = more // 2 if more >= 0 else -(-more // 2)
        except Undecided:
            pairs.append(None)
        else:
            pairs.append((low, more - low))
    return pairs
