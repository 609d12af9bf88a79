"""The inverse of the short-time Fourier transform."""

__all__ = ["istft"]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import accumulation_type, floats_of_one_type
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import Static, Traits
from jaxops.static import ArrayLike, Dim, jit_if_concrete

TRAITS = Traits(precision="exact")


class _How(NamedTuple):
    size: int
    step: int
    length: Dim | None
    centered: bool
    normalized: bool


def istft(
    data: ArrayLike,
    window: ArrayLike,
    frame_size: Static,
    frame_step: Static,
    signal_length: Static = None,
    *,
    center: bool,
    normalized: bool,
) -> jax.Array:
    """Returns the signal whose short-time Fourier transform is `data`.

    data: (F, T, 2) or (N, F, T, 2), F = frame_size // 2 + 1: real and imaginary parts of T frames. window: (w,), at
    most frame_size elements; zeros are added on both sides. Floats of one dtype. frame_size, frame_step, signal_length:
    static integers. Returns (length,) or (N, length), same dtype; the length is signal_length, by default
    (T - 1)·frame_step + frame_size, or with `center` (T - 1)·frame_step. Zeros follow the last frame.
    Overlapping frames times the window are added, and divided by the sum of the squares of their windows; the result is
    0 where that sum is 0. center: the first frame_size // 2 elements are dropped. normalized: the frames were divided
    by sqrt(frame_size).
    Raises ShapeError, ArgumentError, DTypeError, StaticError. Source: OpenVINO ISTFT-16.

    >>> spectrum = jnp.stack([jnp.fft.rfft(jnp.array([1.0, 2.0])).real, jnp.zeros(2)], -1)[:, None]
    >>> istft(spectrum, jnp.ones(2), 2, 1, center=False, normalized=False).tolist()
    [1.0, 2.0]
    """
    x, shape = floats_of_one_type(data=data, window=window)
    size = integer("frame_size", frame_size, least=1)
    bins = size // 2 + 1
    must_fit("data", x.shape, (bins, "T", 2), ("N", bins, "T", 2))
    must_fit("window", shape.shape, ("w",))
    if isinstance(shape.shape[0], int) and shape.shape[0] > size:
        raise ShapeError(f"`window` of {shape_text(shape.shape)} is longer than `frame_size`, {size}")
    if isinstance(x.shape[-2], int) and x.shape[-2] < 1:
        raise ArgumentError(f"`data` of {shape_text(x.shape)} has no frame")
    length = None if signal_length is None else integer("signal_length", signal_length, least=0)
    how = _How(
        size,
        integer("frame_step", frame_step, least=1),
        length,
        flag("center", center),
        flag("normalized", normalized),
    )
    y = _istft((x if x.ndim == 4 else x[None], shape), how)
    return y if x.ndim == 4 else y[0]


@jit_if_concrete
def _istft(operands: tuple[Any, Any], how: _How) -> Any:
    x, window = operands
    n, _, frames, _ = x.shape
    whole = (frames - 1) * how.step + how.size
    margin = how.size // 2 if how.centered else 0
    length = whole - (how.size if how.centered else 0) if how.length is None else how.length
    bounded_like((n, length), x)
    work = accumulation_type(x.dtype)
    wide = x.astype(work)
    signals = jnp.fft.irfft(jnp.moveaxis(lax.complex(wide[..., 0], wide[..., 1]), 1, 2), how.size, axis=-1).astype(work)
    before = (how.size - window.shape[0]) // 2
    window = lax.pad(window.astype(work), jnp.zeros((), work), [(before, how.size - window.shape[0] - before, 0)])
    place = lax.iota(np.int32, frames)[:, None] * how.step + np.arange(how.size, dtype=np.int32)[None]
    place = jnp.broadcast_to(place, (frames, how.size))
    total = jnp.zeros((n, whole), work).at[:, place].add(signals * window[None, None])
    weight = jnp.zeros(whole, work).at[place].add(jnp.broadcast_to((window * window)[None], (frames, how.size)))[None]
    scale = np.sqrt(how.size) if how.normalized else 1.0
    exists = jnp.broadcast_to(weight != 0, total.shape)
    signal = jnp.where(exists, total * scale / jnp.where(exists, weight, jnp.ones_like(total)), jnp.zeros_like(total))
    signal = lax.pad(signal, jnp.zeros((), work), [(0, 0, 0), (-margin, length - whole + margin, 0)])
    return assert_sizes(signal.astype(x.dtype), (n, length), x.dtype)
