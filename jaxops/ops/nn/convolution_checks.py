"""Checks of a convolution, before and after the kernel that computes it."""

import jax
from jax import lax

from jaxops.kernels.convolution.convolve import over_windows
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import Options
from jaxops.static import Sizes


def convolved(x: jax.Array, w: jax.Array, options: Options, group: int, kernel_shape: Sizes | None) -> jax.Array:
    """The convolution of data with filters of one type, in that type."""
    sizes = sizes_of.spatial(x.shape)
    sizes_of.channels(x.shape, w.shape, group)
    windows = sizes_of.sliding(sizes, sizes_of.kernel_of(w.shape, kernel_shape), options)
    y = over_windows(x, w, windows, group)
    return assert_sizes(y, (x.shape[0], w.shape[0], *windows.sizes), x.dtype)


def add_bias(y: jax.Array, b: list[jax.Array]) -> jax.Array:
    """Adds a bias to each channel of the result. b: a list that holds the bias (M,), or is empty."""
    if not b:
        return y
    sizes_of.bias(b[0].shape, y.shape[1])
    return lax.add(y, lax.broadcast_in_dim(b[0], y.shape, (1,)))
