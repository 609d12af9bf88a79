"""Deformable convolution: an operand moves the positions at which the filters read the data."""

__all__ = ["deform_conv"]

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, one_of
from jaxops.dtypes import accumulation_type, floating, unify
from jaxops.errors import shape_text
from jaxops.ops.common.interpolation import Tap, gather_taps, inside, linear_taps
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.nn.convolution_checks import add_bias
from jaxops.ops.nn.windows import integers, options
from jaxops.shapes.arithmetic import divided, must_fit
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import Options
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike, Dim, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="convolution")
Border = Literal["zeros", "inside"]


class _How(NamedTuple):
    options: Options
    group: int
    offset_group: int
    kernel_shape: Sizes | None
    border: Border


def deform_conv(
    x: ArrayLike,
    w: Weight[ArrayLike],
    offset: ArrayLike,
    b: Bias[ArrayLike] | None = None,
    mask: ArrayLike | None = None,
    *,
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    offset_group: int = 1,
    pads: Ints | None = None,
    strides: Ints | None = None,
    border: Border = "zeros",
) -> jax.Array:
    """`conv` that reads each element of a window at a position moved by an offset, with linear interpolation.

    x: (N, C, d1, …, dn). w: (M, C/group, k1, …, kn). offset: (N, offset_group·k1·…·kn·n, o1, …, on), in elements:
    for each group and position in the kernel one number along each axis, from the first to the last. b: (M,), or
    None. mask: (N, offset_group·k1·…·kn, o1, …, on), a factor for each element read, or None. Floats of one dtype.
    Returns (N, M, o1, …, on), same dtype, sizes as of `conv`; 16-bit types are computed in float32.
    offset_group: number of groups of consecutive channels that share offsets. border: 'zeros' interpolates with zeros
    outside of x. 'inside' does not: a position in [0, d) is interpolated between elements of x only, with the last one
    repeated, and any other position reads zero. dilations, group, kernel_shape, pads, strides: as in `conv`.
    Raises ShapeError, ArgumentError, DTypeError.
    Source: ONNX DeformConv, opsets 19–22; `border` is from OpenVINO DeformableConvolution-8.

    >>> deform_conv(jnp.array([[[0.0, 2.0, 4.0]]]), jnp.ones((1, 1, 1)), jnp.full((1, 1, 3), 0.5)).tolist()
    [[[1.0, 3.0, 2.0]]]
    """
    operands = {"x": x, "w": w, "offset": offset, "b": b, "mask": mask}
    present = {f"{name} ": v for name, v in operands.items() if v is not None}
    unify(tuple(present.values()), tuple(present))
    how = _How(
        options("NOTSET", pads, strides, dilations),
        integer("group", group),
        integer("offset_group", offset_group, least=1),
        integers("kernel_shape", kernel_shape),
        one_of("border", border, Border),
    )
    return _deform_conv(floating(**operands), how)


@jit_if_concrete
def _deform_conv(operands: tuple[Any, ...], how: _How) -> Any:
    x, w, offset, b, mask = operands
    groups = how.offset_group
    spatial = sizes_of.spatial(x.shape)
    sizes_of.channels(x.shape, w.shape, how.group)
    windows = sizes_of.sliding(spatial, sizes_of.kernel_of(w.shape, how.kernel_shape), how.options)
    taps, out = math.prod(windows.kernel), windows.sizes
    n, c, *sizes = x.shape
    divided(f"`offset_group` {groups} does not divide the {c} channels of `x` {shape_text(x.shape)}", c, groups)
    must_fit("offset", offset.shape, (n, groups * taps * len(sizes), *out))
    # By the text of the standard the mask has n times as many channels for n spatial axes, but not in its own example
    # with two. As in the reference implementation, there is one factor for each position of the kernel.
    must_fit("mask", None if mask is None else mask.shape, (n, groups * taps, *out))
    work = accumulation_type(x.dtype)
    moved = lax.convert_element_type(offset, work).reshape(n * groups, taps, len(sizes), *out)
    axes = []
    for a, (size, tap) in enumerate(zip(sizes, np.indices(windows.kernel), strict=True)):
        start = lax.iota(np.int32, out[a]) * windows.strides[a] - jnp.asarray(windows.pads[a][0], np.int32)
        tap = (tap * windows.dilations[a]).astype(np.int32).reshape(1, taps, *[1] * len(sizes))
        grid = start.reshape([-1 if i == a + 2 else 1 for i in range(len(sizes) + 2)]) + tap
        axes.append(_taps(moved[:, :, a] + grid.astype(work), size, how.border))
    read = gather_taps(lax.convert_element_type(x, work).reshape(n * groups, c // groups, *sizes), axes)
    read = read.reshape(n, groups, taps, *out, c // groups)
    if mask is not None:
        read = read * lax.convert_element_type(mask, work).reshape(n, groups, taps, *out, 1)
    read = jnp.moveaxis(read, 1, -2).reshape(n, taps, *out, how.group, c // how.group)
    filters = lax.convert_element_type(w, work).reshape(how.group, w.shape[0] // how.group, c // how.group, taps)
    y = jnp.einsum("nk...gc,gmck->ngm...", read, filters).reshape(n, w.shape[0], *out)
    y = add_bias(y, [] if b is None else [lax.convert_element_type(b, work)])
    return assert_sizes(lax.convert_element_type(y, x.dtype), (n, w.shape[0], *out), x.dtype)


def _taps(coordinates: Any, size: Dim, border: Border) -> list[Tap]:
    if border == "inside":
        limit = jnp.asarray(size, coordinates.dtype)
        counts = (coordinates >= 0) & (coordinates < limit)
        coordinates = jnp.clip(coordinates, jnp.zeros_like(limit), limit - 1)
        return [(index, weight, counts) for index, weight in linear_taps(coordinates)]
    # Coordinates more than two elements outside read zero, so clip them there before they become int32.
    coordinates = jnp.clip(coordinates, -2, jnp.asarray(size, coordinates.dtype) + 1)
    return [(index, weight, inside(index, size)) for index, weight in linear_taps(coordinates)]
