"""Tokens for times in a recording, and the rules for their positions in a text."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

_LOWEST = np.finfo(np.float32).min
# The largest distance of the first time of a text from the earliest one: a second, in tokens of 20 ms.
_LATEST_FIRST = 50


class Tokens(NamedTuple):
    """Static ids of tokens, -1 for a token that a model does not have. begin: the earliest time; all tokens from there
    on are times. never_said: tokens that never follow; tasks: those that do not follow the first time."""

    begin: int
    never_said: tuple[int, ...]
    tasks: tuple[int, ...]


def forbidden(scores: Any, sequences: Any, length: Any, tokens: Tokens, eos: int) -> Any:
    """Returns (rows, V): True for each token that must not follow. sequences: (rows, M), with `length` tokens so far.

    Times come in pairs, except the first one, and do not decrease. A time must follow if all times together are more
    likely than any other token.
    """
    token = lax.broadcasted_iota(np.int32, scores.shape, 1)
    times = token >= tokens.begin
    positions = lax.broadcasted_iota(np.int32, sequences.shape, 1)
    timed = (sequences >= tokens.begin) & (positions < length)
    some = jnp.any(timed, axis=1)
    first = jnp.where(some, jnp.argmax(timed, axis=1).astype(np.int32), length - 1)  # the last token, if none is a time
    behind = length - 1 > first
    last = lax.dynamic_index_in_dim(timed, length - 1, 1, keepdims=False)
    # If there is no token before the last one, this is the last one, which `behind` leaves out.
    before = lax.dynamic_index_in_dim(timed, jnp.maximum(length - 2, 0), 1, keepdims=False) | ~behind
    latest = jnp.max(jnp.where(timed, positions, -1), axis=1)
    latest = jnp.take_along_axis(sequences, jnp.maximum(latest, 0)[:, None], axis=1)[:, 0]
    earliest = jnp.where(last & ~before, latest, latest + 1)

    column = lambda x: x[:, None]  # noqa: E731
    never = _among(token, tokens.never_said) | (_among(token, tokens.tasks) & column(behind))
    never |= column(last & before) & times
    never |= column(last & ~before) & (token < eos)
    never |= column(some) & times & (token < column(earliest))
    never |= column(~some) & (token > tokens.begin + _LATEST_FIRST)

    counts = times & ~never & (scores > _LOWEST)
    most = jnp.max(jnp.where(counts, scores, _LOWEST), axis=1, keepdims=True)
    total = most + jnp.log(jnp.sum(jnp.where(counts, jnp.exp(scores - most), 0), axis=1, keepdims=True))
    text = jnp.max(jnp.where(times | never, _LOWEST, scores), axis=1, keepdims=True)
    return never | ((total > text) & ~times)


def _among(token: Any, tokens: tuple[int, ...]) -> Any:
    is_member = jnp.zeros(token.shape, bool)
    for one in tokens:
        is_member |= token == one
    return is_member
