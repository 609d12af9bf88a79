"""Convolutions of 8-bit integers, whose sums wrap around in 32 bits only."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution.select_cpu import as_columns, columns_last
from jaxops.kernels.convolution.window_slices import padded
from jaxops.kernels.matmul.int8 import as_bytes, exact_sum, product
from jaxops.kernels.matmul.uint8_int8 import data_type
from jaxops.ops.common.quantized_numbers import without_zero
from jaxops.ops.nn.convolution_checks import convolved
from jaxops.quantized_array import Dequantized
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.quantized_convolution import of_filters
from jaxops.shapes.nn.windows import Options, Windows
from jaxops.static import PREPARED, Array, Sizes

# The most shifted copies of the data in one product.
_MOST_TAPS = 64


def integer_convolution(
    op: str,
    x: jax.Array,
    w: jax.Array,
    zeros: tuple[Array | None, Array | None],
    options: Options,
    group: int,
    kernel_shape: Sizes | None,
) -> jax.Array:
    """The convolution of x - zeros[0] with the filters w - zeros[1] in int32; padding is zeros[0].

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). int8 or uint8, each. zeros: a scalar for x; a scalar, or sizes
    that broadcast to w, (M, 1, …, 1), for w. None is 0.

    As columns it is one product of int8: a 3×3 convolution 64→64 at 56×56 takes 1.4 ms on two cores, in int32 32 ms
    and in float32 2.6 ms. Channels last, where the weights are prepared, 256→256 at 14×14 takes 0.6 ms, a product for
    each tap 0.9.
    """
    windows = _windows(op, x.shape, w.shape, options, group, kernel_shape)
    taps = math.prod(windows.kernel)
    is_static_size = all(isinstance(d, int) and d > 0 for d in (*x.shape[1:], *w.shape, *windows.sizes))
    # Few channels a group: a sum of shifted data, which is fast for any type. Unknown sizes: no columns.
    few = group > 1 and taps * w.shape[1] <= _MOST_TAPS
    if not is_static_size or taps > _MOST_TAPS or few:
        # A sum of so few products is exact in float32, too, which a CPU adds and multiplies in one instruction.
        wide = jnp.float32 if few and PREPARED.get() else jnp.int32
        data, filters = (without_zero(v, z, wide) for v, z in zip((x, w), zeros, strict=True))
        return convolved(op, data, filters, options, group, kernel_shape).astype(jnp.int32)
    last = PREPARED.get() and group == 1
    data, x_zero = as_bytes(x, zeros[0], data_type() if last else jnp.int8)
    filters, w_zero = as_bytes(w, zeros[1])
    fill = data.dtype.type(0) if x_zero is None else x_zero.astype(data.dtype)
    data, windows = padded(data, windows, fill)
    y = columns_last(data, filters, windows, product) if last else as_columns(data, filters, windows, group, jnp.int32)
    if x_zero is not None:
        origin = without_zero(filters, w_zero, jnp.int32)
        y = y - _by_channel(x_zero * jnp.sum(origin, tuple(range(1, w.ndim)), jnp.int32), y.shape)
    if w_zero is not None:
        sums = jnp.repeat(_window_sums(data, windows, group), w.shape[0] // group, 1)
        y = y - _by_channel(w_zero.reshape(-1) if w_zero.ndim else w_zero, y.shape) * sums
    return y


def of_dequantized(
    op: str, x: Any, w: Any, options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array | None:
    """The convolution of data and filters that stand for integers: the sums of these, and then the scales.

    None for other operands. x: one scale. w: one scale, or one for each filter. Returns float32.
    """
    if not (isinstance(x, Dequantized) and isinstance(w, Dequantized) and x.is_by_tensor):
        return None
    if not (w.is_by_tensor or w.axis == 0) or not exact_sum(math.prod(w.shape[1:])):
        return None
    x_zero = None if x.zero is None else x.zero.reshape(())
    w_zero = None if w.zero is None else w.zero.reshape(of_filters(op, "w", w.zero.shape, w.shape))
    total = integer_convolution(op, x.numbers, w.numbers, (x_zero, w_zero), options, group, kernel_shape)
    scale = x.scale.reshape(()) * (w.scale.reshape(()) if w.is_by_tensor else w.scale)
    return total.astype(jnp.float32) * _by_channel(scale, total.shape)


def _windows(op: str, x: Sizes, w: Sizes, options: Options, group: int, kernel_shape: Sizes | None) -> Windows:
    sizes = sizes_of.spatial(op, x)
    sizes_of.channels(op, x, w, group)
    return sizes_of.sliding(op, sizes, sizes_of.kernel_of(op, w, kernel_shape), options)


def _by_channel(x: jax.Array, sizes: Sizes) -> jax.Array:
    """A scalar, or a number for each channel, in the sizes of the result."""
    return lax.broadcast_in_dim(x, sizes, (1,) if x.ndim else ())


def _window_sums(x: jax.Array, windows: Windows, group: int) -> jax.Array:
    """The sum of each window over the channels of each group: (N, group, o1, …, on)."""
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
