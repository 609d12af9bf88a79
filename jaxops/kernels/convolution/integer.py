"""Convolutions of 8-bit integers with sums in 32 bits, which wrap around."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution.convolve import over_windows
from jaxops.kernels.convolution.im2col import as_columns, columns_last
from jaxops.kernels.convolution.window_slices import padded
from jaxops.kernels.dequantize import Quantized
from jaxops.kernels.matmul.int8 import as_bytes, exact_sum, join_zeros, product, split_zeros, without_zero
from jaxops.kernels.matmul.uint8_int8 import data_type
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Array, Sizes

# The largest number of shifted copies of the data in one product.
_MOST_TAPS = 64


def integer_sums(
    x: jax.Array, w: jax.Array, zeros: tuple[Array | None, Array | None], windows: Windows, group: int
) -> jax.Array:
    """Returns the convolution of x - zeros[0] with the filters w - zeros[1] in int32; padding is zeros[0].

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). int8 or uint8, each. zeros: a scalar for x; a scalar, or sizes
    that broadcast to w, (M, 1, …, 1), for w. None is 0.

    As columns this is one int8 product, which is faster than a float32 convolution; XLA's convolution in int32 is many
    times slower. In a specialized program, channels last, it is also faster than one product for each tap.
    """
    has_zero, numbers = split_zeros(*zeros)
    return _integer_convolution(x, w, *numbers, has_zero=has_zero, windows=windows, group=group)


def _is_direct(x: Any, w: Any, windows: Windows, group: int) -> bool:
    """Returns True if the integers are converted to a wider type, and convolved in that: for symbolic sizes, for large
    windows, and for few channels per group, where a sum of shifted data is fast for any type."""
    taps = math.prod(windows.kernel)
    is_static_size = all(isinstance(d, int) and d > 0 for d in (*x.shape[1:], *w.shape, *windows.sizes))
    return not is_static_size or taps > _MOST_TAPS or _has_few(w, windows, group)


def _has_few(w: Any, windows: Windows, group: int) -> bool:
    return group > 1 and math.prod(windows.kernel) * w.shape[1] <= _MOST_TAPS


def _plain(
    x: jax.Array, w: jax.Array, *zeros: jax.Array, has_zero: tuple[bool, ...], windows: Windows, group: int
) -> jax.Array:
    if _is_direct(x, w, windows, group):
        return _direct(x, w, join_zeros(zeros, has_zero), windows, group, jnp.int32)
    x_zero, w_zero = join_zeros(zeros, has_zero)
    data, x_zero = as_bytes(x, x_zero)
    filters, w_zero = as_bytes(w, w_zero)
    data, windows = _padded(data, x_zero, windows)
    y = as_columns(data, filters, windows, group, jnp.int32)
    return _corrected(y, data, filters, x_zero, w_zero, windows, group)


def _direct(x: jax.Array, w: jax.Array, zeros: Any, windows: Windows, group: int, wide: Any) -> jax.Array:
    data, filters = (without_zero(v, z, wide) for v, z in zip((x, w), zeros, strict=True))
    return over_windows(data, filters, windows, group).astype(jnp.int32)


def _padded(data: jax.Array, zero: jax.Array | None, windows: Windows) -> tuple[jax.Array, Windows]:
    return padded(data, windows, data.dtype.type(0) if zero is None else zero.astype(data.dtype))


def _corrected(y: jax.Array, data: Any, filters: Any, x_zero: Any, w_zero: Any, windows: Windows, group: int) -> Any:
    """Returns the sums with zero points, given the sums without."""
    if x_zero is not None:
        origin = without_zero(filters, w_zero, jnp.int32)
        y = y - by_channel(x_zero * jnp.sum(origin, tuple(range(1, filters.ndim)), jnp.int32), y.shape)
    if w_zero is not None:
        sums = jnp.repeat(_window_sums(data, windows, group), filters.shape[0] // group, 1)
        y = y - by_channel(w_zero.reshape(-1) if w_zero.ndim else w_zero, y.shape) * sums
    return y


def _select(
    target: Target, x: Any, w: Any, *zeros: Any, has_zero: tuple[bool, ...], windows: Windows, group: int
) -> Any:
    if not target.specialized:
        return None
    if _is_direct(x, w, windows, group):
        return _in_float32 if _has_few(w, windows, group) else None
    if group > 1:
        return None
    data = data_type(target)

    def channels_last(x: jax.Array, w: jax.Array, *zeros: jax.Array, **_: Any) -> jax.Array:
        x_zero, w_zero = join_zeros(zeros, has_zero)
        bytes_, x_zero = as_bytes(x, x_zero, data)
        filters, w_zero = as_bytes(w, w_zero)
        bytes_, over = _padded(bytes_, x_zero, windows)
        y = columns_last(bytes_, filters, over, product)
        return _corrected(y, bytes_, filters, x_zero, w_zero, over, group)

    return channels_last


def _in_float32(
    x: jax.Array, w: jax.Array, *zeros: jax.Array, has_zero: tuple[bool, ...], windows: Windows, group: int
) -> jax.Array:
    """Computes the sums in float32, exact for so few products. A CPU multiplies and adds in one instruction."""
    return _direct(x, w, join_zeros(zeros, has_zero), windows, group, jnp.float32)


def _outside(x: Any, w: Any, *zeros: Any, has_zero: tuple[bool, ...], **_: Any) -> Any:
    zero = join_zeros(zeros, has_zero)[0]
    return 0 if zero is None else zero


_integer_convolution = NamedCall("integer_convolution", _plain, _select, outside=_outside)


def dequantized_convolution(
    x: Quantized, w: Quantized, windows: Windows, group: int
) -> Callable[[Quantized, Quantized], Any] | None:
    """Returns the function that computes the convolution of two dequantized arrays with their integers.

    Returns None if a scale varies within a sum, or if sums may not fit 32 bits. x, w: the types of the operands.
    """
    if not x.has_one_scale or not (w.has_one_scale or w.axis == 0) or not exact_sum(math.prod(w.numbers.shape[1:])):
        return None

    def convolve(x: Quantized, w: Quantized) -> jax.Array:
        w_zero = w.zero
        if w_zero is not None and w_zero.ndim:
            w_zero = lax.expand_dims(w_zero, range(1, w.numbers.ndim))
        sums = integer_sums(x.numbers, w.numbers, (x.zero, w_zero), windows, group)
        return sums.astype(jnp.float32) * by_channel(x.scale * w.scale, sums.shape)

    return convolve


def by_channel(x: jax.Array, sizes: Sizes) -> jax.Array:
    """Broadcasts a scalar, or a number for each channel, to the sizes of the result."""
    return lax.broadcast_in_dim(x, sizes, (1,) if x.ndim else ())


def _window_sums(x: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Returns the sum of each window over the channels of each group: (N, group, o1, …, on)."""
    n, c = x.shape[:2]
    planes = jnp.sum(lax.reshape(x, (n, group, c // group, *x.shape[2:])), 2, jnp.int32)
    return lax.reduce_window(
        planes,
        jnp.int32(0),
        lax.add,
        (1, 1, *windows.kernel),
        (1, 1, *windows.strides),
        "VALID",
        window_dilation=(1, 1, *windows.dilations),
    )
