"""The forms of a convolution that are fast on a CPU, where XLA runs some shapes of its own many times slower."""

import functools
import math
from typing import Any

from jaxops.kernels.convolution.channels_last import convolution_last, dense_last
from jaxops.kernels.convolution.grouped import MOST_TERMS, as_sum, by_channel, by_member, columns_by_group
from jaxops.kernels.convolution.im2col import as_columns
from jaxops.kernels.convolution.large_kernel import large_as_sum, large_by_channel
from jaxops.kernels.convolution.pointwise import as_product, product_last
from jaxops.kernels.convolution.three_dimensional import as_planes
from jaxops.kernels.target import Target
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# From this many channels per group on XLA's own convolution is the fastest with groups, too, where it is not pointwise.
_WIDE_GROUP = 16
# Up to this many a channel of every group at a time is the fastest, where the groups fill vectors of AVX-512: 240
# channels in 60 groups at 14×14 take as long as by `as_sum`, 152 in 19 1.35 times as long as by `columns_by_group`.
_NARROW_GROUP, _VECTOR = 8, 16


def cpu_form(target: Target, x: Sizes, w: Sizes, windows: Windows, group: int) -> Any:
    """The fastest form of this convolution on a CPU; None for a plain `lax` convolution.

    In a specialized program the data are channels last; filters may be in any layout where they are prepared, and few
    are turned at each call where they are not: `jit(apply)` takes 1.2 of the time with prepared filters for ResNet-50,
    where channels first took 1.5, and 1.5 for EfficientNet-B0, where they took 1.9.

    Milliseconds of a float32 layer on two cores, plain → this form (onnxruntime): pointwise 64→256 at 56×56
    2.2 → 0.7 (0.8); depthwise 96 at 56×56 10 → 0.2 (0.2); 32 groups of 4 11.6 → 0.6 (0.7); 3×3 512→512 at 7×7
    4.3 → 1.9 (1.2). Channels last, ResNet-50 takes 0.8 of the time, ConvNeXt-T 0.35. What gains nothing: a
    BatchNormalization folded into the filters (1.0 for ResNet-50, DenseNet-121 and Inception v2: XLA fuses it).
    """
    taps, complete = math.prod(windows.kernel), target.specialized
    is_static = all(isinstance(d, int) for d in x[2:])
    padded = any(p != 0 for pair in windows.pads for p in pair)
    if taps == 1 and group == 1 and not padded and (is_static or all(s == 1 for s in windows.strides)):
        return functools.partial(product_last, target) if complete else as_product
    if not is_static or 0 in (*x[1:], *w, *windows.sizes):
        return None
    if len(windows.kernel) > 2 and group == 1 and windows.kernel[0] <= MOST_TERMS:
        return functools.partial(as_planes, target)
    if complete and group == 1:
        return functools.partial(dense_last, target)
    if taps > MOST_TERMS:
        # Filters of one channel for one group, as of a Fourier transform, are the columns of a matrix: XLA's own takes
        # 0.3 ms for 258 of 256 places, `large_as_sum` 2.9.
        if group == 1 or w[1] > 1 or taps // max(windows.kernel) > MOST_TERMS:
            return None
        return large_by_channel if complete and w[0] == group else large_as_sum
    if complete and (w[0], w[1]) == (group, 1):
        return by_channel
    if complete and 1 < w[1] <= _NARROW_GROUP and group % _VECTOR == 0:
        return by_member
    if complete and w[1] >= _WIDE_GROUP:
        return convolution_last if taps > 1 else columns_by_group
    if complete and taps * w[1] > MOST_TERMS:
        return columns_by_group
    if group > 1:
        return as_sum if taps * w[1] <= MOST_TERMS else as_columns
    # The columns hold `taps` copies of the data. They pay off while they have fewer elements than the weights.
    columns = x[0] * w[1] * taps * math.prod(windows.sizes)
    return as_columns if isinstance(columns, int) and columns <= math.prod(w) else None
