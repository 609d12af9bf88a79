"""Values that are held back: transposes, reshapes and broadcasts that no operation has needed yet."""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import lax

from jaxops.static import Sizes

Perm = tuple[int, ...]


class _Held:
    """What has a shape as arrays have it."""

    @property
    def ndim(self: Any) -> int:
        """The number of its axes."""
        return len(self.shape)


@dataclass(frozen=True)
class Moved(_Held):
    """The value `lax.transpose(array, perm)`."""

    array: Any
    perm: Perm

    @property
    def shape(self) -> Sizes:
        """Its sizes."""
        return tuple(self.array.shape[axis] for axis in self.perm)


@dataclass(frozen=True)
class Reshaped(_Held):
    """The value `lax.reshape(lax.transpose(array, perm), shape)` of a moved one. Their axes are those of `shared`."""

    moved: Moved
    shape: Sizes


@dataclass(frozen=True)
class Spread(_Held):
    """The value `lax.broadcast_in_dim(array, shape, axes)`: a bias, say, in whatever layout its neighbour has."""

    array: Any
    shape: Sizes
    axes: tuple[int, ...]

    def like(self, perm: Perm) -> Any:
        """The array that, transposed by `perm`, is the value."""
        places = [perm[axis] for axis in self.axes]
        order = sorted(range(len(places)), key=places.__getitem__)
        array = self.array if order == list(range(len(order))) else lax.transpose(self.array, order)
        shape = tuple(self.shape[axis] for axis in inverse(perm))
        return lax.broadcast_in_dim(array, shape, sorted(places))


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes it."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def settled(value: Any) -> Any:
    """The value as an array."""
    value = as_moved(value)
    if isinstance(value, Spread):
        return lax.broadcast_in_dim(value.array, value.shape, value.axes)
    if isinstance(value, Reshaped):
        return lax.reshape(settled(value.moved), value.shape)
    return lax.transpose(value.array, value.perm) if isinstance(value, Moved) else value


def as_moved(value: Any) -> Any:
    """A reshaped value as a transposed array of other sizes, if what makes an axis lies side by side in the array."""
    if not isinstance(value, Reshaped):
        return value
    perm, pieces = value.moved.perm, shared(value.moved.shape, value.shape) or []
    order = sorted(range(len(pieces)), key=lambda k: (perm[pieces[k].old], k))
    places = inverse(tuple(order))
    for k, (piece, following) in enumerate(itertools.pairwise(pieces)):
        if piece.new == following.new and places[k + 1] != places[k] + 1:
            return value
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    axes = [*ones, *dict.fromkeys(pieces[k].new for k in order)]
    return Moved(lax.reshape(value.moved.array, [value.shape[axis] for axis in axes]), inverse(tuple(axes)))


class Piece(NamedTuple):
    """What an axis of one shape, and one of another that has the same elements, have in common."""

    size: int
    old: int
    new: int


def shared(old: Sizes, new: Sizes) -> list[Piece] | None:
    """The pieces, in order, of which the axes of two shapes consist, each of both. None where there are none.

    Axes of size 1 consist of nothing. (2, 12, 5) and (2, 3, 20) share pieces of 2, 3, 4 and 5 elements.
    """
    if not all(isinstance(size, int) and size for size in (*old, *new)):
        return None
    left, right = ([[size, axis] for axis, size in enumerate(shape) if size > 1] for shape in (old, new))
    pieces = []
    while left and right:
        (a, old_axis), (b, new_axis) = left[0], right[0]
        size = min(a, b)
        if max(a, b) % size:
            return None
        pieces.append(Piece(size, old_axis, new_axis))
        for rest in (left, right):
            rest[0][0] //= size
            if rest[0][0] == 1:
                rest.pop(0)
    return pieces


def reshaped(value: Any, shape: Sizes) -> Any:
    """The value with other sizes; held back where it was, if the shapes share pieces."""
    if isinstance(value, Reshaped):
        value = value.moved
    if tuple(getattr(value, "shape", ())) == shape:
        return value
    pieces = shared(value.shape, shape) if isinstance(value, Moved | Spread) else None
    if pieces is None:
        return lax.reshape(settled(value), shape)
    return Reshaped(value, shape) if isinstance(value, Moved) else _spread(value, shape, pieces)


def _spread(value: Spread, shape: Sizes, pieces: list[Piece]) -> Spread:
    """A broadcast with other sizes. Where only a part of an axis varies, the array gets a number for each place of it.

    XLA is kept from computing which of a few numbers a place has, which takes longer than to read that of the place.
    """
    sizes = zip(value.axes, value.array.shape, strict=True)
    varies = {axis for axis, size in sizes if size > 1}
    kept = sorted({piece.new for piece in pieces if piece.old in varies})
    parts = [piece for piece in pieces if piece.new in kept]
    own = [k for k, piece in enumerate(parts) if piece.old in varies]
    array = lax.reshape(value.array, [parts[k].size for k in own])
    if len(own) < len(parts):
        array = lax.broadcast_in_dim(array, [piece.size for piece in parts], own)
        array = lax.optimization_barrier(lax.reshape(array, [shape[axis] for axis in kept]))
    return Spread(lax.reshape(array, [shape[axis] for axis in kept]), shape, tuple(kept))
