"""The mask of a decoder: which tokens each of the new ones sees, in the shape that the model declares."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import is_float
from jaxops.graph.nodes import Value
from jaxops.static import Dim
from jaxops.tools.generate.step_inputs import Tokens, dtype_of


def mask_input(values: Sequence[Value], tokens: Value) -> Value | None:
    """Returns the mask of the tokens, past and new; None if there is none, or a choice.

    One with a number for each token goes before those with one for each pair: (n, total), (B, n, total) or
    (B, heads, n, total), of which there must be one alone, as others may stand for windows.
    """
    masks = [value for value in values if _is_mask(value)]
    of_tokens = [value for value in masks if not _is_of_pairs(value, tokens)]
    return of_tokens[0] if of_tokens else masks[0] if len(masks) == 1 else None


def _is_mask(value: Value) -> bool:
    name = value.name.lower()
    of_encoder = "encoder" in name.replace("decoder", "") or "cross" in name
    return "mask" in name and not of_encoder and (value.shape is None or 2 <= len(value.shape) <= 4)


def _is_of_pairs(value: Value, tokens: Value) -> bool:
    """Returns True unless a mask is (B, total)."""
    if not value.shape:
        return False
    batch, count = tokens.shape or (None, None)
    return len(value.shape) > 2 or (count not in (None, batch) and value.shape[:1] == (count,))


def mask_sizes(value: Value, tokens: Value, batch: int, count: int, total: Dim) -> tuple[Dim, ...]:
    """Returns the sizes of a mask for `count` new tokens of `total`."""
    if not _is_of_pairs(value, tokens):
        return batch, total
    assert value.shape is not None
    outer, rows = value.shape[:-2], value.shape[-2]
    first = tokens.shape[0] if tokens.shape else None
    leading = (size if isinstance(size, int) else batch if size == first else 1 for size in outer)
    return *leading, 1 if rows == 1 else count, total


def filled_mask(value: Value, tokens: Value, new: Tokens, room: int) -> Any:
    """Returns a mask for new tokens, over `room` places: each token sees those up to its own.

    As in PyTorch's attention, one of floats with a number for each pair is added to scores: 0 where a token is seen,
    and else the lowest number; all others are 1 there, and else 0.
    """
    sizes = mask_sizes(value, tokens, new.batch, new.count, room)
    of_pairs = _is_of_pairs(value, tokens)
    is_of_each = of_pairs and sizes[-2] == new.count
    last = new.position + jnp.arange(new.count, dtype=np.int32) if is_of_each else jnp.reshape(new.reached - 1, 1)
    seen = jnp.broadcast_to(jnp.arange(room, dtype=np.int32)[None] <= last[:, None], sizes)
    dtype = dtype_of(value)
    if of_pairs and is_float(dtype):
        return jnp.where(seen, jnp.zeros((), dtype), jnp.finfo(dtype).min)
    return seen.astype(dtype)
