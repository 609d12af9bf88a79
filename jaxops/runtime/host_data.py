"""Values after a cut: data and static values, both as NumPy arrays, and JAX arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_canonical, as_traced, is_string
from jaxops.errors import OutOfRangeError
from jaxops.opaque import Deferred
from jaxops.static import StaticValue, is_concrete, is_symbolic


@dataclass(frozen=True, eq=False)
class Data:
    """A NumPy array of data: an argument of a compiled piece, where a static value would be a constant."""

    value: np.ndarray


def as_data(value: Any) -> Any:
    """Returns a value whose NumPy arrays are data; arrays of strings stay static."""
    return _on_leaves(lambda x: Data(x) if isinstance(x, np.ndarray) and not is_string(x) else x, value)


def on_host(value: Any) -> Any:
    """Returns a known value as a NumPy array."""
    return _on_leaves(lambda x: x.value if isinstance(x, Data) else np.asarray(x), value)


def as_operand(value: Any) -> Any:
    """Returns a value in the form that operators take outside of `jit`: data as JAX arrays."""
    if is_concrete(value) or isinstance(value, Deferred):
        return value

    def operand(x: Any) -> Any:
        if not isinstance(x, Data):
            return as_traced(x) if is_symbolic(x) else x
        try:
            return as_traced(x.value)
        except OutOfRangeError:  # a number that only a NumPy array can hold while x64 is off
            return x.value

    return _on_leaves(operand, value)


def as_argument(value: Any) -> Any:
    """Returns a value as an argument of `jit`: a static one as `StaticValue`, and data as a NumPy array, which
    `jit` takes faster than a JAX array can be made of it.
    """
    if is_concrete(value):
        return value

    def argument(x: Any) -> Any:
        if not isinstance(x, Data):
            return as_traced(x) if is_symbolic(x) else StaticValue(x) if isinstance(x, np.ndarray) else x
        try:
            return as_canonical(x.value)
        except OutOfRangeError:
            return StaticValue(x.value)

    return _on_leaves(argument, value)


def widened(x: Any, shape: Sequence[int]) -> Any:
    """Returns an array padded with zeros to a shape."""
    if x.shape == tuple(shape):
        return x
    wider = np.zeros(shape, x.dtype)
    wider[tuple(map(slice, x.shape))] = x
    return wider


def leaves_of(value: Any) -> list[Any]:
    """Returns the arrays of a value."""
    return [value] if _is_leaf(value) else jax.tree.leaves(value)


def _is_leaf(value: Any) -> bool:
    """Returns True for one array, as most values are: a walk over a tree takes ten times as long as its use."""
    return type(value) in (np.ndarray, Data) or is_concrete(value)


def _on_leaves(fn: Callable[[Any], Any], value: Any) -> Any:
    return fn(value) if _is_leaf(value) else jax.tree.map(fn, value)
