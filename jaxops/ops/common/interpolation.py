"""Reads of arrays between their elements, at traced coordinates, by the taps of a filter.

Each gather reads all channels of an element, so a sampled point costs one gather for each tap, however many channels.
"""

import functools
import itertools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.static import Dim

# One tap of a filter along one axis, as arrays over the sampled points: the index of the element, its weight (None is
# 1), and a boolean that is False where the element counts as zero (None is True).
Tap = tuple[Any, Any, Any]
# More terms than these are summed in a loop: each has a gather, whose derivative is a scatter; both compile slowly.
_MOST_TERMS = 8


def linear_taps(coordinates: Any) -> list[tuple[Any, Any]]:
    """The two elements around each coordinate, and their weights."""
    first = jnp.floor(coordinates)
    part, index = coordinates - first, first.astype(np.int32)
    return [(index, 1 - part), (index + 1, part)]


def cubic_taps(coordinates: Any, a: float = -0.75) -> list[tuple[Any, Any]]:
    """The four elements around each coordinate, and their weights."""
    first = jnp.floor(coordinates)
    t, index = coordinates - first, first.astype(np.int32)

    def near(d: Any) -> Any:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [(index - 1, far(t + 1)), (index, near(t)), (index + 1, near(1 - t)), (index + 2, far(2 - t))]


def inside(index: Any, size: Dim) -> Any:
    """True for each index that is in range."""
    return (index >= 0) & (index < jnp.asarray(size, np.int32))


def gather_taps(x: Any, axes: Sequence[Sequence[Tap]]) -> Any:
    """The sum, over one tap of each spatial axis, of weight · element; elements that do not count are zero.

    x: (N, C, d1, …, dr). axes: for each spatial axis its taps, whose arrays have the shape (N, …) of the sampled
    points. Returns (N, …, C).
    """
    rows = jnp.moveaxis(x, 1, -1)
    read = jax.vmap(lambda image, indices: image.at[indices].get(mode="clip", wrap_negative_indices=False))

    def term(taps: Sequence[Tap]) -> Any:
        elements = read(rows, tuple(index for index, _, _ in taps))
        weights = [weight for _, weight, _ in taps if weight is not None]
        if weights:
            elements = elements * functools.reduce(operator.mul, weights)[..., None].astype(elements.dtype)
        counted = [counts for _, _, counts in taps if counts is not None]
        if counted:  # a weight of zero would not do: NaN · 0 and inf · 0 are NaN
            every = functools.reduce(operator.and_, counted)
            elements = jnp.where(every[..., None], elements, jnp.zeros_like(elements))
        return elements

    first, *remaining = itertools.product(*axes)
    total = term(first)
    if len(remaining) < _MOST_TERMS:
        return sum(map(term, remaining), total)
    stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *remaining)
    return lax.scan(lambda total, taps: (total + term(taps), None), total, stacked)[0]
