"""The indices and weights with which OpenVINO's Interpolate resizes an axis, in float32 as OpenVINO computes them.

Where the sizes are numbers, NumPy computes them while tracing. Where one is symbolic, the program does when it runs.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.xla_workarounds import quotient
from jaxops.memory import bounded
from jaxops.static import Dim

Coordinates: TypeAlias = Literal[
    "half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"
]
Nearest: TypeAlias = Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"]
_HALF = np.float32(0.5)


class Sampling(NamedTuple):
    """The attributes that say how an axis is sampled."""

    mode: str
    coordinates: Coordinates
    nearest: Nearest
    antialias: bool
    cube_coeff: float


class ResizedAxis(NamedTuple):
    """An axis, its size, and its new size `length`. scale: of coordinates; None means length / size at run time."""

    axis: int
    size: Dim
    length: Dim
    scale: Any

    @property
    def is_known(self) -> bool:
        """True if both sizes are numbers."""
        return isinstance(self.size, int) and isinstance(self.length, int)

    @property
    def _namespace(self) -> Any:
        return np if self.is_known else jnp

    def _range(self, size: Dim) -> Any:
        return np.arange(size, dtype=np.float32) if self.is_known else lax.iota(np.float32, size)

    def _single(self, size: Dim) -> Any:
        return np.float32(size) if self.is_known else jnp.asarray(size, np.int32).astype(np.float32)

    def _divided(self, x: Any, divisor: Any) -> Any:
        return x / divisor if self.is_known else quotient(x, jnp.broadcast_to(divisor, x.shape))

    def _ratio(self) -> Any:
        return self._divided(self._single(self.length), self._single(self.size)) if self.scale is None else self.scale

    def _places(self, how: Sampling) -> Any:
        """For each element of the result, its coordinate in the data."""
        xp, x, scale = self._namespace, self._range(self.length), self._ratio()
        if how.coordinates == "align_corners":
            last, count = self._single(self.size) - 1, self._single(self.length)
            return self._divided(x * last, xp.maximum(count - 1, np.float32(1)))
        if how.coordinates == "asymmetric":
            return self._divided(x, scale)
        places = self._divided(x + _HALF, scale)
        if how.coordinates == "tf_half_pixel_for_nn":
            return places
        is_single = how.coordinates == "pytorch_half_pixel" and self._single(self.length) <= 1
        return xp.where(is_single, np.float32(0), places - _HALF)

    def elements(self, how: Sampling) -> Any:
        """The index of the nearest element for each one of the result."""
        bounded((self.length,), np.dtype(np.float64).itemsize, "the list of coordinates")
        xp, places = self._namespace, self._places(how)
        if how.nearest == "simple":
            chosen = xp.where(self._ratio() < 1, xp.ceil(places), xp.trunc(places))
        elif how.nearest in ("floor", "ceil"):
            chosen = xp.floor(places) if how.nearest == "floor" else xp.ceil(places)
        else:
            ties = xp.floor(places) if how.nearest == "round_prefer_floor" else xp.ceil(places)
            chosen = xp.where(places == xp.floor(places) + _HALF, ties, xp.floor(places + _HALF))
        if self.is_known:
            return np.clip(chosen.astype(np.int64), 0, self.size - 1)
        return jnp.clip(chosen.astype(np.int32), 0, jnp.asarray(self.size, np.int32) - 1)

    def weights(self, how: Sampling, shrinks: Any) -> Any:
        """The weight of each element of the data in each element of the result: a matrix (length, size).

        shrinks: see `some_axis_shrinks`.
        """
        bounded((self.length, self.size), np.dtype(np.float64).itemsize, "the weights of its filter")
        if how.mode.endswith("pillow"):
            return self._pillow(how)
        xp, places, elements = self._namespace, self._places(how), self._range(self.size)
        if how.mode == "cubic":
            return _cubic_matrix(places, self.size, how.cube_coeff)
        if how.mode == "linear_onnx":
            places = xp.clip(places, 0, self._single(self.size) - 1)
        # Neighbours outside the data have no weight. Antialiasing applies to all axes as soon as one of them shrinks.
        width = xp.where(shrinks, self._ratio(), np.float32(1))
        weights = xp.maximum(1 - xp.abs(width * (places[:, None] - elements[None])), 0)
        total = weights.sum(1, keepdims=True)
        return weights / xp.where(total == 0, np.float32(1), total)

    def _pillow(self, how: Sampling) -> Any:
        """The filters of Pillow, whose unit is an element of the data or of the result, whichever is wider.

        In that unit, the distance between the centres of an element of the data and one of the result is a ratio of
        integers: `above / below`.
        """
        xp = self._namespace
        sizes = self.size, self.length
        size, length = sizes if self.is_known else (jnp.asarray(d, np.int32) for d in sizes)
        elements, middles = (2 * self._range(d).astype(np.int64 if self.is_known else np.int32) + 1 for d in sizes)
        above, below = (elements * length)[None] - (middles * size)[:, None], 2 * xp.maximum(size, length)
        if self.is_known:
            distances = above / below
        else:
            distances = self._divided(above.astype(np.float32), below.astype(np.float32))
        is_linear = how.mode == "bilinear_pillow"
        values = xp.maximum(1 - xp.abs(distances), 0) if is_linear else _cubic(xp, distances, how.cube_coeff)
        return (values / values.sum(1, keepdims=True)).astype(np.float32)


def some_axis_shrinks(axes: Sequence[ResizedAxis], how: Sampling) -> Any:
    """True if antialiasing applies: once an axis shrinks, each axis scales its filter by its own ratio of sizes."""
    return how.antialias and functools.reduce(operator.or_, (axis._ratio() < 1 for axis in axes))


def _cubic(xp: Any, x: Any, a: float) -> Any:
    x = xp.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return xp.where(x <= 1, near, xp.where(x < 2, far, 0))


def _cubic_matrix(places: np.ndarray, size: int, a: float) -> np.ndarray:
    """The weights of cubic interpolation, (length, size); the outermost element stands for neighbours outside."""
    weights = np.zeros((len(places), size), np.float32)
    first = np.floor(places)
    for shift in range(-1, 3):
        index = np.clip(first + shift, 0, size - 1).astype(np.int64)
        np.add.at(weights, (np.arange(len(places)), index), _cubic(np, places - first - shift, a).astype(np.float32))
    return weights
