"""Lazy values: transposes, reshapes and broadcasts that are not computed until an operation needs the array."""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import lax

from jaxops.static import Sizes

Perm = tuple[int, ...]


class _Lazy:
    """Base of lazy values: has `ndim`, as arrays have."""

    @property
    def ndim(self: Any) -> int:
        """The number of axes."""
        return len(self.shape)


@dataclass(frozen=True)
class LazyTranspose(_Lazy):
    """The value `lax.transpose(array, perm)`."""

    array: Any
    perm: Perm

    @property
    def shape(self) -> Sizes:
        """The sizes."""
        return tuple(self.array.shape[axis] for axis in self.perm)


@dataclass(frozen=True)
class LazyReshape(_Lazy):
    """The value `lax.reshape(lax.transpose(array, perm), shape)`. The shapes before and after the reshape have
    `shared_factors`."""

    transposed: LazyTranspose
    shape: Sizes


@dataclass(frozen=True)
class LazyBroadcast(_Lazy):
    """The value `lax.broadcast_in_dim(array, shape, axes)`: a bias, say, for which each layout costs the same."""

    array: Any
    shape: Sizes
    axes: tuple[int, ...]

    def like(self, perm: Perm) -> Any:
        """Returns the array whose transpose by `perm` is the value."""
        axes = [perm[axis] for axis in self.axes]
        order = sorted(range(len(axes)), key=axes.__getitem__)
        array = self.array if order == list(range(len(order))) else lax.transpose(self.array, order)
        shape = tuple(self.shape[axis] for axis in inverse(perm))
        return lax.broadcast_in_dim(array, shape, sorted(axes))


def inverse(perm: Perm) -> Perm:
    """Returns the permutation that undoes another one."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def materialize(value: Any) -> Any:
    """Returns a value as an array."""
    value = as_transpose(value)
    if isinstance(value, LazyBroadcast):
        return lax.broadcast_in_dim(value.array, value.shape, value.axes)
    if isinstance(value, LazyReshape):
        return lax.reshape(materialize(value.transposed), value.shape)
    return lax.transpose(value.array, value.perm) if isinstance(value, LazyTranspose) else value


def as_transpose(value: Any) -> Any:
    """Returns a lazy reshape as a lazy transpose of a reshaped array, if the factors of each new axis are adjacent in
    the array; any other value as it is."""
    if not isinstance(value, LazyReshape):
        return value
    perm, factors = value.transposed.perm, shared_factors(value.transposed.shape, value.shape) or []
    order = sorted(range(len(factors)), key=lambda k: (perm[factors[k].old], k))
    positions = inverse(tuple(order))
    for k, (factor, following) in enumerate(itertools.pairwise(factors)):
        if factor.new == following.new and positions[k + 1] != positions[k] + 1:
            return value
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    axes = [*ones, *dict.fromkeys(factors[k].new for k in order)]
    return LazyTranspose(
        lax.reshape(value.transposed.array, [value.shape[axis] for axis in axes]), inverse(tuple(axes))
    )


class Factor(NamedTuple):
    """A common factor of an axis of one shape and an axis of another shape with as many elements.

    old, new: the two axes.
    """

    size: int
    old: int
    new: int


def shared_factors(old: Sizes, new: Sizes) -> list[Factor] | None:
    """Returns factors, in order, whose products are the sizes of the axes of both shapes; None if there are none.

    Axes of size 1 have no factor. (2, 12, 5) and (2, 3, 20) share factors of 2, 3, 4 and 5 elements.
    """
    if not all(isinstance(size, int) and size for size in (*old, *new)):
        return None
    left, right = ([[size, axis] for axis, size in enumerate(shape) if size > 1] for shape in (old, new))
    factors = []
    while left and right:
        (a, old_axis), (b, new_axis) = left[0], right[0]
        size = min(a, b)
        if max(a, b) % size:
            return None
        factors.append(Factor(size, old_axis, new_axis))
        for axes in (left, right):
            axes[0][0] //= size
            if axes[0][0] == 1:
                axes.pop(0)
    return factors


def reshape(value: Any, shape: Sizes) -> Any:
    """Reshapes a value; a lazy one stays lazy if the two shapes share factors."""
    if isinstance(value, LazyReshape):
        value = value.transposed
    if tuple(getattr(value, "shape", ())) == shape:
        return value
    factors = shared_factors(value.shape, shape) if isinstance(value, LazyTranspose | LazyBroadcast) else None
    if factors is None:
        return lax.reshape(materialize(value), shape)
    return LazyReshape(value, shape) if isinstance(value, LazyTranspose) else _reshape_broadcast(value, shape, factors)


def _reshape_broadcast(value: LazyBroadcast, shape: Sizes, factors: list[Factor]) -> LazyBroadcast:
    """Reshapes a lazy broadcast. If elements differ along a part of a new axis only, the array is repeated along the
    complete axis.

    A barrier keeps XLA from fusing this repetition into loops, which would compute the index of each element: reading
    the repeated array is faster.
    """
    sizes = zip(value.axes, value.array.shape, strict=True)
    varies = {axis for axis, size in sizes if size > 1}
    axes = sorted({factor.new for factor in factors if factor.old in varies})
    parts = [factor for factor in factors if factor.new in axes]
    varying = [k for k, factor in enumerate(parts) if factor.old in varies]
    array = lax.reshape(value.array, [parts[k].size for k in varying])
    if len(varying) < len(parts):
        array = lax.broadcast_in_dim(array, [factor.size for factor in parts], varying)
        array = lax.optimization_barrier(lax.reshape(array, [shape[axis] for axis in axes]))
    return LazyBroadcast(lax.reshape(array, [shape[axis] for axis in axes]), shape, tuple(axes))
