"""Chooses the fastest form of a convolution on a GPU, channels last.

XLA hands convolutions to cuDNN, and tries many algorithms for each before the first call. For one image, launching a
kernel takes as long as running it: pointwise convolutions are faster as products, depthwise ones as sums; the remaining
ones gain a little with channels last. With 16 images, large depthwise sums are slower than cuDNN. In a user's program,
`jax.jit(model.apply)`, weights need no preparation for these forms, and they gain more, since XLA's default launches
plain convolutions one by one. `tests/benchmarks/gpu.py` measures complete models.
"""

import math
from typing import Any

import jax
from jax import lax

from jaxops.dtypes import accumulation_type
from jaxops.kernels.convolution.channels_last import convolution_last
from jaxops.kernels.convolution.depthwise import channel_sum
from jaxops.kernels.convolution.pointwise import only_product_last
from jaxops.kernels.convolution.window_slices import to_channels_first, to_channels_last, zero_padded
from jaxops.kernels.target import Target
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# The largest number of taps of a depthwise filter: each tap is a slice in the program.
_MOST_TAPS = 64
# The largest number of terms in all sums of a depthwise convolution. XLA computes the sums again in each loop that
# reads the result, such as those of a normalization. This costs nothing while launching a kernel takes as long as
# running it, as for one image: the first layers of ConvNeXt-T have 15 million terms. With 16 images, 5×5 of 672
# channels at 14×14 takes longer even without such loops.
_MOST_TERMS = 1 << 24


def gpu_form(target: Target, x: Sizes, w: Sizes, windows: Windows, group: int) -> Any:
    """Returns the fastest form of this convolution on a GPU; None for a plain `lax` convolution."""
    taps = math.prod(windows.kernel)
    if not all(isinstance(d, int) for d in x[2:]) or 0 in (*x[1:], *w, *windows.sizes):
        return None
    if taps == 1 and group == 1 and all(p == 0 for pair in windows.pads for p in pair):
        return only_product_last
    if target.specialized and group > 1 and (w[0], w[1]) == (group, 1) and _has_few_terms(x, windows, taps):
        return by_channel
    return convolution_last


def _has_few_terms(x: Sizes, windows: Windows, taps: int) -> bool:
    count = math.prod((*x[:2], *windows.sizes))
    return taps <= _MOST_TAPS and isinstance(count, int) and count * taps <= _MOST_TERMS


def by_channel(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a depthwise convolution as a sum of shifted data, which XLA fuses into the loops around it."""
    wide = accumulation_type(x.dtype)
    data = to_channels_last(zero_padded(x, windows).astype(wide))
    filters = lax.transpose(lax.reshape(w.astype(wide), (w.shape[0], math.prod(windows.kernel))), (1, 0))
    return to_channels_first(channel_sum(data, filters, windows)).astype(x.dtype)
