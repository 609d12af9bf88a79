"""The state of a decoder: caches in which each row has its own number of tokens."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.errors import ModelError, ShapeError, SignatureError
from jaxops.runtime.arguments import to_operand
from jaxops.tools.generate.cache_inputs import Cache


class DecoderState(NamedTuple):
    """The values that a step takes from the step before it; a pytree of fixed shapes.

    position: int32 (B,), the number of tokens of each row so far, without padding. caches: input name → keys or values
    with room for `length` tokens. A row's tokens lie at its first places; the places after them are zero.

    >>> DecoderState(jnp.zeros(2, np.int32), {}).position
    Array([0, 0], dtype=int32)
    """

    position: jax.Array
    caches: dict[str, jax.Array]


def with_past(caches: Sequence[Cache], past: Mapping[str, Any], length: int, batch: int) -> DecoderState:
    """Returns the state after earlier tokens. past: their keys and values, by the name of the input for each cache.

    length: the largest number of tokens. batch: the number of rows of a model that fixes its batch.
    """
    names = [c.past.name for c in caches]
    wrong = [name for name in (*past, *names) if (name in past) != (name in names)]
    if wrong:
        raise SignatureError(f"past: '{wrong[0]}' is {'unknown' if wrong[0] in past else 'missing'}; give {names}")
    arrays, counts = {}, set()
    for cache in caches:
        value = to_operand(cache.past, past[cache.past.name])
        count = value.shape[cache.axis]
        room = max(cache.window, count) if cache.window else length
        if count > room:
            raise ShapeError(f"past: '{cache.past.name}' has {count} tokens, more than the length {length}")
        arrays[cache.past.name] = cache.grown(value, room)
        if not (cache.window and count):
            counts.add(count)
        batch = batch if cache.batch is None else value.shape[cache.batch]
    if len(counts) > 1:
        raise ShapeError(f"past: the caches hold different numbers of tokens: {sorted(counts)}")
    if not counts:
        raise ModelError(
            "past: all caches slide, so the number of tokens is not known\n"
            "  hint    begin with init(batch), and give these tokens as a prompt"
        )
    (count,) = counts
    return DecoderState(jnp.full(batch, count, np.int32), arrays)


def inserted(caches: Sequence[Cache], state: DecoderState, rows: Any, other: DecoderState) -> DecoderState:
    """Returns a state with the rows of another one in place of some. rows: integers (R,), where each row goes."""
    axes = {cache.past.name: cache.batch or 0 for cache in caches}
    written = {
        name: x.at[(*[slice(None)] * axes[name], rows)].set(other.caches[name].astype(x.dtype))
        for name, x in state.caches.items()
    }
    return DecoderState(state.position.at[rows].set(other.position), written)


def rewound(caches: Sequence[Cache], state: DecoderState, counts: jax.Array) -> DecoderState:
    """Returns a state without the last tokens of its rows. counts: of these, one integer or (B,)."""
    position = jnp.maximum(state.position - counts, 0)
    return DecoderState(position, only_first_tokens(caches, state.caches, position))


def repeated(caches: Sequence[Cache], state: DecoderState, count: int) -> DecoderState:
    """Returns a state with each row `count` times, one after the other."""
    axes = {cache.past.name: cache.batch or 0 for cache in caches}
    arrays = {name: jnp.repeat(x, count, axes[name]) for name, x in state.caches.items()}
    return DecoderState(jnp.repeat(state.position, count), arrays)


def only_first_tokens(caches: Sequence[Cache], arrays: dict[str, jax.Array], counts: jax.Array) -> dict[str, jax.Array]:
    """Returns the caches with zeros after the first tokens of each row.

    counts: (B,), the numbers of these tokens; all equal if the model fixes its batch.
    """

    def cleared(cache: Cache, x: jax.Array) -> jax.Array:
        if cache.window:
            return x
        places = jax.lax.broadcasted_iota(
            np.int32, [n if k == cache.axis else 1 for k, n in enumerate(x.shape)], cache.axis
        )
        rows = (
            counts[0] if cache.batch is None else counts.reshape([-1 if k == cache.batch else 1 for k in range(x.ndim)])
        )
        return jnp.where(places < rows, x, jnp.zeros((), x.dtype))

    return {cache.past.name: cleared(cache, arrays[cache.past.name]) for cache in caches}
