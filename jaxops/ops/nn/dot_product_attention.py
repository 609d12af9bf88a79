"""Scaled dot-product attention with masks, a cache of keys and values, and grouped heads."""

__all__ = ["attention"]

import functools
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, float_type, integer, one_of
from jaxops.dtypes import accumulation_type, as_traced, floating, integral, unify
from jaxops.errors import ArgumentError, SignatureError
from jaxops.ops.common.scaled_dot_product import (
    Stage,
    inverse_root,
    key_mask,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from jaxops.shapes.nn import dot_product_attention as sizes_of
from jaxops.signature import ElementType, FourthOutput, SecondOutput, Traits
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="attention")

OutputMode = Literal[0, 1, 2, 3]
_STAGES: tuple[Stage, ...] = ("product", "softcap", "bias", "softmax")


class _Options(NamedTuple):
    """The attributes, checked; hashable."""

    query_heads: int | None
    heads: int | None
    scale: float | None
    softcap: float
    causal: bool
    left: int | None
    right: int | None
    softmax_dtype: Any
    stage: Stage | None


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    attn_mask: ArrayLike | None = None,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    nonpad_kv_seqlen: ArrayLike | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: OutputMode = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: ElementType | None = None,
    return_present: SecondOutput = False,
    return_scores: FourthOutput = False,
) -> Any:
    """softmax(scale · q · kᵀ + mask) · v for each head: scaled dot-product attention.

    q: (B, Nq, S, H), k: (B, Nkv, L, H), v: (B, Nkv, L, Hv). Or all three have 3 axes: (B, S, Nq · H), (B, L, Nkv · H),
    (B, L, Nkv · Hv), with `q_num_heads` and `kv_num_heads`. Floats of 8 bits or more; v may be of another type. Nq is
    a multiple of Nkv: query head i uses head i // (Nq / Nkv) of k and v.
    past_key: (B, Nkv, P, H), past_value: (B, Nkv, P, Hv): earlier keys and values, before those of k and v. There are
    T = P + L keys.
    attn_mask: broadcasts to (B, Nq, S, T). Booleans: False excludes a key. Numbers are added to the scores, and -inf
    excludes a key, whatever its score. If the last axis is shorter than T, but not 1, the keys beyond it are excluded.
    nonpad_kv_seqlen: (B,), integers: how many keys of each sample take part, counted from the first; not together with
    `past_key`.
    is_causal: query i uses the keys up to i + offset; the offset is P, or nonpad_kv_seqlen - S if that is given.
    left_window_size, right_window_size: how many keys before and after i + offset query i uses; -1 sets no bound.
    scale: None is 1 / sqrt(H). softcap: if positive, scores become softcap · tanh(scores / softcap) before the mask.
    softmax_precision: a floating-point type, to which the scores and the probabilities are rounded; None rounds the
    probabilities to the type of v only. Narrow types are computed in float32.

    Returns y, like q with Hv in place of H, in the dtype of q. With `return_present` also the keys (B, Nkv, T, H) and
    the values (B, Nkv, T, Hv); with `return_scores` last of all the numbers (B, Nq, S, T) that
    `qk_matmul_output_mode` chooses: 0 the scaled scores, 1 after the softcap, 2 after the mask, 3 the probabilities.
    A query that may use no key has a y and probabilities of 0.
    Raises ShapeError, DTypeError, ArgumentError, and SignatureError for operands that must come together.
    Source: ONNX Attention, opsets 23–25.

    >>> attention(jnp.ones((1, 4, 2, 8)), jnp.ones((1, 2, 5, 8)), jnp.ones((1, 2, 5, 6)), is_causal=1).shape
    (1, 4, 2, 6)
    """
    q, k, v, past_key, past_value = floating(q=q, k=k, v=v, past_key=past_key, past_value=past_value)
    if (past_key is None) != (past_value is None):
        raise SignatureError("`past_key` and `past_value` must be given together")
    for new, past, names in ((k, past_key, ("k ", "past_key ")), (v, past_value, ("v ", "past_value "))):
        if past is not None:
            unify((new, past), names)
    unify((q, k), ("q ", "k "))
    if nonpad_kv_seqlen is not None:
        if past_key is not None:
            raise SignatureError("`nonpad_kv_seqlen` is for a cache outside the operator; give no `past_key`")
        (nonpad_kv_seqlen,) = integral(nonpad_kv_seqlen=nonpad_kv_seqlen)
    stage = _STAGES[one_of("qk_matmul_output_mode", qk_matmul_output_mode, OutputMode)]
    options = _Options(
        None if q_num_heads is None else integer("q_num_heads", q_num_heads),
        None if kv_num_heads is None else integer("kv_num_heads", kv_num_heads),
        None if scale is None else float(scale),
        float(softcap) if softcap > 0 else 0.0,  # NaN means no cap, too; as a key it would miss the program cache
        flag("is_causal", is_causal),
        _window("left_window_size", left_window_size),
        _window("right_window_size", right_window_size),
        None if softmax_precision is None else float_type("softmax_precision", softmax_precision),
        stage if return_scores else None,
    )
    mask = None if attn_mask is None else as_traced(attn_mask)
    y, keys, values, scores = _attention((q, k, v, mask, past_key, past_value, nonpad_kv_seqlen), options)
    results = (y, *((keys, values) if return_present else ()), *((scores,) if return_scores else ()))
    return results if len(results) > 1 else y


def _window(operand: str, value: Any) -> int | None:
    size = integer(operand, value)
    if size < -1:
        raise ArgumentError(f"`{operand}` is {size}; it must be at least 0, or -1 for no bound")
    return None if size == -1 else size


@jit_if_concrete
def _attention(operands: tuple[Any, ...], options: _Options) -> Any:
    q, k, v, mask, past_key, past_value, lengths = operands
    packed = q.ndim == 3
    query = _with_heads("q", q, options.query_heads, "q_num_heads")
    key = _with_heads("k", k, options.heads, "kv_num_heads")
    value = _with_heads("v", v, options.heads, "kv_num_heads")
    offset = 0
    if past_key is not None:
        sizes_of.cache("past_key", past_key.shape, key.shape)
        sizes_of.cache("past_value", past_value.shape, value.shape)
        offset = past_key.shape[2]
        key, value = lax.concatenate([past_key, key], 2), lax.concatenate([past_value, value], 2)
    sizes = sizes_of.scores(query.shape, key.shape, value.shape)
    allowed = []
    if lengths is not None:
        sizes_of.per_sample("nonpad_kv_seqlen", lengths.shape, sizes.batch)
        lengths = lengths.astype(np.int32)
        offset = lengths - jnp.asarray(sizes.queries, np.int32)
        allowed.append(lax.broadcasted_iota(np.int32, (1, 1, 1, sizes.keys), 3) < lengths.reshape(-1, 1, 1, 1))
    bounds = [b for b in (0 if options.causal else None, options.right) if b is not None]
    if bounds or options.left is not None:
        right = min(bounds, default=None)
        result = key_mask(sizes.queries, sizes.keys, offset=offset, left=options.left, right=right)
        allowed.append(result.reshape((1,) * (4 - result.ndim) + result.shape))
    bias = None if mask is None else _padded(mask, sizes, accumulation_type(q.dtype))
    if bias is not None and bias.dtype == np.bool_:
        allowed.append(bias)
        bias = None
    result = scaled_dot_product_attention(
        query,
        key,
        value,
        scale=inverse_root(query.shape[3]) if options.scale is None else options.scale,
        bias=bias,
        mask=_all(allowed),
        softcap=options.softcap,
        softmax_dtype=options.softmax_dtype,
        stage=options.stage,
    )
    return merge_heads(result.output) if packed else result.output, key, value, result.scores


def _with_heads(operand: str, x: Any, heads: int | None, attribute: str) -> Any:
    sizes = sizes_of.split(operand, x.shape, heads, attribute)
    return split_heads(x, sizes[1]) if x.ndim == 3 else x


def _padded(mask: Any, sizes: sizes_of.Scores, dtype: Any) -> Any:
    """A mask with as many axes and keys as the scores: booleans, or numbers in this type."""
    missing = sizes_of.mask("attn_mask", mask.shape, sizes)
    boolean = mask.dtype == np.bool_
    mask = mask if boolean else mask.astype(dtype)
    if not isinstance(missing, int) or missing:
        fill = np.asarray(False if boolean else -np.inf, mask.dtype)
        mask = lax.pad(mask, fill, [(0, 0, 0)] * (mask.ndim - 1) + [(0, missing, 0)])
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def _all(masks: list[Any]) -> Any:
    """True where all masks are; None if there are none."""
    return functools.reduce(jnp.logical_and, masks) if masks else None
