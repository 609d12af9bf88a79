"""Padding, tiling, indexing and ranking: versions that differ from the functions in `jaxops.ops`."""

from typing import Any, Literal

import numpy as np

from jaxops.attributes import axis as resolve_axis, one_of
from jaxops.errors import AxisError, ShapeError
from jaxops.onnx.registry import version
from jaxops.ops import one_hot, pad, scatter_elements, scatter_nd, tile, top_k
from jaxops.static import Array, Ints, Static, array, foldable, known

# Mode 'wrap' came with opset 19.
PadMode18 = Literal["constant", "reflect", "edge"]
# Reductions 'max' and 'min' came with opset 18.
Reduction16 = Literal["none", "add", "mul"]


def _before_wrap(mode: PadMode18) -> PadMode18:
    return one_of("pad before opset 19", "mode", mode, PadMode18)


def _valued_pad(data: Array, pads: Ints, mode: PadMode18, value: float) -> Array:
    return pad(data, pads, np.array(value, array(data).dtype), mode=_before_wrap(mode))


@version("Pad", 1)
@foldable
def _(data: Array, *, paddings: Ints, mode: PadMode18, value: float) -> Array:
    return _valued_pad(data, paddings, mode, value)


@version("Pad", 2)
@foldable
def _(data: Array, *, pads: Ints, mode: PadMode18, value: float) -> Array:
    return _valued_pad(data, pads, mode, value)


@version("Pad", 11)
@foldable
def _(data: Array, pads: Static, constant_value: Any = None, axes: Static = None, *, mode: PadMode18) -> Array:
    return pad(data, pads, constant_value, axes, mode=_before_wrap(mode))


version("Pad", 19)(pad)


@version("Tile", 1)
@foldable
def _(input: Array, tiles: Static, axis: Static) -> Array:
    """Along one axis; both numbers are of the type of the data, which may be a float."""
    data = array(input)
    count, at = (int(known("tile", n, v).reshape(())) for n, v in (("tiles", tiles), ("axis", axis)))
    place = resolve_axis("tile", at, data.ndim)
    return tile(data, tuple(count if i == place else 1 for i in range(data.ndim)))


version("Tile", 6)(tile)
version("Scatter", 9)(scatter_elements)
version("ScatterElements", 11)(scatter_elements)
version("ScatterND", 11)(scatter_nd)


@version("ScatterElements", 16)
@foldable
def _(data: Array, indices: Array, updates: Array, *, axis: int, reduction: Reduction16) -> Array:
    one_of("scatter_elements before opset 18", "reduction", reduction, Reduction16)
    return scatter_elements(data, indices, updates, axis=axis, reduction=reduction)


@version("ScatterND", 16)
@foldable
def _(data: Array, indices: Array, updates: Array, *, reduction: Reduction16) -> Array:
    one_of("scatter_nd before opset 18", "reduction", reduction, Reduction16)
    return scatter_nd(data, indices, updates, reduction=reduction)


version("ScatterElements", 18)(scatter_elements)
version("ScatterND", 18)(scatter_nd)


@version("OneHot", 9)
@foldable
def _(indices: Array, depth: Static, values: Array, *, axis: int) -> Array:
    """A negative index is outside, and so is a negative axis but -1."""
    if axis < -1:
        raise AxisError(f"one_hot: `axis` is {axis}; before opset 11 it must be -1 or more")
    return one_hot(indices, depth, values, axis=axis, wrap=False)


version("OneHot", 11)(one_hot)


@version("TopK", 1)
def _(x: Array, *, k: int, axis: int) -> Any:
    return top_k(x, k, axis=axis)


@version("TopK", 10)
def _(x: Array, k: Static, *, axis: int) -> Any:
    if np.ndim(k) != 1:
        raise ShapeError(f"top_k: `k` must be a vector of one integer, but has {np.ndim(k)} axes")
    return top_k(x, k, axis=axis)


version("TopK", 11)(top_k)
