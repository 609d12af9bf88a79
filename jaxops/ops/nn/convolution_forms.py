"""The forms of a convolution that are fast on a CPU, where XLA runs some shapes of its own many times slower."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jaxops.dtypes import accumulation_type
from jaxops.ops.linear_maps import linear
from jaxops.ops.nn import winograd
from jaxops.ops.numerics import computed_once
from jaxops.ops.precision import bilinear, dot, in_bfloat16
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# The most shifted copies of the data that one convolution may use; each is a slice in the program.
_MOST_TAPS = 64
# From this many channels on, products of bfloat16 for each tap take half of the time of a convolution of float32.
_MANY_CHANNELS = 128
# XLA:CPU multiplies matrices by YNNPACK, in few and uneven parts, and convolves by Eigen, in many: a small product is
# faster as a pointwise convolution. Microseconds on two cores, product → convolution (onnxruntime): 196 rows 112→672
# 220 → 170 (145), 80→200 67 → 46 (38); 784 rows 64→256 200 → 170 (140); 196 rows 256→1024 565 → 630 (470), 49 rows
# 160→960 160 → 170 (77). MobileNetV3 takes 0.85 of the time, EfficientNet, SqueezeNet 0.92.
_MANY_ROWS, _FEW_MULTIPLICATIONS = 100, 30e6


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
    if not whole or taps > _MOST_TAPS or 0 in (*x[1:], *w, *windows.sizes):
        return None
    if prepared and group == 1:
        return dense_last
    if prepared and (w[0], w[1]) == (group, 1):
        return by_channel
    if group > 1:
        return as_sum if taps * w[1] <= _MOST_TAPS else as_columns
    # The columns hold `taps` copies of the data. They pay off while they have fewer elements than the weights.
    columns = x[0] * w[1] * taps * math.prod(windows.sizes)
    return as_columns if isinstance(columns, int) and columns <= math.prod(w) else None


def _padded(x: jax.Array, windows: Windows) -> jax.Array:
    return padded(x, windows, x.dtype.type(0))[0]


def padded(x: jax.Array, windows: Windows, value: Any) -> tuple[jax.Array, Windows]:
    """The data padded with a value, and the windows over it, which have no padding."""
    if all(p == 0 for pair in windows.pads for p in pair):
        return x, windows
    y = lax.pad(x, value, [(0, 0, 0)] * 2 + [(lo, hi, 0) for lo, hi in windows.pads])
    return y, dataclasses.replace(windows, pads=((0, 0),) * len(windows.pads))


def _shifted(x: jax.Array, at: tuple[int, ...], windows: Windows) -> jax.Array:
    """The element `at` of every window: (…, o1, …, on) of padded data (…, d1, …, dn)."""
    lead = x.ndim - len(at)
    first = [i * d for i, d in zip(at, windows.dilations, strict=True)]
    last = [f + (o - 1) * s + 1 for f, o, s in zip(first, windows.sizes, windows.strides, strict=True)]
    return lax.slice(x, [0] * lead + first, [*x.shape[:lead], *last], [1] * lead + list(windows.strides))


def _positions(windows: Windows) -> Any:
    return itertools.product(*map(range, windows.kernel))


def as_product(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A pointwise convolution: one matrix product."""
    if any(s != 1 for s in windows.strides):
        x = _shifted(x, (0,) * len(windows.kernel), windows)
    n, c = x.shape[:2]
    flat = lax.reshape(x, (n, c, math.prod(windows.sizes)))
    y = dot(lax.reshape(w, w.shape[:2]), flat, (((1,), (1,)), ((), ())), x.dtype)
    return lax.reshape(lax.transpose(y, (1, 0, 2)), (n, w.shape[0], *windows.sizes))


def _last(x: jax.Array) -> jax.Array:
    """(N, C, d1, …, dn) as (N, d1, …, dn, C)."""
    return lax.transpose(x, (0, *range(2, x.ndim), 1))


def _first(y: jax.Array) -> jax.Array:
    """(N, d1, …, dn, C) as (N, C, d1, …, dn)."""
    return lax.transpose(y, (0, y.ndim - 1, *range(1, y.ndim - 1)))


def convolution_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A `lax` convolution, channels last."""
    rank = x.ndim
    order = (0, rank - 1, *range(1, rank - 1))
    y = lax.conv_general_dilated(
        _last(x),
        lax.transpose(w, (*range(2, rank), 1, 0)),
        windows.strides,
        windows.pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=lax.ConvDimensionNumbers(order, (rank - 1, rank - 2, *range(rank - 2)), order),
        feature_group_count=group,
    )
    return _first(y)


def product_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A pointwise convolution, channels last: one matrix product, or a small convolution."""
    if any(s != 1 for s in windows.strides):
        x = _shifted(x, (0,) * len(windows.kernel), windows)
        windows = dataclasses.replace(windows, strides=(1,) * len(windows.strides))
    if _is_small_product(x, w, x.shape[0] * math.prod(windows.sizes)):
        return convolution_last(x, w, windows, group)
    y = dot(_last(x), lax.reshape(w, w.shape[:2]), (((x.ndim - 1,), (1,)), ((), ())), x.dtype)
    return _first(y)


def _is_small_product(x: jax.Array, w: jax.Array, rows: Any) -> bool:
    if not isinstance(rows, int) or x.dtype != jnp.float32 or in_bfloat16(x, w, rows):
        return False
    return rows >= _MANY_ROWS and rows * math.prod(w.shape) <= _FEW_MULTIPLICATIONS


def dense_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Channels last, by Winograd's products or as `convolution_last`; of bfloat16, a product for each tap."""
    rows = math.prod(windows.sizes)
    if w.shape[1] >= _MANY_CHANNELS and in_bfloat16(x, w, rows):
        return _taps_last(x, w, windows, group, rows)
    if winograd.pays(x, w, windows):
        return _first(winograd.convolve(_last(x), w, windows))
    return convolution_last(x, w, windows, group)


def _taps_last(x: jax.Array, w: jax.Array, windows: Windows, group: int, rows: int) -> jax.Array:
    """In bfloat16 a sum of products, one for each position in a window."""

    def multiply(x: jax.Array, w: jax.Array) -> jax.Array:
        if x.dtype != jnp.bfloat16:
            return convolution_last(x, w, windows, group)
        data, over = padded(x, windows, x.dtype.type(0))
        dimensions = ((x.ndim - 1,), (1,)), ((), ())
        terms = (
            lax.dot_general(
                _last(_shifted(data, at, over)), w[:, :, *at], dimensions, preferred_element_type=jnp.float32
            )
            for at in _positions(windows)
        )
        return _first(functools.reduce(lax.add, terms))

    return bilinear(multiply, x, w, rows)


def by_channel(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A filter for each channel, as `as_sum`. No axis is split, so that the data may be channels last."""
    dtype = x.dtype
    wide = accumulation_type(dtype)
    # XLA would read the middle of padded data from what was padded, and so compute that in a loop of its own.
    x, w = lax.optimization_barrier(_padded(x, windows).astype(wide)), w.astype(wide)
    sizes = (x.shape[0], w.shape[0], *windows.sizes)
    taps = math.prod(windows.kernel)
    weights = lax.split(lax.transpose(lax.reshape(w, (w.shape[0], taps)), (1, 0)), [1] * taps)
    total = None
    for weight, at in zip(weights, _positions(windows), strict=True):
        term = lax.mul(_shifted(x, at, windows), lax.broadcast_in_dim(weight, sizes, (0, 1)))
        total = term if total is None else lax.add(total, term)
    assert total is not None
    return computed_once(total).astype(dtype)


def as_columns(x: jax.Array, w: jax.Array, windows: Windows, group: int, dtype: Any = None) -> jax.Array:
    """All windows side by side, then one matrix product per group, summed in `dtype`; the weights keep their layout."""
    n, c, m = *x.shape[:2], w.shape[0]
    x, count = _padded(x, windows), math.prod(windows.sizes)
    columns = lax.concatenate(
        [lax.reshape(_shifted(x, at, windows), (n, c, 1, count)) for at in _positions(windows)], 2
    )
    columns = lax.reshape(columns, (n, group, math.prod(w.shape[1:]), count))
    filters = lax.reshape(w, (group, m // group, math.prod(w.shape[1:])))
    dimensions = (((2,), (2,)), ((0,), (1,)))
    y = dot(filters, columns, dimensions, dtype or x.dtype)  # (group, M/group, N, count)
    return lax.reshape(lax.transpose(y, (2, 0, 1, 3)), (n, m, *windows.sizes))


def columns_last(x: jax.Array, w: jax.Array, windows: Windows, multiply: Any) -> jax.Array:
    """As `as_columns`, for one group, channels last. multiply: the product of matrices (…, K) and (K, M).

    The windows are put side by side along one axis, and these along the next: fewer operations than one by one. So an
    int8 ResNet-50 starts in 3.0 s, not 4.3, and needs 490 MB, not 590. Along the first axis, where nothing is skipped,
    the results of one product are added up instead: 0.96 of its time.
    """
    summed = windows.kernel[:1] if len(windows.kernel) > 1 and windows.strides[0] == 1 else ()
    taps = math.prod(summed)
    columns = _last(x)
    for axis in reversed(range(len(summed), len(windows.kernel))):
        step, reach = windows.strides[axis], (windows.sizes[axis] - 1) * windows.strides[axis] + 1
        begins = [k * windows.dilations[axis] for k in range(windows.kernel[axis])]
        parts = [lax.slice_in_dim(columns, begin, begin + reach, step, axis + 1) for begin in begins]
        columns = lax.concatenate(parts, x.ndim - 1) if len(parts) > 1 else parts[0]
    # (k2, …, kn, C) as one axis, then k1 and M as the other; all of them as the first, where nothing is added up.
    filters = lax.reshape(_last(w), (w.shape[0], taps, math.prod(w.shape[1:]) // taps))
    filters = lax.reshape(lax.transpose(filters, (2, 1, 0)), (filters.shape[2], taps * w.shape[0]))
    y = lax.reshape(multiply(columns, filters), (*columns.shape[:-1], taps, w.shape[0]))
    rows = [
        lax.slice_in_dim(lax.index_in_dim(y, k, y.ndim - 2, keepdims=False), begin, begin + windows.sizes[0], axis=1)
        for k, begin in enumerate(range(0, taps * windows.dilations[0], windows.dilations[0]))
    ]
    return _first(functools.reduce(lax.add, rows))


def as_sum(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """For few channels per group: a sum of shifted data times weights, which XLA fuses into one loop.

    JAX's own transposes are as many sums of padded results, or as many reductions in one program, as there are
    weights a channel. Milliseconds of both, and seconds to compile them, on one core: depthwise 7×7, 96 at 56×56:
    59 → 16 and 4.2 → 0.8; 3×3: 4.5 → 4 and 0.8 → 0.5; 32 groups of 4: 18 → 11 and 5.3 → 0.7.
    """

    @jax.custom_jvp
    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        return _summed(x, w, windows, group)

    def rule(values: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]) -> tuple[jax.Array, Any]:
        (x, w), (along_x, along_w) = values, tangents
        parts = []
        if not isinstance(along_x, SymbolicZero):
            to_data = functools.partial(_to_data, sizes=x.shape[2:], windows=windows, group=group)
            parts.append(linear(lambda w, x: convolve(x, w), to_data, w, along_x))
        if not isinstance(along_w, SymbolicZero):
            to_filters = functools.partial(_to_filters, windows=windows, group=group)
            parts.append(linear(convolve, to_filters, x, along_w))
        return convolve(x, w), sum(parts[1:], parts[0])

    convolve.defjvp(rule, symbolic_zeros=True)
    return convolve(x, w)


def _to_data(w: jax.Array, y: jax.Array, sizes: Sizes, windows: Windows, group: int) -> jax.Array:
    """The transpose of a convolution by its data: again one, of the dilated result with the reversed filters."""
    rank, (m, inner) = y.ndim, w.shape[:2]
    filters = lax.reshape(w, (group, m // group, inner, *windows.kernel))
    filters = lax.reshape(
        lax.transpose(filters, (0, 2, 1, *range(3, rank + 1))), (group * inner, m // group, *windows.kernel)
    )
    edges = []
    for axis, size in enumerate(sizes):
        reach = (windows.kernel[axis] - 1) * windows.dilations[axis]
        step, begin = windows.strides[axis], reach - windows.pads[axis][0]
        end = size + reach - begin - (windows.sizes[axis] - 1) * step - 1
        edges.append((begin, end, step - 1))
    data = lax.pad(y, y.dtype.type(0), [(0, 0, 0)] * 2 + edges)
    ones, none = (1,) * len(sizes), ((0, 0),) * len(sizes)
    over = dataclasses.replace(windows, strides=ones, pads=none, sizes=sizes)
    return as_sum(data, lax.rev(filters, range(2, rank)), over, group)


def _to_filters(x: jax.Array, y: jax.Array, windows: Windows, group: int) -> jax.Array:
    """The transpose of a convolution by its filters, weight by weight in a loop, which compiles one of them."""
    wide = accumulation_type(x.dtype)
    n, c, m, inner = *x.shape[:2], y.shape[1], x.shape[1] // group
    data = _padded(x, windows).astype(wide)
    result = lax.reshape(y.astype(wide), (n, group, m // group, 1, *windows.sizes))
    spans = [(o - 1) * s + 1 for o, s in zip(windows.sizes, windows.strides, strict=True)]
    begins = [(0, 0, *(i * d for i, d in zip(at, windows.dilations, strict=True))) for at in _positions(windows)]

    def weight(begin: jax.Array) -> jax.Array:
        part = lax.dynamic_slice(data, tuple(begin), (n, c, *spans))
        part = lax.slice(part, (0,) * part.ndim, part.shape, (1, 1, *windows.strides))
        part = lax.reshape(part, (n, group, 1, inner, *windows.sizes))
        return jnp.sum(part * result, (0, *range(4, result.ndim)))

    weights = jnp.moveaxis(lax.map(weight, np.asarray(begins, np.int32)), 0, -1)
    return lax.reshape(weights, (m, inner, *windows.kernel)).astype(x.dtype)


def _summed(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    n, m, inner = x.shape[0], w.shape[0], w.shape[1]
    dtype = x.dtype
    wide = accumulation_type(dtype)
    x, w = x.astype(wide), w.astype(wide)
    data = lax.reshape(_padded(x, windows), (n, group, inner, *_padded_sizes(x, windows)))
    filters = lax.reshape(w, (group, m // group, inner, *windows.kernel))
    sizes = (n, group, m // group, *windows.sizes)
    data_axes = (0, 1, *range(3, len(sizes)))
    total = None
    for channel in range(inner):
        plane = lax.index_in_dim(data, channel, 2, keepdims=False)
        for at in _positions(windows):
            shifted = lax.broadcast_in_dim(_shifted(plane, at, windows), sizes, data_axes)
            weight = filters[(slice(None), slice(None), channel, *at)]
            term = lax.mul(shifted, lax.broadcast_in_dim(weight, sizes, (1, 2)))
            total = term if total is None else lax.add(total, term)
    assert total is not None
    return lax.reshape(total, (n, m, *windows.sizes)).astype(dtype)


def _padded_sizes(x: jax.Array, windows: Windows) -> Sizes:
    return tuple(d + lo + hi for d, (lo, hi) in zip(x.shape[2:], windows.pads, strict=True))


def as_overlaps(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """One matrix product scales all filters; overlapping copies are then summed, axis by axis."""
    n, c, *inner = x.shape
    filters = lax.reshape(w, (group, c // group, math.prod(w.shape[1:])))
    data = lax.reshape(x, (n, group, c // group, math.prod(inner)))
    y = dot(filters, data, (((1,), (2,)), ((0,), (1,))), x.dtype)  # (group, M/group·k, N, d)
    y = lax.reshape(y, (group, w.shape[1], *windows.kernel, n, *inner))
    for axis, (k, s, d) in enumerate(zip(windows.kernel, windows.strides, windows.dilations, strict=True)):
        lo = windows.pads[axis][0]
        lead = y.ndim - len(inner) + axis - 1  # the position of this axis after its kernel axis is removed
        total = None
        for i in range(k):
            begin = i * d - lo
            end = windows.sizes[axis] - begin - (inner[axis] - 1) * s - 1
            config = [(begin, end, s - 1) if a == lead else (0, 0, 0) for a in range(y.ndim - 1)]
            piece = lax.pad(lax.index_in_dim(y, i, 2, keepdims=False), y.dtype.type(0), config)
            total = piece if total is None else lax.add(total, piece)
        assert total is not None
        y = total
    y = lax.transpose(y, (2, 0, 1, *range(3, y.ndim)))  # from (group, M/group, N, o1, …, on)
    return lax.reshape(y, (n, group * w.shape[1], *windows.sizes))
