"""Sizes of resized arrays."""

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.static import Dim, Sizes

AspectRatioPolicy = Literal["stretch", "not_larger", "not_smaller"]
# The largest denominator of a scale that multiplies a size without error: 1.5 and 0.75 do, 0.6 does not.
_EXACT = 1024


class Resized(NamedTuple):
    """One axis: its size, its new size, the scale (None between symbolic sizes), and the start and end of its roi."""

    axis: int
    size: Dim
    length: Dim
    scale: Fraction | None
    roi: tuple[float, float] = (0.0, 1.0)


def by_scales(
    sizes: Sizes, axes: Sequence[int], scales: Sequence[float], scaled: Callable[[Dim, float], Dim]
) -> tuple[Resized, ...]:
    """Each axis times its scale, rounded down (ONNX Resize-19). scaled: that of a symbolic size."""
    _count("scales", scales, axes)
    wrong = [s for s in scales if not (s > 0 and math.isfinite(s))]
    if wrong:
        raise ArgumentError(f"`scales` holds {wrong[0]}; scales are greater than 0")
    # The text of the standard also multiplies by the roi; its shape inference, its suite and onnxruntime do not.
    rows = [
        (axis, sizes[axis], _times(sizes[axis], _single(s), scaled), s) for axis, s in zip(axes, scales, strict=True)
    ]
    return tuple(Resized(axis, size, length, _meant(size, length, s)) for axis, size, length, s in rows)


def by_sizes(sizes: Sizes, axes: Sequence[int], targets: Sizes, policy: AspectRatioPolicy) -> tuple[Resized, ...]:
    """Each axis at its own size, or all at the scale of one of them (ONNX Resize-19)."""
    _count("sizes", targets, axes)
    wrong = [d for d in targets if isinstance(d, int) and d < 0]
    if wrong:
        raise ArgumentError(f"`sizes` holds {wrong[0]}; sizes are not negative")
    scales = [_ratio(sizes, axis, want) for axis, want in zip(axes, targets, strict=True)]
    if policy == "stretch" or not scales:
        rows = zip(axes, targets, scales, strict=True)
        return tuple(Resized(axis, sizes[axis], want, scale) for axis, want, scale in rows)
    ratios = [s for s in scales if s is not None]
    if len(ratios) < len(scales):
        raise ShapeError(
            f"the scale that {policy!r} chooses to bring {shape_text(sizes)} to `sizes` {shape_text(targets)} "
            f"depends on a symbolic size; leave symbolic axes out of `axes` and `sizes`"
        )
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return tuple(Resized(a, sizes[a], math.floor(scale * sizes[a] + Fraction(1, 2)), scale) for a in axes)


def _count(name: str, numbers: Sequence[object], axes: Sequence[int]) -> None:
    if len(numbers) != len(axes):
        raise ShapeError(
            f"`{name}` has {amount(len(numbers), 'number')} for {amount(len(axes), 'axis', 'axes')}; give one for each"
        )


def _times(size: Dim, scale: float, scaled: Callable[[Dim, float], Dim]) -> Dim:
    exact = Fraction(scale)
    if not isinstance(size, int):
        return scaled(size, scale)
    if exact.denominator <= _EXACT:
        return size * exact.numerator // exact.denominator
    # In float32, as the standard's shape inference computes it: 0.7 of 10 are 7, whatever the float below 0.7 is.
    return math.floor(_single(_single(size) * scale))


def _meant(size: Dim, length: Dim, scale: float) -> Fraction:
    """The ratio of the sizes if it equals the scale in float32, else the scale. So 0.6 for 5 elements is 3 / 5."""
    if isinstance(size, int) and isinstance(length, int) and size and _single(length / size) == _single(scale):
        return Fraction(length, size)
    return Fraction(_single(scale))


def _ratio(sizes: Sizes, axis: int, want: Dim) -> Fraction | None:
    size = sizes[axis]
    if not (isinstance(size, int) and isinstance(want, int)):
        for large, small, up in ((want, size, True), (size, want, False)):
            times = 1 if large is small else large // small
            if isinstance(times, int) and times and times * small == large:
                return Fraction(times) if up else Fraction(1, times)
        return None
    if size == 0:
        if want:
            raise ShapeError(f"axis {axis} of {shape_text(sizes)} is empty; it cannot get {want} elements")
        return Fraction(1)
    return Fraction(want, size)


def _single(value: float) -> float:
    """A number rounded to float32, in which the standard has scales."""
    return struct.unpack("f", struct.pack("f", value))[0]
