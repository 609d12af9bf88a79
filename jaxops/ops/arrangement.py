"""Operators that pad, repeat, cut and reorder along axes."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, is_string, unify, widened
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, describe
from jaxops.ops.indexing import gather
from jaxops.ops.movement import flag, reshape, transpose
from jaxops.ops.scatter import gather_nd
from jaxops.shapes import arrangement as sizes_of
from jaxops.shapes.movement import text
from jaxops.static import (
    Array,
    Ints,
    Sizes,
    Static,
    array,
    axes as resolve_axes,
    integer,
    ints,
    is_symbolic,
    kernel,
    structural,
)

_PAD_MODES = ("constant", "reflect", "edge", "wrap")


@structural
def pad(data: Array, pads: Static, constant_value: Any = None, axes: Static = None, *, mode: str = "constant") -> Array:
    """Adds elements before and after each of the axes, or takes them away where a number is negative.

    data: any dtype. pads: static, 1-D integers, the begins of all axes and then the ends.
    constant_value: one number of data's dtype, what mode 'constant' adds; None is 0, False or an empty string.
    axes: static, distinct; None means all. mode: 'constant'; 'edge', the outermost element; 'reflect', mirrored
    at it; 'wrap', from the other end. The last two go on as often as needed, as `np.pad` does. What is taken
    away goes first, so the other modes continue what is left.
    Raises ShapeError for pads of another length or ones that take too much, ArgumentError, AxisError, DTypeError.
    Source: ONNX Pad, opsets 2–25.

    >>> pad(jnp.arange(3), (1, 2), mode="reflect").tolist()
    [1, 0, 1, 2, 1, 0]
    """
    if mode not in _PAD_MODES:
        raise ArgumentError(f"pad: `mode` is {mode!r}; it must be one of {', '.join(_PAD_MODES)}")
    data = array(data)
    places = tuple(range(data.ndim)) if axes is None else resolve_axes("pad", axes, data.ndim)
    widths = sizes_of.pads(data.shape, ints("pad", "pads", pads), places)
    if isinstance(data, np.ndarray) and any(is_symbolic(n) for width in widths for n in width):
        data = as_traced(data)
    if mode != "constant":
        return _extend(data, widths, mode)
    if constant_value is None:
        constant_value = np.array("" if is_string(data) else 0, data.dtype)
    scalar = isinstance(constant_value, int | float | str)
    fill = np.array(constant_value, data.dtype) if scalar else array(constant_value)
    if fill.size != 1:
        raise ShapeError(f"pad: `constant_value` must be one number, got {describe(fill)}")
    data, fill = unify("pad", (data, fill), ("data ", "constant_value "))
    return _pad((data, fill), widths)


@kernel
def _pad(operands: tuple[Array, Array], widths: tuple[Sizes, ...]) -> Array:
    data, fill = operands
    if isinstance(data, np.ndarray):
        added = [(max(low, 0), max(high, 0)) for low, high in widths]
        return np.pad(_cut(data, widths), added, constant_values=fill.reshape(())[()]) if added else data
    config = [(low, high, 0) for low, high in widths]
    return widened(lambda both: lax.pad(both[0], both[1].reshape(()), config), (data, fill))


def _cut(data: Array, widths: tuple[Sizes, ...]) -> Array:
    """Applies the negative widths."""
    index = []
    for size, (low, high) in zip(data.shape, widths, strict=True):
        low, high = (-n if isinstance(n, int) and n < 0 else 0 for n in (low, high))
        index.append(slice(low, size - high) if low or high else slice(None))
    return data[tuple(index)]


@kernel
def _extend(data: Array, widths: tuple[Sizes, ...], mode: str) -> Array:
    data = _cut(data, widths)
    for axis, width in enumerate(widths):
        low, high = (0 if isinstance(n, int) and n < 0 else n for n in width)
        if low == 0 and high == 0:
            continue
        if isinstance(data.shape[axis], int) and data.shape[axis] == 0:
            raise ShapeError(f"pad: axis {axis} of {text(data.shape)} is empty; mode {mode!r} has nothing to repeat")
        # On XLA:CPU a gather is no slower than slices joined together, and it takes every width.
        data = gather(data, _source(data.shape[axis], low, high, mode), axis=axis)
    return data


def _source(size: Any, low: Any, high: Any, mode: str) -> Any:
    """Which element each place of the padded axis shows; static while the sizes are numbers."""
    if all(isinstance(n, int) for n in (size, low, high)):
        return np.pad(np.arange(size), (low, high), mode=mode)  # pyright: ignore[reportArgumentType, reportCallIssue]
    place = lax.iota(jnp.int32, low + size + high) - jnp.asarray(low, jnp.int32)
    size = jnp.asarray(size, jnp.int32)
    if mode == "edge":
        return jnp.clip(place, 0, size - 1)
    if mode == "wrap":
        return place % size
    period = jnp.maximum(2 * size - 2, 1)
    place = place % period
    return jnp.where(place < size, place, period - place)


@structural
def tile(input: Array, repeats: Static) -> Array:
    """Repeats the whole of `input` along each axis.

    input: n axes, any dtype. repeats: static, n integers >= 0.
    Raises ShapeError when there are more or fewer repeats than axes, ArgumentError for a negative one.
    Source: ONNX Tile, opsets 6–13.

    >>> tile(jnp.arange(2), (3,)).tolist()
    [0, 1, 0, 1, 0, 1]
    """
    return _tile(input, ints("tile", "repeats", repeats))


@kernel
def _tile(input: Array, repeats: Sizes) -> Array:
    sizes = sizes_of.tile(input.shape, repeats)
    if isinstance(input, np.ndarray) and not any(map(is_symbolic, sizes)):
        return np.tile(input, repeats)
    inner, outer, order = [], [], []
    for size, count in zip(input.shape, repeats, strict=True):
        if not (isinstance(count, int) and count == 1):
            inner.append(1)
            outer.append(count)
        order.append(len(outer))
        inner.append(size)
        outer.append(size)
    x = lax.expand_dims(as_traced(input), [i for i in range(len(outer)) if i not in order])
    return lax.reshape(lax.broadcast_in_dim(x, outer, range(len(outer))), sizes)


def _mode(op: str, mode: str) -> str:
    if mode not in ("DCR", "CRD"):
        raise ArgumentError(f"{op}: `mode` is {mode!r}; it must be 'DCR' or 'CRD'")
    return mode


@structural
def depth_to_space(input: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Moves blocks of channels into the plane.

    input: (N, C, H, W), any dtype; C a multiple of blocksize². Returns
    (N, C / blocksize², H · blocksize, W · blocksize).
    mode: which axis of the channels varies slowest: 'DCR' the block, 'CRD' the channel that remains.
    Raises ShapeError for another rank or a C that does not divide, ArgumentError.
    Source: ONNX DepthToSpace, opsets 1–28.

    >>> depth_to_space(np.arange(4).reshape(1, 4, 1, 1), blocksize=2).tolist()
    [[[[0, 1], [2, 3]]]]
    """
    x, b = array(input), integer("depth_to_space", "blocksize", blocksize)
    n, c, h, w = sizes_of.blocks("depth_to_space", x.shape, b)
    rest = sizes_of.part("depth_to_space", "C", c, b * b)
    if _mode("depth_to_space", mode) == "DCR":
        x = transpose(reshape(x, (n, b, b, rest, h, w), allowzero=1), perm=(0, 3, 4, 1, 5, 2))
    else:
        x = transpose(reshape(x, (n, rest, b, b, h, w), allowzero=1), perm=(0, 1, 4, 2, 5, 3))
    return reshape(x, (n, rest, h * b, w * b), allowzero=1)


@structural
def space_to_depth(input: Array, *, blocksize: int, mode: str = "DCR") -> Array:
    """Moves blocks of the plane into the channels; the inverse of `depth_to_space`.

    input: (N, C, H, W), any dtype; H and W multiples of blocksize. Returns (N, C · blocksize², H / blocksize,
    W / blocksize). mode: as in `depth_to_space`. Raises ShapeError for another rank or sizes that do not divide.
    Source: ONNX SpaceToDepth, opsets 1–28.

    >>> space_to_depth(np.arange(4).reshape(1, 1, 2, 2), blocksize=2).shape
    (1, 4, 1, 1)
    """
    x, b = array(input), integer("space_to_depth", "blocksize", blocksize)
    n, c, h, w = sizes_of.blocks("space_to_depth", x.shape, b)
    h, w = sizes_of.part("space_to_depth", "H", h, b), sizes_of.part("space_to_depth", "W", w, b)
    x = reshape(x, (n, c, h, b, w, b), allowzero=1)
    order = (0, 3, 5, 1, 2, 4) if _mode("space_to_depth", mode) == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(transpose(x, perm=order), (n, c * b * b, h, w), allowzero=1)


@structural
def trilu(input: Array, k: Any = None, *, upper: int = 1) -> Array:
    """The upper or lower triangle of each matrix, zeros elsewhere.

    input: (…, n, m), any dtype. k: one integer, which may be traced: the diagonal, above the main one when
    positive, that still belongs to the triangle.
    Raises ShapeError for an input of fewer than two axes or a k that is not one number.
    Source: ONNX Trilu, opset 14.

    >>> trilu(jnp.ones((2, 2), int), upper=0).tolist()
    [[1, 0], [1, 1]]
    """
    x, k = array(input), array(0 if k is None else k)
    upper = flag("trilu", "upper", upper)
    if x.ndim < 2:
        raise ShapeError(f"trilu: the operand needs at least two axes, got {describe(x)}")
    if k.size != 1 or not jnp.issubdtype(k.dtype, jnp.integer):
        raise ShapeError(f"trilu: `k` must be one integer, got {describe(k)}")
    k = k.reshape(())
    if isinstance(x, np.ndarray) and isinstance(k, np.ndarray):
        return np.triu(x, int(k)) if upper else np.tril(x, int(k))
    # A diagonal beyond int32 is beyond every matrix.
    k = np.clip(k, -(2**31) + 1, 2**31 - 1).astype(np.int32) if isinstance(k, np.ndarray) else k.astype(jnp.int32)
    return _trilu((as_traced(x), as_traced(k)), upper)


@kernel
def _trilu(operands: tuple[Any, Any], upper: bool) -> Array:
    x, k = operands
    sizes = x.shape[-2:]
    row, column = (lax.broadcasted_iota(jnp.int32, sizes, i) for i in (0, 1))
    kept = column - row >= k if upper else column - row <= k
    return lax.select(jnp.broadcast_to(kept, x.shape), x, lax.full_like(x, 0))


@structural
def reverse_sequence(input: Array, sequence_lens: Array, *, batch_axis: int = 1, time_axis: int = 0) -> Array:
    """Reverses the first `sequence_lens[i]` steps of sequence i; the rest stays.

    input: at least two axes, any dtype; `batch_axis` and `time_axis` are 0 and 1 or 1 and 0.
    sequence_lens: (batch,), integers in [0, time]; they may be traced.
    Raises ShapeError when their number is not the batch, ArgumentError, AxisError for equal axes.
    Source: ONNX ReverseSequence, opsets 10–28.

    >>> reverse_sequence(np.arange(3).reshape(3, 1), np.array([2])).ravel()
    array([1, 0, 2])
    """
    x, lengths = array(input), array(sequence_lens)
    if {batch_axis, time_axis} != {0, 1}:
        raise AxisError(
            f"reverse_sequence: `batch_axis` is {batch_axis} and `time_axis` {time_axis}; one must be 0, the other 1"
        )
    if x.ndim < 2 or lengths.shape != (x.shape[batch_axis],):
        raise ShapeError(
            f"reverse_sequence: `sequence_lens` of {text(lengths.shape)} must have one length for each entry of "
            f"axis {batch_axis} of {text(x.shape)}"
        )
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise DTypeError(f"reverse_sequence: `sequence_lens` must be integers, got {describe(lengths)}")
    order = (batch_axis, time_axis, *range(2, x.ndim))
    xp = np if isinstance(lengths, np.ndarray) else jnp
    if isinstance(lengths, np.ndarray) and ((lengths < 0).any() or (lengths > x.shape[time_axis]).any()):
        raise ArgumentError(
            f"reverse_sequence: `sequence_lens` {lengths.tolist()} leave the range [0, {x.shape[time_axis]}]"
        )
    step, length = xp.arange(x.shape[time_axis], dtype=lengths.dtype)[None, :], lengths[:, None]
    source = xp.where(step < length, length - 1 - step, step)
    return transpose(gather_nd(transpose(x, perm=order), source[..., None], batch_dims=1), perm=order)


@structural
def center_crop_pad(input_data: Array, shape: Static, *, axes: Ints | None = None) -> Array:
    """Cuts the middle out of axes that are too long, and pads axes that are too short with zeros on both sides.

    input_data: any dtype. shape: static, 1-D integers, the sizes that the axes get. axes: static, distinct; None
    means all. Of an odd difference the larger half is at the end.
    Raises ShapeError when there are more or fewer sizes than axes, ArgumentError for a negative one, AxisError.
    Source: ONNX CenterCropPad, opset 18.

    >>> center_crop_pad(jnp.arange(4), (1,)).tolist(), center_crop_pad(jnp.ones(1, int), (4,)).tolist()
    ([1], [0, 1, 0, 0])
    """
    x = array(input_data)
    places = tuple(range(x.ndim)) if axes is None else resolve_axes("center_crop_pad", axes, x.ndim)
    widths = sizes_of.centre(x.shape, ints("center_crop_pad", "shape", shape), places)
    return pad(x, widths, axes=places)
