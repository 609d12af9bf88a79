"""Calls of a decoder by a search: first with a prompt, then token by token, with caches that grow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer
from jaxops.dtypes import as_traced
from jaxops.errors import (
    ArgumentError,
    DTypeError,
    ShapeError,
    SignatureError,
    SizeError,
    StaticError,
    describe,
    shape_text,
)
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import Subgraph
from jaxops.static import CUTTABLE, Tracer, jit_if_concrete

Decoder: TypeAlias = Annotated[Callable[..., Sequence[Any]], Subgraph(modifies=True, several=True)]

_LONGEST = 4096  # onnxruntime's limit
_OWN = 3  # inputs of a decoder before its caches


@dataclass(frozen=True)
class Prompt:
    """Tokens (rows, length), their positions, the mask of those that may be seen, and the first position after."""

    tokens: Any
    positions: Any
    mask: Any
    after: Any


def check_cut() -> None:
    """Raises StaticError if the program may be cut before the search.

    The search then runs step by step on known values: one compiled program serves caches of many sizes, and the search
    ends when all sequences have ended.
    """
    if CUTTABLE.get():
        raise StaticError("the number of steps depends on the tokens")


def check_ids(input_ids: Any, attention_mask: Any) -> None:
    """Raises ShapeError or DTypeError for a prompt that is not int32 (B, S), or a mask of another shape."""
    for name, value in (("input_ids", input_ids), ("attention_mask", attention_mask)):
        if value is not None and value.dtype != np.int32:
            raise DTypeError(f"`{name}` must be int32, got {describe(value)}")
    if input_ids.ndim != 2 or 0 in input_ids.shape:
        raise ShapeError(f"`input_ids` of {shape_text(input_ids.shape)} must be (batch, sequence), and not empty")
    if attention_mask is not None:
        must_fit("attention_mask", attention_mask.shape, input_ids.shape, reason=", the shape of `input_ids`")


def last_length(max_length: Any, length: Any, operand: str = "input_ids") -> int:
    """Returns the static length of the sequences that a search returns. operand: the tokens that they begin with."""
    most = integer("max_length", max_length)
    if not isinstance(length, int):
        raise SizeError(f"the length {length} of `{operand}` must be a number, as each step is traced", length)
    if not length < most <= _LONGEST:
        raise ArgumentError(
            f"`max_length` is {most}; it must be more than the {length} tokens of `{operand}`, and at most {_LONGEST}"
        )
    return most


@jit_if_concrete
def filled(operands: tuple[Any], most: int, pad: int) -> Any:
    """Pads sequences (rows, S) to (rows, most)."""
    (tokens,) = operands
    return jnp.pad(tokens, ((0, 0), (0, most - tokens.shape[1])), constant_values=pad)


def prompt(input_ids: Any, attention_mask: Any, pad: int) -> Prompt:
    """Returns the prompt as a decoder takes it. Pads have position 0, and are masked if no mask is given.

    As in onnxruntime, positions follow from pads even if a mask is given.
    """
    (mask, positions, after) = _counted((input_ids,), pad)
    return Prompt(input_ids, positions, mask if attention_mask is None else attention_mask, after)


@jit_if_concrete
def _counted(operands: tuple[Any], pad: int) -> tuple[Any, Any, Any]:
    mask = jnp.asarray(operands[0] != pad, np.int32)
    counts = jnp.cumsum(mask, axis=1, dtype=np.int32)
    return mask, mask * (counts - 1), counts[:, -1]


@dataclass
class Decoding:
    """Calls of a decoder, and its state between them. first: the decoder of the prompt."""

    decoder: Any
    first: Any
    mask: Any
    after: Any
    caches: list[Any]

    def start(self, prompt: Prompt) -> Any:
        """Returns the logits (rows, V) after the prompt."""
        return self._call(self.first, prompt.tokens, prompt.positions)

    def go_on(self, tokens: Any, chosen: Any = None, *_: Any) -> Any:
        """Returns the logits after one more token per row. chosen: the rows whose caches are read; None: their own."""
        if chosen is not None:
            self.caches = [of_rows(cache, chosen, 1) for cache in self.caches]
        xp = jnp if isinstance(self.mask, Tracer) else np
        one = xp.ones((tokens.shape[0], 1), np.int32)
        self.mask = xp.concatenate([self.mask, one], 1)
        self.after = self.after + one[:, 0]
        return self._call(self.decoder, tokens[:, None], self.after[:, None] - one)

    def _call(self, decoder: Any, tokens: Any, positions: Any) -> Any:
        outputs = decoder(tokens, positions, self.mask, *self.caches)
        if not isinstance(outputs, Sequence) or len(outputs) != 1 + len(self.caches):
            raise SignatureError(f"the decoder takes {len(self.caches)} caches; it must return the logits and these")
        self.caches = [as_traced(cache) for cache in outputs[1:]]
        return last_logits(outputs[0], tokens)


def last_logits(logits: Any, tokens: Any) -> Any:
    """Returns the logits (rows, V) after the last of tokens (rows, n). Raises ShapeError for logits of other sizes."""
    logits = as_traced(logits)
    if logits.ndim != 3 or logits.shape[0] != tokens.shape[0] or logits.shape[1] == 0:
        raise ShapeError(
            f"the decoder must return logits (batch, sequence, vocabulary) for tokens "
            f"{shape_text(tokens.shape)}, got {shape_text(logits.shape)}"
        )
    return _last((logits,))


@jit_if_concrete
def _last(operands: tuple[Any]) -> Any:
    return operands[0][:, -1].astype(np.float32)


def of_rows(x: Any, rows: Any, axis: int) -> Any:
    """Returns some entries of an axis. For known values NumPy does it, so that growing sizes need no programs."""
    if isinstance(x, Tracer) or isinstance(rows, Tracer):
        return jnp.take(x, rows, axis=axis)
    return np.take(np.asarray(x), np.asarray(rows), axis=axis)


def decoding(decoder: Any, first: Any, prompt: Prompt) -> Decoding:
    """Returns a decoder before the prompt, with empty caches."""
    declared = getattr(decoder, "inputs", None)
    if declared is None:
        raise ArgumentError(
            "`decoder` needs an attribute `inputs`: values with a shape and a dtype, as a model's graph has them"
        )
    rows, caches = prompt.tokens.shape[0], []
    for position, value in enumerate(declared[_OWN:]):
        shape = value.shape
        if shape is None or len(shape) != 5 or shape[0] != 2 or not all(type(shape[k]) is int for k in (2, 4)):
            raise ShapeError(
                f"input {_OWN + position} of `decoder`, a cache, must be (2, batch, heads, past, head size) with "
                f"numbers for heads and head size, but is {'of no known shape' if shape is None else shape_text(shape)}"
            )
        caches.append(jnp.zeros((2, rows, shape[2], 0, shape[4]), value.dtype))
    if not caches:
        raise ShapeError("`decoder` must take tokens, positions, a mask, and at least one cache")
    return Decoding(decoder, first or decoder, known_tokens(prompt.mask), known_tokens(prompt.after), caches)


def known_tokens(tokens: Any) -> Any:
    """Returns tokens, or numbers that belong to them, for the next step: as NumPy arrays if they are known.

    NumPy needs no compiled program for sizes that grow step by step.
    """
    return tokens if isinstance(tokens, Tracer) else np.asarray(tokens)
