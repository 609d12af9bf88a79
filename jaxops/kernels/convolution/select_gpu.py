"""The forms of a convolution that are fast on a GPU, channels last, where weights are prepared.

XLA gives convolutions to cuDNN, each of which it tries in many ways before the first call, and which it launches one by
one, where fusions and products are a part of graphs of CUDA: an H200 computes EfficientNet-B0 in 0.43 ms, and a call
took 1.47. Milliseconds of a call with one image there, of many in a row (TF32, JAX 0.11), each row by itself; the forms
in graphs of CUDA, which programs have now, were not measured together:

| | EfficientNet-B0 | MobileNetV3-L | ResNet-50 | DenseNet-121 |
|---|---|---|---|---|
| plain convolutions | 1.47 | 0.96 | 1.09 | 3.8 |
| pointwise ones as products | 0.40 | 0.35 | 0.53 | 3.7 |
| and depthwise ones as sums | 0.29 | 0.40 | | |
| and all others channels last | 0.29 | 0.25 | 0.59 | 2.2 |
| plain, in graphs of CUDA (`compiler.xla_options`) | 0.44 | 0.32 | 0.57 | 1.1 |
| torch.compile, with graphs of CUDA | 0.44 | 0.34 | 0.54 | |
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
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# The most places of a filter for each channel: each is a slice in the program. 7×7, of ConvNeXt-T, takes as long as by
# cuDNN.
_MOST_TAPS = 64


def gpu_form(x: Sizes, w: Sizes, windows: Windows, group: int) -> Any:
    """The fastest form of this convolution on a GPU; None for a plain `lax` convolution."""
    taps = math.prod(windows.kernel)
    if not all(isinstance(d, int) for d in x[2:]) or 0 in (*x[1:], *w, *windows.sizes):
        return None
    if taps == 1 and group == 1 and all(p == 0 for pair in windows.pads for p in pair):
        return only_product_last
    if group > 1 and (w[0], w[1]) == (group, 1) and taps <= _MOST_TAPS:
        return by_channel
    return convolution_last


def by_channel(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A filter for each channel: a sum of shifted data, which XLA makes a part of the loops around it."""
    wide = accumulation_type(x.dtype)
    data = to_channels_last(zero_padded(x, windows).astype(wide))
    filters = lax.transpose(lax.reshape(w.astype(wide), (w.shape[0], math.prod(windows.kernel))), (1, 0))
    return to_channels_first(channel_sum(data, filters, windows)).astype(x.dtype)
