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
    """The axis at its new size. how: the attributes, a `Sampling`."""
    at, size = _coordinates(p, how.coordinates), jnp.asarray(p.size, np.int32)
    if how.mode == "nearest":
        rounding = {
            "round_prefer_floor": lambda: jnp.ceil(at - 0.5),
            "round_prefer_ceil": lambda: jnp.floor(at + 0.5),
            "floor": lambda: jnp.floor(at),
            "ceil": lambda: jnp.ceil(at),
        }
        return _taken(x, rounding[how.nearest]().astype(np.int32), size, p.axis)
    reach = 1 if how.mode == "linear" else 2
    if how.antialias:
        return _by_matrix(x, p, how, at, reach)
    first = jnp.floor(at)
    taps = []
    for j in range(1 - reach, 1 + reach):
        distance = jnp.abs(j - (at - first))
        weight = jnp.maximum(1 - distance, 0) if reach == 1 else _cubic(distance, how.cubic_coeff_a)
        place = first.astype(np.int32) + j
        if how.exclude_outside:
            weight = jnp.where((place < 0) | (place >= size), 0, weight)
        taps.append((place, weight))
    total: Any = sum(weight for _, weight in taps) if how.exclude_outside else 1
    column = [-1 if axis == p.axis else 1 for axis in range(x.ndim)]
    terms = [_taken(x, i, size, p.axis) * (w / total).astype(x.dtype).reshape(column) for i, w in taps]
    return sum(terms[1:], terms[0])


def _by_matrix(x: Any, p: Resized, how: Any, at: Any, reach: int) -> Any:
    """As `sampled`, by filters that are wider for a smaller result: from the sizes follows how far they reach."""
    if p.scale is None:
        span = larger(ceiled(reach * p.size, p.length), reach)
        narrow = jnp.minimum(_single(p.length) / _single(p.size), 1)
    else:
        narrow = min(float(p.scale), 1.0)
        span = -math.floor(-reach / narrow)
    first = jnp.floor(at)
    step = lax.iota(np.int32, 2 * span) - jnp.asarray(span - 1, np.int32)
    distance = jnp.abs(step.astype(np.float32)[None] - (at - first)[:, None]) * narrow
    weights = jnp.maximum(1 - distance, 0) if reach == 1 else _cubic(distance, how.cubic_coeff_a)
    places = first.astype(np.int32)[:, None] + step[None]
    last = jnp.asarray(p.size, np.int32) - 1
    if how.exclude_outside:
        weights = jnp.where((places < 0) | (places > last), 0, weights)
    weights /= weights.sum(1, keepdims=True)
    rows = lax.broadcasted_iota(np.int32, places.shape, 0)
    matrix = jnp.zeros((p.length, p.size), np.float32).at[rows, jnp.clip(places, 0, last)].add(weights)
    product = jnp.tensordot(x, matrix.astype(x.dtype), ((p.axis,), (1,)), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(product, -1, p.axis)


def outside(p: Resized) -> Any:
    """Where the coordinate of 'tf_crop_and_resize' lies outside the data."""
    at = _coordinates(p, "tf_crop_and_resize")
    return (at < 0) | (at > _single(p.size) - 1)


def _single(size: Dim) -> Any:
    return jnp.asarray(size, np.int32).astype(np.float32)


def _coordinates(p: Resized, mode: str) -> Any:
    """The coordinate in the data of each element of the result, in float32."""
    at, size, count = lax.iota(np.float32, p.length), _single(p.size), _single(p.length)
    # length_resized of the text is scale · length_original, which may be fractional.
    length = jnp.broadcast_to(count if p.scale is None else np.float32(p.scale) * size, at.shape)
    if mode == "tf_crop_and_resize":
        start, end = map(np.float32, p.roi)
        found = start * (size - 1) + quotient(at * (end - start) * (size - 1), jnp.maximum(length - 1, 1))
        return jnp.where(count == 1, (start + end) * (size - 1) / 2, found)
    if mode == "align_corners":
        return quotient(at * (size - 1), jnp.maximum(length - 1, 1))
    if mode == "asymmetric":
        return quotient(at * size, length)
    if mode == "tf_half_pixel_for_nn":
        return quotient((at + 0.5) * size, length)
    found = quotient((at + 0.5) * size, length) - 0.5
    if mode == "half_pixel_symmetric":
        return found + size / 2 * (1 - count / length)
    return jnp.where(count == 1, 0, found) if mode == "pytorch_half_pixel" else found


def _taken(x: Any, places: Any, size: Any, axis: int) -> Any:
    """The elements at these places; a place outside means the nearest edge."""
    return jnp.take(x, jnp.clip(places, 0, size - 1), axis=axis, mode="clip")


def _cubic(distance: Any, a: float) -> Any:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return jnp.where(distance <= 1, near, jnp.where(distance < 2, far, 0))
