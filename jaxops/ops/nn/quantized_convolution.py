"""Convolutions of quantized numbers: products of integers, whose sums wrap around in 32 bits only."""

__all__ = ["conv_integer", "qlinear_conv"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import as_traced
from jaxops.errors import DTypeError
from jaxops.kernels.convolution.integer import integer_sums
from jaxops.ops.common.quantized_numbers import BYTES, quantized, requantized, scale, with_zero_point
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.nn.convolution_checks import add_bias
from jaxops.ops.nn.windows import integers, options
from jaxops.shapes.math.quantized_products import single
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.quantized_convolution import of_filters
from jaxops.shapes.nn.windows import AutoPad, Options
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="convolution", precision="exact")


def conv_integer(
    x: ArrayLike,
    w: Weight[ArrayLike],
    x_zero_point: ArrayLike | None = None,
    w_zero_point: ArrayLike | None = None,
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
    data, data_zero = with_zero_point("x", x, x_zero_point)
    filters, filters_zero = with_zero_point("w", w, w_zero_point)
    return _convolution(
        (data, filters, data_zero, filters_zero),
        options(auto_pad, pads, strides, dilations),
        integer("group", group),
        integers("kernel_shape", kernel_shape),
    )


@jit_if_concrete
def _convolution(operands: tuple[Any, ...], options: Options, group: int, kernel_shape: Sizes | None) -> jax.Array:
    x, w, x_zero, w_zero = operands
    if x_zero is not None:
        single("x_zero_point", x_zero.shape)
        x_zero = x_zero.reshape(())
    if w_zero is not None:
        w_zero = w_zero.reshape(of_filters("w_zero_point", w_zero.shape, w.shape))
    sizes = sizes_of.spatial(x.shape)
    sizes_of.channels(x.shape, w.shape, group)
    windows = sizes_of.sliding(sizes, sizes_of.kernel_of(w.shape, kernel_shape), options)
    y = integer_sums(x, w, (x_zero, w_zero), windows, group)
    return assert_sizes(y, (x.shape[0], w.shape[0], *windows.sizes), np.int32)


def qlinear_conv(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    w: Weight[ArrayLike],
    w_scale: ArrayLike,
    w_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    b: Bias[ArrayLike] | None = None,
    *,
    auto_pad: AutoPad = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """The convolution of the dequantized x and w, quantized: round(sum / y_scale) + y_zero_point.

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). int8 or uint8, each. x_scale, y_scale and the zero points of x
    and y: scalars. w_scale, w_zero_point: a scalar, or (M,). Zero points have the type of their numbers, scales are
    float32. b: (M,), int32, in units of x_scale · w_scale, or None.
    Returns: (N, M, o1, …, on) in the type of y_zero_point, rounded half to even and saturated. The integers have an
    exact sum, which is multiplied by x_scale · w_scale / y_scale in float32, as in onnxruntime; the standard leaves
    this precision open.
    The attributes are those of `conv`. Raises as `conv` does.
    Source: ONNX QLinearConv, opset 10.

    >>> x, w = jnp.full((1, 1, 3, 3), 200, jnp.uint8), jnp.full((1, 1, 3, 3), -2, jnp.int8)
    >>> qlinear_conv(x, 0.5, 190, w, 1.0, 0, 2.0, jnp.uint8(100), jnp.array([2])).tolist()
    [[[[56]]]]
    """
    data, data_zero = with_zero_point("x", x, x_zero_point)
    filters, filters_zero = with_zero_point("w", w, w_zero_point)
    operands = (
        *(data, filters, data_zero, filters_zero),
        quantized("y_zero_point", y_zero_point, BYTES),
        scale("x_scale", x_scale),
        scale("w_scale", w_scale),
        scale("y_scale", y_scale),
    )
    if b is not None:
        bias = as_traced(b)
        if bias.dtype != jnp.int32:
            raise DTypeError(f"`b` is {bias.dtype.name}; it must be int32")
        operands += (bias,)
    return _qlinear_conv(
        operands,
        options(auto_pad, pads, strides, dilations),
        integer("group", group),
        integers("kernel_shape", kernel_shape),
    )


@jit_if_concrete
def _qlinear_conv(
    operands: tuple[jax.Array, ...], options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array:
    x, w, x_zero, w_zero, y_zero, x_by, w_by, y_by, *b = operands
    for operand, value in (("x_scale", x_by), ("y_scale", y_by), ("y_zero_point", y_zero)):
        single(operand, value.shape)
    total = add_bias(_convolution((x, w, x_zero, w_zero), options, group, kernel_shape), b)
    factors = w_by.reshape(of_filters("w_scale", w_by.shape, w.shape)[: w.ndim - 1])
    return requantized(total, x_by.reshape(()), factors, y_by, y_zero)
