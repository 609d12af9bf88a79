"""Sampling: a decoder continues a text token by token, each drawn from the likeliest ones."""

__all__ = ["sampling"]

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.errors import ShapeError, UnsupportedError, shape_text
from jaxops.ops.microsoft.search import searched_decoders as decoders, token_scores
from jaxops.ops.microsoft.search.greedy import check_gpt, counted_logits, searched
from jaxops.ops.microsoft.search.searched_decoders import Decoder
from jaxops.signature import Static
from jaxops.static import ArrayLike, array, jit_if_concrete


class _Filter(NamedTuple):
    """Static: see the operator."""

    top_p: float
    value: float
    keep: int
    custom: bool


def sampling(
    input_ids: ArrayLike,
    max_length: Static,
    min_length: Static = None,
    repetition_penalty: ArrayLike | None = None,
    vocab_mask: ArrayLike | None = None,
    prefix_vocab_mask: ArrayLike | None = None,
    attention_mask: ArrayLike | None = None,
    presence_mask: ArrayLike | None = None,
    seed: ArrayLike | None = None,
    *,
    decoder: Decoder,
    eos_token_id: int,
    pad_token_id: int,
    custom: int = 0,
    decoder_start_token_id: int = -1,
    encoder: Decoder | None = None,
    filter_value: float = -1e20,
    init_decoder: Decoder | None = None,
    min_tokens_to_keep: int = 0,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    presence_penalty: float = 0.0,
    temperature: float = 1.0,
    top_p: float = 0.0,
    vocab_size: int = -1,
    n_outputs: int = 1,
) -> jax.Array:
    """Continues prompts with tokens that are drawn by the probabilities of a decoder.

    The operands and decoders are those of `greedy_search`. temperature: the logits are divided by it; 0 and 1 have no
    effect. presence_mask: int32 (B, V); presence_penalty · presence_mask is subtracted from the logits (onnxruntime's
    CPU reads both and ignores them). top_p: the least likely tokens whose probabilities add up to at most 1 - top_p get
    the logit filter_value, except the min_tokens_to_keep likeliest tokens. custom: 1 filters each token whose likelier
    tokens add up to more than top_p, except the likeliest one; min_tokens_to_keep is ignored then. seed: one integer,
    0 if it is None; equal seeds draw equal tokens, but not those of onnxruntime.

    Returns int32 (B, M). n_outputs must be 1: the second output, filtered logits for debugging, is not supported, as
    on onnxruntime's CPU.
    Raises what `greedy_search` raises, and UnsupportedError for the second output.
    Source: com.microsoft Sampling, opset 1.

    >>> def decoder(tokens, positions, mask, cache):  # each token is followed by the next number, nearly always
    ...     new = jnp.zeros((2, tokens.shape[0], 1, tokens.shape[1], 1))
    ...     return 99 * jax.nn.one_hot(tokens + 1, 8), jnp.concatenate([cache, new], 3)
    >>> decoder.inputs = [None] * 3 + [jax.ShapeDtypeStruct((2, 1, 1, 0, 1), np.float32)]
    >>> ends = {"eos_token_id": 6, "pad_token_id": 0}
    >>> sampling(np.array([[3, 4]], np.int32), 6, decoder=decoder, top_p=0.9, **ends).tolist()
    [[3, 4, 5, 0, 0, 0]]
    """
    decoders.check_cut()
    ids, mask = array(input_ids), None if attention_mask is None else array(attention_mask)
    check_gpt(model_type, encoder)
    if n_outputs > 1:
        raise UnsupportedError("the output `filtered_logits` is not supported, as in onnxruntime")
    masks = (repetition_penalty, vocab_mask, prefix_vocab_mask, presence_mask)
    token_operands = token_scores.token_operands_of(*masks)
    numbers = {"temperature": float(temperature) if temperature > 0 else 1.0, "presence": float(presence_penalty)}
    rules = token_scores.rules_of(eos_token_id, pad_token_id, min_length, no_repeat_ngram_size, **numbers)
    keep = integer("min_tokens_to_keep", min_tokens_to_keep, least=0)
    chosen = _Filter(float(top_p), float(filter_value), keep, flag("custom", custom))
    start = np.zeros((), np.int32) if seed is None else array(seed)
    if start.size != 1:
        raise ShapeError(f"`seed` of {shape_text(start.shape)} must be one integer")
    decoders.check_ids(ids, mask)
    most = decoders.last_length(max_length, ids.shape[1])
    choose = partial(_drawn, token_operands, rules, chosen, integer("vocab_size", vocab_size), start)
    return searched(ids, mask, most, (decoder, init_decoder), rules, choose)


def _drawn(
    token_operands: token_scores.TokenOperands,
    rules: token_scores.Rules,
    chosen: _Filter,
    size: int,
    seed: Any,
    logits: Any,
    sequences: Any,
    length: Any,
    first: bool,
) -> Any:
    logits = counted_logits(logits, size)
    if first:
        token_scores.check(token_operands, *logits.shape)
    token_operands = token_operands if first else token_operands._replace(prefix_vocab_mask=None)
    return _categorical((logits, sequences, length, seed, *token_operands), rules, chosen)


@jit_if_concrete
def _categorical(operands: tuple[Any, ...], rules: token_scores.Rules, chosen: _Filter) -> Any:
    logits, sequences, length, seed, *token_operands = operands
    scores = token_scores.scored(logits, sequences, length, token_scores.TokenOperands(*token_operands), rules)
    scores = _filtered(scores, chosen)
    key = jax.random.fold_in(jax.random.key(jnp.asarray(seed).reshape(()).astype(np.uint32)), length)
    return jax.random.categorical(key, scores, axis=1).astype(np.int32)


def _filtered(scores: Any, chosen: _Filter) -> Any:
    """Returns the scores (B, V), with filter_value for tokens that are not likely enough."""
    size = scores.shape[1]
    order = jnp.argsort(-scores if chosen.custom else scores, axis=1, stable=True)
    probabilities = jax.nn.softmax(jnp.take_along_axis(scores, order, 1), axis=1)
    sums = jnp.cumsum(probabilities, axis=1)
    ranks = lax.broadcasted_iota(np.int32, scores.shape, 1)
    if chosen.custom:
        out = (ranks > 0) & (jnp.pad(sums, ((0, 0), (1, 0)))[:, :-1] > chosen.top_p)
    else:
        # The least likely token is always considered.
        out = (ranks < max(size - chosen.keep, 1)) & (sums <= 1 - chosen.top_p)
    rows = lax.broadcasted_iota(np.int32, scores.shape, 0)
    return jnp.where(jnp.zeros_like(out).at[rows, order].set(out), np.float32(chosen.value), scores)
