"""Convolutions of 8-bit integers, whose sums wrap around in 32 bits only."""

import jax
import numpy as np

from jaxops.kernels.convolution.integer import integer_sums
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.nn import windows as sizes_of
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
