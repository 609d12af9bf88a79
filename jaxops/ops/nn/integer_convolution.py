"""Convolutions of 8-bit integers, whose sums wrap around in 32 bits only."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.kernels.convolution.integer import by_channel, integer_sums
from jaxops.kernels.matmul.int8 import exact_sum
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.quantized_array import Dequantized
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.quantized_convolution import of_filters
from jaxops.shapes.nn.windows import Options
from jaxops.static import Array, Sizes


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
    """
    sizes = sizes_of.spatial(op, x.shape)
    sizes_of.channels(op, x.shape, w.shape, group)
    windows = sizes_of.sliding(op, sizes, sizes_of.kernel_of(op, w.shape, kernel_shape), options)
    y = integer_sums(x, w, zeros, windows, group)
    return assert_sizes(op, y, (x.shape[0], w.shape[0], *windows.sizes), np.int32)


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
    return total.astype(jnp.float32) * by_channel(scale, total.shape)
