"""The sequences that a beam search continues, and those that have ended."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.ops.microsoft.search import token_scores
from jaxops.static import jit_if_concrete

# The score of all beams except the first one at the beginning, when all beams are the same.
_SAME = -1e9


class Options(NamedTuple):
    """Static: see the operator."""

    beams: int
    early_stopping: bool
    rules: token_scores.Rules


class Beams(NamedTuple):
    """The state of a search. sequences: (B·K, M). scores: (B·K,), the logarithms of their probabilities.

    ended: (B, K, M), the best sequences that have ended. ended_scores: (B, K), with the length penalty. count: (B,),
    the number of ended ones. done: (B,), True if no beam can become better than these.
    """

    sequences: Any
    scores: Any
    ended: Any
    ended_scores: Any
    count: Any
    done: Any


def first_beams(sequences: Any, batch: int, options: Options) -> Beams:
    """Returns the state before the first step. sequences: (B·K, M), equal for all beams of a prompt."""
    k, most = options.beams, sequences.shape[1]
    scores = np.full((batch, k), _SAME, np.float32)
    scores[:, 0] = 0
    return Beams(
        sequences,
        jnp.asarray(scores.reshape(-1)),
        jnp.full((batch, k, most), options.rules.pad, np.int32),
        jnp.zeros((batch, k), np.float32),
        jnp.zeros(batch, np.int32),
        jnp.zeros(batch, bool),
    )


@jit_if_concrete
def advanced(operands: tuple[Any, ...], options: Options) -> tuple[Beams, Any, Any, Any]:
    """Takes one more token. Returns (beams, the tokens, the rows that they continue, the scores of all tokens).

    operands: logits (B·K, V), the length of the sequences, lengthᵖ, the operands of `token_scores`, the beams.
    """
    logits, length, power, *fields = operands
    token_operands, beams = (
        token_scores.TokenOperands(*fields[: len(token_scores.TokenOperands._fields)]),
        Beams(*fields[-len(Beams._fields) :]),
    )
    k, (rows, size) = options.beams, logits.shape
    batch, eos = rows // k, options.rules.eos
    shifted = logits - jnp.max(logits, axis=1, keepdims=True)
    scores = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=1, keepdims=True))
    scores = token_scores.scored(scores, beams.sequences, length, token_operands, options.rules) + beams.scores[:, None]
    best, candidate_numbers = lax.top_k(scores.reshape(batch, k * size), 2 * k)
    tokens, origins = candidate_numbers % size, candidate_numbers // size
    origins = origins + k * lax.broadcasted_iota(np.int32, origins.shape, 0)
    ends = (tokens == eos) & (eos >= 0)

    is_continued = (~ends).astype(np.int32)
    going_on = jnp.cumsum(is_continued, axis=1) - is_continued  # before each candidate
    adds = ends & (going_on < k) & ~beams.done[:, None]
    next_beams = beams

    def add(j: Any, ended: Beams) -> Beams:
        # Only the first k candidates are taken.
        candidates = jnp.take(beams.sequences, origins[:, j], axis=0)
        return _with(ended, candidates, best[:, j] / power, adds[:, j])

    next_beams = lax.fori_loop(0, k, add, next_beams)
    # As in onnxruntime, the scores of a sequence are read at the index of its beams, not at twice that.
    reach = lax.broadcasted_iota(np.int32, (batch, 2 * k), 1) + k * lax.broadcasted_iota(np.int32, (batch, 2 * k), 0)
    most = jnp.max(jnp.take(best.reshape(-1), reach), axis=1)
    cannot = jnp.full(batch, True) if options.early_stopping else _worst(next_beams) >= most / power
    done = beams.done | ((next_beams.count >= k) & cannot)

    order = jnp.argsort(ends, axis=1, stable=True)[:, :k]
    take = lambda x, fill: jnp.where(beams.done[:, None], fill, jnp.take_along_axis(x, order, 1)).reshape(-1)  # noqa: E731
    tokens, origins = take(tokens, np.int32(options.rules.pad)), take(origins, np.int32(0))
    sequences = jnp.take(beams.sequences, origins, axis=0)
    sequences = lax.dynamic_update_slice(sequences, tokens[:, None], (np.int32(0), length))
    next_beams = next_beams._replace(sequences=sequences, scores=take(best, np.float32(0)), done=done)
    return next_beams, tokens, origins, jnp.where(jnp.all(beams.done), 0, scores)


def _worst(beams: Beams) -> Any:
    """Returns the score of the worst sequence that has ended, (B,)."""
    slots = lax.broadcasted_iota(np.int32, beams.ended_scores.shape, 1)
    return jnp.min(jnp.where(slots < beams.count[:, None], beams.ended_scores, np.inf), axis=1)


def _with(beams: Beams, sequences: Any, scores: Any, adds: Any) -> Beams:
    """Adds an ended sequence to each prompt for which `adds` is true, if its score is good enough."""
    k = beams.ended_scores.shape[1]
    slots = lax.broadcasted_iota(np.int32, beams.ended_scores.shape, 1)
    ended_scores = jnp.where(slots < beams.count[:, None], beams.ended_scores, np.inf)
    full = beams.count >= k
    adds = adds & (~full | (scores > jnp.min(ended_scores, axis=1)))
    slot = jnp.where(full, jnp.argmin(ended_scores, axis=1).astype(np.int32), beams.count)
    here = (slots == slot[:, None]) & adds[:, None]
    return beams._replace(
        ended=jnp.where(here[:, :, None], sequences[:, None], beams.ended),
        ended_scores=jnp.where(here, scores[:, None], beams.ended_scores),
        count=jnp.minimum(beams.count + adds.astype(np.int32), k),
    )


@jit_if_concrete
def results(operands: tuple[Any, ...], count: int) -> tuple[Any, Any]:
    """Returns the best `count` sequences (B, count, M) and their scores (B, count). operands: beams, lengthᵖ."""
    *fields, power = operands
    beams = Beams(*fields)
    batch, k = beams.ended_scores.shape
    rows = beams.sequences.reshape(batch, k, -1)
    scores = beams.scores.reshape(batch, k)

    def add(j: Any, ended: Beams) -> Beams:
        return _with(ended, rows[:, j], scores[:, j] / power, ~beams.done)

    beams = lax.fori_loop(0, k, add, beams)
    order = jnp.argsort(-beams.ended_scores, axis=1, stable=True)[:, :count]
    return (jnp.take_along_axis(beams.ended, order[:, :, None], 1), jnp.take_along_axis(beams.ended_scores, order, 1))
