"""Resizing of axes by nearest-element, linear or cubic sampling.

Axes are resized one after the other. If the scale is a ratio of small integers, the filter weights repeat with a short
period: each phase of the period is a weighted sum of slices, and the phases are interleaved. Other scales gather each
tap of the filter at static indices, or multiply by a matrix if an antialiasing filter has many taps. NumPy computes all
weights.
Slices are the fastest, then gathers, then matrices.
"""

__all__ = ["resize"]

import math
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, flag, ints, one_of
from jaxops.dtypes import as_traced, canonical, is_float, is_string, type_name, widened
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SizeError, amount, message
from jaxops.memory import bounded
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.common.symbolic_floats import scaled
from jaxops.ops.common.symbolic_resizing import cubic, outside, sampled
from jaxops.shapes.tensor import resizing as sizes_of
from jaxops.shapes.tensor.resizing import AspectRatioPolicy, Resized
from jaxops.signature import StaticInts, StaticNumbers, Traits
from jaxops.static import Array, ArrayLike, Ints, Undecided, array, is_symbolic, jit_if_concrete, known

TRAITS = Traits(precision="exact", grows=True)

ResizeMode = Literal["nearest", "linear", "cubic"]
NearestMode = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
CoordinateMode = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
# Modes in which the filter weights repeat along the axis when the scale is a ratio of small whole numbers.
_PERIODIC = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"}
_MOST_SLICES = 16


class Sampling(NamedTuple):
    """The attributes that say how an axis is sampled."""

    mode: ResizeMode
    coordinates: CoordinateMode
    nearest: NearestMode
    cubic_coeff_a: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


def resize(
    x: ArrayLike,
    roi: StaticNumbers = None,
    scales: StaticNumbers = None,
    sizes: StaticInts = None,
    *,
    antialias: int = 0,
    axes: Ints | None = None,
    coordinate_transformation_mode: CoordinateMode = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: AspectRatioPolicy = "stretch",
    mode: ResizeMode = "nearest",
    nearest_mode: NearestMode = "round_prefer_floor",
) -> jax.Array:
    """Resizes axes of `x` by nearest-element, linear or cubic sampling.

    x: any dtype for 'nearest', which keeps strings static; numbers otherwise. 16-bit types are computed in float32,
    integers of 32 and 64 bits in float64, which needs x64. An integer result saturates. 'linear' without antialias
    rounds it towards zero, as in onnxruntime; all else rounds it to the nearest integer.
    scales, sizes: static, one number for each of `axes`; give one of the two, the other is None or empty. Returns the
    same dtype, with sizes floor(size · scale), or `sizes`; a keep_aspect_ratio_policy other than 'stretch' scales all
    axes by the smallest or largest ratio.
    roi: static, starts and then ends as fractions of each axis, for 'tf_crop_and_resize': positions outside `x` get
    extrapolation_value. axes: static; None means all. antialias: 1 widens the 'linear' or 'cubic' filter of a smaller
    result, so that each element of `x` counts. exclude_outside: 1 gives neighbours outside `x` no weight; 0 repeats the
    edge. coordinate_transformation_mode: the standard's formula that turns an index of the result into a coordinate of
    `x`. nearest_mode: how 'nearest' rounds a coordinate. cubic_coeff_a: the coefficient a of the 'cubic' filter.
    Raises ShapeError, ArgumentError, AxisError, DTypeError; StaticError for traced scales, sizes or roi.
    Source: ONNX Resize, opsets 11–19.

    >>> resize(jnp.array([0.0, 4.0]), scales=(2,), mode="linear").tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    image = array(x)
    resized_axes = tuple(range(image.ndim)) if axes is None else resolve_axes(axes, image.ndim)
    policy = one_of("keep_aspect_ratio_policy", keep_aspect_ratio_policy, AspectRatioPolicy)
    how = Sampling(
        one_of("mode", mode, ResizeMode),
        one_of("coordinate_transformation_mode", coordinate_transformation_mode, CoordinateMode),
        one_of("nearest_mode", nearest_mode, NearestMode),
        cubic_coeff_a,
        flag("exclude_outside", exclude_outside),
        flag("antialias", antialias),
        extrapolation_value,
    )
    by_scale, by_size = not _absent("scales", scales, resized_axes), not _absent("sizes", sizes, resized_axes)
    if by_scale == by_size:
        count = "both are" if by_scale else "neither is"
        raise ArgumentError(f"give either `scales` or `sizes`; {count} given")
    if by_scale:
        plan = sizes_of.by_scales(image.shape, resized_axes, _floats("scales", scales), scaled)
    else:
        plan = sizes_of.by_sizes(image.shape, resized_axes, ints("sizes", sizes), policy)
    if how.coordinates == "tf_crop_and_resize":
        plan = _with_roi(plan, roi)
    if how.mode != "nearest":
        require("numbers", image)
    lengths = {p.axis: p.length for p in plan}
    resized = [lengths.get(axis, size) for axis, size in enumerate(image.shape)]
    bounded_like(resized, image)
    return _resize(image if is_string(image) else as_traced(image), plan, how)


def _absent(name: str, value: Any, axes: tuple[int, ...]) -> bool:
    """Returns True if an operand is left out: None, or an empty tensor while there are axes that need a number each."""
    if value is None:
        return True
    return len(axes) > 0 and np.size(value if isinstance(value, tuple | list) else known(name, value)) == 0


def _floats(name: str, value: Any) -> tuple[float, ...]:
    values = known(name, value)
    if values.ndim != 1:
        raise ShapeError(message(f"`{name}` must be 1-D, but has {values.ndim} axes", **{name: values}))
    return tuple(float(v) for v in values)


def _with_roi(plan: tuple[Resized, ...], roi: Any) -> tuple[Resized, ...]:
    if roi is None:
        raise ArgumentError("'tf_crop_and_resize' needs `roi`, the starts and then the ends of the axes")
    values, count = _floats("roi", roi), len(plan)
    if len(values) != 2 * count:
        raise ShapeError(
            f"`roi` has {amount(len(values), 'number')}; it must have {2 * count}, a start for each axis, then "
            "an end for each"
        )
    return tuple(p._replace(roi=(values[i], values[i + count])) for i, p in enumerate(plan))


@jit_if_concrete
def _resize(x: Any, plan: tuple[Resized, ...], how: Sampling) -> Array:
    plan = tuple(p for p in plan if not (p.scale == 1 and p.roi == (0, 1)))
    lengths = {p.axis: p.length for p in plan}
    result_sizes = tuple(lengths.get(axis, size) for axis, size in enumerate(x.shape))
    work = x.dtype if how.mode == "nearest" else _work_type(x)
    # The last axis first: on XLA:CPU it costs most per element, and the other axes have not grown yet.
    order = sorted(plan, key=lambda p: -p.axis)

    def sampled(arrays: Any) -> Any:
        y = arrays[0] if arrays[0].dtype == work else lax.convert_element_type(arrays[0], work)
        for p in order:
            y = _sample(y, p, how)
        return y

    y = sampled((x,)) if how.mode != "nearest" or is_string(x) else widened(sampled, (x,))
    if work != x.dtype:
        y = _narrowed(y, x.dtype, how)
    if how.coordinates == "tf_crop_and_resize":
        y = _extrapolated(y, plan, how)
    return assert_sizes(y, result_sizes, x.dtype)


def _work_type(x: Any) -> Any:
    """float32 for narrower types, float64 for integers that it does not hold."""
    if x.dtype.kind == "c" or (is_float(x.dtype) and x.dtype.itemsize >= 4):
        return x.dtype
    if is_float(x.dtype) or x.dtype.itemsize < 4:
        return np.dtype(np.float32)
    if canonical(np.float64) != np.float64:
        raise DTypeError(
            f"interpolating {type_name(x)} needs float64, and x64 is off; convert with jaxops.cast, or turn "
            f"it on with jax.config.update('jax_enable_x64', True)"
        )
    return np.dtype(np.float64)


def _narrowed(y: Any, dtype: Any, how: Sampling) -> Any:
    if is_float(dtype):
        return lax.convert_element_type(y, dtype)
    y = lax.floor(y + 0.5) if how.mode == "cubic" or how.antialias else y
    return lax.convert_element_type(y, dtype)  # XLA saturates


def _extrapolated(y: Any, plan: tuple[Resized, ...], how: Sampling) -> Any:
    """Puts `extrapolation_value` where the coordinate along any axis lies outside the data."""
    for p in plan:
        beyond: Any
        if is_symbolic(p.size) or is_symbolic(p.length):
            beyond = outside(p)
        else:
            # In float32, so that a rounding error in float64 does not put the last element outside.
            coordinates = _coordinates(p, how).astype(np.float32)
            beyond = (coordinates < 0) | (coordinates > p.size - 1)
        if not isinstance(beyond, np.ndarray) or beyond.any():
            mask = beyond.reshape([-1 if axis == p.axis else 1 for axis in range(y.ndim)])
            if isinstance(y, np.ndarray):
                raise DTypeError("strings cannot be extrapolated; choose `roi` inside of [0, 1]")
            y = jnp.where(mask, jnp.asarray(how.extrapolation, np.float32).astype(y.dtype), y)
    return y


def _sample(x: Any, p: Resized, how: Sampling) -> Any:
    if isinstance(p.length, int) and p.length == 0:
        return x[(slice(None),) * p.axis + (slice(0, 0),)]
    if isinstance(p.size, int) and p.size == 0:
        raise ShapeError(f"axis {p.axis} of {x.shape} is empty; it cannot get {p.length} elements")
    phases = None if is_string(x) else _phases(p, how)
    try:
        if phases is not None:
            return _interleaved(x, p, *phases)
    except Undecided:  # such as half of a size that may be less than 2
        pass
    if not (isinstance(p.size, int) and isinstance(p.length, int)):
        if is_string(x):
            raise _unresolved(p)
        return sampled(x, p, how)
    first, weights = _taps(_coordinates(p, how), how, float(p.scale or 1))
    elements = first[:, None] + np.arange(weights.shape[1])
    if how.exclude_outside and how.mode != "nearest":
        weights = np.where((elements < 0) | (elements >= p.size), 0, weights)
        total = weights.sum(1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return _gathered(x, p, np.clip(elements, 0, p.size - 1), weights)


def _unresolved(p: Resized) -> SizeError:
    return SizeError(
        f"axis {p.axis} goes from {p.size} to {p.length}; for strings, both must be numbers", p.size, p.length
    )


def _coordinates(p: Resized, how: Sampling) -> np.ndarray:
    """The coordinate in the data of each element of the result. Needs known sizes."""
    bounded((p.length,), np.dtype(np.float64).itemsize, "the list of coordinates")
    index, mode, size = np.arange(p.length, dtype=np.float64), how.coordinates, p.size
    scale = p.scale or Fraction(1)
    # By the standard and its test suite, length_resized is scale · length_original, which may be fractional.
    # onnxruntime uses the length of the result.
    length = float(scale * size)
    if mode == "tf_crop_and_resize":
        start, end = p.roi
        if p.length == 1:
            return np.array([(start + end) * (size - 1) / 2])
        return start * (size - 1) + index * (end - start) * (size - 1) / (length - 1)
    if p.length == 1 and mode in ("align_corners", "pytorch_half_pixel"):
        return np.zeros(1)
    if mode == "align_corners":
        return index * (size - 1) / (length - 1)
    offset = size / 2 * (1 - p.length / length) if mode == "half_pixel_symmetric" else 0
    return offset + _position(index, mode, scale)


def _position(index: np.ndarray, mode: str, scale: Fraction) -> np.ndarray:
    half = 0.0 if mode == "asymmetric" else 0.5
    return (index + half) * scale.denominator / scale.numerator - (0.0 if mode == "tf_half_pixel_for_nn" else half)


def _taps(coordinates: np.ndarray, how: Sampling, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """For each coordinate the index of the first element under its filter, and the weights from that element on."""
    if how.mode == "nearest":
        # In float32, as onnxruntime: this hides the rounding error of a scale such as 0.6, so that 3 / 0.6 is 5.
        coordinates = coordinates.astype(np.float32)
        rounding = {
            "round_prefer_floor": lambda: np.ceil(coordinates - 0.5),
            "round_prefer_ceil": lambda: np.floor(coordinates + 0.5),
            "floor": lambda: np.floor(coordinates),
            "ceil": lambda: np.ceil(coordinates),
        }
        return rounding[how.nearest]().astype(np.int64), np.ones((len(coordinates), 1))
    narrow = min(scale, 1.0) if how.antialias else 1.0
    reach = 1 if how.mode == "linear" else 2
    start = math.floor(-reach / narrow) + 1
    bounded((len(coordinates), 2 - 2 * start), np.dtype(np.float64).itemsize, "the weights of its filter")
    first = np.floor(coordinates)
    distance = np.abs(start + np.arange(2 - 2 * start) - (coordinates - first)[:, None]) * narrow
    weights = np.maximum(1 - distance, 0) if reach == 1 else cubic(distance, how.cubic_coeff_a)
    if how.antialias:
        weights /= weights.sum(1, keepdims=True)
    return first.astype(np.int64) + start, weights


def _phases(p: Resized, how: Sampling) -> tuple[np.ndarray, np.ndarray] | None:
    """The taps of the first period of results if all later ones repeat them; None if not, or if they are too many."""
    if p.scale is None or how.coordinates not in _PERIODIC or (how.exclude_outside and how.mode != "nearest"):
        return None
    count, step = p.scale.numerator, p.scale.denominator
    is_periodic = step == 1 or (isinstance(p.size, int) and p.size * count % step == 0)
    if how.coordinates == "half_pixel_symmetric" and not is_periodic:
        return None
    if how.coordinates == "pytorch_half_pixel" and not (count > 1 or (isinstance(p.length, int) and p.length > 1)):
        return None
    if count > _MOST_SLICES or not (isinstance(p.size, int) or count == 1 or step == 1):
        return None
    coordinates = _position(np.arange(count), how.coordinates, p.scale)
    first, weights = _taps(coordinates, how, float(p.scale))
    return (first, weights) if np.count_nonzero(weights) <= _MOST_SLICES else None


def _interleaved(x: Any, p: Resized, first: np.ndarray, weights: np.ndarray) -> Any:
    """Interleaves the phases; each is a weighted sum of slices of the data, padded by its edges."""
    assert p.scale is not None
    axis, count, step = p.axis, p.scale.numerator, p.scale.denominator
    blocks = p.size if step == 1 else p.length if count == 1 else -(-p.length // count)
    taps = [[(int(start) + j, w) for j, w in enumerate(row) if w] for start, row in zip(first, weights, strict=True)]
    low = max(0, -min(start for row in taps for start, _ in row))
    high = max(0, max(start for row in taps for start, _ in row))
    if low or high:
        x = jnp.pad(x, [(low, high) if a == axis else (0, 0) for a in range(x.ndim)], mode="edge")

    def piece(start: int) -> Any:
        return lax.slice_in_dim(x, start + low, start + low + step * (blocks - 1) + 1, step, axis)

    if len(taps) == 1 or all(row == taps[0] for row in taps):
        y = jnp.expand_dims(_weighted_sum([(piece(start), w) for start, w in taps[0]]), axis + 1)
        y = jnp.broadcast_to(y, (*y.shape[: axis + 1], count, *y.shape[axis + 2 :]))
    else:
        y = jnp.stack([_weighted_sum([(piece(start), w) for start, w in row]) for row in taps], axis + 1)
    y = lax.reshape(y, (*y.shape[:axis], blocks * count, *y.shape[axis + 2 :]))
    return y if y.shape[axis] == p.length else lax.slice_in_dim(y, 0, p.length, axis=axis)


def _weighted_sum(parts: list[tuple[Any, Any]]) -> Any:
    """Σ weight · part; weights broadcast. A part of weight 1 is not multiplied, so it may have any type if alone."""
    total: Any = None
    for part, weight in parts:
        term = part if np.all(np.equal(weight, 1)) else part * np.asarray(weight).astype(part.dtype)
        total = term if total is None else total + term
    return total


def _gathered(x: Any, p: Resized, elements: np.ndarray, weights: np.ndarray) -> Any:
    if isinstance(x, np.ndarray):
        return np.take(x, elements[:, 0], axis=p.axis)
    if elements.shape[1] > 4:
        matrix = np.zeros((p.length, p.size))
        np.add.at(matrix, (np.arange(p.length)[:, None], elements), weights)
        product = jnp.tensordot(x, matrix.astype(x.dtype), ((p.axis,), (1,)), precision=lax.Precision.HIGHEST)
        return jnp.moveaxis(product, -1, p.axis)
    column = [-1 if axis == p.axis else 1 for axis in range(x.ndim)]
    slices = [jnp.take(x, elements[:, j].astype(np.int32), axis=p.axis, mode="clip") for j in range(elements.shape[1])]
    return _weighted_sum([(part, weights[:, j].reshape(column)) for j, part in enumerate(slices)])
