"""Resizing of an axis whose sizes are symbolic: coordinates and filter weights are computed when the program runs."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.xla_workarounds import quotient
from jaxops.shapes.arithmetic import ceiled, larger
from jaxops.shapes.tensor.resizing import Resized
from jaxops.static import Dim


def sampled(x: Any, p: Resized, how: Any) -> Any:
    """Resizes the axis of `x` that `p` describes to its new size. how: the attributes, a `Sampling`."""
    coordinates, size = _coordinates(p, how.coordinates), jnp.asarray(p.size, np.int32)
    if how.mode == "nearest":
        rounding = {
            "round_prefer_floor": lambda: jnp.ceil(coordinates - 0.5),
            "round_prefer_ceil": lambda: jnp.floor(coordinates + 0.5),
            "floor": lambda: jnp.floor(coordinates),
            "ceil": lambda: jnp.ceil(coordinates),
        }
        return _taken(x, rounding[how.nearest]().astype(np.int32), size, p.axis)
    reach = 1 if how.mode == "linear" else 2
    if how.antialias:
        return _by_matrix(x, p, how, coordinates, reach)
    first = jnp.floor(coordinates)
    taps = []
    for j in range(1 - reach, 1 + reach):
        distance = jnp.abs(j - (coordinates - first))
        weight = jnp.maximum(1 - distance, 0) if reach == 1 else cubic(distance, how.cubic_coeff_a)
        index = first.astype(np.int32) + j
        if how.exclude_outside:
            weight = jnp.where((index < 0) | (index >= size), 0, weight)
        taps.append((index, weight))
    total: Any = sum(weight for _, weight in taps) if how.exclude_outside else 1
    column = [-1 if axis == p.axis else 1 for axis in range(x.ndim)]
    terms = [_taken(x, i, size, p.axis) * (w / total).astype(x.dtype).reshape(column) for i, w in taps]
    return sum(terms[1:], terms[0])


def _by_matrix(x: Any, p: Resized, how: Any, coordinates: Any, reach: int) -> Any:
    """As `sampled`, with antialiasing: a smaller result has wider filters, whose reach follows from the sizes."""
    if p.scale is None:
        span = larger(ceiled(reach * p.size, p.length), reach)
        narrow = jnp.minimum(_single(p.length) / _single(p.size), 1)
    else:
        narrow = min(float(p.scale), 1.0)
        span = -math.floor(-reach / narrow)
    first = jnp.floor(coordinates)
    step = lax.iota(np.int32, 2 * span) - jnp.asarray(span - 1, np.int32)
    distance = jnp.abs(step.astype(np.float32)[None] - (coordinates - first)[:, None]) * narrow
    weights = jnp.maximum(1 - distance, 0) if reach == 1 else cubic(distance, how.cubic_coeff_a)
    indices = first.astype(np.int32)[:, None] + step[None]
    last = jnp.asarray(p.size, np.int32) - 1
    if how.exclude_outside:
        weights = jnp.where((indices < 0) | (indices > last), 0, weights)
    weights /= weights.sum(1, keepdims=True)
    rows = lax.broadcasted_iota(np.int32, indices.shape, 0)
    matrix = jnp.zeros((p.length, p.size), np.float32).at[rows, jnp.clip(indices, 0, last)].add(weights)
    product = jnp.tensordot(x, matrix.astype(x.dtype), ((p.axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, p.axis)


def outside(p: Resized) -> Any:
    """True for each coordinate of 'tf_crop_and_resize' that lies outside the data."""
    coordinates = _coordinates(p, "tf_crop_and_resize")
    return (coordinates < 0) | (coordinates > _single(p.size) - 1)


def _single(size: Dim) -> Any:
    return jnp.asarray(size, np.int32).astype(np.float32)


def _coordinates(p: Resized, mode: str) -> Any:
    """The coordinate in the data of each element of the result, in float32."""
    index, size, count = lax.iota(np.float32, p.length), _single(p.size), _single(p.length)
    # length_resized of the text is scale · length_original, which may be fractional.
    length = jnp.broadcast_to(count if p.scale is None else np.float32(p.scale) * size, index.shape)
    if mode == "tf_crop_and_resize":
        start, end = map(np.float32, p.roi)
        coordinates = start * (size - 1) + quotient(index * (end - start) * (size - 1), jnp.maximum(length - 1, 1))
        return jnp.where(count == 1, (start + end) * (size - 1) / 2, coordinates)
    if mode == "align_corners":
        return quotient(index * (size - 1), jnp.maximum(length - 1, 1))
    if mode == "asymmetric":
        return quotient(index * size, length)
    if mode == "tf_half_pixel_for_nn":
        return quotient((index + 0.5) * size, length)
    coordinates = quotient((index + 0.5) * size, length) - 0.5
    if mode == "half_pixel_symmetric":
        return coordinates + size / 2 * (1 - count / length)
    return jnp.where(count == 1, 0, coordinates) if mode == "pytorch_half_pixel" else coordinates


def _taken(x: Any, indices: Any, size: Any, axis: int) -> Any:
    """The elements at these indices; an index outside means the nearest edge."""
    return jnp.take(x, jnp.clip(indices, 0, size - 1), axis=axis, mode="clip")


def cubic(distance: Any, a: float) -> Any:
    """Returns the weights of a cubic filter at these distances from its centre; those of a NumPy array by NumPy."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    where = np.where if isinstance(distance, np.ndarray) else jnp.where
    return where(distance <= 1, near, where(distance < 2, far, 0))
