"""Chunks of one size of long prompts, so that one program of bounded memory serves prompts of all lengths."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxops.tools.generate.padded_prompts import last_aligned


class Chunk(NamedTuple):
    """A part of the prompts: tokens (B, n), their mask (B, n) if there is one, and further inputs (B, n, …)."""

    tokens: Any
    mask: Any
    named: dict[str, Any]


def chunks_of(tokens: Any, mask: Any, named: Mapping[str, Any], size: int, pads: bool) -> list[Chunk]:
    """Returns prompts (B, n) in chunks whose tokens all end in the last one; only the first may be smaller than `size`.

    mask: (B, n), 0 for padding, or None. named: further arrays (B, n, …). pads: whether the first chunk is filled up
    with padding, so that all have the same size.
    """
    arrays = {**named, "": tokens}
    if mask is not None:
        moved = last_aligned(mask)
        arrays = {name: moved.moved(x) for name, x in arrays.items()}
        mask = moved.moved(mask)
    if pads:
        more = -tokens.shape[1] % size
        mask = _behind(more, jnp.ones(tokens.shape, np.int32) if mask is None else mask)
        arrays = {name: _behind(more, x) for name, x in arrays.items()}
    width = arrays[""].shape[1]
    starts = [0, *range(width % size or size, width, size)]
    ends = [*starts[1:], width]
    return [
        Chunk(x.pop(""), None if mask is None else mask[:, a:b], x)
        for a, b in zip(starts, ends, strict=True)
        for x in [{name: x[:, a:b] for name, x in arrays.items()}]
    ]


def _behind(count: int, x: Any) -> Any:
    """Returns an array (B, n, …) with zeros before its `n` entries."""
    return jnp.pad(x, [(0, 0), (count, 0), *[(0, 0)] * (x.ndim - 2)])
