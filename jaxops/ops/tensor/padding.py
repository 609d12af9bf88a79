"""Operators that pad and crop axes."""

__all__ = ["center_crop_pad", "pad"]

from typing import Any, Literal, cast

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, check_not_negative, ints, one_of
from jaxops.dtypes import as_traced, is_string, number, unify, widened
from jaxops.errors import ShapeError, amount, describe, shape_text
from jaxops.memory import bounded
from jaxops.ops.common.chosen_strings import holds_strings, moves_strings
from jaxops.ops.common.result_sizes import bounded_like
from jaxops.ops.tensor.gathering import gather
from jaxops.shapes.arithmetic import at_least
from jaxops.signature import StaticInts, Traits
from jaxops.static import A, Array, Dim, Ints, Operand, Sizes, Undecided, array, is_symbolic, jit_if_concrete

TRAITS = Traits(kind="movement", foldable=True)

PadMode = Literal["constant", "reflect", "edge", "wrap", "symmetric"]


def _pairs(sizes: Sizes, numbers: Sizes, axes: tuple[int, ...]) -> tuple[tuple[Dim, Dim], ...]:
    """ONNX's list (begins, then ends) for some axes, as (begin, end) for every axis of `sizes`."""
    if len(numbers) != 2 * len(axes):
        raise ShapeError(
            f"`pads` {shape_text(numbers)} has {amount(len(numbers), 'number')}; it must have {2 * len(axes)}, a "
            "begin for each axis, then an end for each"
        )
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * len(sizes)
    for i, axis in enumerate(axes):
        pairs[axis] = (numbers[i], numbers[i + len(axes)])
    for i, (size, (low, high)) in enumerate(zip(sizes, pairs, strict=True)):
        left = size + low + high
        if not at_least(f"the new size {left} of axis {i} of {shape_text(sizes)} may be negative", left, 0):
            raise ShapeError(f"`pads` ({low}, {high}) crop axis {i} of {shape_text(sizes)} to {left} elements")
    return tuple(pairs)


def _centring_pads(sizes: Sizes, shape: Sizes, axes: tuple[int, ...]) -> list[tuple[Dim, Dim] | None]:
    """The pads (negative: crops) that change each of `axes` to `shape` (ONNX CenterCropPad-18); None if a symbolic size
    decides whether to pad or to crop.
    """
    if len(shape) != len(axes):
        raise ShapeError(f"`shape` {shape_text(shape)} must hold one size for each of {len(axes)} axes")
    check_not_negative("shape", shape)
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


def pad(
    data: Operand[A],
    pads: StaticInts,
    constant_value: Any = None,
    axes: StaticInts = None,
    *,
    mode: PadMode = "constant",
) -> A:
    """Adds elements before and after each axis; negative pads crop.

    data: any dtype. pads: static, 1-D integers, all begins and then all ends. Returns the same dtype.
    constant_value: one number of data's dtype, the fill of mode 'constant'; None is 0, False or an empty string.
    axes: static, distinct; None means all. mode: 'constant' fills; 'edge' repeats the outermost element; 'reflect'
    mirrors the data without repeating the outermost element, 'symmetric' repeats it; 'wrap' continues from the other
    end. The last three repeat the data as often as needed, as in `np.pad`.
    Negative pads crop first; then the modes extend the cropped array.
    Raises ShapeError unless there are two pads per axis and enough elements to crop, ArgumentError, AxisError,
    DTypeError.
    Source: ONNX Pad, opsets 2–25; 'symmetric' is of OpenVINO Pad-12.

    >>> pad(jnp.arange(3), (1, 2), mode="reflect").tolist()
    [1, 0, 1, 2, 1, 0]
    """
    one_of("mode", mode, PadMode)
    if mode != "constant":
        constant_value = None
    elif constant_value is None:
        constant_value = np.array("", object) if holds_strings(data) else 0
    return _padded(data, pads, constant_value, axes, mode=mode)


@moves_strings(0, 2)
def _padded(data: Any, pads: StaticInts, constant_value: Any, axes: StaticInts, *, mode: PadMode) -> Any:
    data = array(data)
    padded_axes = tuple(range(data.ndim)) if axes is None else resolve_axes(axes, data.ndim)
    widths = _pairs(data.shape, ints("pads", pads), padded_axes)
    padded = [size + low + high for size, (low, high) in zip(data.shape, widths, strict=True)]
    bounded_like(padded, data)
    if isinstance(data, np.ndarray) and any(is_symbolic(n) for width in widths for n in width):
        data = as_traced(data)
    if mode != "constant":
        return _extend(data, widths, mode)
    if isinstance(constant_value, int | float) and not is_string(data):
        dtype = np.dtype(np.int64) if is_symbolic(data) else data.dtype
        fill = number("`constant_value`", constant_value, dtype)
    else:
        fill = array(constant_value)
    if fill.size != 1:
        raise ShapeError(f"`constant_value` must be one number, got {describe(fill)}")
    data, fill = unify((data, fill), ("data ", "constant_value "))
    return _pad((data, fill), widths)


@jit_if_concrete
def _pad(operands: tuple[Array, Array], widths: tuple[Sizes, ...]) -> Array:
    data, fill = operands
    if isinstance(data, np.ndarray):
        added = [(max(low, 0), max(high, 0)) for low, high in widths]
        if not added:
            return data
        cropped = _cut(data, widths).astype(np.result_type(data, fill), copy=False)
        # NumPy would make its own string of Python's, so the element stays in an array.
        return np.pad(cropped, added, constant_values=cast(Any, fill.astype(cropped.dtype).reshape(())))
    config = [(low, high, 0) for low, high in widths]
    return widened(lambda both: lax.pad(both[0], both[1].reshape(()), config), (data, fill))


def _cut(data: Array, widths: tuple[Sizes, ...]) -> Array:
    """Applies the negative widths."""
    index = []
    for size, (low, high) in zip(data.shape, widths, strict=True):
        low, high = (-n if isinstance(n, int) and n < 0 else 0 for n in (low, high))
        index.append(slice(low, size - high) if low or high else slice(None))
    return data[tuple(index)]


@jit_if_concrete
def _extend(data: Array, widths: tuple[Sizes, ...], mode: str) -> Array:
    data = _cut(data, widths)
    for axis, width in enumerate(widths):
        low, high = (0 if isinstance(n, int) and n < 0 else n for n in width)
        if low == 0 and high == 0:
            continue
        if isinstance(data.shape[axis], int) and data.shape[axis] == 0:
            raise ShapeError(f"axis {axis} of {shape_text(data.shape)} is empty; mode {mode!r} has nothing to repeat")
        # On XLA:CPU a gather is as fast as a concatenation of slices, and it works for every width.
        data = gather(data, _source(data.shape[axis], low, high, mode), axis=axis)
    return data


def _source(size: Any, low: Any, high: Any, mode: str) -> Any:
    """For each position of the padded axis, the index of its element; static if the sizes are numbers."""
    if all(isinstance(n, int) for n in (size, low, high)):
        bounded((size + low + high,), np.dtype(np.int64).itemsize, "the list of indices")
        return np.pad(np.arange(size), (low, high), mode=mode)  # pyright: ignore[reportArgumentType, reportCallIssue]
    index = lax.iota(jnp.int32, low + size + high) - jnp.asarray(low, jnp.int32)
    size = jnp.asarray(size, jnp.int32)
    if mode == "edge":
        return jnp.clip(index, 0, size - 1)
    if mode == "wrap":
        return index % size
    repeats_edge = mode == "symmetric"
    period = 2 * size if repeats_edge else jnp.maximum(2 * size - 2, 1)
    index = index % period
    return jnp.where(index < size, index, period - index - int(repeats_edge))


def center_crop_pad(input_data: Operand[A], shape: StaticInts, *, axes: Ints | None = None) -> A:
    """Crops longer axes to their centre, and pads shorter axes with zeros on both sides.

    input_data: any dtype. shape: static, 1-D integers, the new sizes of the axes. axes: static, distinct; None
    means all. If the difference is odd, the larger half is at the end.
    Raises ShapeError unless there is one size per axis, ArgumentError for a negative one, AxisError.
    Source: ONNX CenterCropPad, opset 18.

    >>> center_crop_pad(jnp.arange(4), (1,)).tolist(), center_crop_pad(jnp.ones(1, int), (4,)).tolist()
    ([1], [0, 1, 0, 0])
    """
    x = array(input_data)
    changed_axes = tuple(range(x.ndim)) if axes is None else resolve_axes(axes, x.ndim)
    new_sizes = ints("shape", shape)
    widths = _centring_pads(x.shape, new_sizes, changed_axes)
    certain_widths = [width or (0, 0) for width in widths]
    y = pad(x, [low for low, _ in certain_widths] + [high for _, high in certain_widths], axes=changed_axes)
    for axis, width, size in zip(changed_axes, widths, new_sizes, strict=True):
        y = y if width else _centred(as_traced(y), axis, size)
    return y


def _centred(x: Any, axis: int, size: Dim) -> Any:
    """Crops or pads an axis to `size` around its middle: adds all the zeros that may be needed, then crops."""
    room = (size + 1) // 2
    padded = lax.pad(x, jnp.zeros((), x.dtype), [(room, room, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])
    first = lax.div(jnp.asarray(x.shape[axis] - size, np.int32), np.int32(2))  # rounds to 0, like `_centring_pads`
    return lax.dynamic_slice_in_dim(padded, first + jnp.asarray(room, np.int32), size, axis)
