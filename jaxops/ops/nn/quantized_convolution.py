"""Convolutions of quantized numbers: products of integers, whose sums wrap around in 32 bits only."""

__all__ = ["conv_integer", "qlinear_conv"]

import math

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import as_traced
from jaxops.errors import DTypeError
from jaxops.ops.integer_products import as_int8
from jaxops.ops.nn.convolution import add_bias, convolved
from jaxops.ops.nn.convolution_forms import as_columns, padded
from jaxops.ops.nn.windows import integers, options
from jaxops.ops.quantized import BYTES, quantized, requantized, scale, without_zero, zero_point
from jaxops.shapes.math.quantized_products import single
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.quantized_convolution import of_filters
from jaxops.shapes.nn.windows import AutoPad, Options, Windows
from jaxops.static import Array, Ints, Sizes, jit_if_concrete

# The most shifted copies of the data in one product.
_MOST_TAPS = 64


def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    auto_pad: AutoPad = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """The convolution of x - x_zero_point with the filters w - w_zero_point; padding is x_zero_point.

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). int8 or uint8, each. x_zero_point: a scalar, in the type of x.
    w_zero_point: a scalar, or (M,), in the type of w. 0 when None. Returns int32, (N, M, o1, …, on).
    The attributes are those of `conv`. Raises as `conv` does.
    Source: ONNX ConvInteger, opset 10.

    >>> conv_integer(jnp.full((1, 1, 3, 3), 200, jnp.uint8), jnp.full((1, 1, 3, 3), -2, jnp.int8), 190).tolist()
    [[[[-180]]]]
    """
    op = "conv_integer"
    data, filters = quantized(op, "x", x, BYTES), quantized(op, "w", w, BYTES)
    zeros = (
        None if x_zero_point is None else zero_point(op, "x_zero_point", x_zero_point, data.dtype, "`x`"),
        None if w_zero_point is None else zero_point(op, "w_zero_point", w_zero_point, filters.dtype, "`w`"),
    )
    return _conv_integer(
        (data, filters, *zeros),
        options(op, auto_pad, pads, strides, dilations),
        integer(op, "group", group),
        integers(op, "kernel_shape", kernel_shape),
    )


@jit_if_concrete
def _conv_integer(
    operands: tuple[jax.Array | None, ...], options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array:
    return _convolution("conv_integer", operands, options, group, kernel_shape)


def _convolution(
    op: str, operands: tuple[jax.Array | None, ...], options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array:
    x, w, x_zero, w_zero = operands
    assert x is not None
    assert w is not None
    if x_zero is not None:
        single(op, "x_zero_point", x_zero.shape)
        x_zero = x_zero.reshape(())
    if w_zero is not None:
        w_zero = w_zero.reshape(of_filters(op, "w_zero_point", w_zero.shape, w.shape))
    return integer_convolution(op, x, w, (x_zero, w_zero), options, group, kernel_shape)


def integer_convolution(
    op: str,
    x: jax.Array,
    w: jax.Array,
    zeros: tuple[jax.Array | None, jax.Array | None],
    options: Options,
    group: int,
    kernel_shape: Sizes | None,
) -> jax.Array:
    """The convolution of x - zeros[0] with the filters w - zeros[1] in int32; padding is zeros[0].

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). int8 or uint8, each. zeros: a scalar for x; a scalar, or sizes
    that broadcast to w, (M, 1, …, 1), for w. None is 0.

    As columns it is one product of int8: a 3×3 convolution 64→64 at 56×56 takes 1.4 ms on two cores, in int32 32 ms
    and in float32 2.6 ms.
    """
    windows = _windows(op, x.shape, w.shape, options, group, kernel_shape)
    taps = math.prod(windows.kernel)
    whole = all(isinstance(d, int) and d > 0 for d in (*x.shape[1:], *w.shape, *windows.sizes))
    # Few channels a group: a sum of shifted data, which is fast for any type. Unknown sizes: no columns.
    if not whole or taps > _MOST_TAPS or (group > 1 and taps * w.shape[1] <= _MOST_TAPS):
        data, filters = (without_zero(v, z, jnp.int32) for v, z in zip((x, w), zeros, strict=True))
        return convolved(op, data, filters, options, group, kernel_shape)
    data, x_zero = as_int8(x, zeros[0])
    filters, w_zero = as_int8(w, zeros[1])
    fill = jnp.int8(0) if x_zero is None else x_zero.astype(jnp.int8)
    data, windows = padded(data, windows, fill)
    y = as_columns(data, filters, windows, group, jnp.int32)
    if x_zero is not None:
        origin = without_zero(filters, w_zero, jnp.int32)
        y = y - _by_channel(x_zero * jnp.sum(origin, tuple(range(1, w.ndim)), jnp.int32), y.shape)
    if w_zero is not None:
        sums = jnp.repeat(_window_sums(data, windows, group), w.shape[0] // group, 1)
        y = y - _by_channel(w_zero.reshape(-1) if w_zero.ndim else w_zero, y.shape) * sums
    return y


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


def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array | None = None,
    *,
    auto_pad: AutoPad = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """The convolution of what x and w stand for, quantized: round(sum / y_scale) + y_zero_point.

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). int8 or uint8, each. x_scale, y_scale and the zero points of x
    and y: scalars. w_scale, w_zero_point: a scalar, or (M,). Zero points have the type of their numbers, scales are
    float32. b: (M,), int32, in units of x_scale · w_scale, or None.
    Returns: (N, M, o1, …, on) in the type of y_zero_point, rounded half to even and saturated. The integers have an
    exact sum, which is multiplied by x_scale · w_scale / y_scale in float32, as in onnxruntime; the text leaves the
    precision open.
    The attributes are those of `conv`. Raises as `conv` does.
    Source: ONNX QLinearConv, opset 10.

    >>> x, w = jnp.full((1, 1, 3, 3), 200, jnp.uint8), jnp.full((1, 1, 3, 3), -2, jnp.int8)
    >>> qlinear_conv(x, 0.5, 190, w, 1.0, 0, 2.0, jnp.uint8(100), jnp.array([2])).tolist()
    [[[[56]]]]
    """
    op = "qlinear_conv"
    data, filters = quantized(op, "x", x, BYTES), quantized(op, "w", w, BYTES)
    operands = (
        data,
        filters,
        zero_point(op, "x_zero_point", x_zero_point, data.dtype, "`x`"),
        zero_point(op, "w_zero_point", w_zero_point, filters.dtype, "`w`"),
        quantized(op, "y_zero_point", y_zero_point, BYTES),
        scale(op, "x_scale", x_scale),
        scale(op, "w_scale", w_scale),
        scale(op, "y_scale", y_scale),
    )
    if b is not None:
        bias = as_traced(b)
        if bias.dtype != jnp.int32:
            raise DTypeError(f"{op}: `b` is {bias.dtype.name}; it must be int32")
        operands += (bias,)
    return _qlinear_conv(
        operands,
        options(op, auto_pad, pads, strides, dilations),
        integer(op, "group", group),
        integers(op, "kernel_shape", kernel_shape),
    )


@jit_if_concrete
def _qlinear_conv(
    operands: tuple[jax.Array, ...], options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array:
    op, (x, w, x_zero, w_zero, y_zero, x_by, w_by, y_by, *b) = "qlinear_conv", operands
    for operand, value in (("x_scale", x_by), ("y_scale", y_by), ("y_zero_point", y_zero)):
        single(op, operand, value.shape)
    total = add_bias(op, _convolution(op, (x, w, x_zero, w_zero), options, group, kernel_shape), b)
    factors = w_by.reshape(of_filters(op, "w_scale", w_by.shape, w.shape)[: w.ndim - 1])
    return requantized(total, x_by.reshape(()), factors, y_by, y_zero)
