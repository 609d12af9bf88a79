"""Aggressive decoding, which copies tokens from a source as long as a decoder predicts the same ones."""

__all__ = ["bifurcation_detector"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import integral
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import unbounded
from jaxops.signature import Static
from jaxops.static import ArrayLike, Tracer, is_static, jit_if_concrete

_NAMES = ("src_tokens", "cur_tokens", "prev_suffix_match_idx", "pred_tokens")


def bifurcation_detector(
    src_tokens: ArrayLike,
    cur_tokens: ArrayLike,
    prev_suffix_match_idx: ArrayLike,
    pred_tokens: ArrayLike | None = None,
    *,
    max_ngram_size: int = 3,
    min_ngram_size: int = 1,
    size: Static = None,
) -> tuple[jax.Array, jax.Array]:
    """Appends predicted tokens up to the first that differs from the source, and returns where to continue in the
    source.

    src_tokens, cur_tokens: integers (S,) and (C,). prev_suffix_match_idx: one integer p, 0 to S, with no axis or one.
    pred_tokens: integers (S + 1 - p,), the predictions of a decoder for the tokens of the source from p on, and one
    more; the first one that differs from the source is the last one appended. None appends nothing. Returns the tokens,
    (C,) to (C + S + 1 - p,), and an array like p: the place after the only n-gram in the source that equals their end,
    or -1. n grows from min_ngram_size to max_ngram_size, until the n-gram is not in the source or is its end. size:
    static, the number of tokens that the first result is cropped or padded to (with -1); needed if the operands are
    traced and pred_tokens is given. Raises StaticError for traced operands without `size`,
    ShapeError, ArgumentError, DTypeError. Source: com.microsoft BifurcationDetector, opset 1.

    >>> tokens, at = bifurcation_detector(np.array([1, 2, 3, 4]), np.array([9]), np.array(0), np.array([1, 2, 4, 5, 5]))
    >>> tokens.tolist(), int(at)
    ([9, 1, 2, 4], 4)
    """
    shortest, longest = integer("min_ngram_size", min_ngram_size), integer("max_ngram_size", max_ngram_size)
    if not 1 <= shortest <= longest:
        raise ArgumentError(
            f"`min_ngram_size` is {shortest} and `max_ngram_size` {longest}; they must be positive, and in order"
        )
    values = (src_tokens, cur_tokens, prev_suffix_match_idx, pred_tokens)
    operands = integral(**dict(zip(_NAMES, values, strict=True)))
    source, current, start, predicted = operands
    for name, value in zip(_NAMES, operands, strict=True):
        if name != "prev_suffix_match_idx" and value is not None and value.ndim != 1:
            raise ShapeError(f"`{name}` of {shape_text(value.shape)} must have one axis")
    if start.ndim > 1 or start.size != 1:
        raise ShapeError(f"`prev_suffix_match_idx` of {shape_text(start.shape)} must be one integer")
    if predicted is None:
        return _detected(operands, shortest, longest, current.shape[0])[:2]
    if not isinstance(start, Tracer) or is_static(prev_suffix_match_idx):
        start_index = int(np.asarray(prev_suffix_match_idx).reshape(()))
        _check_start(start_index, source.shape[0], predicted.shape[0])
    if size is not None:
        return _detected(operands, shortest, longest, integer("size", size, least=0))[:2]
    if any(isinstance(value, Tracer) for value in operands):
        problem = "the number of tokens depends on `pred_tokens`, and an operand is traced"
        raise unbounded(problem, "n tokens, cropped or filled up with -1", pred_tokens=predicted)
    tokens, next_index, count = _detected(operands, shortest, longest, current.shape[0] + predicted.shape[0])
    return tokens[: int(count)], next_index


def _check_start(start: int, source: Any, predicted: Any) -> None:
    if isinstance(source, int) and not 0 <= start <= source:
        raise ArgumentError(f"`prev_suffix_match_idx` is {start}; it must be from 0 to {source}")
    if isinstance(source, int) and isinstance(predicted, int) and predicted != source + 1 - start:
        raise ShapeError(
            f"`pred_tokens` has {predicted} tokens; it must have {source + 1 - start}, one more than "
            f"`src_tokens` from {start} on"
        )


@jit_if_concrete
def _detected(operands: tuple[Any, ...], shortest: int, longest: int, size: Any) -> tuple[Any, Any, Any]:
    """Returns the tokens, cropped or padded to `size`; the place; and the number of tokens."""
    source, current, start, predicted = operands
    length = source.shape[0]
    # Behind the source, so that an n-gram may be looked for at each of its places.
    padded = lax.concatenate([source, jnp.zeros(longest, source.dtype)], 0)
    line, count = current, jnp.asarray(current.shape[0], np.int32)
    if predicted is not None:
        step = lax.iota(np.int32, predicted.shape[0])
        source_index = start.reshape(()).astype(np.int32) + step
        same = (jnp.take(padded, source_index, mode="clip") == predicted.astype(source.dtype)) & (source_index < length)
        count = count + 1 + jnp.sum(jnp.cumprod(same.astype(np.int32)), dtype=np.int32)
        line = lax.concatenate([current, predicted.astype(current.dtype)], 0)

    # The last tokens, after as many meaningless ones.
    before = jnp.zeros(longest, line.dtype)
    end = lax.dynamic_slice_in_dim(lax.concatenate([before, line], 0), count, longest).astype(source.dtype)
    positions = lax.iota(np.int32, length)
    match_end, goes_on = jnp.asarray(-1, np.int32), jnp.asarray(True)
    for n in range(shortest, longest + 1):
        same = positions + n <= length
        for k in range(n):
            same = same & (lax.slice_in_dim(padded, k, k + length) == end[longest - n + k])
        hits = jnp.sum(same, dtype=np.int32)
        behind = jnp.min(jnp.where(same, positions, length), initial=length) + n
        goes_on = goes_on & (n <= count) & (hits > 0)
        match_end = jnp.where(goes_on, jnp.where(hits > 1, -1, behind), match_end)
        goes_on = goes_on & (behind < length)

    tokens = lax.concatenate([line, jnp.zeros(size, line.dtype)], 0)[:size]
    tokens = jnp.where(lax.iota(np.int32, size) < count, tokens, jnp.asarray(-1, line.dtype))
    return tokens, match_end.astype(start.dtype).reshape(start.shape), count
