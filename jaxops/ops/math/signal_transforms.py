"""Discrete Fourier transforms, and the matrix that sums a spectrum in mel bands.

A complex number is a pair on the last axis. 16-bit types are computed in float32.
"""

__all__ = ["dft", "mel_weight_matrix", "stft"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, element_type, flag, integer
from jaxops.dtypes import floating, is_float, is_string
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, message, shape_text
from jaxops.memory import bounded
from jaxops.ops.common.elementwise import operands
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.shapes.arithmetic import floored, must_fit
from jaxops.shapes.math import signal_transforms as sizes_of
from jaxops.signature import ElementType, Static, Traits, operator
from jaxops.static import ArrayLike, Dim, is_symbolic, jit_if_concrete, known

TRAITS = Traits(precision="exact")


def dft(
    input: ArrayLike, dft_length: Static = None, axis: Static = None, *, inverse: int = 0, onesided: int = 0
) -> jax.Array:
    """The discrete Fourier transform along an axis: Σ x[n] · e^(-2πikn/N).

    input: (…, 1), real, or (…, 2), complex; floats. axis: static, any but the last one; by default the one before it.
    dft_length: static, the number N of points: the axis is cropped or padded with zeros at its end; by default its
    size. A symbolic N may be at most 16,384: XLA has no fast transform for it, so the input is multiplied by the matrix
    of e^(-2πikn/N).
    inverse: 1 changes the sign of the exponent and divides by N. onesided: 1 gives only the first N // 2 + 1 points of
    the transform of a real input. With inverse=1 and onesided=1, the input is such points, complex, the result is the
    real signal, and dft_length is by default 2 · (size - 1).
    Returns (…, 2), or (…, 1) for a real signal, in the dtype of input.
    Raises ShapeError, AxisError, ArgumentError for a complex input where a real one is needed, DTypeError.
    Source: ONNX DFT, opsets 17–20.

    >>> dft(jnp.array([[[1.0], [0.0], [0.0]]]), onesided=1).tolist()
    [[[1.0, 0.0], [1.0, 0.0]]]
    """
    (x,) = floating(input=input)
    pairs = sizes_of.is_complex("input", x.shape)
    along = resolve_axis(-2 if axis is None else axis, x.ndim)
    if along == x.ndim - 1:
        raise AxisError(
            f"`axis` {along} is the last axis of {shape_text(x.shape)}, which holds the parts of complex numbers; "
            f"give another axis"
        )
    inverted, half = flag("inverse", inverse), flag("onesided", onesided)
    if half and inverted != pairs:
        kind = "a complex input, (…, 2)" if inverted else "a real input, (…, 1)"
        raise ArgumentError(f"with onesided=1 and inverse={int(inverted)} it takes {kind}, got {shape_text(x.shape)}")
    count = None if dft_length is None else integer("dft_length", dft_length)
    count = sizes_of.transform_length(x.shape[along], count, half and inverted)
    bounded_like((*x.shape[:along], count, *x.shape[along + 1 :]), x)
    return _dft(x, along, count, inverted, half)


@jit_if_concrete
def _dft(x: Any, axis: int, count: Dim, inverse: bool, onesided: bool) -> jax.Array:
    if is_symbolic(count):
        return _by_matrix(x, axis, count, inverse, onesided)
    values, dtype = _numbers(x), x.dtype
    if not onesided:
        return _pairs(_transform(values, count, axis, inverse), dtype)
    if not inverse:
        return _pairs(jnp.fft.rfft(values, count, axis), dtype)
    return lax.convert_element_type(jnp.fft.irfft(values, count, axis)[..., None], dtype)


def _by_matrix(x: Any, axis: int, count: Dim, inverse: bool, onesided: bool) -> jax.Array:
    """The transform of a symbolic number of points."""
    dtype = np.float64 if x.dtype == np.float64 else np.float32
    half = floored(count, 2) + 1
    shape = (x.shape[axis], half if onesided and not inverse else count)
    rows, columns = (lax.broadcasted_iota(np.int32, shape, k) for k in range(2))
    points = jnp.asarray(count, np.int32)
    # The angle is reduced modulo N as an integer: float32 does not hold the product of a row and a column exactly.
    angles = lax.convert_element_type(rows * columns % points, dtype) * (2 * math.pi / points.astype(dtype))
    weights = (rows < (jnp.asarray(half, np.int32) if onesided and inverse else points)).astype(dtype)
    if inverse:
        mirrored = (rows > 0) & (2 * rows != points) if onesided else np.False_  # each stands for its mirror image, too
        weights = jnp.where(mirrored, 2 * weights, weights) / points.astype(dtype)
    parts = jnp.moveaxis(lax.convert_element_type(x, dtype), axis, -1)
    real, imaginary = (jnp.matmul(parts, weights * fn(angles), precision="highest") for fn in (jnp.cos, jnp.sin))
    imaginary = imaginary if inverse else -imaginary
    # (a + bi)(c + di), of which the matrices hold c and d.
    y = real[..., 0, :] - (imaginary[..., 1, :] if x.shape[-1] == 2 else 0)
    z = imaginary[..., 0, :] + (real[..., 1, :] if x.shape[-1] == 2 else 0)
    result = jnp.moveaxis(jnp.stack([y] if onesided and inverse else [y, z], -1), -2, axis)
    sizes = (*x.shape[:axis], shape[1], *x.shape[axis + 1 : -1], result.shape[-1])
    return assert_sizes(lax.convert_element_type(result, x.dtype), sizes, x.dtype)


def _numbers(x: Any) -> Any:
    """(…, 1) as real numbers, (…, 2) as complex ones."""
    x = lax.convert_element_type(x, np.float64 if x.dtype == np.float64 else np.float32)
    return x[..., 0] if x.shape[-1] == 1 else lax.complex(x[..., 0], x[..., 1])


def _transform(values: Any, count: int, axis: int, inverse: bool = False) -> Any:
    """All points of a transform; of real values the second half is the conjugate mirror image of the first."""
    if jnp.iscomplexobj(values):
        return (jnp.fft.ifft if inverse else jnp.fft.fft)(values, count, axis)
    half = jnp.fft.rfft(values, count, axis)
    mirrored = lax.conj(lax.rev(lax.slice_in_dim(half, 1, (count + 1) // 2, axis=axis), (axis,)))
    spectrum = lax.concatenate([half, mirrored], axis)
    return lax.conj(spectrum) / count if inverse else spectrum


def _pairs(values: Any, dtype: Any) -> jax.Array:
    return lax.convert_element_type(jnp.stack([jnp.real(values), jnp.imag(values)], -1), dtype)


def stft(
    signal: ArrayLike,
    frame_step: Static,
    window: ArrayLike | None = None,
    frame_length: Static = None,
    *,
    onesided: int = 1,
) -> jax.Array:
    """The discrete Fourier transform of each frame of a signal.

    signal: (batch, length, 1), real, or (batch, length, 2), complex; floats. A real one may be (batch, length), too, as
    PyTorch's exporter writes it and onnxruntime takes it. frame_step: static, the distance between the beginnings of
    frames. window: (frame_length,), of signal's dtype, factors of a frame's samples; 1 by default.
    frame_length: static; by default that of the window, else the whole signal.
    onesided: 1 gives the first frame_length // 2 + 1 points only; the signal must be real.
    Returns (batch, frames, points, 2), frames = (length - frame_length) // frame_step + 1, in the dtype of signal.
    Raises ShapeError, ArgumentError for a frame_step below 1 or a complex signal with onesided=1, DTypeError.
    Source: ONNX STFT, opset 17.

    >>> stft(jnp.ones((1, 5, 1)), 2, frame_length=2)[..., 0].tolist()
    [[[2.0, 0.0], [2.0, 0.0]]]
    """
    arrays = operands((signal,) if window is None else (signal, window))
    x, *factors = floating(**dict(zip(("signal", "window"), arrays, strict=False)))
    x = lax.expand_dims(x, (2,)) if x.ndim == 2 else x
    must_fit("signal", x.shape, ("batch", "length", 1), ("batch", "length", 2))
    pairs, half = sizes_of.is_complex("signal", x.shape), flag("onesided", onesided)
    if pairs and half:
        raise ArgumentError(f"`signal` of {shape_text(x.shape)} is complex; that needs onesided=0")
    step = integer("frame_step", frame_step, least=1)
    each = None if frame_length is None else integer("frame_length", frame_length)
    count, each = sizes_of.frames(x.shape[1], step, factors[0].shape if factors else None, each)
    # With a single frame the step has no effect, and it may be too large for 32 bits.
    return _stft((x, *factors), count, each, 1 if isinstance(count, int) and count == 1 else step, half)


@jit_if_concrete
def _stft(arrays: tuple[Any, ...], count: Any, each: int, step: int, onesided: bool) -> jax.Array:
    x, *factors = arrays
    values = _numbers(x)
    starts = lax.broadcasted_iota(np.int32, (count, each), 0) * step
    samples = starts + lax.broadcasted_iota(np.int32, (count, each), 1)
    rows = jnp.take(values, samples, axis=1, mode="clip")  # all indices are in range
    rows = assert_sizes(rows, (x.shape[0], count, each), values.dtype)
    for factor in factors:
        rows = rows * lax.convert_element_type(factor, rows.dtype)[None, None]
    return _pairs(jnp.fft.rfft(rows) if onesided else _transform(rows, each, 2), x.dtype)


@operator(foldable=True)
def mel_weight_matrix(
    num_mel_bins: Static,
    dft_length: Static,
    sample_rate: Static,
    lower_edge_hertz: Static,
    upper_edge_hertz: Static,
    *,
    output_datatype: ElementType = np.float32,
) -> np.ndarray:
    """The matrix that sums a onesided spectrum in mel bands: triangular filters with a peak of 1.

    All operands are static numbers. num_mel_bins: how many bands. dft_length: the length of the transform. sample_rate:
    samples in a second. lower_edge_hertz, upper_edge_hertz: the edges of the lowest and of the highest band. The mel
    scale is 2595 · log₁₀(1 + f / 700).
    Returns a static array (dft_length // 2 + 1, num_mel_bins) of output_datatype, a type of numbers.
    Raises ArgumentError for a number outside its range, DTypeError, StaticError.
    Source: ONNX MelWeightMatrix, opset 17.

    >>> mel_weight_matrix(2, 8, 8000, 0.0, 4000.0).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    """
    counts = {"num_mel_bins": num_mel_bins, "dft_length": dft_length, "sample_rate": sample_rate}
    bands, length, rate = (integer(name, value, least=1) for name, value in counts.items())
    low, high = _hertz("lower_edge_hertz", lower_edge_hertz), _hertz("upper_edge_hertz", upper_edge_hertz)
    dtype = element_type("output_datatype", output_datatype)
    if is_string(np.empty(0, dtype)) or dtype.kind in "bc":
        raise DTypeError(f"`output_datatype` is {dtype.name}; it must be a type of real numbers")
    bounded((length // 2 + 1, bands), np.dtype(np.float64).itemsize)
    # The text leaves open where the bands lie. As in the standard's suite and in onnxruntime their edges divide the
    # range by bands + 2, not + 1, so the last band ends below the upper edge; each edge is rounded down to a point.
    first, last = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    edges = 700 * (10 ** ((first + np.arange(bands + 2) * (last - first) / (bands + 2)) / 2595) - 1)
    lower, centre, upper = (((length + 1) * edges // rate)[i : i + bands] for i in range(3))
    points = np.arange(length // 2 + 1)[:, None]
    rising = (points - lower) / np.maximum(centre - lower, 1)
    falling = (upper - points) / np.maximum(upper - centre, 1)
    weights = np.where((lower <= points) & (points < centre), rising, 0.0)
    weights = np.where((centre < points) & (points < upper), falling, weights)
    return np.where(points == centre, 1.0, weights).astype(dtype)


def _hertz(name: str, value: Any) -> float:
    number = known(name, value)
    if number.size != 1 or not (is_float(number.dtype) or number.dtype.kind in "iu"):
        raise ShapeError(message(f"`{name}` must be one number", **{name: number}))
    edge = float(number.reshape(())[()])
    if not 0 <= edge < np.inf:
        raise ArgumentError(f"`{name}` is {edge}; it must be a frequency, 0 or above")
    return edge
