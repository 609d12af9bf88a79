"""Sizes of the operators that slide a window over the spatial axes: convolution, its transpose, and pooling.

A window of `kernel` elements, `dilation` apart, spans (kernel - 1)·dilation + 1 elements of the padded axis.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from jaxops.errors import ArgumentError, ShapeError, SizeError, amount, shape_text
from jaxops.memory import bounded
from jaxops.shapes.arithmetic import ceiled, floored, larger, must_agree, must_fit
from jaxops.static import LIMITING, Dim, Sizes, Undecided, is_symbolic

AutoPad = Literal["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]


class Options(NamedTuple):
    """The attributes that all these operators share; None stands for the default."""

    auto_pad: AutoPad
    pads: Sizes | None
    strides: Sizes | None
    dilations: Sizes | None


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes, one item per axis.

    `pads` holds (begin, end) of each axis; the windows are all those that fit into the padded axis. `ends` holds the
    end padding that the attributes ask for; ceil_mode can make the end in `pads` larger, and these extra elements
    never count. `sizes` holds the sizes of the result.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[Dim, Dim], ...]
    ends: Sizes
    sizes: Sizes


def span(kernel: int, dilation: int) -> int:
    """The number of elements from the first of a window to the last, both included."""
    return (kernel - 1) * dilation + 1


def spatial(sizes: Sizes) -> Sizes:
    """The sizes after batch and channels; there must be at least one."""
    if len(sizes) < 3:
        raise ShapeError(f"`x` has sizes {shape_text(sizes)}; it needs batch, channels and at least one spatial axis")
    return sizes[2:]


def sliding(sizes: Sizes, kernel: Sizes, options: Options, ceil_mode: bool = False) -> Windows:
    """Windows of a convolution or pooling over spatial axes of `sizes`.

    With ceil_mode a window may reach beyond the padded axis, but it starts inside the axis or the padding before
    it. MaxPool-22 and AveragePool-22 say so; earlier versions leave it open, and onnxruntime uses this rule there too.
    """
    auto_pad = options.auto_pad
    kernel, strides, dilations, explicit_pads = _attributes(sizes, kernel, options)
    pads, ends, out, padded = [], [], [], []
    for axis, (size, k, step, d) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        width = span(k, d)
        if auto_pad.startswith("SAME"):
            # The result has ceil(size / stride) elements, with and without ceil_mode.
            lo, hi = _halves(_same_total(size, width, step), larger_first=auto_pad == "SAME_LOWER")
            reach = hi
        else:
            # ceil_mode applies to VALID too, in the standard's own shape inference and in onnxruntime; the formula in
            # the text of MaxPool-12 differs.
            lo, hi = explicit_pads[axis], explicit_pads[axis + len(sizes)]
            # Rounding up adds end padding, in which the last window must not start.
            reach = min(hi + step - 1, width - 1) if ceil_mode else hi
        count = floored(size + lo + reach - width, step) + 1
        count = _not_negative(count, size) if is_symbolic(count) else count
        if isinstance(count, int) and count < 0:
            raise ShapeError(
                f"a window of {width} elements ({k}, dilated by {d}) does not fit into spatial axis {axis} "
                f"of size {size}, padded by {lo} and {hi}"
            )
        pads.append((lo, reach))
        ends.append(hi)
        out.append(count)
        padded.append(size + lo + reach)
    _check_padded(padded)
    # A stride beyond the padded axis gives one window. So does a stride of its size, a number that XLA can count.
    steps = tuple(min(s, max(d, 1)) if isinstance(d, int) else s for s, d in zip(strides, padded, strict=True))
    return Windows(kernel, steps, _used(dilations, kernel), tuple(pads), tuple(ends), tuple(out))


def _not_negative(count: Dim, size: Dim) -> Dim:
    """Returns a symbolic number of windows as `lax` defines it, max(count, 0).

    Raises SizeError in an export if a window may not fit, as JAX takes forever to compare maxima of maxima.
    """
    windows = larger(count, 0)
    if windows is not count and is_symbolic(windows) and LIMITING.get():
        raise SizeError(f"the size {size} may be too small for a window", size, needs=f"{count} >= 0")
    return windows


def transposed(
    sizes: Sizes,
    kernel: Sizes,
    options: Options,
    output_padding: Sizes | None = None,
    output_shape: Sizes | None = None,
) -> Windows:
    """Windows that a transposed convolution writes; their `pads` are the elements to crop (negative: zeros to add).

    When `output_shape` is larger than all windows together, the zeros go to the end.
    """
    auto_pad = options.auto_pad
    if output_shape is not None:
        options = options._replace(pads=None)
    kernel, strides, dilations, explicit_pads = _attributes(sizes, kernel, options)
    n = len(sizes)
    extra = _per_axis("output_padding", output_padding, n, 0, 0)
    for i, (e, step, d) in enumerate(zip(extra, strides, dilations, strict=True)):
        if e >= max(step, d):
            raise ArgumentError(
                f"`output_padding` {shape_text(extra)} holds {e} on spatial axis {i}; "
                f"it must be less than the stride {step} or the dilation {d}"
            )
    result_shape = output_shape
    if result_shape is None and auto_pad.startswith("SAME"):
        result_shape = tuple(size * step for size, step in zip(sizes, strides, strict=True))
    if result_shape is not None:
        _check("output_shape", result_shape, n, 0)
    pads, out, covered = [], [], []
    for i, (size, k, step, d, e) in enumerate(zip(sizes, kernel, strides, dilations, extra, strict=True)):
        if isinstance(size, int) and size == 0 and step > 1:
            raise ShapeError(f"spatial axis {i} of the data, {shape_text(sizes)}, is empty")
        full = (size - 1) * step + span(k, d)
        if result_shape is None:
            count = full + e - explicit_pads[i] - explicit_pads[i + n]
            lo = explicit_pads[i]
        else:
            count = result_shape[i]
            lo = _cut_first(full + e - count, auto_pad)
        if isinstance(count, int) and count < 0:
            raise ShapeError(
                f"the windows cover {full + e} elements of spatial axis {i}, fewer than `pads` "
                f"{explicit_pads[i]} and {explicit_pads[i + n]} cut off"
            )
        pads.append((lo, full - lo - count))
        out.append(count)
        covered.append(larger(full, count) if isinstance(full, int) and isinstance(count, int) else full)
    _check_padded(covered)
    ends = tuple(hi for _, hi in pads)
    return Windows(kernel, _used(strides, sizes), _used(dilations, kernel), tuple(pads), ends, tuple(out))


def _used(distances: Sizes, counts: Sizes) -> Sizes:
    """Returns the distances between elements. With a single element, a distance has no effect and becomes 1."""
    return tuple(1 if isinstance(n, int) and n <= 1 else d for d, n in zip(distances, counts, strict=True))


def _check_padded(sizes: Sequence[Dim]) -> None:
    """Raises TooLargeError if the spatial elements, padding included, do not fit in memory at a byte each."""
    bounded(sizes, 1, "with its padding", computed=None)


def channels(x: Sizes, w: Sizes, group: int) -> None:
    """Raises ShapeError unless weights (M, C/group, …) fit data (N, C, …)."""
    _check_weights(x, w, group)
    problem = (
        f"`w` of {shape_text(w)} with `group` {group} takes {w[1] * group} channels, "
        f"but `x` of {shape_text(x)} has {x[1]}"
    )
    must_agree(problem, (x[1],), (w[1] * group,))
    if w[0] % group:
        raise ShapeError(f"`group` {group} does not divide the {w[0]} output channels of `w` {shape_text(w)}")


def transposed_channels(x: Sizes, w: Sizes, group: int) -> None:
    """Raises ShapeError unless weights (C, M/group, …) fit data (N, C, …)."""
    _check_weights(x, w, group)
    problem = f"`w` of {shape_text(w)} takes {w[0]} channels, but `x` of {shape_text(x)} has {x[1]}"
    must_agree(problem, (x[1],), (w[0],))
    if w[0] % group:
        raise ShapeError(f"`group` {group} does not divide the {w[0]} channels of `x` {shape_text(x)}")


def kernel_of(w: Sizes, kernel_shape: Sizes | None) -> Sizes:
    """The kernel sizes, from the weights; `kernel_shape`, if given, must agree."""
    if kernel_shape is not None:
        problem = f"`kernel_shape` is {shape_text(kernel_shape)}, but `w` of {shape_text(w)} has a kernel of "
        must_agree(f"{problem}{shape_text(w[2:])}", w[2:], kernel_shape)
    return w[2:]


def bias(b: Sizes, features: Dim) -> None:
    """Raises ShapeError unless the bias has one element per output channel."""
    must_fit("b", b, (features,), reason=", one per output channel")


def _check_weights(x: Sizes, w: Sizes, group: int) -> None:
    if len(w) != len(x):
        raise ShapeError(f"`w` of {shape_text(w)} must have the rank of `x` of {shape_text(x)}")
    if group < 1:
        raise ArgumentError(f"`group` is {group}; it must be at least 1")


def _attributes(sizes: Sizes, kernel: Sizes, options: Options) -> tuple[Sizes, Sizes, Sizes, Sizes]:
    """Kernel, strides, dilations and pads, checked, with defaults filled in."""
    auto_pad, pads, strides, dilations = options
    n = len(sizes)
    # Some exporters write zeros beside auto_pad.
    if auto_pad != "NOTSET" and pads is not None and any(pads):
        raise ArgumentError(
            f"`pads` {shape_text(pads)} and `auto_pad` {auto_pad} exclude each other; drop one of the two"
        )
    return (
        _per_axis("kernel_shape", kernel, n, 1, 1),
        _per_axis("strides", strides, n, 1, 1),
        _per_axis("dilations", dilations, n, 1, 1),
        _per_axis("pads", pads, 2 * n, 0, 0),
    )


def _per_axis(name: str, values: Sizes | None, n: int, default: int, least: int) -> Sizes:
    if values is None:
        return (default,) * n
    return _check(name, values, n, least)


def _check(name: str, values: Sequence[Dim], n: int, least: int) -> Sizes:
    if len(values) != n:
        raise ShapeError(
            f"`{name}` {shape_text(values)} has {amount(len(values), 'value')}; the spatial axes of `x` need {n}"
        )
    for value in values:
        if isinstance(value, int) and value < least:
            raise ArgumentError(f"`{name}` {shape_text(values)} holds {value}; it must be at least {least}")
    return tuple(values)


def _same_total(size: Dim, width: int, step: int) -> Dim:
    """The padding that makes ceil(size / step) windows; none where the stride exceeds the window.

    There the formula of the text can be negative, and engines differ. Here nothing is cropped: the first window starts
    at the first element, and elements between windows are skipped, as in TensorFlow.
    """
    total = (ceiled(size, step) - 1) * step + width - size
    if isinstance(total, int):
        return max(total, 0)
    if width < step:  # otherwise it is at least width - step for every size
        return larger(total, 0)
    return total


def _halves(total: Dim, *, larger_first: bool) -> tuple[Dim, Dim]:
    half = total // 2
    return (total - half, half) if larger_first else (half, total - half)


def _cut_first(total: Dim, auto_pad: AutoPad) -> Dim:
    """Returns the part of `total` to crop at the beginning (ConvTranspose-11); 0 when `total` is not positive."""
    try:
        if total <= 0:
            return 0
    except Undecided as error:
        problem = f"the padding {total} that `output_shape` asks for may be negative"
        raise SizeError(problem, total, needs=f"{total} >= 0") from error
    return _halves(total, larger_first=auto_pad != "SAME_UPPER")[0]
