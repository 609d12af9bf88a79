"""Convolution and its transpose, over any number of spatial axes.

On a CPU they are not computed as a `lax` convolution if another form is faster (`kernels.convolution`).
"""

__all__ = ["conv", "conv_transpose"]

import dataclasses
import math
from typing import TypedDict

import jax
import jax.numpy as jnp  # noqa: F401 - the doctests use it
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import as_traced, unify
from jaxops.kernels.convolution.convolve import over_windows
from jaxops.kernels.convolution.transposed import dilated, reversed_filters, reversed_pads, strided
from jaxops.kernels.matmul.dot import dot
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.nn.convolution_checks import add_bias, convolved
from jaxops.ops.nn.windows import integers, options
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import AutoPad, Options, Windows
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="convolution")


class ConvAttributes(TypedDict, total=False):
    """The attributes of `conv`."""

    auto_pad: AutoPad
    dilations: Ints | None
    group: int
    kernel_shape: Ints | None
    pads: Ints | None
    strides: Ints | None


def conv(
    x: ArrayLike,
    w: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
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
    attributes = (
        options(auto_pad, pads, strides, dilations),
        integer("group", group),
        integers("kernel_shape", kernel_shape),
    )
    return _conv(_operands(x, w, b), *attributes)


def conv_transpose(
    x: ArrayLike,
    w: Weight[ArrayLike],
    b: Bias[ArrayLike] | None = None,
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
    output_padding: extra elements at the end, fewer than the stride or the dilation; None is 0. dilations, group,
    kernel_shape, pads, strides: as in `conv`.
    Raises ShapeError when the channels, the kernel or the number of values in an attribute do not fit,
    ArgumentError for an attribute out of range, DTypeError when the dtypes differ.
    Source: ONNX ConvTranspose, opsets 1–22.

    >>> conv_transpose(jnp.ones((1, 1, 3, 3)), jnp.ones((1, 2, 3, 3)), strides=(2, 2)).shape
    (1, 2, 7, 7)
    """
    return _conv_transpose(
        _operands(x, w, b),
        options(auto_pad, pads, strides, dilations),
        integer("group", group),
        integers("kernel_shape", kernel_shape),
        integers("output_padding", output_padding),
        integers("output_shape", output_shape),
    )


def _operands(x: ArrayLike, w: ArrayLike, b: ArrayLike | None) -> tuple[jax.Array, ...]:
    values = (x, w) if b is None else (x, w, b)
    return tuple(as_traced(v) for v in unify(values, ("x ", "w ", "b ")[: len(values)]))


@jit_if_concrete
def _conv(operands: tuple[jax.Array, ...], options: Options, group: int, kernel_shape: Sizes | None) -> jax.Array:
    x, w, *b = operands
    return add_bias(convolved(x, w, options, group, kernel_shape), b)


@jit_if_concrete
def _conv_transpose(
    operands: tuple[jax.Array, ...],
    options: Options,
    group: int,
    kernel_shape: Sizes | None,
    output_padding: Sizes | None,
    output_shape: Sizes | None,
) -> jax.Array:
    x, w, *b = operands
    sizes = sizes_of.spatial(x.shape)
    sizes_of.transposed_channels(x.shape, w.shape, group)
    shape = sizes_of.kernel_of(w.shape, kernel_shape)
    windows = sizes_of.transposed(sizes, shape, options, output_padding, output_shape)

    static_sizes = all(isinstance(d, int) and d > 0 for d in (*x.shape[1:], *windows.sizes)) and 0 not in w.shape
    if group == 1 and {*x.shape[2:], *windows.dilations} == {1}:
        y = _of_one_element(x, w, windows)
    elif static_sizes and any(s > 1 for s in windows.strides):
        y = strided(x, w, windows=windows, group=group)
    else:
        y = _with_reversed(x, w, windows, group)
    y = assert_sizes(y, (x.shape[0], w.shape[1] * group, *windows.sizes), x.dtype)
    return add_bias(y, b)


def _of_one_element(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    """The result for data with one element along each spatial axis, which scales the filters: one matrix product.

    A DCGAN generator begins with such a layer.
    """
    n, c = x.shape[:2]
    y = dot(lax.reshape(x, (n, c)), lax.reshape(w, (c, math.prod(w.shape[1:]))), (((1,), (0,)), ((), ())), x.dtype)
    y = lax.reshape(y, (n, *w.shape[1:]))
    return lax.pad(y, y.dtype.type(0), [(0, 0, 0)] * 2 + [(-lo, -hi, 0) for lo, hi in windows.pads])


def _with_reversed(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """A convolution with the reversed filters; without strides, in the fastest form of a convolution."""
    filters, pads = reversed_filters(w, group), reversed_pads(windows)
    if all(s == 1 for s in windows.strides) and all(isinstance(p, int) and p >= 0 for pair in pads for p in pair):
        return over_windows(x, filters, dataclasses.replace(windows, pads=pads), group)
    return dilated(x, filters, windows, group)
