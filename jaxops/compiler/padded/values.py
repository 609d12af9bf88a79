"""Padded arrays: a padded array has room for more elements than its symbolic size. Also runs operations on them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.compiler.primitives import sizes_of, symbolic_axes
from jaxops.errors import UnsupportedError, symbols_in
from jaxops.jax_internals import evaluated, get_opaque_trace_state, size_as_value
from jaxops.static import Dim, Sizes, is_symbolic


@dataclass(frozen=True)
class Capacity:
    """For each symbolic size, the number of elements that its axis has room for, and the true size.

    sizes: symbol → its true size, traced. largest: symbol → its largest value. reserved: size → its room, for a size
    that gets more room than `largest` implies. outer: symbols of a program around this one, such as an export, which
    are their own true size and their own largest value. differentiable: whether JAX may differentiate the run, so that
    surplus elements may not affect derivatives either.
    """

    sizes: Mapping[str, Any]
    largest: Mapping[str, int]
    reserved: Mapping[Dim, int]
    outer: frozenset[str] = frozenset()
    differentiable: bool = False
    _true_sizes: dict[Dim, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, dim: Dim) -> int:
        """Returns the number of elements that an axis of this size has room for."""
        if isinstance(dim, int):
            return dim
        return self.reserved.get(dim) or evaluated(dim, self.largest)

    def true_size(self, dim: Dim) -> Any:
        """Returns the true size: an integer or a traced value."""
        # Computing the value is slow (for each traced size JAX compares it with 1 and formats an error message), so it
        # is kept. It may be used only in the trace that made it.
        state, (before, value) = get_opaque_trace_state(), self._true_sizes.get(dim, (None, None))
        if state != before:
            if not self.knows(dim):
                raise UnsupportedError("the number of true elements is not known outside of the loop that makes them")
            value = size_as_value(dim, self.sizes)
            self._true_sizes[dim] = state, value
        return value

    def varies(self, dim: Dim) -> bool:
        """Returns True if an axis of this size may have surplus elements."""
        return is_symbolic(dim) and not (self.outer and self.outer.issuperset(symbols_in(dim)))

    def knows(self, dim: Dim) -> bool:
        """Returns True if the true size is known."""
        return all(symbol in self.sizes for symbol in symbols_in(dim))

    def learn(self, symbol: str, size: Any) -> None:
        """Sets the true size of a symbol, which an operation of the program has computed."""
        self._true_sizes.clear()
        cast(dict[str, Any], self.sizes)[symbol] = size

    def count(self, dim: Dim) -> Any:
        """Returns the true size as an int32, for comparisons with positions."""
        return jnp.asarray(dim if isinstance(dim, int) else self.true_size(dim), np.int32)


@dataclass(frozen=True)
class Padded:
    """A value of symbolic sizes: its array, and whether all surplus elements are zero."""

    array: Any
    zeroed: bool = False

    def masked(self, sizes: Sizes, axes: set[int], fill: Any, capacity: Capacity) -> Any:
        """Returns the array with `fill` in place of elements that are surplus along these axes. sizes: true sizes."""
        if self.zeroed and not np.any(fill):
            return self.array
        array = self.array
        for axis in sorted(axes & symbolic_axes(sizes)):
            is_true = positions(array, axis) < capacity.count(sizes[axis])
            array = jnp.where(is_true, array, jnp.asarray(fill, array.dtype))
        return array


def guarded(x: Padded, sizes: Sizes, capacity: Capacity) -> Padded:
    """Returns a value whose surplus elements get no derivative: that of 1/x at a surplus zero, say, is infinite."""
    if not jnp.issubdtype(x.array.dtype, np.inexact):
        return x
    array, without = x.array, lax.stop_gradient(x.array)
    for axis in sorted(axis for axis in symbolic_axes(sizes) if capacity.knows(sizes[axis])):
        is_true = positions(array, axis) < capacity.count(sizes[axis])
        array = jnp.where(is_true, array, without)
    return Padded(array, x.zeroed)


def bind(eqn: Any, arrays: Sequence[Any], capacity: Capacity, zeroed: bool = False, **changed: Any) -> list[Padded]:
    """Runs an operation on padded arrays, with padded sizes in its parameters. changed: parameters to replace."""
    params = {key: _with_room(value, capacity) for key, value in {**eqn.params, **changed}.items()}
    results = eqn.primitive.bind(*arrays, **params)
    results = results if eqn.primitive.multiple_results else [results]
    return [Padded(y, zeroed or not symbolic_axes(sizes_of(v))) for y, v in zip(results, eqn.outvars, strict=True)]


def _with_room(value: Any, capacity: Capacity) -> Any:
    if type(value) is tuple:
        return tuple(_with_room(item, capacity) for item in value)
    return capacity.of(value) if is_symbolic(value) else value


def positions(x: Any, axis: int) -> Any:
    """Returns 0, 1, … along an axis; all other axes have size 1."""
    return lax.broadcasted_iota(np.int32, [size if k == axis else 1 for k, size in enumerate(x.shape)], axis)
