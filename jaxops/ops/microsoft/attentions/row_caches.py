"""Caches of keys and values (B, K, P, H): buffers that are written in place, and sliding ones, which drop old tokens.

A sliding cache keeps its number of rows. Its first rows hold tokens in order; when new ones do not fit any more, it
drops several old ones at once, and keeps at least a window of tokens.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.static import Dim


def is_zero(size: Any) -> bool:
    """Returns True if a size is 0 for certain."""
    return isinstance(size, int) and size == 0


def present(past: Any, new: Any, starts: Any, rows: Any) -> Any:
    """Writes new keys or values into a cache from row `starts` of each sample on."""
    if past is None or is_zero(past.shape[2]):
        return new
    cache = _of_length(past, rows)
    if is_zero(new.shape[2]):
        return cache
    zero = np.int32(0)  # the type of starts, also while x64 is on
    if new.shape[0] == 1:  # a CPU writes this in place
        return lax.dynamic_update_slice(cache, new, (zero, zero, starts[0], zero))
    return jax.vmap(lambda c, n, s: lax.dynamic_update_slice(c, n, (zero, s, zero)))(cache, new, starts)


def _of_length(past: Any, rows: Any) -> Any:
    if past.shape[2] == rows:
        return past
    # A literal zero, so that with symbolic sizes the compiler need not clear rows that are zero already.
    return lax.pad(past, past.dtype.type(0), [(0, rows - past.shape[2] if axis == 2 else 0, 0) for axis in range(4)])


class CacheRows(NamedTuple):
    """Rows of a sliding cache, for each sample, (B,).

    first: the position of the token in the first row. count: the number of rows in use before this step. added: the
    number of new rows after these. dropped: how many of both are dropped after the step.
    """

    first: Any
    count: Any
    added: Any
    dropped: Any


def cache_rows(starts: Any, ends: Any, fresh: Any, rows: Dim, window: int) -> CacheRows:
    """Returns the rows of a step with `fresh` new tokens, at the positions from `starts` to `ends` of each sample.

    rows: of the cache. window: how many tokens it must hold.
    """
    last = ends if is_zero(fresh) else starts  # without new tokens, the cache holds all of them already
    count = _remaining(last, rows, window)
    first = last - count
    return CacheRows(first, count, ends - last, ends - _remaining(ends, rows, window) - first)


def _remaining(tokens: Any, rows: Dim, window: int) -> Any:
    """Returns how many of `tokens` the cache still holds; it drops `step` of them at once."""
    rows = jnp.asarray(rows, np.int32)
    step = rows - (window - 1)
    return tokens - step * jnp.maximum((tokens - rows + step - 1) // step, 0)


def staged(past: Any, new: Any, occupied: CacheRows) -> Any:
    """Returns the rows of the cache followed by the new ones, before any is dropped; unused rows are zeros."""
    buffer = present(past, new, occupied.count, past.shape[2] + new.shape[2])
    return only_first(buffer, occupied.count + occupied.added)


def only_first(x: Any, count: Any) -> Any:
    """Replaces all but the first `count` rows, one number or (B,), of x (B, K, R, H) by zeros: they may hold NaN."""
    rows = lax.broadcasted_iota(np.int32, (1, 1, x.shape[2], 1), 2)
    return jnp.where(rows < count.reshape(-1, 1, 1, 1), x, jnp.zeros((), x.dtype))


def remembered(staged: Any, occupied: CacheRows, rows: Dim, window: int) -> Any:
    """Returns the present cache: the rows that are not dropped, moved to its beginning and padded with zeros."""
    padded = jnp.pad(staged, ((0, 0), (0, 0), (0, rows - window), (0, 0)))
    zero = np.int32(0)
    size = (staged.shape[1], rows, staged.shape[3])
    return jax.vmap(lambda x, d: lax.dynamic_slice(x, (zero, d, zero), size))(padded, occupied.dropped)


def columns(bias: Any, positions: Any) -> Any:
    """Returns the columns of a bias (1 or B, 1 or N, S, T) for keys at some positions, (B, 1, 1, R)."""
    batch, width = positions.shape[0], positions.shape[3]
    bias = jnp.broadcast_to(bias, (batch, *bias.shape[1:]))
    return jnp.take_along_axis(bias, jnp.broadcast_to(positions, (*bias.shape[:3], width)), 3, mode="clip")
