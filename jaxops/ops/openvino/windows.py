"""Deformable and binary convolution with OpenVINO's attributes, and patches of images."""

__all__ = ["binary_convolution", "deformable_convolution", "extract_image_patches"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints, one_of
from jaxops.dtypes import as_traced, widened
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.nn.convolution import conv
from jaxops.ops.nn.deformable_convolution import deform_conv
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.nn.windows import Options, Windows, sliding
from jaxops.signature import Traits, Weight, operator
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="convolution")
AutoPad = Literal["explicit", "same_upper", "same_lower", "valid"]
SamePad = Literal["same_upper", "same_lower", "valid"]
Popcount = Literal["xnor-popcount"]


def deformable_convolution(
    data: ArrayLike,
    offsets: ArrayLike,
    filters: Weight[ArrayLike],
    mask: ArrayLike | None = None,
    *,
    strides: Ints,
    pads_begin: Ints,
    pads_end: Ints,
    dilations: Ints,
    auto_pad: AutoPad = "explicit",
    group: int = 1,
    deformable_group: int = 1,
    bilinear_interpolation_pad: bool = False,
) -> jax.Array:
    """Convolves at moved places, as `deform_conv` does, with OpenVINO's attributes.

    data: (N, C, H, W). offsets: (N, deformable_group·kH·kW·2, oH, oW). filters: (O, C/group, kH, kW). mask:
    (N, deformable_group·kH·kW, oH, oW), or None. Floats of one dtype. Returns (N, O, oH, oW), same dtype.
    bilinear_interpolation_pad: True interpolates with zeros outside of data. False reads only places in [0, H) and
    [0, W), and the last element for places after it.
    auto_pad: if it is not 'explicit', pads_begin and pads_end are ignored.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO DeformableConvolution-1 and 8.

    >>> how = dict(strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1))
    >>> x, offsets = jnp.array([0.0, 2.0]), jnp.array([0.0, 0.0, 0.5, 0.5])
    >>> deformable_convolution(
    ...     x.reshape(1, 1, 1, 2), offsets.reshape(1, 2, 1, 2), jnp.ones((1, 1, 1, 1)), **how).tolist()
    [[[[1.0, 2.0]]]]
    """
    x, w = as_traced(data), as_traced(filters)
    must_fit("data", x.shape, ("N", "C", "H", "W"))
    must_fit("filters", w.shape, ("O", "C/group", "kH", "kW"))
    windows = _windows(x.shape, w.shape[2:], auto_pad, (pads_begin, pads_end), strides, dilations)
    return deform_conv(
        x,
        w,
        offsets,
        None,
        mask,
        dilations=windows.dilations,
        group=group,
        offset_group=deformable_group,
        pads=tuple(lo for lo, _ in windows.pads) + tuple(hi for _, hi in windows.pads),
        strides=windows.strides,
        border="zeros" if bilinear_interpolation_pad else "inside",
    )


def binary_convolution(
    data: ArrayLike,
    filters: ArrayLike,
    *,
    strides: Ints,
    pads_begin: Ints,
    pads_end: Ints,
    dilations: Ints,
    mode: Popcount,
    pad_value: float,
    auto_pad: AutoPad = "explicit",
) -> jax.Array:
    """Convolves zeros and ones, where 0 stands for -1.

    data: (N, C, H, W), any numbers, each 0 or 1. filters: (O, C, kH, kW), any type, each 0 or 1. Returns
    (N, O, oH, oW), same dtype as data: for each window, the number of elements that equal those of the filter minus
    the number of those that do not. pad_value: of the elements around data, 0 or 1; another number equals no element.
    auto_pad: if it is not 'explicit', pads_begin and pads_end are ignored.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO BinaryConvolution-1.

    >>> how = dict(strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1), mode="xnor-popcount")
    >>> x = jnp.array([0.0, 1.0]).reshape(1, 1, 1, 2)
    >>> binary_convolution(x, jnp.ones((1, 1, 1, 2)), pad_value=0, **how).tolist()
    [[[[0.0]]]]
    """
    one_of("mode", mode, Popcount)
    x, w = as_traced(data), as_traced(filters)
    require("numbers", x)
    must_fit("data", x.shape, ("N", "C", "H", "W"))
    must_fit("filters", w.shape, ("O", x.shape[1], "kH", "kW"))
    windows = _windows(x.shape, w.shape[2:], auto_pad, (pads_begin, pads_end), strides, dilations)
    return _binary_convolution((x, w), windows, float(pad_value))


@jit_if_concrete
def _binary_convolution(operands: tuple[Any, Any], windows: Windows, pad_value: float) -> Any:
    x, w = operands
    signed = jnp.where(w != 0, np.float32(1), np.float32(-1))
    pads = [(0, 0, 0), (0, 0, 0), *((*p, 0) for p in windows.pads)]
    is_bit = pad_value in (0, 1)
    padded = lax.pad(2 * x.astype(np.float32) - 1, np.float32(2 * pad_value - 1 if is_bit else 0), pads)
    y = conv(padded, signed, strides=windows.strides, dilations=windows.dilations)
    if not is_bit:  # each padded element differs from the filter's element
        around = lax.pad(jnp.zeros_like(x, np.float32), np.float32(-1), pads)
        y = y + conv(around, jnp.ones_like(signed), strides=windows.strides, dilations=windows.dilations)
    sizes = (x.shape[0], w.shape[0], *windows.sizes)
    return assert_sizes(y.astype(x.dtype), sizes, x.dtype)


@operator(kind="movement")
def extract_image_patches(data: ArrayLike, *, sizes: Ints, strides: Ints, rates: Ints, auto_pad: SamePad) -> jax.Array:
    """Returns the elements of each window of an image along the axis of channels.

    data: (N, C, H, W), any dtype. sizes, strides, rates: the sizes of windows, the steps between windows, and the
    steps between their elements, along both axes. Returns (N, kH·kW·C, oH, oW), same dtype: row by row of the window,
    with the channels innermost. auto_pad: zeros around data, as for convolutions.
    Raises ShapeError, ArgumentError. Source: OpenVINO ExtractImagePatches-3.

    >>> x = jnp.arange(6).reshape(1, 1, 2, 3)
    >>> how = dict(sizes=(2, 2), strides=(1, 1), rates=(1, 1), auto_pad="valid")
    >>> extract_image_patches(x, **how)[0, :, 0].tolist()
    [[0, 1], [1, 2], [3, 4], [4, 5]]
    """
    x, kernel = as_traced(data), ints("sizes", sizes)
    must_fit("data", x.shape, ("N", "C", "H", "W"))
    one_of("auto_pad", auto_pad, SamePad)
    windows = _windows(x.shape, kernel, auto_pad, ((0, 0), (0, 0)), strides, rates)
    return widened(lambda arrays: _patches(arrays[0], windows), (x,))


@jit_if_concrete
def _patches(x: Any, windows: Windows) -> Any:
    pads = [(0, 0, 0), (0, 0, 0), *((*p, 0) for p in windows.pads)]
    padded = lax.pad(x, jnp.zeros((), x.dtype), pads)
    pieces = []
    for place in np.ndindex(*windows.kernel):
        piece = padded
        for axis, k in enumerate(place):
            first, step = k * windows.dilations[axis], windows.strides[axis]
            last = first + (windows.sizes[axis] - 1) * step + 1
            piece = lax.slice_in_dim(piece, first, last, step, axis + 2)
        pieces.append(piece)
    sizes = (x.shape[0], len(pieces) * x.shape[1], *windows.sizes)
    return assert_sizes(jnp.concatenate(pieces, 1), sizes, x.dtype)


def _windows(x: Sizes, kernel: Sizes, auto_pad: Any, pads: Any, strides: Any, dilations: Any) -> Windows:
    padding: Any = one_of("auto_pad", auto_pad, AutoPad).upper()
    begin, end = (ints(name, v) for name, v in zip(("pads_begin", "pads_end"), pads, strict=True))
    for name, values in (("pads_begin", begin), ("pads_end", end), ("kernel", kernel)):
        if len(values) != 2:
            raise ShapeError(f"`{name}` {shape_text(values)} must be two numbers, one for rows and one for columns")
    if min(kernel) < 1:
        raise ArgumentError(f"a window of {shape_text(kernel)} has no elements")
    explicit = padding == "EXPLICIT"
    steps, distances = ints("strides", strides), ints("dilations", dilations)
    options = Options("NOTSET" if explicit else padding, (*begin, *end) if explicit else None, steps, distances)
    return sliding(x[2:], kernel, options)
