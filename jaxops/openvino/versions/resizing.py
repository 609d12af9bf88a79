"""Interpolate, which resizes one axis after another, and GridSample."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.attributes import integer
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, ShapeError, amount
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, resolve_axis, vector
from jaxops.ops.common.interpolation_weights import ResizedAxis, Sampling, some_axis_shrinks
from jaxops.ops.common.symbolic_floats import scaled
from jaxops.signature import Static, like
from jaxops.signature_errors import errors_of
from jaxops.static import Array, array

# Is added to a product in float32 that may lie just below a whole number, before it is rounded down to a size.
_EPSILON = 1e-6


@version("Interpolate", 11, of=ops.resize)
def interpolate_11(
    data: Array,
    sizes_or_scales: Static,
    axes: Static = None,
    *,
    mode: Word,
    shape_calculation_mode: Word,
    coordinate_transformation_mode: Word,
    nearest_mode: Word,
    antialias: bool,
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    cube_coeff: float,
) -> Array:
    how = Sampling(mode, coordinate_transformation_mode, nearest_mode, antialias, cube_coeff)
    x = _padded(data, pads_begin, pads_end)
    chosen = range(x.ndim) if axes is None else vector("Interpolate", "axes", axes).tolist()
    numbers = vector("Interpolate", "sizes_or_scales", sizes_or_scales).tolist()
    if len(numbers) != len(chosen):
        raise ShapeError(
            f"Interpolate: `sizes` or `scales` has {amount(len(numbers), 'number')}; it must have {len(chosen)}, "
            "one per axis"
        )
    plan = [_axis(x, axis, n, shape_calculation_mode) for axis, n in zip(chosen, numbers, strict=True)]
    with errors_of("interpolate"):
        return _resized(x, plan, how)


@version("Interpolate", 4, of=ops.resize)
@like(interpolate_11)
def interpolate_4(
    data: Array, sizes: Static, scales: Static, axes: Static = None, *, shape_calculation_mode: Word, **attributes: Any
) -> Array:
    """`shape_calculation_mode` selects `sizes` or `scales`."""
    numbers = sizes if shape_calculation_mode == "sizes" else scales
    return interpolate_11(data, numbers, axes, shape_calculation_mode=shape_calculation_mode, **attributes)


@version("Interpolate", 1, of=ops.resize)
@like(
    interpolate_11,
    without=["shape_calculation_mode", "coordinate_transformation_mode", "nearest_mode", "cube_coeff"],
)
def interpolate_1(
    data: Array,
    target_spatial_shape: Static,
    *,
    axes: Sequence[int],
    mode: Word,
    align_corners: bool,
    **attributes: Any,
) -> Array:
    if mode == "area":
        raise ArgumentError(
            "Interpolate: `mode` 'area' is not supported, as OpenVINO's specification does not define it; use "
            "'nearest', 'linear' or 'cubic'"
        )
    return interpolate_11(
        data,
        target_spatial_shape,
        axes,
        mode="linear_onnx" if mode == "linear" else mode,
        shape_calculation_mode="sizes",
        coordinate_transformation_mode="align_corners" if align_corners else "asymmetric",
        nearest_mode="simple",
        cube_coeff=-0.75,
        **attributes,
    )


def _padded(data: Any, pads_begin: Sequence[int], pads_end: Sequence[int]) -> Any:
    """Pads the data with zeros; if there are fewer numbers than axes, they are those of the first axes."""
    rank = array(data).ndim
    begins, ends = ([*pads, *[0] * (rank - len(pads))] for pads in (pads_begin, pads_end))
    return array(ops.pad(data, [*begins, *ends])) if any(begins) or any(ends) else array(data)


def _axis(x: Any, axis: int, number: Any, mode: str) -> ResizedAxis:
    along = resolve_axis("Interpolate", axis, x.ndim)
    size = x.shape[along]
    if mode == "sizes":
        with errors_of("Interpolate"):
            number = integer("sizes", number, least=0)
        scale = np.float32(number) / np.float32(size) if isinstance(size, int) and isinstance(number, int) else None
        return ResizedAxis(along, size, number, scale)
    scale = np.float32(number)
    if isinstance(size, int):
        length = int(np.floor(np.float32(size) * scale + np.float32(_EPSILON)))
    else:
        length = scaled(size, float(scale))
    return ResizedAxis(along, size, length, scale)


def _resized(x: Any, plan: Sequence[ResizedAxis], how: Sampling) -> Array:
    known = all(axis.is_known for axis in plan)
    usual = how.mode in ("linear_onnx", "cubic") and how.coordinates != "tf_half_pixel_for_nn"
    own = how.mode.endswith("pillow") or (how.mode == "nearest" and how.nearest == "simple")
    own |= how.mode == "linear" and how.antialias
    if usual or not (known or own):
        return _by_resize(x, plan, how)
    if how.mode == "nearest":
        for axis in plan:
            x = ops.gather(x, axis.elements(how), axis=axis.axis)
        return x
    shrinks = some_axis_shrinks(plan, how)
    work = x if is_float(x.dtype) else ops.cast(x, to=np.float32)
    for axis in sorted(plan, key=lambda p: -p.axis):
        work = _weighted(work, axis.axis, axis.weights(how, shrinks))
    return work if work.dtype == x.dtype else ops.cast(ops.round(work), to=x.dtype)


def _by_resize(x: Any, plan: Sequence[ResizedAxis], how: Sampling) -> Array:
    """Resizes by the operator of ONNX, for symbolic sizes and for modes that both define alike."""
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
    return ops.resize(x, sizes=[axis.length for axis in plan], **options)


def _weighted(x: Any, axis: int, weights: Any) -> Any:
    order = [*(a for a in range(x.ndim) if a != axis), axis]
    moved = ops.transpose(x, perm=order)
    product = ops.matmul(moved, ops.cast(weights.T, to=x.dtype))
    return array(ops.transpose(product, perm=np.argsort(order).tolist()))


_GRID_MODES: dict[str, Any] = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


@version("GridSample", 9, of=ops.grid_sample)
def grid_sample(data: Array, grid: Array, *, align_corners: bool, mode: Word, padding_mode: Word) -> Array:
    return ops.grid_sample(
        data, grid, align_corners=int(align_corners), mode=_GRID_MODES[mode], padding_mode=padding_mode
    )
