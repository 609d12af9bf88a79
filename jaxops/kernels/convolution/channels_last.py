"""Convolutions in one group, channels last, for specialized programs on a CPU."""

import functools
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.dtypes import accumulation_type
from jaxops.kernels.convolution import mostly_padding, winograd
from jaxops.kernels.convolution.depthwise import channel_sum
from jaxops.kernels.convolution.grouped import MOST_TERMS
from jaxops.kernels.convolution.im2col import columns_as_stored, columns_last
from jaxops.kernels.convolution.window_slices import (
    padded,
    positions,
    shifted,
    to_channels_first,
    to_channels_last,
    zero_padded,
)
from jaxops.kernels.matmul.dot import Multiply, bilinear, dot, has_amx, in_bfloat16
from jaxops.kernels.stored_values import stored, stored_in_order
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# With at least this many channels in data and result, a product of bfloat16 columns on AMX is faster than a float32
# convolution, and than Winograd's products in bfloat16. DenseNet-121, with 128→32, and layers with 16 or 32 channels
# gain nothing; DenseNet-121 would start later.
_MANY_CHANNELS = 64
# Without AMX, columns of bfloat16 are faster if there are at least this many times as many filters as rows: so with 512
# channels at 7×7 (3×3, stride 2), but not with 256 at 14×14, 128 at 28×28, or 5×5, 128 at 14×14.
_FEWER_ROWS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 4
# For at most this many filters, and (filters × taps) per channel of the data, one product with all taps of the filters
# (`few_last`) is the fastest: XLA's convolution takes as long as for 16 filters. With 9×9 and 32→3 hardly anything is
# gained, and memory is needed for 243 results of each position. Each tap is a slice in the program, so their number is
# limited, too.
_FEW_FILTERS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 6
_RESULTS_BY_CHANNEL: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 4
_MOST_PLACES = 2 * MOST_TERMS
# For at most this many channels (images, sound) and overlapping windows, a sum over taps and channels is the fastest:
# for windows up to 5×5. With 8 channels or 7×7 taps XLA's convolution is faster.
_FEW_CHANNELS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 4
# If at most this part of the windows is data, not padding, a product for each tap is faster: see `mostly_padding`.
_MOSTLY_PADDING: Annotated[float, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 0.55


def convolution_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a `lax` convolution with channels last."""
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


def dense_last(target: Target, x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution in the fastest form with channels last."""
    few_places = x.dtype == jnp.float32 and math.prod(windows.kernel) <= MOST_TERMS
    if few_channels(x.shape, w.shape, windows):
        return narrow_last(x, w, windows)
    if not target.prepared and _has_few_windows(x, w, windows):
        return columns_as_stored(x, w, windows, group)
    if few_places and mostly_padding.share(windows, x.shape[2:]) <= _MOSTLY_PADDING:
        return mostly_padding.by_tap(x, w, windows)
    narrow = in_bfloat16(target, x, w, window_count(x, windows))
    is_faster = (has_amx(target) and _columns_pay(target, x, w, windows)) or _is_few(x, w, windows)
    if not is_faster and winograd.pays(target, x, w, windows, narrow):
        return to_channels_first(winograd.convolve(to_channels_last(x), w, windows))
    return direct_last(target, x, w, windows, group)


def few_channels(x: Sizes, w: Sizes, windows: Windows) -> bool:
    """Returns True if the data have so few channels that a sum over channels and taps is the fastest."""
    taps = math.prod(windows.kernel)
    overlap = taps == 1 or any(k > s for k, s in zip(windows.kernel, windows.strides, strict=True))
    return overlap and w[1] <= _FEW_CHANNELS and taps * w[1] <= MOST_TERMS


def narrow_last(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    """Computes a convolution of few channels: the sum, over channels, of each channel with its filters."""
    wide, (m, channels), taps = accumulation_type(x.dtype), w.shape[:2], math.prod(windows.kernel)
    data = to_channels_last(lax.optimization_barrier(zero_padded(x, windows).astype(wide)))
    filters = stored_in_order(lax.transpose(lax.reshape(w.astype(wide), (m, channels, taps)), (1, 2, 0)))
    parts = [
        channel_sum(lax.slice_in_dim(data, c, c + 1, axis=x.ndim - 1), filters[c], windows) for c in range(channels)
    ]
    return to_channels_first(stored(functools.reduce(lax.add, parts))).astype(x.dtype)


def direct_last(target: Target, x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution by `few_last` for few filters, `columns_last` for some in bfloat16, or
    `convolution_last`."""
    if _is_few(x, w, windows):
        return few_last(x, w, windows, group)
    form = _columns_of_bfloat16 if _columns_pay(target, x, w, windows) else convolution_last
    return form(x, w, windows, group)


def few_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution with few filters: one matrix product with all taps, whose shifted results are added."""
    m, rank = w.shape[0], x.ndim
    data = to_channels_last(zero_padded(x, windows))
    columns = lax.reshape(lax.transpose(w, (*range(2, rank), 0, 1)), (math.prod(windows.kernel) * m, w.shape[1]))
    y = dot(data, columns, (((rank - 1,), (1,)), ((), ())), x.dtype)
    parts = [to_channels_first(lax.slice_in_dim(y, k, k + m, axis=rank - 1)) for k in range(0, columns.shape[0], m)]
    return functools.reduce(lax.add, map(shifted, parts, positions(windows), [windows] * len(parts)))


def _has_few_windows(x: jax.Array, w: jax.Array, windows: Windows) -> bool:
    """Returns True if all windows together have at most as many elements as the filters."""
    taps = math.prod(windows.kernel)
    elements = window_count(x, windows) * w.shape[1] * taps
    return isinstance(elements, int) and elements <= math.prod(w.shape) and taps <= MOST_TERMS


def _is_few(x: jax.Array, w: jax.Array, windows: Windows) -> bool:
    (m, c), taps = w.shape[:2], math.prod(windows.kernel)
    few = m <= _FEW_FILTERS and taps <= _MOST_PLACES and m * taps <= _RESULTS_BY_CHANNEL * c
    return few and x.dtype == jnp.float32 and {*windows.strides} == {1}


def _columns_pay(target: Target, x: jax.Array, w: jax.Array, windows: Windows) -> bool:
    rows = window_count(x, windows)
    few = isinstance(rows, int) and _FEWER_ROWS * rows <= w.shape[0]
    return in_bfloat16(target, x, w, rows) and min(w.shape[:2]) >= _MANY_CHANNELS and (has_amx(target) or few)


def window_count(x: jax.Array, windows: Windows) -> Any:
    """Counts the windows of all examples, which are the rows of a product with the filters. May be symbolic."""
    return x.shape[0] * math.prod(windows.sizes)


def _columns_of_bfloat16(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution in bfloat16 by `columns_last`."""
    multiply = Multiply(_columns_or_convolution, (("windows", windows), ("group", group)))
    return bilinear(multiply, x, w, window_count(x, windows))


def _columns_or_convolution(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    def product(columns: jax.Array, filters: jax.Array) -> jax.Array:
        columns = lax.optimization_barrier(columns)
        return dot(columns, filters, (((columns.ndim - 1,), (0,)), ((), ())), jnp.float32)

    if x.dtype != jnp.bfloat16:
        return convolution_last(x, w, windows, group)
    data, over = padded(x, windows, x.dtype.type(0))
    return columns_last(lax.optimization_barrier(data), w, over, product)
