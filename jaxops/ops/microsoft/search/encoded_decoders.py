"""Decoders that read the states of an encoder, as a beam search calls them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, SignatureError, shape_text
from jaxops.ops.microsoft.search.searched_decoders import known_tokens, last_logits, of_rows
from jaxops.static import jit_if_concrete


@jit_if_concrete
def mask_of(operands: tuple[Any], pad: int) -> Any:
    """Returns 1 for each token of a prompt, and 0 for the pads before its first other token."""
    counts = jnp.cumsum(jnp.asarray(operands[0] != pad, np.int32), axis=1)
    return jnp.asarray(counts > 0, np.int32)


@dataclass
class Encoded:
    """The calls of a decoder, and the arrays that it reads."""

    decoder: Any
    before: list[Any]
    grown: list[Any]
    crossed: list[Any]
    takes_all: bool

    def go_on(self, tokens: Any, chosen: Any, sequences: Any, length: int) -> Any:
        """Returns the logits (rows, V) after one more token per row.

        chosen: the rows whose caches are read; None: each row reads its own. sequences: the first `length` tokens are
        those so far.
        """
        if chosen is not None:
            self.grown = [of_rows(cache, chosen, 0) for cache in self.grown]
        ids = sequences[:, :length] if self.takes_all else tokens[:, None]
        outputs = self.decoder(ids, *self.before, *self.grown, *self.crossed)
        if not isinstance(outputs, Sequence) or len(outputs) != 1 + len(self.grown):
            raise SignatureError(
                f"the decoder has {len(self.grown)} caches of its own; it must return the logits and these"
            )
        self.grown = [as_traced(cache) for cache in outputs[1:]]
        return last_logits(outputs[0], ids)


def encoded(
    pair: tuple[Any, Any], encoder_inputs: tuple[Any, ...], masks: tuple[Any, ...], starts: Any, beams: int
) -> tuple[Encoded, Any]:
    """Returns a decoder before its first token, and the logits (B, V) if the encoder returns them, else None.

    pair: decoder and encoder. encoder_inputs: the arrays that the encoder reads. masks: arrays that the decoder reads,
    too. starts: the tokens (B, S) that all sequences begin with.
    """
    decoder, encoder = pair
    takes = [getattr(fn, "inputs", None) for fn in pair]
    if takes[0] is None or takes[1] is None:
        raise ArgumentError(
            "`decoder` and `encoder` need an attribute `inputs`: values with a shape and a dtype, "
            "as a model's graph has them"
        )
    batch, old = starts.shape[0], len(takes[1]) == len(encoder_inputs) + 1
    outputs = [as_traced(x) for x in encoder(*encoder_inputs, *([starts] if old else []))]
    logits = last_logits(outputs[0], starts) if old else None
    states = outputs[1:2] if old else []
    caches = outputs[2:] if old else outputs
    # In the first form, half of the caches are the decoder's own; the second form has only the encoder's.
    caches_of_decoder, crossed = (caches[: len(caches) // 2], caches[len(caches) // 2 :]) if old else ([], caches)
    first = len(takes[0]) - 2 * len(crossed)
    least = 1 + len(masks)
    if not crossed or first not in (least, least + 1) or (first > least and not states):
        before = f"{', a mask' if masks else ''}{', states' if states else ''}"
        raise ShapeError(
            f"`encoder` returns {len(outputs)} values, and `decoder` takes {len(takes[0])}; it must take tokens"
            f"{before}, and twice the {len(crossed)} caches of the encoder"
        )
    rows = np.repeat(np.arange(batch), beams)
    if not old:
        for position, value in enumerate(takes[0][first : first + len(crossed)], first):
            sizes = () if value.shape is None else value.shape
            if len(sizes) != 4 or not all(type(sizes[k]) is int for k in (1, 3)):
                raise ShapeError(
                    f"input {position} of `decoder`, a cache, must be (batch, heads, past, head size) with "
                    f"numbers for heads and head size, but is {shape_text(sizes)}"
                )
            caches_of_decoder.append(jnp.zeros((batch, sizes[1], 0, sizes[3]), value.dtype))
    expand = lambda values: [of_rows(x, rows, 0) for x in values]  # noqa: E731
    before = expand([*(known_tokens(mask) for mask in masks), *(states if first > least else [])])
    shape = takes[0][0].shape
    takes_all = shape is not None and shape[1] != 1
    return Encoded(decoder, before, expand(caches_of_decoder), expand(crossed), takes_all), logits
