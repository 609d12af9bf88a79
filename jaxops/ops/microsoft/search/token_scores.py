"""Penalties and masks that searches apply to the scores of the next token."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.microsoft.search import timestamps
from jaxops.shapes.arithmetic import must_fit
from jaxops.static import Tracer, array

# The score of a forbidden token.
_LOWEST = np.finfo(np.float32).min


class Rules(NamedTuple):
    """Static numbers: see the operators."""

    eos: int
    pad: int
    shortest: int = 0
    ngram: int = 0
    temperature: float = 1.0
    presence: float = 0.0
    times: timestamps.Tokens | None = None


def rules_of(eos: Any, pad: Any, shortest: Any, ngram: Any, **more: Any) -> Rules:
    """Returns the rules for attributes and operands. more: rules of one operator only."""
    return Rules(
        integer("eos_token_id", eos),
        integer("pad_token_id", pad),
        0 if shortest is None else integer("min_length", shortest),
        max(integer("no_repeat_ngram_size", ngram), 0),
        **more,
    )


class TokenOperands(NamedTuple):
    """Operands: a number, masks (V,) and (B, V), or None."""

    repetition_penalty: Any = None
    vocab_mask: Any = None
    prefix_vocab_mask: Any = None
    presence_mask: Any = None


def token_operands_of(*operands: Any) -> TokenOperands:
    """Returns the operands as arrays, in the order of `TokenOperands`."""
    return TokenOperands(*(x if x is None else array(x) for x in operands))


def check(operands: TokenOperands, batch: int, size: int) -> None:
    """Raises ShapeError for a mask that does not fit, ArgumentError for a penalty that is not positive."""
    shapes = {name: None if x is None else x.shape for name, x in operands._asdict().items()}
    must_fit("vocab_mask", shapes["vocab_mask"], (size,))
    must_fit("prefix_vocab_mask", shapes["prefix_vocab_mask"], (batch, size))
    must_fit("presence_mask", shapes["presence_mask"], (batch, size))
    penalty = operands.repetition_penalty
    if penalty is None:
        return
    if penalty.size != 1:
        raise ShapeError(f"`repetition_penalty` of {shape_text(penalty.shape)} must be one number")
    if not isinstance(penalty, Tracer) and not float(penalty.reshape(())) > 0:
        raise ArgumentError(f"`repetition_penalty` is {float(penalty.reshape(()))}; it must be positive")


def scored(scores: Any, sequences: Any, length: Any, operands: TokenOperands, rules: Rules) -> Any:
    """Applies penalties and masks to scores (rows, V). sequences: (rows, M), with `length` tokens so far.

    operands: prefix_vocab_mask must be None after the first step.
    """
    rows, size = scores.shape
    positions = lax.broadcasted_iota(np.int32, sequences.shape, 1)
    if operands.repetition_penalty is not None:
        penalty = operands.repetition_penalty.reshape(())
        seen = _marked(sequences, positions < length, size)
        scores = jnp.where(seen, jnp.where(scores < 0, scores * penalty, scores / penalty), scores)
    if rules.ngram:
        scores = jnp.where(_repeating(sequences, length, rules.ngram, size), _LOWEST, scores)
    if operands.vocab_mask is not None:
        scores = jnp.where(operands.vocab_mask[None] == 0, _LOWEST, scores)
    if operands.prefix_vocab_mask is not None:
        mask = operands.prefix_vocab_mask  # of each sequence, for all its beams
        if mask.shape[0] != rows:
            mask = jnp.repeat(mask, rows // mask.shape[0], axis=0)
        scores = jnp.where(mask == 0, _LOWEST, scores)
    if rules.shortest > 0 and 0 <= rules.eos < size:
        too_short = (length < rules.shortest) & (lax.broadcasted_iota(np.int32, scores.shape, 1) == rules.eos)
        scores = jnp.where(too_short, _LOWEST, scores)
    if rules.temperature not in (0.0, 1.0):
        scores = scores / np.float32(rules.temperature)
    if operands.presence_mask is not None:
        scores = scores - operands.presence_mask.astype(np.float32) * np.float32(rules.presence)
    if rules.times is not None:
        never = timestamps.forbidden(scores, sequences, length, rules.times, rules.eos)
        scores = jnp.where(never, _LOWEST, scores)
    return scores


def _repeating(sequences: Any, length: Any, n: int, size: int) -> Any:
    """Returns (rows, V): True for each token that would end an n-gram that the sequence has already."""
    most = sequences.shape[1]
    padded = jnp.pad(sequences, ((0, 0), (0, n)))
    same = lax.broadcasted_iota(np.int32, sequences.shape, 1) + n <= length
    for k in range(n - 1):
        last = lax.dynamic_slice_in_dim(padded, length - (n - 1) + k, 1, 1)
        same = same & (padded[:, k : k + most] == last)
    return _marked(padded[:, n - 1 : n - 1 + most], same, size)


def _marked(tokens: Any, counts: Any, size: int) -> Any:
    """Returns (rows, V): True for each token in a row. counts: of the shape of tokens, True for those to consider."""
    columns = jnp.where(counts & (tokens >= 0), tokens, size)
    rows = lax.broadcasted_iota(np.int32, tokens.shape, 0)
    return jnp.zeros((tokens.shape[0], size), bool).at[rows, columns].set(True, mode="drop")
