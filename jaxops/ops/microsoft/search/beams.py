"""Beam search: a decoder continues a text in several ways at once, of which the likeliest are kept."""

__all__ = ["beam_search"]

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import flag, integer
from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, UnsupportedError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.microsoft.search import (
    beam_hypotheses as hypotheses,
    encoded_decoders,
    searched_decoders as decoders,
    token_scores,
)
from jaxops.ops.microsoft.search.greedy import counted_logits
from jaxops.ops.microsoft.search.searched_decoders import Decoder
from jaxops.signature import Static
from jaxops.static import ArrayLike, Tracer, array, known

_MOST_BEAMS = 128  # onnxruntime's limit


def beam_search(
    input_ids: ArrayLike,
    max_length: Static,
    min_length: Static = None,
    num_beams: Static = 1,
    num_return_sequences: Static = 1,
    length_penalty: Static = None,
    repetition_penalty: ArrayLike | None = None,
    vocab_mask: ArrayLike | None = None,
    prefix_vocab_mask: ArrayLike | None = None,
    attention_mask: ArrayLike | None = None,
    decoder_input_ids: ArrayLike | None = None,
    logits_processor: Static = None,
    *,
    decoder: Decoder,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    early_stopping: int = 0,
    encoder: Decoder | None = None,
    init_decoder: Decoder | None = None,
    model_type: int = 0,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    n_outputs: int = 3,
) -> tuple[jax.Array, ...]:
    """Finds the likeliest continuations of prompts by a decoder, keeping the K best ones at each step.

    input_ids: int32 (B, S), the prompts. max_length: the length M of the results, at most 4096. num_beams: K, 1 to 128.
    num_return_sequences: N, 1 to K. length_penalty: p, 1 if it is None; the score of a sequence is the logarithm of
    its probability, divided by (its length)ᵖ. early_stopping: 1 ends a search as soon as K sequences have ended, 0 when
    no other sequence can become better. min_length, repetition_penalty, no_repeat_ngram_size and the masks are those of
    `greedy_search`, and act on logarithms of probabilities. vocab_size: the number of logits in use; 0 or less: all.

    model_type 0: `decoder` and init_decoder are those of `greedy_search`, called for B·K sequences. model_type 1: the
    sequences begin with decoder_start_token_id, and `encoder` reads the prompts. It takes tokens and a mask (B, S), and
    returns two caches per layer; or it has a third operand, the first tokens (B, 1), and returns their logits, its
    states, and four caches per layer, the decoder's before its own. `decoder` takes tokens (B·K, 1), or all tokens if
    that size is not 1 in decoder.inputs, the mask, the states if it has a third operand, its caches (B·K, heads, past,
    head size), and those of the encoder; it returns logits, and its caches with one more token.

    Returns the sequences int32 (B, N, M), padded, without the tokens that end them; their scores (B, N), best first;
    and the scores of all tokens in each step (M - S, B, K, V), or M - 1 steps with an encoder. After the last step
    these are 0; onnxruntime leaves them undefined. n_outputs: 3 keeps the scores of all tokens.
    decoder_input_ids and logits_processor must be None and 0, as in onnxruntime; only whisper_beam_search reads them.
    A loaded model runs the search step by step; in a caller's `jit` all steps are traced one by one.
    Raises ShapeError, DTypeError, ArgumentError, UnsupportedError, SignatureError for a decoder that returns too much.
    Source: com.microsoft BeamSearch, opset 1.

    >>> def decoder(tokens, positions, mask, cache):  # each token is followed by the next number, or the one after it
    ...     new = jnp.zeros((2, tokens.shape[0], 1, tokens.shape[1], 1))
    ...     likely = 9 * jax.nn.one_hot(tokens + 1, 9) + 8 * jax.nn.one_hot(tokens + 2, 9)
    ...     return likely, jnp.concatenate([cache, new], 3)
    >>> decoder.inputs = [None] * 3 + [jax.ShapeDtypeStruct((2, 1, 1, 0, 1), np.float32)]
    >>> ends = {"eos_token_id": 8, "pad_token_id": 0}
    >>> beam_search(np.array([[3]], np.int32), 4, None, 2, 2, decoder=decoder, n_outputs=1, **ends)[0].tolist()
    [[[3, 4, 5, 6], [3, 4, 5, 7]]]
    """
    decoders.check_cut()
    ids, mask = array(input_ids), None if attention_mask is None else array(attention_mask)
    processor = 0 if logits_processor is None else integer("logits_processor", logits_processor)
    if decoder_input_ids is not None or processor:
        raise UnsupportedError("`decoder_input_ids` and `logits_processor` are for Whisper's search only")
    settings = search(
        masks=(repetition_penalty, vocab_mask, prefix_vocab_mask),
        beams=(num_beams, num_return_sequences),
        ends=(eos_token_id, pad_token_id),
        min_length=min_length,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        ngram=no_repeat_ngram_size,
        size=vocab_size,
    )
    beams, pad = settings.options.beams, settings.options.rules.pad
    decoders.check_ids(ids, mask)
    batch, rows = ids.shape[0], np.repeat(np.arange(ids.shape[0]), beams)
    kind = integer("model_type", model_type)
    if kind not in (0, 1) or (encoder is None) == bool(kind):
        raise ArgumentError(
            f"`model_type` is {kind}, {'without' if encoder is None else 'with'} an `encoder`; it must be 0 for "
            "a decoder alone, or 1 for one with an encoder"
        )
    if kind == 0:
        most = decoders.last_length(max_length, ids.shape[1])
        many = decoders.of_rows(ids, rows, 0)
        prompt = decoders.prompt(many, mask if mask is None else decoders.of_rows(mask, rows, 0), pad)
        run: Any = decoders.decoding(decoder, init_decoder, prompt)
        begin, logits = prompt.tokens, run.start(prompt)
    else:
        start = integer("decoder_start_token_id", decoder_start_token_id)
        if start < 0:
            raise ArgumentError(f"`decoder_start_token_id` is {start}; a search with an encoder needs it")
        most = decoders.last_length(max_length, 1)
        mask = encoded_decoders.mask_of((ids,), pad) if mask is None else mask
        begin = np.full((batch * beams, 1), start, np.int32)
        run, logits = encoded_decoders.encoded((decoder, encoder), (ids, mask), (mask,), begin[:batch], beams)
        logits = run.go_on(begin[:, 0], None, begin, 1) if logits is None else jnp.take(logits, rows, axis=0)
    return searched(run, logits, begin, most, settings, n_outputs)


class Search(NamedTuple):
    """The operands and attributes that all beam searches share.

    returned: the number of results. penalty: the exponent of their length. size: the number of logits in use; 0 or
    less: all.
    """

    token_operands: token_scores.TokenOperands
    options: hypotheses.Options
    returned: int
    penalty: float
    size: int


def search(
    *,
    masks: tuple[Any, ...],
    beams: tuple[Any, Any],
    ends: tuple[Any, Any],
    min_length: Any,
    length_penalty: Any,
    early_stopping: Any,
    ngram: Any,
    size: Any,
    **rules: Any,
) -> Search:
    """Returns the search for operands and attributes.

    beams: the numbers of beams and of results. ends: the tokens eos and pad. rules: those of one operator only.
    Raises ArgumentError for an invalid number of beams or results.
    """
    k, count = integer("num_beams", beams[0]), integer("num_return_sequences", beams[1])
    if not 1 <= k <= _MOST_BEAMS or not 1 <= count <= k:
        raise ArgumentError(
            f"`num_beams` is {k} and `num_return_sequences` {count}; there must be 1 to {_MOST_BEAMS} "
            "beams, and 1 to num_beams sequences"
        )
    every = token_scores.rules_of(*ends, min_length, ngram, **rules)
    return Search(
        token_scores.token_operands_of(*masks),
        hypotheses.Options(k, flag("early_stopping", early_stopping), every),
        count,
        1.0 if length_penalty is None else number("length_penalty", length_penalty),
        integer("vocab_size", size),
    )


def searched(run: Any, logits: Any, begin: Any, most: int, search: Search, n_outputs: int) -> tuple[Any, ...]:
    """Returns the results of a search after its first logits (B·K, V). begin: the first tokens (B·K, S)."""
    token_operands, options, count, penalty, size = search
    length, batch = begin.shape[1], begin.shape[0] // options.beams
    beams = hypotheses.first_beams(as_traced(decoders.filled((begin,), most, options.rules.pad)), batch, options)
    logits = counted_logits(logits, size)
    token_scores.check(token_operands, batch, logits.shape[1])
    steps: list[Any] = []
    end = length
    for position in range(length, most):
        operands = (logits, np.int32(position), _power(position, penalty), *token_operands, *beams)
        beams, tokens, origins, scores = hypotheses.advanced(operands, options)
        token_operands = token_operands._replace(prefix_vocab_mask=None)
        steps += [scores] if n_outputs > 2 else []
        end = position + 1
        if end == most or (not isinstance(beams.done, Tracer) and bool(beams.done.all())):
            break
        # As in onnxruntime, a single beam keeps its own caches, also after its search is done.
        chosen = None if options.beams == 1 else decoders.known_tokens(origins)
        following = decoders.known_tokens(tokens), chosen, beams.sequences, end
        logits = counted_logits(run.go_on(*following), size)
    sequences, its_scores = hypotheses.results((*beams, _power(end, penalty)), count)
    sequences = assert_sizes(sequences, (batch, count, most), np.int32)
    its_scores = assert_sizes(its_scores, (batch, count), np.float32)
    if n_outputs < 3:
        return sequences, its_scores
    nothing = [jnp.zeros_like(steps[0])] * (most - length - len(steps))
    everything = jnp.stack([*steps, *nothing]).reshape(most - length, batch, options.beams, -1)
    return sequences, its_scores, everything


def number(operand: str, value: Any) -> float:
    """Returns a static number. Raises ShapeError for several numbers."""
    values = known(operand, value)
    if values.size != 1:
        raise ShapeError(f"`{operand}` of {shape_text(values.shape)} must be one number")
    return float(values.reshape(()))


def _power(length: int, penalty: float) -> np.floating[Any]:
    """Returns the divisor of the score of a sequence."""
    return np.power(np.float32(length), np.float32(penalty))
