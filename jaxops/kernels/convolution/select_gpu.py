"""Chooses the fastest form of a convolution on a GPU, channels last.

XLA hands convolutions to cuDNN, and tries many algorithms for each before the first call. Milliseconds of a call, in a
series of calls, on an H200 (TF32, JAX 0.11, convolutions in CUDA graphs: `compiler.xla_options`):

| | EfficientNet-B0 | MobileNetV3-L | ResNet-50 | ConvNeXt-T |
|---|---|---|---|---|
| one image, plain convolutions | 0.45 | 0.35 | 0.59 | 0.75 |
| pointwise ones as products | 0.30 | 0.26 | 0.51 | 0.75 |
| and depthwise ones as sums | 0.29 | 0.24 | 0.51 | 0.58 |
| and the remaining ones channels last | 0.29 | 0.23 | 0.49 | 0.58 |
| 16 images, pointwise ones as products | 0.95 | 0.68 | 1.60 | 2.41 |
| and depthwise ones as sums | 1.14 | 0.70 | 1.60 | 3.41 |

In a user's program, `jax.jit(model.apply)`, weights need no preparation: with these forms, EfficientNet-B0 takes
0.30 ms (1.82 with plain convolutions, which XLA's default launches one by one), MobileNetV3-L 0.20, ResNet-50 0.53
(1.57). With 32 images, ResNet-50 takes as long as with plain convolutions (2.55 ms), and so does its training step
(7.9 ms).
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
# channels at 14×14 takes 1.28 of the time even without such loops.
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
