"""Sizes of padding, tiling and the exchange between depth and space."""

from jaxops.errors import ArgumentError, ShapeError
from jaxops.shapes.movement import text
from jaxops.static import Dim, Sizes, Undecided


def pads(sizes: Sizes, given: Sizes, axes: tuple[int, ...]) -> tuple[tuple[Dim, Dim], ...]:
    """ONNX's list (begins, then ends) for some axes, as (begin, end) for every axis of `sizes`."""
    if len(given) != 2 * len(axes):
        raise ShapeError(
            f"pad: `pads` {text(given)} has {len(given)} numbers; {len(axes)} axes need {2 * len(axes)}, "
            f"first all begins, then all ends"
        )
    found: list[tuple[Dim, Dim]] = [(0, 0)] * len(sizes)
    for i, axis in enumerate(axes):
        found[axis] = (given[i], given[i + len(axes)])
    for i, (size, (low, high)) in enumerate(zip(sizes, found, strict=True)):
        left = size + low + high
        try:
            fits = left >= 0
        except Undecided as error:
            raise ShapeError(f"pad: {left} elements of axis {i} of {text(sizes)} may be negative") from error
        if not fits:
            raise ShapeError(f"pad: `pads` ({low}, {high}) leave {left} elements of axis {i} of {text(sizes)}")
    return tuple(found)


def tile(sizes: Sizes, repeats: Sizes) -> Sizes:
    """Each size times its repeats."""
    if len(repeats) != len(sizes):
        raise ShapeError(f"tile: `repeats` {text(repeats)} must hold one number for each axis of {text(sizes)}")
    negative = [r for r in repeats if isinstance(r, int) and r < 0]
    if negative:
        raise ArgumentError(f"tile: `repeats` {text(repeats)} holds {negative[0]}; it must not be negative")
    return tuple(d * r for d, r in zip(sizes, repeats, strict=True))


def blocks(op: str, sizes: Sizes, block: int) -> Sizes:
    """(N, C, H, W), checked."""
    if len(sizes) != 4:
        raise ShapeError(f"{op}: the operand must be (N, C, H, W), but it is {text(sizes)}")
    if block < 1:
        raise ArgumentError(f"{op}: `blocksize` is {block}; it must be at least 1")
    return sizes


def part(op: str, what: str, size: Dim, count: int) -> Dim:
    """size / count, which must leave no rest."""
    each = size // count
    if each * count != size:
        raise ShapeError(f"{op}: {what} {size} is not a multiple of {count}")
    return each


def centre(sizes: Sizes, shape: Sizes, axes: tuple[int, ...]) -> Sizes:
    """The pads, negative where it crops, that bring `axes` to `shape` (ONNX CenterCropPad-18)."""
    if len(shape) != len(axes):
        raise ShapeError(f"center_crop_pad: `shape` {text(shape)} must hold one size for each of {len(axes)} axes")
    negative = [d for d in shape if isinstance(d, int) and d < 0]
    if negative:
        raise ArgumentError(f"center_crop_pad: `shape` {text(shape)} holds {negative[0]}; sizes are not negative")
    lows, highs = [], []
    for axis, want in zip(axes, shape, strict=True):
        more = want - sizes[axis]
        try:
            # Of an odd number the larger half is at the end, of what is added as of what is cut off.
            low = more // 2 if more >= 0 else -(-more // 2)
        except Undecided as error:
            raise ShapeError(f"center_crop_pad: whether {sizes[axis]} exceeds {want} depends on its value") from error
        lows.append(low)
        highs.append(more - low)
    return (*lows, *highs)
