"""The forms of a convolution that are fast on a CPU, where XLA runs some shapes of its own many times slower."""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution import mostly_padding, winograd
from jaxops.kernels.convolution.depthwise import channel_sum
from jaxops.kernels.convolution.grouped import MOST_TERMS, as_sum, by_channel, by_member, columns_by_group
from jaxops.kernels.convolution.large_kernel import by_rows
from jaxops.kernels.convolution.three_dimensional import by_planes
from jaxops.kernels.convolution.window_slices import (
    padded,
    positions,
    shifted,
    stacked,
    to_channels_first,
    to_channels_last,
    zero_padded,
)
from jaxops.kernels.matmul.dot import Multiply, bilinear, dot, has_amx, in_bfloat16
from jaxops.kernels.matmul.vector import row_product
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# The most shifted copies of the data that one convolution may use, or one step of it.
_MOST_TAPS = MOST_TERMS
# With this many channels on both sides, columns of bfloat16 by AMX take 0.6 to 0.9 of the time of a convolution of
# float32, or of Winograd's products, in bfloat16, too (Inception v2 12.7 → 22 ms). DenseNet-121, with 128→32, gains
# nothing, nor do others with 16 or 32, and would start in 1.4 of the time.
_MANY_CHANNELS = 64
# Without AMX they do where there are this many times as few rows as filters: 3×3, stride 2, 512 channels to 7×7
# 1.7 → 1.2 ms, but 256 to 14×14 1.4 → 1.7, 128 to 28×28 1.5 → 2.6, and 5×5, 128 at 14×14 0.83 → 0.86.
_FEWER_ROWS = 4
# XLA:CPU multiplies matrices by YNNPACK, in few and uneven parts, and convolves by Eigen, in many: a small product is
# faster as a pointwise convolution. Microseconds on two cores, product → convolution (onnxruntime): 196 rows 112→672
# 220 → 170 (145), 80→200 67 → 46 (38); 784 rows 64→256 200 → 170 (140); 196 rows 256→1024 565 → 630 (470), 49 rows
# 160→960 160 → 170 (77). MobileNetV3 takes 0.85 of the time, EfficientNet, SqueezeNet 0.92.
# Beside products of bfloat16 fewer: MobileNetV3 takes 0.93 of the time, SqueezeNet 0.94, Inception v2 1.00, and 1.02
# with 12e6. With AMX none: there such a product takes half of the time, from 16 channels and 49 rows on (196 rows
# 112→672 60 µs, 140 as a convolution of float32; 3136 rows 24→144 65, 100; Intel of the fourth or fifth Xeon).
_MANY_ROWS, _FEW_MULTIPLICATIONS, _FEW_BESIDE_BFLOAT16 = 100, 30e6, 8e6
# The most weights of `row_product`, which takes up to a third longer than XLA's loop for a row, and twice the time for
# more. MobileNetV3 starts in 0.95 of the time, against 65,536 weights, and a call takes 0.98.
_FEW_WEIGHTS = 1 << 18
# Up to this many filters, and results a channel of the data, a product with all places of them is the fastest, as XLA's
# own convolution takes as long as for 16. Milliseconds of 3×3 on two cores, its own → here (onnxruntime): 64→3 at
# 256×256 12 → 6 (7), at 64×64 1.2 → 0.4 (0.6), 64→1 at 224×224 5.6 → 2.8 (5.8), 256→2 at 28×28 0.9 → 0.2 (0.4); 9×9,
# 64→3 at 192×192 54 → 13 (30), but 32→3 at 224×224 38 → 33 (21), and memory for 243 results of each place. Each place
# is a slice in the program.
_FEW_FILTERS, _RESULTS_BY_CHANNEL, _MOST_PLACES = 6, 4, 2 * _MOST_TAPS
# Up to this part of all windows data, a product for each place is the faster form: see `mostly_padding`.
_MOSTLY_PADDING = 0.55
# From this many channels per group on XLA's own convolution is the fastest with groups, too, where it is not pointwise.
_WIDE_GROUP = 16
# Up to this many a channel of every group at a time is the fastest, where the groups fill vectors of AVX-512: 240
# channels in 60 groups at 14×14 take as long as by `as_sum`, 152 in 19 1.35 times as long as by `columns_by_group`.
_NARROW_GROUP, _VECTOR = 8, 16


def fast_form(x: Sizes, w: Sizes, windows: Windows, group: int, prepared: bool = False) -> Any:
    """The fastest form of this convolution on a CPU; None for a plain `lax` convolution.

    prepared: whether filters may be in any layout, as they are put into it once; then the data are channels last.

    Milliseconds of a float32 layer on two cores, plain → this form (onnxruntime): pointwise 64→256 at 56×56
    2.2 → 0.7 (0.8); depthwise 96 at 56×56 10 → 0.2 (0.2); 32 groups of 4 11.6 → 0.6 (0.7); 3×3 512→512 at 7×7
    4.3 → 1.9 (1.2). Channels last, ResNet-50 takes 0.8 of the time, ConvNeXt-T 0.35. What gains nothing: a
    BatchNormalization folded into the filters (1.0 for ResNet-50, DenseNet-121 and Inception v2: XLA fuses it).
    """
    taps = math.prod(windows.kernel)
    whole = all(isinstance(d, int) for d in x[2:])
    padded = any(p != 0 for pair in windows.pads for p in pair)
    if taps == 1 and group == 1 and not padded and (whole or all(s == 1 for s in windows.strides)):
        return product_last if prepared else as_product
    if not whole or 0 in (*x[1:], *w, *windows.sizes):
        return None
    if len(windows.kernel) > 2 and group == 1 and windows.kernel[0] <= _MOST_TAPS:
        return as_planes
    if prepared and group == 1:
        return dense_last
    if taps > _MOST_TAPS:
        # Filters of one channel for one group, as of a Fourier transform, are the columns of a matrix: XLA's own takes
        # 0.3 ms for 258 of 256 places, `large_as_sum` 2.9.
        if group == 1 or w[1] > 1 or taps // max(windows.kernel) > _MOST_TAPS:
            return None
        return large_by_channel if prepared and w[0] == group else large_as_sum
    if prepared and (w[0], w[1]) == (group, 1):
        return by_channel
    if prepared and 1 < w[1] <= _NARROW_GROUP and group % _VECTOR == 0:
        return by_member
    if prepared and w[1] >= _WIDE_GROUP:
        return convolution_last if taps > 1 else columns_by_group
    if prepared and taps * w[1] > _MOST_TAPS:
        return columns_by_group
    if group > 1:
        return as_sum if taps * w[1] <= _MOST_TAPS else as_columns
    # The columns hold `taps` copies of the data. They pay off while they have fewer elements than the weights.
    columns = x[0] * w[1] * taps * math.prod(windows.sizes)
    return as_columns if isinstance(columns, int) and columns <= math.prod(w) else None


def as_product(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A pointwise convolution: one matrix product."""
    if any(s != 1 for s in windows.strides):
        x = shifted(x, (0,) * len(windows.kernel), windows)
    n, c = x.shape[:2]
    flat = lax.reshape(x, (n, c, math.prod(windows.sizes)))
    y = dot(lax.reshape(w, w.shape[:2]), flat, (((1,), (1,)), ((), ())), x.dtype)
    return lax.reshape(lax.transpose(y, (1, 0, 2)), (n, w.shape[0], *windows.sizes))


def large_by_channel(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A large filter for each channel, a few rows of places at a time, as `by_channel`."""
    return by_rows(x, w, windows, channel_sum, _MOST_TAPS)


def large_as_sum(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """One large filter or more for each channel, a few rows of places at a time, as `as_sum`."""

    def convolve(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
        filters = lax.reshape(lax.transpose(w, (1, 0)), (w.shape[1], 1, *windows.kernel))
        return to_channels_last(as_sum(to_channels_first(x), filters, windows, group))

    return by_rows(x, w, windows, convolve, _MOST_TAPS)


def as_planes(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Sums of convolutions with one axis less, channels last, as `direct_last`.

    Winograd's products would take 0.97 of a call of a ResNet-18 over three axes, which would start in 1.7 of the time.
    """
    return by_planes(x, w, windows, lambda x, w, windows: direct_last(x, w, windows, group))


def convolution_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A `lax` convolution, channels last."""
    rank = x.ndim
    order = (0, rank - 1, *range(1, rank - 1))
    y = lax.conv_general_dilated(
        to_channels_last(x),
        lax.transpose(w, (*range(2, rank), 1, 0)),
        windows.strides,
        windows.pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=lax.ConvDimensionNumbers(order, (rank - 1, rank - 2, *range(rank - 2)), order),
        feature_group_count=group,
    )
    return to_channels_first(y)


def product_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A pointwise convolution, channels last: one matrix product, or a small convolution."""
    rows = _rows(x, windows)
    if not _is_small_product(x, w, rows):
        return only_product_last(x, w, windows, group)
    if any(s != 1 for s in windows.strides):
        x = shifted(x, (0,) * len(windows.kernel), windows)
        windows = dataclasses.replace(windows, strides=(1,) * len(windows.strides))
    return _row(x, w, windows) if rows == 1 else convolution_last(x, w, windows, group)


def only_product_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A pointwise convolution, channels last: one matrix product."""
    if any(s != 1 for s in windows.strides):
        x = shifted(x, (0,) * len(windows.kernel), windows)
    y = dot(to_channels_last(x), lax.reshape(w, w.shape[:2]), (((x.ndim - 1,), (1,)), ((), ())), x.dtype)
    return to_channels_first(y)


def _is_small_product(x: jax.Array, w: jax.Array, rows: Any) -> bool:
    if not isinstance(rows, int) or x.dtype != jnp.float32:
        return False
    weights = math.prod(w.shape)
    if rows == 1:
        return w.shape[1] > 1 and weights <= _FEW_WEIGHTS
    few = _FEW_MULTIPLICATIONS
    if in_bfloat16(x, w, rows):
        few = 0 if has_amx() else _FEW_BESIDE_BFLOAT16
    return rows >= _MANY_ROWS and rows * weights <= few


def _row(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    matrix = lax.transpose(lax.reshape(w, w.shape[:2]), (1, 0))
    return lax.reshape(row_product(lax.reshape(x, (x.size,)), matrix), (1, w.shape[0], *windows.sizes))


def dense_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Channels last, by Winograd's products, by place where most is padding, or as `direct_last`."""
    few_places = x.dtype == jnp.float32 and math.prod(windows.kernel) <= _MOST_TAPS
    if few_places and mostly_padding.share(windows, x.shape[2:]) <= _MOSTLY_PADDING:
        return mostly_padding.by_place(x, w, windows)
    narrow = in_bfloat16(x, w, _rows(x, windows))
    other = (has_amx() and _columns_pay(x, w, windows)) or _is_few(x, w, windows)
    if not other and winograd.pays(x, w, windows, narrow):
        return to_channels_first(winograd.convolve(to_channels_last(x), w, windows))
    return direct_last(x, w, windows, group)


def few_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """For few filters, channels last: a product with all places of them, whose results are added up."""
    m, rank = w.shape[0], x.ndim
    data = to_channels_last(zero_padded(x, windows))
    places = lax.reshape(lax.transpose(w, (*range(2, rank), 0, 1)), (math.prod(windows.kernel) * m, w.shape[1]))
    y = dot(data, places, (((rank - 1,), (1,)), ((), ())), x.dtype)
    parts = [to_channels_first(lax.slice_in_dim(y, k, k + m, axis=rank - 1)) for k in range(0, places.shape[0], m)]
    return functools.reduce(lax.add, map(shifted, parts, positions(windows), [windows] * len(parts)))


def direct_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Channels last, as `convolution_last`; few filters as `few_last`, some in bfloat16 as `columns_last`."""
    if _is_few(x, w, windows):
        return few_last(x, w, windows, group)
    form = _columns_of_bfloat16 if _columns_pay(x, w, windows) else convolution_last
    return form(x, w, windows, group)


def _is_few(x: jax.Array, w: jax.Array, windows: Windows) -> bool:
    (m, c), places = w.shape[:2], math.prod(windows.kernel)
    few = m <= _FEW_FILTERS and places <= _MOST_PLACES and m * places <= _RESULTS_BY_CHANNEL * c
    return few and x.dtype == jnp.float32 and {*windows.strides} == {1}


def _columns_pay(x: jax.Array, w: jax.Array, windows: Windows) -> bool:
    rows = _rows(x, windows)
    few = isinstance(rows, int) and _FEWER_ROWS * rows <= w.shape[0]
    return in_bfloat16(x, w, rows) and min(w.shape[:2]) >= _MANY_CHANNELS and (has_amx() or few)


def _rows(x: jax.Array, windows: Windows) -> Any:
    """How many windows a product with all filters has, one a row; a symbolic batch makes it symbolic."""
    return x.shape[0] * math.prod(windows.sizes)


def _columns_of_bfloat16(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """In bfloat16, as `columns_last`."""
    multiply = Multiply(_columns_or_convolution, (("windows", windows), ("group", group)))
    return bilinear(multiply, x, w, _rows(x, windows))


def _columns_or_convolution(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    def product(columns: jax.Array, filters: jax.Array) -> jax.Array:
        columns = lax.optimization_barrier(columns)
        return dot(columns, filters, (((columns.ndim - 1,), (0,)), ((), ())), jnp.float32)

    if x.dtype != jnp.bfloat16:
        return convolution_last(x, w, windows, group)
    data, over = padded(x, windows, x.dtype.type(0))
    return columns_last(lax.optimization_barrier(data), w, over, product)


def as_columns(x: jax.Array, w: jax.Array, windows: Windows, group: int, dtype: Any = None) -> jax.Array:
    """All windows side by side, then one matrix product per group, summed in `dtype`; the weights keep their layout."""
    n, c, m = *x.shape[:2], w.shape[0]
    x, count = zero_padded(x, windows), math.prod(windows.sizes)
    columns = lax.concatenate([lax.reshape(shifted(x, at, windows), (n, c, 1, count)) for at in positions(windows)], 2)
    columns = lax.reshape(columns, (n, group, math.prod(w.shape[1:]), count))
    filters = lax.reshape(w, (group, m // group, math.prod(w.shape[1:])))
    dimensions = (((2,), (2,)), ((0,), (1,)))
    y = dot(filters, columns, dimensions, dtype or x.dtype)  # (group, M/group, N, count)
    return lax.reshape(lax.transpose(y, (2, 0, 1, 3)), (n, m, *windows.sizes))


def columns_last(x: jax.Array, w: jax.Array, windows: Windows, multiply: Any) -> jax.Array:
    """As `as_columns`, for one group, channels last. multiply: the product of matrices (…, K) and (K, M).

    The windows are put side by side along one axis, and these along the next: fewer operations than one by one. So an
    int8 ResNet-50 starts in 3.0 s, not 4.3, and needs 490 MB, not 590. Along the first axis, where nothing is skipped,
    the results of one product are added up instead: 0.96 of its time. Stacked before the channels, and not along
    them, they are one loop, not one each and a copy: the model takes 0.94 of a call and starts in 0.82 of the time.
    """
    summed = windows.kernel[:1] if len(windows.kernel) > 1 and windows.strides[0] == 1 else ()
    taps = math.prod(summed)
    columns = to_channels_last(x)
    for axis in reversed(range(len(summed), len(windows.kernel))):
        step, reach = windows.strides[axis], (windows.sizes[axis] - 1) * windows.strides[axis] + 1
        begins = [k * windows.dilations[axis] for k in range(windows.kernel[axis])]
        parts = [lax.slice_in_dim(columns, begin, begin + reach, step, axis + 1) for begin in begins]
        columns = lax.collapse(stacked(parts, x.ndim - 1), x.ndim - 1)
    # (k2, …, kn, C) as one axis, then k1 and M as the other; all of them as the first, where nothing is added up.
    filters = lax.reshape(to_channels_last(w), (w.shape[0], taps, math.prod(w.shape[1:]) // taps))
    filters = lax.reshape(lax.transpose(filters, (2, 1, 0)), (filters.shape[2], taps * w.shape[0]))
    y = lax.reshape(multiply(columns, filters), (*columns.shape[:-1], taps, w.shape[0]))
    rows = [
        lax.slice_in_dim(lax.index_in_dim(y, k, y.ndim - 2, keepdims=False), begin, begin + windows.sizes[0], axis=1)
        for k, begin in enumerate(range(0, taps * windows.dilations[0], windows.dilations[0]))
    ]
    return to_channels_first(functools.reduce(lax.add, rows))
