"""Speech to text: a decoder writes the text of a recording that an encoder has read."""

__all__ = ["whisper_beam_search"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import flag, integer
from jaxops.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, describe, shape_text
from jaxops.ops.microsoft.search import beams, encoded_decoders, searched_decoders as decoders, timestamps
from jaxops.ops.microsoft.search.greedy import counted_logits
from jaxops.ops.microsoft.search.searched_decoders import Decoder
from jaxops.signature import Static
from jaxops.static import ArrayLike, array


def whisper_beam_search(
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
    cross_qk_layer_head: ArrayLike | None = None,
    extra_decoding_ids: ArrayLike | None = None,
    temperature: Static = None,
    *,
    decoder: Decoder,
    encoder: Decoder | None = None,
    eos_token_id: int,
    pad_token_id: int,
    decoder_start_token_id: int = -1,
    beginning_timestamp_token_id: int = -1,
    no_timestamps_token_id: int = -1,
    start_of_lm_token_id: int = -1,
    transcribe_token_id: int = -1,
    translate_token_id: int = -1,
    no_speech_token_id: int = -1,
    decoder_output_cross_qk: int = 0,
    early_stopping: int = 0,
    init_decoder: Decoder | None = None,
    model_type: int = 2,
    no_repeat_ngram_size: int = 0,
    vocab_size: int = -1,
    n_outputs: int = 3,
) -> tuple[jax.Array, ...]:
    """Finds the likeliest transcripts of speech by Whisper, with the beams of `beam_search`.

    input_ids: floating (B, bands, frames), the sound. decoder_input_ids: int32 (B, S), the tokens that all sequences
    begin with; None: decoder_start_token_id. temperature: the logarithms of probabilities are divided by it after
    all masks; 0 or less has no effect.

    logits_processor: 1 for texts with times, which are the tokens from beginning_timestamp_token_id on: no_timestamps
    and start_of_lm never follow; the start, transcribe and translate do not follow the first time. Times come in pairs,
    except the first one, and do not decrease; a time must follow if all together are likelier than any other token.
    Other numbers of at least 0: no such rules. no_speech_token_id, init_decoder, cross_qk_layer_head and
    extra_decoding_ids have no effect on the supported results, as in onnxruntime.

    `encoder` takes the sound and the first tokens (B, S), and returns logits (B, S, V), its states, and four caches per
    layer, the decoder's before its own. `decoder` takes tokens (B·K, 1), or all tokens if that size is not 1 in
    decoder.inputs, the states if it has such an operand (onnxruntime gives it others, of their shape), and caches; it
    returns what the decoder of `beam_search` returns.

    Returns the sequences, their scores, and the scores of all tokens in each step (M - S, B, K, V): see `beam_search`,
    also for the remaining operands. onnxruntime has the last two outputs, cross_qk and non_speech_probs, only on
    GPUs; here they are unsupported, as are decoder_output_cross_qk, and attention_mask, which nothing reads.
    Raises ShapeError, DTypeError, ArgumentError, UnsupportedError, SignatureError for a decoder that returns too much.
    Source: com.microsoft WhisperBeamSearch, opset 1.

    >>> def decoder(tokens, own_keys, own_values, keys, values):  # each token is followed by the next number
    ...     own = jnp.pad(own_keys, ((0, 0), (0, 0), (0, 1), (0, 0)))
    ...     return jax.nn.one_hot(tokens + 1, 9), own, own
    >>> def encoder(sound, tokens):
    ...     return jax.nn.one_hot(tokens + 1, 9), sound, *[jnp.zeros((1, 1, 1, 1))] * 4
    >>> decoder.inputs, encoder.inputs = [jax.ShapeDtypeStruct((1, 1), np.int32)] + [None] * 4, [None] * 2
    >>> given = {"decoder": decoder, "encoder": encoder, "eos_token_id": 8, "pad_token_id": 0, "n_outputs": 1}
    >>> whisper_beam_search(np.zeros((1, 80, 9), np.float32), 4, decoder_start_token_id=3, **given)[0].tolist()
    [[[3, 4, 5, 6]]]
    """
    decoders.check_cut()
    if n_outputs > 3 or flag("decoder_output_cross_qk", decoder_output_cross_qk):
        raise UnsupportedError(
            "the outputs `cross_qk` and `non_speech_probs` are not computed, as onnxruntime has them only on "
            "GPUs; leave them out, and `decoder_output_cross_qk` 0"
        )
    if attention_mask is not None:
        raise UnsupportedError("nothing reads `attention_mask`; leave it out")
    sound = array(input_ids)
    if sound.ndim != 3 or 0 in sound.shape:
        raise ShapeError(f"`input_ids` of {shape_text(sound.shape)} must be (batch, bands, frames), and not empty")
    if not jnp.issubdtype(sound.dtype, jnp.floating):
        raise DTypeError(f"`input_ids` must be floating, got {describe(sound)}")
    if integer("model_type", model_type) != 2 or encoder is None:
        raise ArgumentError(
            f"`model_type` is {model_type}, {'without' if encoder is None else 'with'} an `encoder`; it must be "
            "2, with one"
        )
    start = integer("decoder_start_token_id", decoder_start_token_id)
    tokens = _first_tokens(sound.shape[0], decoder_input_ids, start)
    most = decoders.last_length(max_length, tokens.shape[1], "decoder_input_ids")
    processor = 0 if logits_processor is None else integer("logits_processor", logits_processor)
    if processor < 0:
        raise ArgumentError(f"`logits_processor` is {processor}; it must be 0 or more")
    begin = integer("beginning_timestamp_token_id", beginning_timestamp_token_id)
    never_said = (no_timestamps_token_id, start_of_lm_token_id)
    times = timestamps.Tokens(begin, never_said, (start, transcribe_token_id, translate_token_id))
    search = beams.search(
        masks=(repetition_penalty, vocab_mask, prefix_vocab_mask),
        beams=(num_beams, num_return_sequences),
        ends=(eos_token_id, pad_token_id),
        min_length=min_length,
        length_penalty=length_penalty,
        early_stopping=early_stopping,
        ngram=no_repeat_ngram_size,
        size=vocab_size,
        temperature=1.0 if temperature is None else max(beams.number("temperature", temperature), 0.0),
        times=times if processor == 1 else None,
    )
    k = search.options.beams
    run, logits = encoded_decoders.encoded((decoder, encoder), (sound,), (), tokens, k)
    if logits is None:
        raise ShapeError("`encoder` must take the sound and the first tokens, and return logits")
    size = counted_logits(logits, search.size).shape[1]
    if processor == 1 and not 0 < begin < size:
        raise ArgumentError(
            f"`beginning_timestamp_token_id` is {begin}; with `logits_processor` 1 it must be 1 to {size - 1}"
        )
    rows = np.repeat(np.arange(sound.shape[0]), k)
    many = decoders.of_rows(tokens, rows, 0)
    return beams.searched(run, jnp.take(logits, rows, axis=0), many, most, search, n_outputs)


def _first_tokens(batch: int, ids: Any, start: int) -> Any:
    """Returns the tokens (B, S) that all sequences begin with."""
    if ids is None:
        if start < 0:
            raise ArgumentError(f"`decoder_start_token_id` is {start}; without `decoder_input_ids` it is needed")
        return np.full((batch, 1), start, np.int32)
    tokens = array(ids)
    if tokens.dtype != np.int32:
        raise DTypeError(f"`decoder_input_ids` must be int32, got {describe(tokens)}")
    if tokens.ndim != 2 or tokens.shape[0] != batch or tokens.shape[1] == 0:
        raise ShapeError(
            f"`decoder_input_ids` of {shape_text(tokens.shape)} must be ({batch}, sequence), and not empty"
        )
    return tokens
