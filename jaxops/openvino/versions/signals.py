"""Fourier transforms over several axes, and columns to images."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ShapeError, amount
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import resolve_axis, scalar_like, single, vector
from jaxops.signature import Static, like
from jaxops.static import Array, array


def _axes_and_sizes(op: str, axes: Any, signal_size: Any, rank: int) -> list[tuple[int, Any]]:
    """Returns each axis in [0, rank) and the length of its transform, None for the size of the axis."""
    chosen = [resolve_axis(op, axis, rank) for axis in vector(op, "axes", axes).tolist()]
    if signal_size is None:
        return [(axis, None) for axis in chosen]
    sizes = vector(op, "signal_size", signal_size).tolist()
    if len(sizes) != len(chosen):
        raise ShapeError(
            f"{op}: `signal_size` has {amount(len(sizes), 'number')} for {amount(len(chosen), 'axis', 'axes')}"
        )
    return [(axis, None if size == -1 else size) for axis, size in zip(chosen, sizes, strict=True)]


def _some_axes(op: str, axes: Any, signal_size: Any, rank: int) -> list[tuple[int, Any]]:
    """Returns `_axes_and_sizes`, after a check that there is at least one axis."""
    chosen = _axes_and_sizes(op, axes, signal_size, rank)
    if not chosen:
        raise ShapeError(
            f"{op}: `axes` is empty; it needs at least one axis, along which only half of the frequencies are stored"
        )
    return chosen


def _transformed(x: Any, plan: Sequence[tuple[int, Any]], inverse: bool) -> Any:
    for axis, length in plan:
        x = ops.dft(x, length, axis, inverse=int(inverse))
    return x


@version("DFT", 7, of=ops.dft)
def dft(data: Array, axes: Static, signal_size: Static = None) -> Array:
    """The last axis holds the real and the imaginary part, and does not count in `axes`."""
    return _transformed(data, _axes_and_sizes("DFT", axes, signal_size, array(data).ndim - 1), False)


@version("IDFT", 7, of=ops.dft)
def idft(data: Array, axes: Static, signal_size: Static = None) -> Array:
    return _transformed(data, _axes_and_sizes("IDFT", axes, signal_size, array(data).ndim - 1), True)


@version("RDFT", 9, of=ops.dft)
def rdft(data: Array, axes: Static, signal_size: Static = None) -> Array:
    """Transforms real data. Along the last of `axes` the result keeps the first half; the rest is its conjugate."""
    *before, (axis, length) = _some_axes("RDFT", axes, signal_size, array(data).ndim)
    half = ops.dft(ops.unsqueeze(data, (-1,)), length, axis, onesided=1)
    return _transformed(half, before, False)


@version("IRDFT", 9, of=ops.dft)
def irdft(data: Array, axes: Static, signal_size: Static = None) -> Array:
    """The inverse of RDFT. The data has one half of the last of `axes`; the result is even there, or `signal_size`."""
    *before, (axis, length) = _some_axes("IRDFT", axes, signal_size, array(data).ndim - 1)
    x = array(_transformed(data, before, True))
    count = 2 * (x.shape[axis] - 1) if length is None else length
    kept, size = count // 2 + 1, x.shape[axis]
    x = ops.slice(x, [0], [kept], [axis])
    if isinstance(size, int) and kept > size:
        x = ops.pad(x, (0, kept - size), axes=(axis,))
    mirrored = ops.slice(x, [(count - 1) // 2], [0], [axis], [-1])
    conjugate = ops.mul(mirrored, scalar_like(x, [1, -1]))
    whole = ops.dft(ops.concat([x, conjugate], axis=axis), None, axis, inverse=1)
    return ops.squeeze(ops.slice(whole, [0], [1], [-1]), (-1,))


@version("STFT", 15, of=ops.stft)
def stft(signal: Array, window: Array, frame_size: Static, frame_step: Static, *, transpose_frames: bool) -> Array:
    """Centres a shorter window in its frame. `transpose_frames` puts the axis of frames after that of frequencies."""
    x, shape = array(signal), array(window)
    size = single("STFT", "frame_size", frame_size)
    missing = size - shape.shape[0]
    if missing:
        shape = ops.pad(shape, (missing // 2, missing - missing // 2))
    batched = x if x.ndim == 2 else ops.unsqueeze(x, (0,))
    step = np.asarray(single("STFT", "frame_step", frame_step))
    frames = ops.stft(ops.unsqueeze(batched, (-1,)), step, shape, np.asarray(size), onesided=1)
    if transpose_frames:
        frames = ops.transpose(frames, perm=(0, 2, 1, 3))
    return frames if x.ndim == 2 else ops.squeeze(frames, (0,))


@version("Col2Im", 15, of=ops.col2im)
@like(ops.col2im, without=["pads"])
def col2im(
    data: Array,
    output_size: Static,
    kernel_size: Static,
    *,
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    **attributes: Any,
) -> Array:
    """Takes data with or without a batch axis."""
    x = array(data)
    batched = x if x.ndim == 3 else ops.unsqueeze(x, (0,))
    image = ops.col2im(batched, output_size, kernel_size, pads=(*pads_begin, *pads_end), **attributes)
    return image if x.ndim == 3 else ops.squeeze(image, (0,))
