"""Lazy values: transposes, reshapes and broadcasts that no operation has needed yet."""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import lax

from jaxops.static import Sizes

Perm = tuple[int, ...]


class _Lazy:
    """Has a rank as arrays have it."""

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
    """The value `lax.reshape(lax.transpose(array, perm), shape)` of a lazy transpose. Both shapes consist of
    `shared_pieces`."""

    transposed: LazyTranspose
    shape: Sizes


@dataclass(frozen=True)
class LazyBroadcast(_Lazy):
    """The value `lax.broadcast_in_dim(array, shape, axes)`: a bias, say, in whatever layout its neighbour has."""

    array: Any
    shape: Sizes
    axes: tuple[int, ...]

    def like(self, perm: Perm) -> Any:
        """Returns the array that, transposed by `perm`, is the value."""
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
    """Returns a lazy reshape as a lazy transpose of an array of other sizes, if the pieces of each axis lie side by
    side in the array; any other value as it is."""
    if not isinstance(value, LazyReshape):
        return value
    perm, pieces = value.transposed.perm, shared_pieces(value.transposed.shape, value.shape) or []
    order = sorted(range(len(pieces)), key=lambda k: (perm[pieces[k].old], k))
    positions = inverse(tuple(order))
    for k, (piece, following) in enumerate(itertools.pairwise(pieces)):
        if piece.new == following.new and positions[k + 1] != positions[k] + 1:
            return value
    ones = [axis for axis, size in enumerate(value.shape) if size == 1]
    axes = [*ones, *dict.fromkeys(pieces[k].new for k in order)]
    return LazyTranspose(
        lax.reshape(value.transposed.array, [value.shape[axis] for axis in axes]), inverse(tuple(axes))
    )


class Piece(NamedTuple):
    """The part that an axis of one shape, and one of another shape of as many elements, have in common."""

    size: int
    old: int
    new: int


def shared_pieces(old: Sizes, new: Sizes) -> list[Piece] | None:
    """Returns the pieces, in order, of which the axes of both shapes consist; None where no such pieces exist.

    Axes of size 1 have no piece. (2, 12, 5) and (2, 3, 20) share pieces of 2, 3, 4 and 5 elements.
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
        for axes in (left, right):
            axes[0][0] //= size
            if axes[0][0] == 1:
                axes.pop(0)
    return pieces


def reshape(value: Any, shape: Sizes) -> Any:
    """Returns a value with other sizes; a lazy one stays lazy if the shapes share pieces."""
    if isinstance(value, LazyReshape):
        value = value.transposed
    if tuple(getattr(value, "shape", ())) == shape:
        return value
    pieces = shared_pieces(value.shape, shape) if isinstance(value, LazyTranspose | LazyBroadcast) else None
    if pieces is None:
        return lax.reshape(materialize(value), shape)
    return LazyReshape(value, shape) if isinstance(value, LazyTranspose) else _reshape_broadcast(value, shape, pieces)


def _reshape_broadcast(value: LazyBroadcast, shape: Sizes, pieces: list[Piece]) -> LazyBroadcast:
    """Returns a lazy broadcast with other sizes. Where only a part of an axis varies, the array gets an element for
    each position on that axis.

    A barrier keeps XLA from computing which of a few elements a position has: to read the element is faster.
    """
    sizes = zip(value.axes, value.array.shape, strict=True)
    varies = {axis for axis, size in sizes if size > 1}
    axes = sorted({piece.new for piece in pieces if piece.old in varies})
    parts = [piece for piece in pieces if piece.new in axes]
    varying = [k for k, piece in enumerate(parts) if piece.old in varies]
    array = lax.reshape(value.array, [parts[k].size for k in varying])
    if len(varying) < len(parts):
        array = lax.broadcast_in_dim(array, [piece.size for piece in parts], varying)
        array = lax.optimization_barrier(lax.reshape(array, [shape[axis] for axis in axes]))
    return LazyBroadcast(lax.reshape(array, [shape[axis] for axis in axes]), shape, tuple(axes))
