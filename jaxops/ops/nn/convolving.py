"""The sums of a convolution, in the form that is fastest.

It is one `lax` convolution, except on a CPU, and on a GPU where weights are prepared. There XLA runs some shapes many
times slower than the same sums written as matrix products or elementwise operations (figures beside each rule of
`convolution_forms` and `gpu_forms`).
"""

import functools
from typing import Any

import jax
from jax import lax

from jaxops.ops.checked import with_sizes
from jaxops.ops.nn.convolution_forms import fast_form
from jaxops.ops.nn.gpu_forms import gpu_form
from jaxops.ops.nn.window_slices import padded
from jaxops.ops.platforms import by_platform
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import Options, Windows
from jaxops.static import PREPARED, Sizes


def convolved(
    op: str, x: jax.Array, w: jax.Array, options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array:
    """The convolution of data with filters of one type, in that type."""
    sizes = sizes_of.spatial(op, x.shape)
    sizes_of.channels(op, x.shape, w.shape, group)
    windows = sizes_of.sliding(op, sizes, sizes_of.kernel_of(op, w.shape, kernel_shape), options)
    y = over_windows(x, w, windows, group)
    return with_sizes(op, y, (x.shape[0], w.shape[0], *windows.sizes), x.dtype)


def over_windows(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """The same for sizes that fit, over windows of them."""
    plain = functools.partial(_convolve, windows=windows, group=group)

    def form(found: Any) -> Any:
        return plain if found is None else functools.partial(found, windows=windows, group=group)

    cpu = form(fast_form(x.shape, w.shape, windows, group, PREPARED.get()))
    gpu = form(gpu_form(x.shape, w.shape, windows, group))
    return by_platform(x, w, cpu=cpu, gpu=gpu, default=plain)


def add_bias(op: str, y: jax.Array, b: list[jax.Array]) -> jax.Array:
    """The result and a bias for each of its channels; `b` holds it, or is empty."""
    if not b:
        return y
    sizes_of.bias(op, b[0].shape, y.shape[1])
    return lax.add(y, lax.broadcast_in_dim(b[0], y.shape, (1,)))


def channels_first(rank: int) -> lax.ConvDimensionNumbers:
    """Batch and channels first, for the data, the filters and the result."""
    order = tuple(range(rank))
    return lax.ConvDimensionNumbers(order, order, order)


def _convolve(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    pads = windows.pads
    if not all(isinstance(p, int) for pair in pads for p in pair):
        # The convolution takes numbers as padding, so a symbolic padding becomes a separate pad.
        x, windows = padded(x, windows, x.dtype.type(0))
        pads = windows.pads
    return lax.conv_general_dilated(
        x,
        w,
        windows.strides,
        pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=channels_first(x.ndim),
        feature_group_count=group,
    )
