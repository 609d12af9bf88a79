"""Generation of text: prompts of any lengths in, tokens out."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.runtime.auto_axes import under_auto_axes
from jaxops.signature import RandomKeys
from jaxops.signature_errors import errors_of, explained
from jaxops.tools.generate.prompt_programs import Generating, Started, generation_of
from jaxops.tools.generate.prompts import check_vocabulary, checked_prompts, program_width
from jaxops.tools.generate.search_options import Options, Search, search, suppressed_tokens
from jaxops.tools.generate.token_loop import Request, Written

# The number of tokens that `stream=True` computes at once.
_CHUNK = 8


class Generated(NamedTuple):
    """Tokens (B, samples, n), how many of them are a row's own (B, samples), and the logarithm of each one's
    probability (B, samples, n).

    >>> import jaxops.onnx
    >>> found = generate(jaxops.onnx.load("notebooks/verses.onnx"), [[20, 5, 1]], max_tokens=4)
    >>> [x.shape for x in found]
    [(1, 1, 4), (1, 1), (1, 1, 4)]
    """

    tokens: jax.Array
    lengths: jax.Array
    log_probabilities: jax.Array


@explained
def generate(
    model: Generating,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | None = None,
    params: Mapping[str, Any] | None = None,
    key: RandomKeys | None = None,
    stop: Sequence[int] = (),
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    suppress_tokens: Sequence[int] | None = None,
    begin_suppress_tokens: Sequence[int] | None = None,
    samples: int = 1,
    stream: bool = False,
    **named: Any,
) -> Any:
    """Continues prompts of any lengths: returns (tokens (B, samples, n), lengths, log_probabilities).

    Without a key, each token is the likeliest one; with one, tokens are drawn. The key alone decides the samples. A
    prompt gets what it gets alone, whatever is beside it; drawn tokens depend on its place, too, unless it has its own
    key.

    model: a decoder with caches, such as `decoder` takes. prompts: B lists of tokens, without padding; for an
    encoder–decoder, they begin with its `decoder_start_token_id`.
    max_tokens: n, the largest number of new tokens. params: in place of `model.params`.
    key: of `jax.random`; one, or (B,), one for each prompt. stop: tokens that end a row, of which they are the last.
    temperature: by which logits are divided; 0 takes the likeliest token. top_k: draws from so many tokens; 0 is all.
    top_p: from the likeliest that have this probability together; 0 and 1 are all. min_p: from those at least `min_p`
    times as likely as the likeliest. repetition_penalty: divides positive logits of tokens that the prompt or the row
    has already, and multiplies negative ones. suppress_tokens: tokens that are never chosen. begin_suppress_tokens:
    tokens that are not the first new one. They apply in the order penalty, suppression, temperature, top_k, top_p,
    min_p.
    samples: how many rows continue each prompt. stream: returns an iterator over the parts of the results, each of up
    to eight tokens; its lengths count those of the part.
    named: further inputs, such as `encoder_hidden_states`, with a row for each prompt. A file with two decoders
    (`use_cache_branch`) makes the keys and values of the encoder's output itself; one of later tokens alone takes them,
    such as `past_key_values.0.encoder.key`: the outputs that its companion for the first token makes of it.

    Tokens (B, samples, n) are int32; those after the end of a row are padding. lengths: (B, samples), how many are the
    row's own, with the stop token. log_probabilities: (B, samples, n), by the distribution of the model, before
    penalty, suppression and temperature; 0 for padding.

    A `genai_config.json` beside the file, or else a `generation_config.json` of transformers, as optimum writes it,
    gives what is not given here: the tokens that end a row, in addition to `stop`; the padding; and the options
    `max_length` (prompt included), `max_new_tokens`, `temperature`, `top_k`, `top_p`, `min_p`, `repetition_penalty`,
    `suppress_tokens` and `begin_suppress_tokens` (Whisper's files have both), and `bad_words_ids` of one token each. If
    `do_sample` is true there, a key is needed, or temperature=0. As in transformers, a `generation_config.json` without
    `top_k` means 50.

    Programs are compiled once for numbers of prompts, for lengths of prompts between powers of two, and for lengths of
    caches; they are kept in `model.programs`. Prompts of more than 256 tokens are taken in chunks. A file that has
    neither an attention mask nor lengths, or computes logits of the last place alone, runs prompts of equal lengths
    together, and compiles a program for each length.

    Raises ShapeError for an empty prompt, and for more tokens than the file has room for; BoundsError for a token that
    the model does not have; SignatureError for a missing key and for unknown inputs; ArgumentError for a number out of
    its range, for suppressed tokens that are all there are, and for a `key` that is of another type; UnsupportedError
    for prompts of different lengths with a model that fixes its batch, and for options of such a file that `generate`
    does not have; ModelError for a file of another model, or a damaged one.

    >>> import jaxops.onnx
    >>> model = jaxops.onnx.load("notebooks/verses.onnx")
    >>> found = generate(model, [[20, 5, 1], [7, 2, 9, 4, 4]], max_tokens=6)
    >>> found.tokens.shape, found.lengths.tolist()
    ((2, 1, 6), [[6], [6]])
    >>> drawn = generate(model, [[20, 5, 1]], max_tokens=6, key=jax.random.key(0), top_k=5, samples=3)
    >>> drawn.tokens.shape
    (1, 3, 6)
    """
    with errors_of("generate"):
        made = generation_of(model)
        rows = checked_prompts(prompts)
        choice = temperature, top_k, top_p, min_p, repetition_penalty, suppress_tokens, begin_suppress_tokens
        options = Options(max_tokens, key, stop, *choice, samples)
        counts = [row.size for row in rows]
        asked = search(options, made.defaults, counts, made.vocabulary)
        for k, row in enumerate(rows):
            check_vocabulary(f"prompt {k}", row, made.vocabulary)
        longest = int(max(counts + asked.limits))
        started = made.started(model.params if params is None else params, rows, longest, named, asked.samples)
        vocabulary = started.logits.shape[-1]
        check_vocabulary("the prompts", np.concatenate(rows), vocabulary)
        suppressed = suppressed_tokens(asked, vocabulary)
    parts = _parts(started, asked, suppressed, rows, _CHUNK if stream else int(max(asked.limits)))
    return parts if stream else next(parts)


def _parts(
    started: Started, asked: Search, suppressed: np.ndarray | None, prompts: Sequence[np.ndarray], size: int
) -> Iterator[Generated]:
    """Yields the results in parts of `size` tokens, until all rows have ended."""
    loop, sampling, most = started.loop, asked.sampling, int(max(asked.limits))
    limits = np.repeat(asked.limits, asked.samples)
    request = Request(asked.keys, limits, asked.stop, np.int32(asked.pad), asked.numbers, suppressed)
    seen = _tokens_of(prompts, asked.samples, started.logits.shape[-1] if sampling.penalizes else 0)
    written = loop.first(sampling, program_width(most), request, started.logits, seen)
    state, start = started.state, 0
    for end in (*range(size, most, size), most):
        state, written = loop.more(sampling, started.params, started.named, request, np.int32(end), state, written)
        part = functools.partial(_part, (len(prompts), asked.samples), end - start)
        yield under_auto_axes(part, np.int32(start), written, like=())
        if end < most and bool(written.ended.all()):
            return
        start = end


@functools.partial(jax.jit, static_argnums=(0, 1))
def _part(rows: tuple[int, int], size: int, start: Any, written: Written) -> Generated:
    """Returns `size` columns from `start` on. rows: the numbers of prompts and of samples."""
    lengths = jnp.clip(written.lengths - start, 0, size)
    tokens, log_probabilities = (
        jax.lax.dynamic_slice_in_dim(x, start, size, 1).reshape(*rows, size)
        for x in (written.tokens, written.log_probabilities)
    )
    return Generated(tokens, lengths.reshape(rows), log_probabilities)


def _tokens_of(prompts: Sequence[np.ndarray], samples: int, size: int) -> np.ndarray:
    """Returns True for the tokens of each prompt, (B · samples, V). size: V; 0 if they are not needed."""
    seen = np.zeros((len(prompts), size), bool)
    for row, prompt in enumerate(prompts):
        seen[row, prompt if size else []] = True
    return np.repeat(seen, samples, axis=0)
