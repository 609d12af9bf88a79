"""Chooses the fastest form of a convolution on a CPU, where XLA's own is many times slower for some shapes."""

import functools
import math
from typing import Annotated, Any

from jaxops.kernels.convolution.channels_last import convolution_last, dense_last
from jaxops.kernels.convolution.grouped import MOST_TERMS, as_sum, by_channel, by_member, columns_by_group
from jaxops.kernels.convolution.im2col import as_columns
from jaxops.kernels.convolution.large_kernel import large_as_sum, large_by_channel
from jaxops.kernels.convolution.pointwise import as_product, product_last
from jaxops.kernels.convolution.three_dimensional import as_planes
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# With at least this many channels per group, XLA's own grouped convolution is the fastest, unless it is pointwise.
_WIDE_GROUP: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 16
# With at most this many channels per group, `by_member` is the fastest, if the number of groups is a multiple of a
# vector of AVX-512. Otherwise `as_sum` (240 channels in 60 groups) or `columns_by_group` (152 in 19) is as fast or
# faster.
_NARROW_GROUP: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 8
_VECTOR = 16


def cpu_form(target: Target, x: Sizes, w: Sizes, windows: Windows, group: int) -> Any:
    """Returns the fastest form of this convolution on a CPU; None for a plain `lax` convolution.

    In a specialized program, data have channels last. If filters are prepared, they may have any layout; if not, forms
    that transpose few filters at each call are chosen.

    Folding a BatchNormalization into the filters gains nothing, since XLA fuses it.
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
        # Filters for one channel in one group (a Fourier transform, say) are the columns of a matrix: XLA's convolution
        # is faster than `large_as_sum`.
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
    # The columns hold `taps` copies of the data, which pays if they have at most as many elements as the weights.
    columns = x[0] * w[1] * taps * math.prod(windows.sizes)
    return as_columns if isinstance(columns, int) and columns <= math.prod(w) else None
