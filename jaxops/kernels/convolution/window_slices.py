"""Slices padded data by the taps of windows, and moves channels to the first or last axis."""

import dataclasses
import itertools
from typing import Any

import jax
from jax import lax

from jaxops.shapes.nn.windows import Windows


def zero_padded(x: jax.Array, windows: Windows) -> jax.Array:
    """Returns the data padded with zeros."""
    return padded(x, windows, x.dtype.type(0))[0]


def padded(x: jax.Array, windows: Windows, value: Any) -> tuple[jax.Array, Windows]:
    """Returns the data padded with a value, and the windows over the padded data."""
    if all(p == 0 for pair in windows.pads for p in pair):
        return x, windows
    y = lax.pad(x, value, [(0, 0, 0)] * 2 + [(lo, hi, 0) for lo, hi in windows.pads])
    return y, dataclasses.replace(windows, pads=((0, 0),) * len(windows.pads))


def shifted(x: jax.Array, tap: tuple[int, ...], windows: Windows) -> jax.Array:
    """Returns the element `tap` of every window: (…, o1, …, on) of padded data (…, d1, …, dn)."""
    lead = x.ndim - len(tap)
    first, last = bounds(tap, windows)
    return lax.slice(x, [0] * lead + first, [*x.shape[:lead], *last], [1] * lead + list(windows.strides))


def bounds(tap: tuple[int, ...], windows: Windows) -> tuple[list[Any], list[Any]]:
    """Returns, for each spatial axis, the start and the end of the slice with the element `tap` of every window."""
    first = [i * d for i, d in zip(tap, windows.dilations, strict=True)]
    return first, [f + (o - 1) * s + 1 for f, o, s in zip(first, windows.sizes, windows.strides, strict=True)]


def positions(windows: Windows) -> Any:
    """Yields the taps of a window: the index of each of its elements."""
    return itertools.product(*map(range, windows.kernel))


def channels_first(rank: int) -> lax.ConvDimensionNumbers:
    """Returns dimension numbers with batch and channels first, for data, filters and result."""
    order = tuple(range(rank))
    return lax.ConvDimensionNumbers(order, order, order)


def to_channels_last(x: jax.Array) -> jax.Array:
    """Moves the channels: (N, C, d1, …, dn) → (N, d1, …, dn, C)."""
    return lax.transpose(x, (0, *range(2, x.ndim), 1))


def to_channels_first(y: jax.Array) -> jax.Array:
    """Moves the channels: (N, d1, …, dn, C) → (N, C, d1, …, dn)."""
    return lax.transpose(y, (0, y.ndim - 1, *range(1, y.ndim - 1)))


def stacked(parts: list[jax.Array], axis: int) -> jax.Array:
    """Stacks arrays of one shape along a new axis. XLA:CPU fuses this with the loops around it if the new axis is not
    the last one; along the last axis it copies."""
    return lax.concatenate([lax.expand_dims(x, (axis,)) for x in parts], axis)
