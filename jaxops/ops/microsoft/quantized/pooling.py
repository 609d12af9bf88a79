"""Means and sums of quantized numbers over windows, over all spatial axes, or over given axes."""

__all__ = ["qlinear_average_pool", "qlinear_global_average_pool", "qlinear_reduce_mean", "reduce_sum_integer"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, flag, ints
from jaxops.dtypes import as_traced
from jaxops.kernels.matmul.int8 import without_zero
from jaxops.kernels.xla_workarounds import quotient
from jaxops.ops.common.quantized_numbers import (
    BYTES,
    parameters,
    quantized,
    requantized_from_floats,
    with_parameters,
    with_zero,
)
from jaxops.ops.nn.windows import counts, options, pool
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import AutoPad, Options
from jaxops.signature import Traits, operator
from jaxops.static import Array, ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="pooling", precision="exact")


def qlinear_average_pool(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None = None,
    *,
    kernel_shape: Ints,
    auto_pad: AutoPad = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """Returns the quantized mean of each window of the dequantized x.

    x: (N, C, d1, …, dn), or (N, d1, …, dn, C) with `channels_last`, int8 or uint8. Scales: float32 scalars. Zero
    points: scalars in the type of x; 0 when None. Returns: sizes as `average_pool` has them, in the type of x. Padding
    is 0; with `count_include_pad` the mean is over all elements of the kernel, even beyond the padding. The integers
    have an exact sum, and the mean is computed in float32; at a tie, onnxruntime, which sums floats, may differ by 1.
    The attributes are those of `average_pool`. Raises as it does.
    Source: com.microsoft QLinearAveragePool, opset 1, as onnxruntime defines it.

    >>> qlinear_average_pool(jnp.uint8([[[4, 8, 9]]]), 0.5, 4, 0.25, jnp.uint8(1), kernel_shape=(2,)).tolist()
    [[[5, 10]]]
    """
    operands = _operands(x, x_scale, x_zero_point, y_scale, y_zero_point)
    window_options = options(auto_pad, pads, strides, None)
    last, include, ceil = (
        flag(name, value)
        for name, value in (
            ("channels_last", channels_last),
            ("count_include_pad", count_include_pad),
            ("ceil_mode", ceil_mode),
        )
    )
    return _average_pool(operands, ints("kernel_shape", kernel_shape), window_options, ceil, include, last)


@jit_if_concrete
def _average_pool(
    operands: tuple[jax.Array, ...], kernel: Sizes, options: Options, ceil: bool, include_pad: bool, channels_last: bool
) -> jax.Array:
    x, by, zero, y_by, y_zero = operands
    x = jnp.moveaxis(x, -1, 1) if channels_last else x
    sizes = sizes_of.spatial(x.shape)
    windows = sizes_of.sliding(sizes, kernel, options, ceil)
    total = pool(without_zero(x, zero, jnp.int32), windows, np.int32(0), lax.add, lax.add).astype(jnp.float32)
    # With the padding, onnxruntime also counts positions beyond it, which `ceil_mode` can reach.
    count = lax.full_like(total, math.prod(kernel)) if include_pad else counts(total, sizes, windows, False)
    mean = quotient(total * jnp.broadcast_to(by, total.shape), count)
    y = requantized_from_floats(mean, y_by, y_zero)
    return jnp.moveaxis(y, 1, -1) if channels_last else y


def _operands(x: Any, by: Any, zero: Any, y_by: Any, y_zero: Any) -> tuple[Array, ...]:
    data, factor, origin = with_parameters("x", x, by, zero)
    return (data, factor, origin, *parameters("y", y_by, y_zero, data.dtype))


def qlinear_global_average_pool(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    *,
    channels_last: int = 0,
) -> jax.Array:
    """Returns the quantized mean over the spatial axes of the dequantized x.

    x: (N, C, d1, …, dn), or (N, d1, …, dn, C) with `channels_last`, int8 or uint8. Scales and zero points are those
    of `qlinear_average_pool`. Returns: the sizes of x with 1 for each spatial axis, in the type of x. The integers
    have an exact sum, which is multiplied by x_scale / (y_scale · number of elements) in float32.
    Raises ShapeError for fewer than three axes, DTypeError for other types.
    Source: com.microsoft QLinearGlobalAveragePool, opset 1, as onnxruntime defines it.

    >>> qlinear_global_average_pool(jnp.uint8([[[4, 8, 9]]]), 0.5, 4, 0.25, jnp.uint8(1)).tolist()
    [[[7]]]
    """
    operands = _operands(x, x_scale, x_zero_point, y_scale, y_zero_point)
    rank = 2 + len(sizes_of.spatial(operands[0].shape))
    first = 1 if flag("channels_last", channels_last) else 2
    return _mean(operands, tuple(range(first, first + rank - 2)), True)


@operator(kind="")
def qlinear_reduce_mean(
    data: ArrayLike,
    data_scale: ArrayLike,
    data_zero_point: ArrayLike | None,
    reduced_scale: ArrayLike,
    reduced_zero_point: ArrayLike | None = None,
    *,
    axes: Ints,
    keepdims: int,
) -> jax.Array:
    """Returns the quantized mean over axes of the dequantized data.

    data: int8 or uint8. Scales: float32 scalars. Zero points: scalars in the type of data; 0 when None.
    Returns: the type of data; an axis that is reduced has size 1, or is gone where `keepdims` is 0. The integers have
    an exact sum, which is multiplied by data_scale / (reduced_scale · number of elements) in float32.
    Raises AxisError, ShapeError, DTypeError for other types.
    Source: com.microsoft QLinearReduceMean, opset 1, as onnxruntime documents it; it has no kernel on a CPU.

    >>> qlinear_reduce_mean(jnp.int8([[4, 8], [9, 11]]), 0.5, 4, 0.25, 1, axes=(1,), keepdims=0).tolist()
    [5, 13]
    """
    operands = _operands(data, data_scale, data_zero_point, reduced_scale, reduced_zero_point)
    return _mean(operands, resolve_axes(axes, operands[0].ndim), flag("keepdims", keepdims))


@jit_if_concrete
def _mean(operands: tuple[jax.Array, ...], axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    x, by, zero, y_by, y_zero = operands
    total = jnp.sum(without_zero(x, zero, jnp.int32), axes, jnp.int32, keepdims=keepdims)
    count = as_traced(math.prod(x.shape[a] for a in axes), np.float32)
    ratio = total.astype(jnp.float32) * jnp.broadcast_to(quotient(by, y_by * count), total.shape)
    return with_zero(ratio, y_zero)


@operator(kind="")
def reduce_sum_integer(data: ArrayLike, *, axes: Ints, keepdims: int) -> jax.Array:
    """Returns the sum of integers over axes, in 32 bits.

    data: int8 or uint8. Returns: int32 for int8, uint32 for uint8; an axis that is reduced has size 1, or is gone
    where `keepdims` is 0. Raises AxisError, DTypeError for another type.
    Source: com.microsoft ReduceSumInteger, opset 1, as onnxruntime documents it; it has no kernel on a CPU.

    >>> reduce_sum_integer(jnp.uint8([[200, 100], [1, 2]]), axes=(-1,), keepdims=1).tolist()
    [[300], [3]]
    """
    x = quantized("data", data, BYTES)
    return _sum(x, resolve_axes(axes, x.ndim), flag("keepdims", keepdims))


@jit_if_concrete
def _sum(x: jax.Array, axes: tuple[int, ...], keepdims: bool) -> jax.Array:
    return jnp.sum(x, axes, jnp.int32 if x.dtype == jnp.int8 else jnp.uint32, keepdims=keepdims)
