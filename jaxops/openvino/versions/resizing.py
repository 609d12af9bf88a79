"""Interpolate, one axis after the other, by weights that NumPy computes of the sizes, in float32 as OpenVINO does.

And GridSample.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from jaxops import ops
from jaxops.attributes import axis as resolve_axis
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, ShapeError
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import vector
from jaxops.signature import Static, like
from jaxops.static import Array, array

Coordinates: TypeAlias = Literal[
    "half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"
]
Nearest: TypeAlias = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"]
# A size is the floor of a product in float32, which may lie just below a whole number.
_EPSILON = 1e-6


class _Axis(NamedTuple):
    """An axis that is resized. scale: of coordinates, which is that of sizes unless the caller gives another."""

    axis: int
    size: Any
    length: Any
    scale: Any

    @property
    def is_known(self) -> bool:
        return isinstance(self.size, int) and isinstance(self.length, int)


class _How(NamedTuple):
    mode: str
    coordinates: Coordinates
    nearest: Nearest
    antialias: bool
    cube_coeff: float


@version("Interpolate", 11, of=ops.resize)
def interpolate_11(
    data: Array,
    sizes_or_scales: Static,
    axes: Static = None,
    *,
    mode: Literal["nearest", "linear", "linear_onnx", "cubic", "bilinear_pillow", "bicubic_pillow"],
    shape_calculation_mode: Literal["sizes", "scales"],
    coordinate_transformation_mode: Coordinates,
    nearest_mode: Nearest,
    antialias: bool,
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    cube_coeff: float,
) -> Array:
    how = _How(mode, coordinate_transformation_mode, nearest_mode, antialias, cube_coeff)
    x = _padded(data, pads_begin, pads_end)
    chosen = range(x.ndim) if axes is None else vector("Interpolate", "axes", axes).tolist()
    numbers = vector("Interpolate", "sizes_or_scales", sizes_or_scales).tolist()
    if len(numbers) != len(chosen):
        raise ShapeError(f"Interpolate: {len(numbers)} sizes or scales cannot be those of {len(chosen)} axes")
    return _resized(
        x, [_axis(x, axis, n, shape_calculation_mode) for axis, n in zip(chosen, numbers, strict=True)], how
    )


@version("Interpolate", 4, of=ops.resize)
@like(interpolate_11)
def interpolate_4(
    data: Array,
    sizes: Static,
    scales: Static,
    axes: Static = None,
    *,
    shape_calculation_mode: Literal["sizes", "scales"],
    **attributes: Any,
) -> Array:
    """`shape_calculation_mode` says which of sizes and scales counts."""
    numbers = sizes if shape_calculation_mode == "sizes" else scales
    return interpolate_11(data, numbers, axes, shape_calculation_mode=shape_calculation_mode, **attributes)


@version("Interpolate", 1, of=ops.resize)
def interpolate_1(
    data: Array,
    target_spatial_shape: Static,
    *,
    axes: Sequence[int],
    mode: Literal["nearest", "linear", "cubic", "area"],
    align_corners: bool,
    antialias: bool,
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
) -> Array:
    if mode == "area":
        raise ArgumentError("Interpolate: `mode` is 'area', which no text defines; use another one")
    return interpolate_11(
        data,
        target_spatial_shape,
        axes,
        mode="linear_onnx" if mode == "linear" else mode,
        shape_calculation_mode="sizes",
        coordinate_transformation_mode="align_corners" if align_corners else "asymmetric",
        nearest_mode="simple",
        antialias=antialias,
        pads_begin=pads_begin,
        pads_end=pads_end,
        cube_coeff=-0.75,
    )


def _padded(data: Any, pads_begin: Sequence[int], pads_end: Sequence[int]) -> Any:
    """Zeros around the data; fewer numbers than axes are those of the first ones."""
    rank = array(data).ndim
    begins, ends = ([*pads, *[0] * (rank - len(pads))] for pads in (pads_begin, pads_end))
    return array(ops.pad(data, [*begins, *ends])) if any(begins) or any(ends) else array(data)


def _axis(x: Any, axis: int, number: Any, mode: str) -> _Axis:
    along = resolve_axis("Interpolate", axis, x.ndim)
    size = x.shape[along]
    if mode == "sizes":
        scale = np.float32(number) / np.float32(size) if isinstance(size, int) and isinstance(number, int) else None
        return _Axis(along, size, number, scale)
    scale = np.float32(number)
    length = int(np.floor(np.float32(size) * scale + np.float32(_EPSILON))) if isinstance(size, int) else None
    return _Axis(along, size, length, scale)


def _resized(x: Any, plan: Sequence[_Axis], how: _How) -> Array:
    known = all(axis.is_known for axis in plan)
    usual = how.mode in ("linear_onnx", "cubic") and how.coordinates != "tf_half_pixel_for_nn"
    if usual or not known:
        return _by_resize(x, plan, how)
    shrinks = how.antialias and any(axis.scale < 1 for axis in plan)
    if how.mode == "nearest":
        for axis in plan:
            x = ops.gather(x, _nearest(axis, how), axis=axis.axis)
        return x
    work = x if is_float(x.dtype) else ops.cast(x, to=np.float32)
    for axis in sorted(plan, key=lambda p: -p.axis):
        work = _weighted(work, axis.axis, _weights(axis, how, shrinks))
    return work if work.dtype == x.dtype else ops.cast(ops.round(work), to=x.dtype)


def _by_resize(x: Any, plan: Sequence[_Axis], how: _How) -> Array:
    """By the operator of ONNX: sizes that are not known, and modes that are the same."""
    if how.mode.endswith("pillow") or (how.nearest == "simple" and how.mode == "nearest"):
        raise ShapeError(f"Interpolate: mode {how.mode} needs known sizes; fix them by `sizes`")
    if how.antialias and how.mode == "linear":
        raise ShapeError("Interpolate: antialias needs known sizes; fix them by `sizes`")
    by_size = how.coordinates == "align_corners" or all(axis.scale is None or axis.is_known for axis in plan)
    mode: Any = {"linear_onnx": "linear"}.get(how.mode, how.mode)
    options: dict[str, Any] = {
        "axes": [axis.axis for axis in plan],
        "mode": mode,
        "nearest_mode": "floor" if how.nearest == "simple" else how.nearest,
        "coordinate_transformation_mode": how.coordinates,
        "cubic_coeff_a": how.cube_coeff,
    }
    scales = [axis.scale for axis in plan]
    exact = all(a.is_known and np.float32(a.length) / np.float32(a.size) == a.scale for a in plan)
    if all(scale is not None for scale in scales) and not exact and how.coordinates != "align_corners":
        return ops.resize(x, scales=np.array(scales, np.float32), **options)
    if not by_size:
        raise ShapeError("Interpolate: align_corners with scales needs known sizes; fix them by `sizes`")
    return ops.resize(x, sizes=[axis.length for axis in plan], **options)


def _places(axis: _Axis, how: _How) -> np.ndarray:
    """For each element of the result, its coordinate in the data."""
    x, scale, half = np.arange(axis.length, dtype=np.float32), np.float32(axis.scale), np.float32(0.5)
    if how.coordinates == "align_corners":
        if axis.length == 1:
            return np.zeros(1, np.float32)
        return x * np.float32(axis.size - 1) / np.float32(axis.length - 1)
    if how.coordinates == "asymmetric":
        return x / scale
    if how.coordinates == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if how.coordinates == "pytorch_half_pixel" and axis.length <= 1:
        return np.zeros(axis.length, np.float32)
    return (x + half) / scale - half


def _nearest(axis: _Axis, how: _How) -> np.ndarray:
    places = _places(axis, how)
    half = np.float32(0.5)
    if how.nearest == "simple":
        chosen = np.ceil(places) if axis.scale < 1 else np.trunc(places)
    elif how.nearest in ("floor", "ceil"):
        chosen = np.floor(places) if how.nearest == "floor" else np.ceil(places)
    else:
        ties = np.floor(places) if how.nearest == "round_prefer_floor" else np.ceil(places)
        chosen = np.where(places == np.floor(places) + half, ties, np.floor(places + half))
    return np.clip(chosen.astype(np.int64), 0, axis.size - 1)


def _weights(axis: _Axis, how: _How, shrinks: bool) -> np.ndarray:
    """The weight of each element of the data in each one of the result: a matrix of (length, size)."""
    if how.mode.endswith("pillow"):
        return _pillow(axis, how)
    places, elements = _places(axis, how), np.arange(axis.size, dtype=np.float32)
    if how.mode == "cubic":
        return _cubic_matrix(places, axis.size, how.cube_coeff)
    if how.mode == "linear_onnx":
        places = np.clip(places, 0, axis.size - 1)
    # Neighbours outside have no weight; what antialiasing makes of one axis that shrinks holds for all.
    width = np.float32(axis.scale) if shrinks else np.float32(1)
    weights = np.maximum(1 - np.abs(width * (places[:, None] - elements)), 0)
    total = weights.sum(1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total != 0)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _cubic_matrix(places: np.ndarray, size: int, a: float) -> np.ndarray:
    """Neighbours outside count as the outermost element."""
    weights = np.zeros((len(places), size), np.float32)
    first = np.floor(places)
    for shift in range(-1, 3):
        index = np.clip(first + shift, 0, size - 1).astype(np.int64)
        np.add.at(weights, (np.arange(len(places)), index), _cubic(places - first - shift, a).astype(np.float32))
    return weights


def _pillow(axis: _Axis, how: _How) -> np.ndarray:
    """The filters of Pillow, which are as wide as the elements of the result."""
    ratio = axis.size / axis.length
    width = max(ratio, 1.0)
    support = (1.0 if how.mode == "bilinear_pillow" else 2.0) * width
    centres = (np.arange(axis.length) + 0.5) * ratio
    low = np.maximum((centres - support + 0.5).astype(np.int64), 0)
    high = np.minimum((centres + support + 0.5).astype(np.int64), axis.size)
    elements = np.arange(axis.size)
    distances = (elements + 0.5 - centres[:, None]) / width
    values = (
        np.maximum(1 - np.abs(distances), 0) if how.mode == "bilinear_pillow" else _cubic(distances, how.cube_coeff)
    )
    values = np.where((elements >= low[:, None]) & (elements < high[:, None]), values, 0)
    return (values / values.sum(1, keepdims=True)).astype(np.float32)


def _weighted(x: Any, axis: int, weights: np.ndarray) -> Any:
    order = [*(a for a in range(x.ndim) if a != axis), axis]
    moved = ops.transpose(x, perm=order)
    product = ops.matmul(moved, np.asarray(weights.T, x.dtype))
    return array(ops.transpose(product, perm=np.argsort(order).tolist()))


_GRID_MODES: dict[str, Any] = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@version("GridSample", 9, of=ops.grid_sample)
def grid_sample(
    data: Array,
    grid: Array,
    *,
    align_corners: bool,
    mode: Literal["bilinear", "nearest", "bicubic"],
    padding_mode: Literal["zeros", "border", "reflection"],
) -> Array:
    return ops.grid_sample(
        data, grid, align_corners=int(align_corners), mode=_GRID_MODES[mode], padding_mode=padding_mode
    )
