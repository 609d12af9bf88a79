"""The choice of the next token from logits: the likeliest one, or one that is drawn."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Sampling(NamedTuple):
    """The choice of tokens, as far as a program of its own is compiled for it.

    draws: whether tokens are drawn; otherwise the likeliest is taken. top_k: how many tokens to draw from, 0 for all.
    by_top_p: whether `top_p` limits them. penalizes: whether tokens that a row has already are made less likely.
    """

    draws: bool = False
    top_k: int = 0
    by_top_p: bool = False
    penalizes: bool = False


class Numbers(NamedTuple):
    """The numbers of the choice, which a compiled program takes as arguments: see `generate`."""

    temperature: Any
    top_p: Any
    min_p: Any
    repetition_penalty: Any


def next_tokens(
    logits: jax.Array, seen: jax.Array, keys: Any, sampling: Sampling, numbers: Numbers, suppressed: Any = None
) -> jax.Array:
    """Returns the next token (R,) of each row.

    logits: (R, V). seen: (R, V), True for the tokens that a row has; read if `sampling.penalizes`. keys: (R,); read if
    `sampling.draws`. suppressed: (V,), True for tokens that are not chosen; or None.
    The penalty divides the positive logits of tokens that a row has, and multiplies the negative ones. Logits of
    suppressed tokens become minus infinity. Then the logits are divided by the temperature. `top_k` tokens remain, of
    equally likely ones those that come first; of these the likeliest whose probabilities reach `top_p` together; of
    these the ones that are at least `min_p` times as likely as the likeliest. A logit of infinity is certain.
    """
    scores = logits.astype(np.float32)
    if sampling.penalizes:
        penalty = numbers.repetition_penalty
        scores = jnp.where(seen, jnp.where(scores > 0, scores / penalty, scores * penalty), scores)
    if suppressed is not None:
        scores = jnp.where(suppressed, -jnp.inf, scores)
    if not sampling.draws:
        return jnp.argmax(scores, -1).astype(np.int32)
    scores = _finite_at_most(scores) / numbers.temperature
    tokens = None
    if sampling.top_k or sampling.by_top_p:
        size = scores.shape[-1]
        scores, tokens = jax.lax.top_k(scores, min(sampling.top_k or size, size))
    is_kept = scores >= scores.max(-1, keepdims=True) + jnp.log(numbers.min_p)
    if sampling.by_top_p:
        probabilities = jax.nn.softmax(scores, -1)
        before = jnp.cumsum(probabilities, -1) - probabilities
        # Rounding may leave no token below a tiny `top_p`; the first one stays.
        is_kept &= (before < numbers.top_p) | (jax.lax.broadcasted_iota(np.int32, scores.shape, 1) == 0)
    scores = jnp.where(is_kept, scores, -jnp.inf)
    drawn = jax.vmap(jax.random.categorical)(keys, scores)
    return (drawn if tokens is None else jnp.take_along_axis(tokens, drawn[:, None], 1)[:, 0]).astype(np.int32)


def log_probabilities(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns the logarithm of the probability that the model gives to a token (R,) of each row. logits: (R, V)."""
    scores = _finite_at_most(logits.astype(np.float32))
    return jnp.take_along_axis(jax.nn.log_softmax(scores, -1), tokens[:, None], 1)[:, 0]


def _finite_at_most(scores: jax.Array) -> jax.Array:
    """Returns scores of the same meaning, none of which is positive infinity."""
    is_certain = scores == jnp.inf
    return jnp.where(is_certain.any(-1, keepdims=True), jnp.where(is_certain, 0.0, -jnp.inf), scores)
