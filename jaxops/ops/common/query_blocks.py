"""Attention in blocks of queries, so that the scores of all queries are never in memory together.

A scan computes one block at each step, and its gradient computes the scores of a block anew. All that happens to scores
in between (masks, a cap, a softmax over the keys) treats each query by itself, so a block gives the numbers that its
queries have in the whole.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.dtypes import wide
from jaxops.kernels.kept_scores import LONG
from jaxops.static import Sizes

# Scores of one block, in bytes of float32.
_BLOCK = 1 << 24


def blocks(query: Any, key: Any) -> int:
    """Returns the number of blocks for operands (B, Nq, S, H) and (B, Nkv, T, H); 1 for symbolic or small sizes."""
    sizes = score_sizes(query, key)
    if not all(isinstance(size, int) for size in sizes) or key.shape[2] < LONG:
        return 1
    return max(1, min(query.shape[2], math.ceil(4 * math.prod(sizes) / _BLOCK)))


def score_sizes(query: Any, key: Any) -> Sizes:
    """Returns the sizes of all scores, (B, Nq, S, T)."""
    return *query.shape[:3], key.shape[2]


def in_blocks(
    attend: Callable[..., Any], count: int, query: Any, key: Any, value: Any, by_score: tuple[Any, ...], sink: Any
) -> Any:
    """Returns `attend(query, key, value, by_score, sink)`, (B, Nq, S, Hv), computed in about `count` blocks of queries.

    by_score: arrays that broadcast to (B, Nq, S, T), or None. sink: numbers (Nq,), or None.
    """
    length = query.shape[2]
    step = math.ceil(length / count)
    steps = length // step
    cut = [x is not None and x.ndim > 1 and x.shape[-2] > 1 for x in by_score]
    # What every block reads gets a sum of gradients; this sum stays exact for 16-bit types, too.
    whole = (key, value, *(None if is_cut else x for x, is_cut in zip(by_score, cut, strict=True)), sink)
    summed = tuple(None if x is None else wide(x) for x in whole)

    @jax.checkpoint
    def block(summed: Any, query: Any, parts: Any) -> Any:
        key, value, *rest, sink = (
            x if kept is None else x.astype(kept.dtype) for x, kept in zip(summed, whole, strict=True)
        )
        rest = tuple(part if is_cut else x for part, x, is_cut in zip(parts, rest, cut, strict=True))
        return attend(query, key, value, rest, sink)

    def cut_from(start: int, size: int) -> Any:
        parts = (_rows(x, start, size) if is_cut else None for x, is_cut in zip(by_score, cut, strict=True))
        return _rows(query, start, size), tuple(parts)

    stacked = jax.tree.map(lambda x: _stacked(x, steps), cut_from(0, steps * step))
    _, found = lax.scan(lambda carry, parts: (carry, block(summed, *parts)), None, stacked)
    found = jnp.moveaxis(found, 0, 2)
    found = found.reshape(*found.shape[:2], steps * step, found.shape[-1])
    if steps * step < length:
        rest = block(summed, *cut_from(steps * step, length - steps * step))
        found = lax.concatenate([found, rest], 2)
    return found


def _rows(x: Any, start: int, size: int) -> Any:
    return lax.slice_in_dim(x, start, start + size, axis=x.ndim - 2)


def _stacked(x: Any, steps: int) -> Any:
    """(…, S, K) as (steps, …, S / steps, K)."""
    axis = x.ndim - 2
    return jnp.moveaxis(x.reshape(*x.shape[:axis], steps, -1, x.shape[-1]), axis, 0)
