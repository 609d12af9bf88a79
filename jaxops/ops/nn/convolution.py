"""Convolution and its transpose, over any number of spatial axes.

Each is one `lax` convolution, except on a CPU. There XLA runs some shapes many times slower than the same sums
written as matrix products or elementwise operations (figures beside each rule).
"""

__all__ = ["conv", "conv_transpose"]

import dataclasses
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp  # noqa: F401 - the doctests use it
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import accumulation_type, as_traced, unify
from jaxops.ops.checked import check_sizes
from jaxops.ops.nn.windows import integers, options
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import AutoPad, Options, Windows
from jaxops.static import Array, Ints, Sizes, jit_if_concrete

# The most shifted copies of the data that one convolution may use; each is a slice in the program.
_MOST_TAPS = 64


def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: AutoPad = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """Slides each of M filters over the spatial axes of `x` and sums the products (a cross-correlation).

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). b: (M,), or None. One dtype. Returns (N, M, o1, …, on), with
    o = floor((d + pads - (k-1)·dilation - 1) / stride) + 1.
    auto_pad: NOTSET (use `pads`), VALID (no padding), SAME_UPPER or SAME_LOWER (o = ceil(d / stride), an odd padding
    element goes to the end or to the beginning). pads: all begins, then all ends; None is 0. strides, dilations: one
    per spatial axis; None is 1. kernel_shape: the spatial sizes of `w`, or None. group: number of channel groups;
    groups are convolved independently.
    Raises ShapeError when the channels, the kernel or the number of values in an attribute do not fit,
    ArgumentError for an attribute out of range, DTypeError when the dtypes differ.
    Source: ONNX Conv, opsets 1–22.

    >>> conv(jnp.ones((1, 1, 5, 5)), jnp.ones((2, 1, 3, 3)), strides=(2, 2), pads=(1, 1, 1, 1)).shape
    (1, 2, 3, 3)
    """
    return _conv(
        _operands("conv", x, w, b),
        options("conv", auto_pad, pads, strides, dilations),
        integer("conv", "group", group),
        integers("conv", "kernel_shape", kernel_shape),
    )


def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: AutoPad = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """The transpose of `conv`: each element of `x` scales a copy of the filters, and overlapping copies are summed.

    x: (N, C, d1, …, dn). w: (C, M/group, k1, …, kn). b: (M,), or None. One dtype. Returns (N, M, o1, …, on), with
    o = stride·(d-1) + output_padding + (k-1)·dilation + 1 - pads.
    output_shape: the sizes o1, …, on; `pads` is then ignored and the excess is cropped on both sides, an odd element
    at the beginning (at the end with SAME_UPPER). auto_pad SAME_UPPER, SAME_LOWER: o = d·stride.
    output_padding: extra elements at the end, fewer than the stride or the dilation; None is 0. The other
    attributes are as in `conv`.
    Raises ShapeError when the channels, the kernel or the number of values in an attribute do not fit,
    ArgumentError for an attribute out of range, DTypeError when the dtypes differ.
    Source: ONNX ConvTranspose, opsets 1–22.

    >>> conv_transpose(jnp.ones((1, 1, 3, 3)), jnp.ones((1, 2, 3, 3)), strides=(2, 2)).shape
    (1, 2, 7, 7)
    """
    op = "conv_transpose"
    return _conv_transpose(
        _operands(op, x, w, b),
        options(op, auto_pad, pads, strides, dilations),
        integer(op, "group", group),
        integers(op, "kernel_shape", kernel_shape),
        integers(op, "output_padding", output_padding),
        integers(op, "output_shape", output_shape),
    )


def _operands(op: str, x: Array, w: Array, b: Array | None) -> tuple[jax.Array, ...]:
    values = (x, w) if b is None else (x, w, b)
    return tuple(as_traced(v) for v in unify(op, values, ("x ", "w ", "b ")[: len(values)]))


@jit_if_concrete
def _conv(operands: tuple[jax.Array, ...], options: Options, group: int, kernel_shape: Sizes | None) -> jax.Array:
    x, w, *b = operands
    return add_bias("conv", convolved("conv", x, w, options, group, kernel_shape), b)


def convolved(
    op: str, x: jax.Array, w: jax.Array, options: Options, group: int, kernel_shape: Sizes | None
) -> jax.Array:
    """The convolution of data with filters of one type, in that type."""
    sizes = sizes_of.spatial(op, x.shape)
    sizes_of.channels(op, x.shape, w.shape, group)
    windows = sizes_of.sliding(op, sizes, sizes_of.kernel_of(op, w.shape, kernel_shape), options)
    fast = _fast(x.shape, w.shape, windows, group)

    def plain(x: jax.Array, w: jax.Array) -> jax.Array:
        return _convolve(x, w, windows, group)

    def quick(x: jax.Array, w: jax.Array) -> jax.Array:
        assert fast is not None
        return fast(x, w, windows, group)

    y = plain(x, w) if fast is None else lax.platform_dependent(x, w, cpu=quick, default=plain)
    check_sizes(op, y.shape, (x.shape[0], w.shape[0], *windows.sizes))
    return y


def add_bias(op: str, y: jax.Array, b: list[jax.Array]) -> jax.Array:
    """The result and a bias for each of its channels; `b` holds it, or is empty."""
    if not b:
        return y
    sizes_of.bias(op, b[0].shape, y.shape[1])
    return lax.add(y, lax.broadcast_in_dim(b[0], y.shape, (1,)))


def _layout(rank: int) -> lax.ConvDimensionNumbers:
    """Batch and channels first, for the data, the filters and the result."""
    order = tuple(range(rank))
    return lax.ConvDimensionNumbers(order, order, order)


def _convolve(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    pads = windows.pads
    if not all(isinstance(p, int) for pair in pads for p in pair):
        # The convolution takes numbers as padding, so a symbolic padding becomes a separate pad.
        x, pads = _padded(x, windows), [(0, 0)] * len(pads)
    return lax.conv_general_dilated(
        x,
        w,
        windows.strides,
        pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=_layout(x.ndim),
        feature_group_count=group,
    )


def _fast(x: Sizes, w: Sizes, windows: Windows, group: int) -> Any:
    """The fastest form of this convolution on a CPU; None for a plain `lax` convolution.

    Milliseconds of a float32 layer on two cores, plain → this form (onnxruntime): pointwise 64→256 at 56×56
    2.2 → 0.7 (0.8); depthwise 96 at 56×56 10 → 0.2 (0.2); 32 groups of 4 11.6 → 0.6 (0.7); 3×3 512→512 at 7×7
    4.3 → 1.9 (1.2).
    """
    taps = math.prod(windows.kernel)
    whole = all(isinstance(d, int) for d in x[2:])
    padded = any(p != 0 for pair in windows.pads for p in pair)
    if taps == 1 and group == 1 and not padded and (whole or all(s == 1 for s in windows.strides)):
        return _as_product
    if not whole or taps > _MOST_TAPS or 0 in (*x[1:], *w, *windows.sizes):
        return None
    if group > 1:
        return _as_sum if taps * w[1] <= _MOST_TAPS else as_columns
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


def _as_product(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A pointwise convolution: one matrix product."""
    if any(s != 1 for s in windows.strides):
        x = _shifted(x, (0,) * len(windows.kernel), windows)
    n, c = x.shape[:2]
    flat = lax.reshape(x, (n, c, math.prod(windows.sizes)))
    y = lax.dot_general(lax.reshape(w, w.shape[:2]), flat, (((1,), (1,)), ((), ())))
    return lax.reshape(lax.transpose(y, (1, 0, 2)), (n, w.shape[0], *windows.sizes))


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
    y = lax.dot_general(filters, columns, dimensions, preferred_element_type=dtype)  # (group, M/group, N, count)
    return lax.reshape(lax.transpose(y, (2, 0, 1, 3)), (n, m, *windows.sizes))


def _as_sum(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """For few channels per group: a sum of shifted data times weights, which XLA fuses into one loop."""
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


@jit_if_concrete
def _conv_transpose(
    operands: tuple[jax.Array, ...],
    options: Options,
    group: int,
    kernel_shape: Sizes | None,
    output_padding: Sizes | None,
    output_shape: Sizes | None,
) -> jax.Array:
    op = "conv_transpose"
    x, w, *b = operands
    sizes = sizes_of.spatial(op, x.shape)
    sizes_of.transposed_channels(op, x.shape, w.shape, group)
    shape = sizes_of.kernel_of(op, w.shape, kernel_shape)
    windows = sizes_of.transposed(op, sizes, shape, options, output_padding, output_shape)

    def plain(x: jax.Array, w: jax.Array) -> jax.Array:
        return _dilated(x, w, windows, group)

    def quick(x: jax.Array, w: jax.Array) -> jax.Array:
        return _as_overlaps(x, w, windows, group)

    # The plain form multiplies stride - 1 zeros between two elements of `x`, and on a CPU its gradient takes ten times
    # as long as its value. 128→64, 2×2, stride 2 at 56×56, value and gradient: 3.9 and 183 → 3.3 and 12 ms.
    known = all(isinstance(d, int) and d > 0 for d in (*x.shape[1:], *windows.sizes)) and 0 not in w.shape
    strided = known and any(s > 1 for s in windows.strides)
    y = lax.platform_dependent(x, w, cpu=quick, default=plain) if strided else plain(x, w)
    check_sizes(op, y.shape, (x.shape[0], w.shape[1] * group, *windows.sizes))
    return add_bias(op, y, b)


def _dilated(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A convolution of `x`, dilated by the stride, with the reversed filters."""
    rank, (c, m) = x.ndim, w.shape[:2]
    w = lax.reshape(w, (group, c // group, *w.shape[1:]))
    w = lax.transpose(w, (0, 2, 1, *range(3, rank + 1)))
    w = lax.rev(lax.reshape(w, (group * m, c // group, *windows.kernel)), range(2, rank))
    widths = [sizes_of.span(k, d) for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    return lax.conv_general_dilated(
        x,
        w,
        (1,) * (rank - 2),
        [(v - 1 - lo, v - 1 - hi) for v, (lo, hi) in zip(widths, windows.pads, strict=True)],
        lhs_dilation=windows.strides,
        rhs_dilation=windows.dilations,
        dimension_numbers=_layout(rank),
        feature_group_count=group,
    )


def _as_overlaps(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """One matrix product scales all filters; overlapping copies are then summed, axis by axis."""
    n, c, *inner = x.shape
    filters = lax.reshape(w, (group, c // group, math.prod(w.shape[1:])))
    data = lax.reshape(x, (n, group, c // group, math.prod(inner)))
    y = lax.dot_general(filters, data, (((1,), (2,)), ((0,), (1,))))  # (group, M/group·k, N, d)
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
