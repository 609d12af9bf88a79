"""Greedy search: a decoder continues a text token by token, each time with the likeliest one."""

__all__ = ["greedy_search"]

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, UnsupportedError
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.microsoft.search import searched_decoders as decoders, token_scores
from jaxops.ops.microsoft.search.searched_decoders import Decoder
from jaxops.signature import Static
from jaxops.static import ArrayLike, Tracer, array, jit_if_concrete


def greedy_search(
    input_ids: ArrayLike,
    max_length: Static,
    min_length: Static = None,
    repetition_penalty: ArrayLike | None = None,
    vocab_mask: ArrayLike | None = None,
    prefix_vocab_mask: ArrayLike | None = None,
    attention_mask: ArrayLike | None = None,
    *,
    decoder: Decoder,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    encoder: Decoder | None = None,
    init_decoder: Decoder | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
) -> jax.Array:
    """Continues prompts with the token to which a decoder gives the highest score, one after another.

    input_ids: int32 (B, S), the prompts, padded where they are shorter. max_length: the length M of the result, more
    than S and at most 4096. min_length: no sequence ends before that length. repetition_penalty: one positive number;
    scores of tokens that a sequence has already are divided by it, or multiplied if they are negative. vocab_mask:
    (V,), 0 for a token that is not allowed; prefix_vocab_mask: (B, V), for the first token after the prompt.
    attention_mask: int32 (B, S), 1 for a token that is seen; None: all tokens but pads are seen.

    decoder: a function of tokens (B, n), positions (B, n), a mask (B, past + n), all int32, and a cache for each layer
    (2, B, heads, past, head size), that returns logits (B, n, V) and the longer caches. `decoder.inputs` lists its
    inputs, as the graph of a model does: values with a shape and a dtype. init_decoder: the same for the prompt.
    eos_token_id: the token that ends a sequence; it and all later tokens become pads.
    no_repeat_ngram_size: n, so that no n-gram occurs twice in a sequence; 0 for no such rule. vocab_size: the number of
    logits in use; 0 or less: all. decoder_start_token_id: not used. encoder, model_type: must be None and 0; as in
    onnxruntime, there is no greedy search with an encoder.

    Returns int32 (B, M). onnxruntime leaves tokens after the end of the last sequence undefined; here they are pads.
    A loaded model runs the search step by step, until the last sequence ends. In a caller's `jit` all steps are traced
    one by one: the program is as long as M - S calls of the decoder.
    Raises ShapeError, DTypeError, ArgumentError, UnsupportedError, SignatureError for a decoder that returns too much.
    Source: com.microsoft GreedySearch, opset 1.

    >>> def decoder(tokens, positions, mask, cache):  # each token is followed by the next number
    ...     new = jnp.zeros((2, tokens.shape[0], 1, tokens.shape[1], 1))
    ...     return jax.nn.one_hot(tokens + 1, 8), jnp.concatenate([cache, new], 3)
    >>> decoder.inputs = [None] * 3 + [jax.ShapeDtypeStruct((2, 1, 1, 0, 1), np.float32)]
    >>> greedy_search(np.array([[3, 4]], np.int32), 6, decoder=decoder, eos_token_id=6, pad_token_id=0).tolist()
    [[3, 4, 5, 0, 0, 0]]
    """
    decoders.check_cut()
    ids = array(input_ids)
    check_gpt(model_type, encoder)
    token_operands = token_scores.token_operands_of(repetition_penalty, vocab_mask, prefix_vocab_mask)
    rules = token_scores.rules_of(eos_token_id, pad_token_id, min_length, no_repeat_ngram_size)
    size = integer("vocab_size", vocab_size)
    mask = None if attention_mask is None else array(attention_mask)
    decoders.check_ids(ids, mask)
    most = decoders.last_length(max_length, ids.shape[1])
    choose = partial(_likeliest, token_operands, rules, size)
    return searched(ids, mask, most, (decoder, init_decoder), rules, choose)


def check_gpt(model_type: Any, encoder: Any) -> None:
    """Raises UnsupportedError for a search with an encoder."""
    if integer("model_type", model_type) or encoder is not None:
        raise UnsupportedError(
            f"`model_type` is {model_type}{'' if encoder is None else ', and there is an `encoder`'}; it must be "
            "0, a decoder alone; onnxruntime supports no other kind either"
        )


def searched(
    ids: Any,
    mask: Any,
    most: int,
    pair: tuple[Any, Any],
    rules: token_scores.Rules,
    choose: Callable[[Any, Any, Any, bool], Any],
) -> Any:
    """Continues prompts (B, S) to (B, most). pair: the decoder, and the one for the prompt or None.

    choose: (logits, sequences, their length, True in the first step) → the next tokens (B,).
    """
    prompt = decoders.prompt(ids, mask, rules.pad)
    run = decoders.decoding(*pair, prompt)
    batch, length = ids.shape
    sequences = as_traced(decoders.filled((ids,), most, rules.pad))
    ended = jnp.zeros(batch, bool)
    logits = run.start(prompt)
    for position in range(length, most):
        chosen = choose(logits, sequences, np.int32(position), position == length)
        sequences, tokens, ended = _appended((sequences, chosen, ended, np.int32(position)), rules.eos, rules.pad)
        if position + 1 == most or (not isinstance(ended, Tracer) and bool(ended.all())):
            break
        logits = run.go_on(decoders.known_tokens(tokens))
    return assert_sizes(sequences, (batch, most), np.int32)


@jit_if_concrete
def _appended(operands: tuple[Any, Any, Any, Any], eos: int, pad: int) -> tuple[Any, Any, Any]:
    sequences, tokens, ended, position = operands
    ended = ended | (tokens == eos)
    tokens = jnp.where(ended, np.int32(pad), tokens)
    return lax.dynamic_update_slice(sequences, tokens[:, None], (np.int32(0), position)), tokens, ended


def counted_logits(logits: Any, size: int) -> Any:
    """Returns the first `size` logits of each row, or all if size is 0 or less."""
    if size > logits.shape[1]:
        raise ArgumentError(f"`vocab_size` is {size}, but the decoder gives {logits.shape[1]} logits")
    return logits[:, :size] if size > 0 else logits


def _likeliest(
    token_operands: token_scores.TokenOperands,
    rules: token_scores.Rules,
    size: int,
    logits: Any,
    sequences: Any,
    length: Any,
    first: bool,
) -> Any:
    logits = counted_logits(logits, size)
    if first:
        token_scores.check(token_operands, *logits.shape)
    token_operands = token_operands if first else token_operands._replace(prefix_vocab_mask=None)
    return _argmax((logits, sequences, length, *token_operands), rules)


@jit_if_concrete
def _argmax(operands: tuple[Any, ...], rules: token_scores.Rules) -> Any:
    logits, sequences, length, *token_operands = operands
    scores = token_scores.scored(logits, sequences, length, token_scores.TokenOperands(*token_operands), rules)
    return jnp.argmax(scores, axis=1).astype(np.int32)
