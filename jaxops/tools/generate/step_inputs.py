"""Fills inputs of a decoder that depend on the number of tokens so far, such as positions; recognized by name."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import canonical
from jaxops.errors import DTypeError, ModelError, ShapeError, SignatureError, describe
from jaxops.graph.nodes import Value
from jaxops.static import Dim, StaticValue
from jaxops.tools.generate.cache_inputs import is_of_later_tokens
from jaxops.tools.generate.tables_by_length import NUMBER


@dataclass(frozen=True)
class Tokens:
    """The facts about the tokens of a step from which inputs are filled.

    position: of the first token. total: the number of tokens including earlier ones, mostly symbolic. reached: the
    number of tokens after the step, for some files with padding at the end. known: it without padding. is_first:
    whether there are none before.
    """

    batch: int
    count: int
    position: Any
    total: Dim
    reached: Any
    known: Any
    is_first: bool = False


def rows_of(tokens: Any, formal: Value, length: int) -> Any:
    """The tokens (B, n) in the type of the model's input. Raises DTypeError, and ShapeError for more than `length`."""
    if not jnp.issubdtype(tokens.dtype, jnp.integer) or tokens.ndim not in (1, 2):
        raise DTypeError(f"tokens are integers (B,) or (B, n), not {describe(tokens)}")
    rows = tokens.reshape(tokens.shape[0], -1).astype(dtype_of(formal))
    if rows.shape[1] > length:
        raise ShapeError(f"{rows.shape[1]} tokens are more than the length {length} of the decoder")
    return rows


def dtype_of(value: Value) -> np.dtype:
    """The type of an input as a JAX array."""
    return canonical(np.float32 if value.dtype is None else value.dtype)


def _kind(value: Value) -> str:
    """The last part of a name, without the name of a module."""
    return value.name.lower().rpartition(".")[2].rpartition("/")[2]


def is_filled(value: Value) -> bool:
    """Returns True if the decoder fills this input."""
    return _kind(value) in _FILLED


def missing(value: Value) -> SignatureError:
    """Returns the error for an input that is neither filled nor given."""
    given = f"{value.name}=…" if value.name.isidentifier() else f"**{{'{value.name}': …}}"
    made = "decoder_model.onnx makes it of the encoder's output; " if is_of_later_tokens([value]) else ""
    return SignatureError(
        f"input '{value.name}' is missing: {value}\n"
        f"  hint    {made}give it by name at each step, step(params, state, tokens, {given}), or to generate"
    )


def continues_rows(value: Value) -> bool:
    """Returns True for an input with the row of the caches that each row goes on with, as a beam search gives it."""
    return _kind(value) == "beam_idx"


def filled_input(value: Value, tokens: Tokens) -> Any:
    """The value of a filled input for a step of these tokens."""
    return _FILLED[_kind(value)](value, tokens)


def _positions(value: Value, tokens: Tokens) -> Any:
    """Returns positions, counted from 0 for each row."""
    steps = tokens.position + jnp.arange(tokens.count, dtype=np.int32)
    is_shared = value.shape is not None and len(value.shape) == 1
    return (steps if is_shared else jnp.broadcast_to(steps, (tokens.batch, tokens.count))).astype(dtype_of(value))


def _last_places(value: Value, tokens: Tokens) -> Any:
    """Returns the number of tokens of each row, minus 1."""
    lengths = jnp.full((tokens.batch,), tokens.reached, np.int32)
    return (lengths - 1).reshape(-1, *[1] * (len(value.shape or (0,)) - 1)).astype(dtype_of(value))


def _filled_rows(value: Value, tokens: Tokens) -> Any:
    """The number of rows of a cache that hold a token: all rows of a circular cache after its first round."""
    reached = tokens.position + tokens.count
    rows = jnp.minimum(reached, tokens.total) if isinstance(tokens.total, int) else reached
    return jnp.full((tokens.batch,), rows, dtype_of(value))


def _size(of: Callable[[Tokens], Dim]) -> Callable[[Value, Tokens], Any]:
    def fill(value: Value, tokens: Tokens) -> Any:
        size = of(tokens)
        kind = value.dtype if isinstance(size, int) else object  # symbolic sizes have no type
        return StaticValue(np.full([1] * len(value.shape or ()), size, kind))

    return fill


# The inputs that are filled, by the names that exporters give them.
_FILLED: dict[str, Callable[[Value, Tokens], Any]] = {
    "position_ids": _positions,
    "positions": _positions,
    "cache_position": lambda value, tokens: (tokens.position + jnp.arange(tokens.count)).astype(dtype_of(value)),
    "write_indices": lambda value, tokens: jnp.full((tokens.batch,), tokens.position, dtype_of(value)),
    "nonpad_kv_seqlen": _filled_rows,
    "seqlens_k": _last_places,
    NUMBER: lambda value, tokens: jnp.full((tokens.batch,), tokens.known, np.int32),
    "beam_idx": lambda value, tokens: jnp.arange(tokens.batch, dtype=dtype_of(value)),
    "total_sequence_length": _size(lambda tokens: tokens.total),
    "past_sequence_length": _size(lambda tokens: tokens.total - tokens.count),
    # In a file with two decoders, for the first tokens and for later ones: True selects the one with a cache.
    "use_cache_branch": lambda value, tokens: StaticValue(np.full([1] * len(value.shape or ()), not tokens.is_first)),
}


def tokens_input(inputs: tuple[Value, ...], caches: Collection[str]) -> Value:
    """Returns the input for the tokens. caches: the names of inputs that are caches."""
    for value in inputs:
        integers = value.dtype is not None and value.dtype.kind in "iu"
        other = value.name in caches or is_filled(value) or "mask" in value.name.lower()
        if integers and not other and (value.shape is None or len(value.shape) == 2):
            return value
    raise ModelError(f"no input for tokens was found, integers (B, n): the inputs are {', '.join(map(str, inputs))}")
