"""Prompts of different lengths in one array (B, n), padded on either side."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import is_float


class Alignment(NamedTuple):
    """The move of each row's tokens to one side of it.

    order: (B, n), the column of each token before the move. counts: (B,), the number of tokens of each row.
    """

    order: jax.Array
    counts: jax.Array

    def moved(self, x: Any) -> jax.Array:
        """Moves the tokens of an array (B, n, …)."""
        return jnp.take_along_axis(x, _over(self.order, x), 1)

    def back(self, x: Any) -> jax.Array:
        """Moves what was computed for each token from the beginning of its row back to its column; NaN at padding, or 0
        in integers."""
        places = _sorted(self.order)
        padding = jnp.asarray(np.nan if jnp.issubdtype(x.dtype, jnp.inexact) else 0, x.dtype)
        is_token = _over(places < self.counts[:, None], x)
        return jnp.where(is_token, jnp.take_along_axis(x, _over(places, x), 1), padding)


def first_aligned(mask: Any) -> Alignment:
    """Returns the move of tokens to the beginning of each row. mask: (B, n), 0 at padding."""
    return Alignment(_sorted(mask == 0), counts(mask, mask))


def last_aligned(mask: Any) -> Alignment:
    """Returns the move of tokens to the end of each row. mask: (B, n), 0 at padding."""
    return Alignment(_sorted(mask != 0), counts(mask, mask))


def counts(tokens: Any, mask: Any) -> jax.Array:
    """Returns the number of tokens (B,) of each row. mask: (B, n), 0 at padding; None if there is none."""
    if mask is None:
        return jnp.full(tokens.shape[0], tokens.shape[1], np.int32)
    return jnp.sum(mask != 0, axis=1, dtype=np.int32)


def nan_unless(is_valid: Any, logits: Any) -> Any:
    """Returns logits (B, …) with NaN in rows that are not valid; integers stay."""
    if not is_float(logits.dtype):
        return logits
    rows = is_valid.reshape(-1, *[1] * (logits.ndim - 1))
    return jnp.where(rows, logits, jnp.asarray(np.nan, logits.dtype))


def _sorted(x: Any) -> jax.Array:
    return jnp.argsort(x, axis=1, stable=True).astype(np.int32)


def _over(rows: jax.Array, x: Any) -> jax.Array:
    """Returns an array (B, n) with further axes of size 1, as many as `x` has."""
    return rows.reshape(*rows.shape, *[1] * (x.ndim - 2))


def by_rows(fn: Callable[..., Any], axes: Any, out_axes: Any) -> Callable[..., Any]:
    """Maps a function of one row, whose arrays have a batch of 1, over rows, whose scalars differ.

    axes, out_axes: the axis of the rows in each argument and result, as for `jax.vmap`: a number, or a dictionary of
    them for a dictionary of arrays; None for an array without rows. Numbers (B,) become scalars.
    """

    def each(x: Any, axes: Any, change: Callable[[Any, int], Any]) -> Any:
        if isinstance(axes, dict):
            return {name: x[name] if axis is None else change(x[name], axis) for name, axis in axes.items()}
        return change(x, axes) if x.ndim else x

    def row(*arguments: Any) -> Any:
        one = (each(x, axis, jnp.expand_dims) for x, axis in zip(arguments, axes, strict=True))
        return tuple(each(y, axis, jnp.squeeze) for y, axis in zip(fn(*one), out_axes, strict=True))

    return jax.vmap(row, axes, out_axes)
