"""Arrays with room for more elements than a symbolic size says, and operations that run on them as they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.compiler.primitives import sizes_of, symbolic_axes
from jaxops.static import Dim, evaluated, is_symbolic, size_as_value


@dataclass(frozen=True)
class Room:
    """true: symbol → its size, traced. largest: symbol → the most it can be. wider: sizes with more room than that."""

    true: Mapping[str, Any]
    largest: Mapping[str, int]
    wider: Mapping[Dim, int]

    def of(self, dim: Dim) -> int:
        """Returns the number of elements that an axis of this size has room for."""
        if isinstance(dim, int):
            return dim
        return self.wider.get(dim) or evaluated(dim, self.largest)

    def shape(self, sizes: Sequence[Dim]) -> tuple[int, ...]:
        """The shape of a padded array."""
        return tuple(map(self.of, sizes))

    def value(self, dim: Dim) -> Any:
        """The true size, as the program sees it."""
        return size_as_value(dim, self.true)

    def count(self, dim: Dim) -> Any:
        """The true size as an int32, to compare places with."""
        return jnp.asarray(dim if isinstance(dim, int) else size_as_value(dim, self.true), np.int32)


@dataclass(frozen=True)
class Padded:
    """A value of symbolic sizes: its array, and whether all surplus elements are zero."""

    array: Any
    zeroed: bool = False

    def only_true(self, sizes: Sequence[Dim], axes: set[int], fill: Any, room: Room) -> Any:
        """The array with `fill` for what is surplus along these axes. sizes: the true ones."""
        if self.zeroed and not np.any(fill):
            return self.array
        found = self.array
        for axis in sorted(axes & symbolic_axes(sizes)):
            found = jnp.where(places(found, axis) < room.count(sizes[axis]), found, jnp.asarray(fill, found.dtype))
        return found


def bound(eqn: Any, arrays: list[Any], room: Room, zeroed: bool = False) -> list[Padded]:
    """Runs an operation on padded arrays as it is, with room for sizes among its parameters."""
    params = {key: _roomy(value, room) for key, value in eqn.params.items()}
    found = eqn.primitive.bind(*arrays, **params)
    found = found if eqn.primitive.multiple_results else [found]
    exact = [not symbolic_axes(sizes_of(v)) for v in eqn.outvars]
    return [Padded(x, zeroed or all_true) for x, all_true in zip(found, exact, strict=True)]


def _roomy(value: Any, room: Room) -> Any:
    if type(value) is tuple:
        return tuple(_roomy(item, room) for item in value)
    return room.of(value) if is_symbolic(value) else value


def places(x: Any, axis: int) -> Any:
    """0, 1, … along an axis, of size 1 along the others."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    return lax.broadcasted_iota(np.int32, shape, axis)
