"""The options of `generate`: those of a call, and for the rest those of the file."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer, ints
from jaxops.errors import ArgumentError, ShapeError, SignatureError
from jaxops.signature_errors import check_keys
from jaxops.tools.generate.generation_defaults import Defaults
from jaxops.tools.generate.prompts import check_vocabulary
from jaxops.tools.generate.sampling import Numbers, Sampling


class Options(NamedTuple):
    """The options of a call, as `generate` takes them; None for those of the file."""

    max_tokens: Any
    key: Any
    stop: Sequence[int]
    temperature: Any
    top_k: Any
    top_p: Any
    min_p: Any
    repetition_penalty: Any
    suppress_tokens: Sequence[int] | None
    begin_suppress_tokens: Sequence[int] | None
    samples: Any


class Search(NamedTuple):
    """A checked search. keys: (B · samples,), or None for the likeliest tokens. limits: how many tokens each prompt may
    get. stop: the tokens that end a row. suppress: tokens that are never chosen. begin_suppress: tokens that are not
    the first new one."""

    sampling: Sampling
    numbers: Numbers
    keys: Any
    limits: np.ndarray
    stop: np.ndarray
    pad: int
    samples: int
    suppress: tuple[int, ...]
    begin_suppress: tuple[int, ...]


def search(options: Options, defaults: Defaults, counts: Sequence[int], vocabulary: int | None) -> Search:
    """Returns the search of a call. counts: the number of tokens of each prompt.

    Raises ArgumentError for a number out of its range and for a wrong key, and SignatureError for a missing key or
    `max_tokens`.
    """
    temperature = _number("temperature", options.temperature, defaults.temperature, least=0)
    top_p = _number("top_p", options.top_p, defaults.top_p, least=0, most=1)
    min_p = _number("min_p", options.min_p, defaults.min_p, least=0, most=1)
    penalty = _number("repetition_penalty", options.repetition_penalty, defaults.repetition_penalty, least=0)
    if penalty == 0:
        raise ArgumentError("`repetition_penalty` is 0; 1 changes nothing, and more makes repetitions less likely")
    top_k = integer("top_k", defaults.top_k if options.top_k is None else options.top_k, least=0)
    samples = integer("samples", options.samples, least=1)
    if options.key is not None:
        check_keys("key", options.key)
    likeliest = temperature == 0 or top_k == 1
    asked = [n for n in ("temperature", "top_k", "top_p", "min_p") if getattr(options, n) is not None]
    asked += ["samples"] if samples > 1 else []
    if options.key is None and not likeliest and (asked or defaults.do_sample):
        why = f"`{asked[0]}` asks" if asked else f"the model's {defaults.file} asks (do_sample)"
        raise SignatureError(
            f"{why} for drawn tokens, which need a key\n"
            "  hint    key=jax.random.key(0), or temperature=0 for the likeliest tokens"
        )
    stop = _tokens("stop", options.stop, (), vocabulary)
    numbers = Numbers(*(np.float32(x) for x in (temperature, top_p, min_p, penalty)))
    draws = options.key is not None and not likeliest
    return Search(
        Sampling(draws, top_k if draws else 0, draws and 0 < top_p < 1, penalty != 1),
        numbers,
        _keys(options.key, len(counts), samples) if draws else None,
        _limits(options.max_tokens, defaults, counts),
        np.array([*stop, *defaults.stop], np.int32),
        defaults.pad,
        samples,
        _tokens("suppress_tokens", options.suppress_tokens, defaults.suppress_tokens, vocabulary),
        _tokens("begin_suppress_tokens", options.begin_suppress_tokens, defaults.begin_suppress_tokens, vocabulary),
    )


def suppressed_tokens(asked: Search, vocabulary: int) -> np.ndarray | None:
    """Returns True for suppressed tokens (2, V), of the first new token and of later ones; None if there are none.

    Raises BoundsError for a token that the model does not have, and ArgumentError if no token is left.
    """
    if not asked.suppress and not asked.begin_suppress:
        return None
    found = np.zeros((2, vocabulary), bool)
    for name, rows, tokens in (
        ("suppress_tokens", 2, asked.suppress),
        ("begin_suppress_tokens", 1, asked.begin_suppress),
    ):
        check_vocabulary(f"`{name}`", tokens, vocabulary)
        found[:rows, list(tokens)] = True
    if found.all(1).any():
        raise ArgumentError(f"`suppress_tokens` and `begin_suppress_tokens` leave none of the {vocabulary} tokens")
    return found


def _tokens(name: str, given: Any, default: tuple[int, ...], vocabulary: int | None) -> tuple[int, ...]:
    found = default if given is None else ints(name, given, single=True)
    check_vocabulary(f"`{name}`", found, vocabulary)
    return found


def _number(name: str, given: Any, default: float, *, least: float, most: float = np.inf) -> float:
    value = default if given is None else given
    if isinstance(value, str) or np.ndim(value) or not least <= value <= most:
        limits = f"at least {least}" if most == np.inf else f"from {least} to {most}"
        raise ArgumentError(f"`{name}` is {value!r:.80}; it must be a number, {limits}")
    return float(value)


def _limits(max_tokens: Any, defaults: Defaults, counts: Sequence[int]) -> np.ndarray:
    if max_tokens is not None:
        limits = np.full(len(counts), integer("max_tokens", max_tokens, least=1), np.int32)
    elif defaults.max_tokens:
        limits = np.full(len(counts), defaults.max_tokens, np.int32)
    elif defaults.max_length:
        limits = np.array([defaults.max_length - count for count in counts], np.int32)
    else:
        raise SignatureError("`max_tokens` is missing: how many tokens a row gets at most; no file says it")
    longest, room = int(max(counts + limits)), defaults.room or int(max(counts + limits))
    if longest > room or min(limits) < 1:
        raise ShapeError(
            f"prompts of up to {max(counts)} tokens and {max(1, *limits)} more exceed the {room} tokens of the model "
            f"({defaults.file})\n  hint    shorten the prompts, or give a smaller max_tokens"
        )
    return limits


def _keys(key: Any, batch: int, samples: int) -> jax.Array:
    """Returns a key for each sample of each prompt. key: one, or one for each prompt."""
    key = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
    if key.ndim == 0:
        key = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(batch))
    if key.shape != (batch,):
        raise ShapeError(f"`key` has shape {key.shape}; give one key, or one for each of {batch} prompts")
    per_sample = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(key, jnp.arange(samples))
    return per_sample.reshape(-1)
