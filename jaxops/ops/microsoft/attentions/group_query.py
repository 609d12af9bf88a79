"""GroupQueryAttention: grouped heads with a cache of keys and values, as in decoders of language models.

16-bit types are computed in float32.
"""

__all__ = ["group_query_attention"]

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import accumulation_type, as_traced, floating, floats_of_one_type, require_integers
from jaxops.errors import ArgumentError, SignatureError, StaticError, UnsupportedError, describe, message
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.scaled_dot_product import merge_heads, rotated, scaled_dot_product_attention, split_grouped_heads
from jaxops.ops.microsoft.attentions.cached_attention import of_width, scale_of
from jaxops.ops.microsoft.attentions.quantized_cache import CELL, cells, dequantized, quantized
from jaxops.ops.microsoft.attentions.rotary import checked_positions, rows as rows_of
from jaxops.ops.microsoft.attentions.row_caches import (
    cache_rows,
    columns,
    is_zero,
    only_first,
    present,
    remembered,
    staged,
)
from jaxops.ops.microsoft.normalization import normalized
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft.attentions import (
    cached_attention as cached_sizes,
    group_query as sizes_of,
    rotary as rotary_sizes,
)
from jaxops.signature import Cache, Static, Table, Traits, Weight
from jaxops.static import Array, ArrayLike, Dim, Tracer, array, is_symbolic, jit_if_concrete, known

TRAITS = Traits(kind="attention")

ScoresOutput = Literal[0, 1, 2]
Quantization = Literal["NONE", "PER_TENSOR", "PER_CHANNEL"]


@dataclass(frozen=True)
class _Options:
    heads: int
    groups: int
    rows: Dim  # of the present cache
    total: Dim
    causal: bool
    interleaved: bool
    window: int
    slides: bool
    epsilon: float
    scores: ScoresOutput
    scale: float
    sink: bool
    softcap: float
    bits: int  # of a number in the cache; 0 for floats


def group_query_attention(
    query: ArrayLike,
    key: ArrayLike | None = None,
    value: ArrayLike | None = None,
    past_key: Cache[ArrayLike] | None = None,
    past_value: Cache[ArrayLike] | None = None,
    seqlens_k: Any = None,
    total_sequence_length: Static = None,
    cos_cache: Table[ArrayLike] | None = None,
    sin_cache: Table[ArrayLike] | None = None,
    position_ids: ArrayLike | None = None,
    attention_bias: ArrayLike | None = None,
    head_sink: ArrayLike | None = None,
    k_scale: ArrayLike | None = None,
    v_scale: ArrayLike | None = None,
    q_norm_weight: Weight[ArrayLike] | None = None,
    k_norm_weight: Weight[ArrayLike] | None = None,
    query_seqlens: ArrayLike | None = None,
    *,
    num_heads: int,
    kv_num_heads: int,
    causal: int = 1,
    do_rotary: int = 0,
    k_quant_type: Quantization = "NONE",
    kv_cache_bit_width: Literal[0, 4, 8] = 0,
    local_window_size: int = -1,
    qk_norm_epsilon: float = 1e-6,
    qk_output: ScoresOutput = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    sliding_window_cache: int = 0,
    smooth_softmax: int = -1,
    softcap: float = 0.0,
    v_quant_type: Quantization = "NONE",
) -> tuple[jax.Array, ...]:
    """Computes attention of new tokens to themselves and to a cache, and adds their keys and values to the cache.

    query: (B, S, N · H), floats; N is num_heads. key, value: (B, S, K · H); K is kv_num_heads, a divisor of N. Without
    them query is (B, S, (N + 2 · K) · H) and holds all three. With a key and value of no tokens the cache stays
    unchanged.
    past_key, past_value: (B, K, P, H), the cache. seqlens_k: integers (B,), the tokens of each sample, old and new,
    less 1. total_sequence_length: one static integer, the largest number of tokens of a sample. If it is S, this is
    the prompt: the tokens have positions 0 to S - 1, with padding on the right. Otherwise they end at seqlens_k.
    query_seqlens: integers (B,), how many of the S tokens are not padding on the right, also after a past. Then
    total_sequence_length is an upper bound, and never marks a prompt.

    The present cache has max(P, total_sequence_length) rows. total_sequence_length must be P + S (the cache grows) or
    at most P (the cache is a buffer); P fits all steps in a buffer. A sample with more tokens than rows gives NaN. Rows
    of a buffer after the new tokens keep their values.
    sliding_window_cache: 1 for a cache of P rows, at least local_window_size, which drops old tokens. Its first rows
    hold the last L of the T = seqlens_k + 1 tokens of a sample, in order: all if T ≤ P, else
    L = T - G · ceil((T - P) / G) with G = P - local_window_size + 1. The remaining rows are 0; T may be any number.

    cos_cache, sin_cache: (M, R / 2), the angles of each position, needed with do_rotary; rotary_interleaved as in
    `rotary_embedding`. position_ids: integers (B, S), by default the places in the cache; for a prompt only the
    first is used. q_norm_weight, k_norm_weight: (H,), scale queries and keys after RMS normalization with
    qk_norm_epsilon.
    scale: of the scores, 1 / sqrt(H) for None or 0. softcap: caps the scores before attention_bias, floats
    (1 or B, 1 or N, S, total_sequence_length), is added. causal: 1 hides later tokens.
    local_window_size: the number of keys that a token sees, itself included; -1 for all. head_sink: (N,), the scores of
    an additional key with value 0; smooth_softmax: 1 is the same with a score of 0.
    k_quant_type, v_quant_type: must be equal; 'PER_TENSOR' or 'PER_CHANNEL' for a cache of integers with
    kv_cache_bit_width bits: int8 for 8; uint8 of (B, K, P, H / 2) for 4, two in a byte. k_scale, v_scale: the floats
    that the integers are multiplied by, (1,) per tensor or (1, K, 1, H) per channel.

    Returns the output (B, S, N · H), present_key and present_value, and with qk_output the scores
    (B, N, S, total_sequence_length), 1 before and 2 after the softmax, 0 where a token is hidden.
    Raises ShapeError, DTypeError, ArgumentError, SignatureError for an operand that another one needs, StaticError for
    a traced total_sequence_length, BoundsError for an out-of-range static position, UnsupportedError for the scores of
    a sliding cache.
    Source: com.microsoft GroupQueryAttention, opset 1.

    >>> query, key = jnp.ones((1, 3, 8 * 16)), jnp.ones((1, 3, 2 * 16))
    >>> total = {"seqlens_k": np.array([2]), "total_sequence_length": 3}
    >>> output, keys, values = group_query_attention(query, key, key, **total, num_heads=8, kv_num_heads=2)
    >>> output.shape, keys.shape
    ((1, 3, 128), (1, 2, 3, 16))
    """
    slides = flag("sliding_window_cache", sliding_window_cache)
    causal = flag("causal", causal)
    window = integer("local_window_size", local_window_size)
    scores = one_of("qk_output", qk_output, ScoresOutput)
    bits = _bits(k_quant_type, v_quant_type, kv_cache_bit_width)
    floats = floats_of_one_type(
        query=query,
        key=key,
        value=value,
        past_key=None if bits else past_key,
        past_value=None if bits else past_value,
        cos_cache=cos_cache,
        sin_cache=sin_cache,
        attention_bias=attention_bias,
        head_sink=head_sink,
        q_norm_weight=q_norm_weight,
        k_norm_weight=k_norm_weight,
    )
    q, k, v, old_k, old_v, cos, sin, bias, sinks, q_weight, k_weight = floats
    shapes = [None if x is None else x.shape for x in floats]
    size = sizes_of.head_size(q.shape, shapes[1], shapes[2], num_heads, kv_num_heads)
    batch, new = q.shape[0], q.shape[1]
    factors: tuple[Any, ...] = (None, None)
    if bits:
        old_k, old_v = cells(bits, past_key=past_key, past_value=past_value)
        factors = floating(k_scale=k_scale, v_scale=v_scale)
        factor_shapes = (None if x is None else x.shape for x in factors)
        sizes_of.scales(k_quant_type, (1, kv_num_heads, 1, size), *factor_shapes)
    past_k_shape, past_v_shape = (None if x is None else x.shape for x in (old_k, old_v))
    before = sizes_of.past(past_k_shape, past_v_shape, batch, kv_num_heads, size // 2 if bits == 4 else size)
    lengths = _integers("seqlens_k", seqlens_k)
    must_fit("seqlens_k", lengths.shape, (batch,), (batch, 1))
    total = _one(total_sequence_length)
    fresh = new if k is None else k.shape[1]
    if slides:
        _check_sliding(old_k, window, causal, scores)
        count = sizes_of.window(before, window)
    elif query_seqlens is None:
        count = sizes_of.rows(total, before, fresh)
    else:
        count = sizes_of.rows_for_chunk(total, before, fresh)
    valid = None
    if query_seqlens is not None:
        valid = _integers("query_seqlens", query_seqlens)
        must_fit("query_seqlens", valid.shape, (batch,), (batch, 1))
        if old_k is None or not causal:
            problem = "`past_key` and `past_value`" if causal else "`causal` = 1"
            raise SignatureError(f"`query_seqlens` needs {problem}")
    cached_sizes.bias(shapes[7], batch, num_heads, new, total)
    must_fit("head_sink", shapes[8], (num_heads,))
    must_fit("q_norm_weight", shapes[9], (size,))
    must_fit("k_norm_weight", shapes[10], (size,))
    ids = None
    if not flag("do_rotary", do_rotary):
        cos = sin = None
    elif cos is None or sin is None:
        raise ArgumentError("`do_rotary` is 1, so `cos_cache` and `sin_cache` must be given")
    else:
        rotary_sizes.tables(cos.shape, sin.shape, size, 2 * cos.shape[-1] if cos.ndim else 0)
        if position_ids is not None:
            ids = checked_positions(position_ids, cos.shape[0])
            rotary_sizes.positions(ids.shape, (batch, new))
    options = _Options(
        heads=num_heads,
        groups=kv_num_heads,
        rows=count,
        total=total,
        causal=causal,
        interleaved=flag("rotary_interleaved", rotary_interleaved),
        window=window,
        slides=slides,
        epsilon=float(qk_norm_epsilon),
        scores=scores,
        scale=scale_of(scale, size),
        sink=smooth_softmax == 1,
        softcap=float(softcap)
        if softcap > 0
        else 0.0,  # NaN would never equal a key of the program cache; it means no cap, like 0
        bits=bits,
    )
    cache = (old_k, old_v, *factors, as_traced(lengths), None if valid is None else as_traced(valid))
    operands = (q, k, v, *cache, cos, sin, ids, bias, sinks, q_weight, k_weight)
    outputs = _group_query(operands, options)
    return outputs if options.scores else outputs[:3]


def _bits(key: Quantization, value: Quantization, bits: int) -> int:
    """Returns the bits of a number in a quantized cache, or 0 for a cache of floats."""
    for name, kind in (("k_quant_type", key), ("v_quant_type", value)):
        one_of(name, kind, Quantization)
    if key == value == "NONE":
        return 0
    if key != value or bits not in CELL:
        raise ArgumentError(
            f"`k_quant_type` is {key!r}, `v_quant_type` {value!r} and `kv_cache_bit_width` {bits}; "
            f"a quantized cache needs the same type twice, and 4 or 8 bits"
        )
    return bits


def _integers(name: str, value: Any) -> Array:
    integers = array(value)
    require_integers(name, integers)
    return integers


def _one(value: Any) -> Any:
    """Returns a known number of tokens, which may be a symbolic size."""
    if isinstance(value, Tracer):
        problem = "`total_sequence_length` must be known while tracing, but it is traced: the cache may grow to it"
        hint = "give a Python number or a NumPy array; steps in a buffer may all give the number of its rows, as "
        raise StaticError(message(problem, hint=f"{hint}`seqlens_k` says how many of them a sample uses"))
    number = known("total_sequence_length", value)
    require_integers("total_sequence_length", number)
    if number.size != 1:
        raise ArgumentError(f"`total_sequence_length` must be one integer, got {describe(number)}")
    item = number.reshape(())[()]
    return item if is_symbolic(item) else int(item)


def _check_sliding(past: Any, window: int, causal: bool, scores: int) -> None:
    if window < 1 or not causal:
        raise ArgumentError(
            f"`local_window_size` is {window} and `causal` {int(causal)}; with `sliding_window_cache` = 1 the "
            f"window must be at least 1, and `causal` 1"
        )
    if past is None:
        raise SignatureError("`sliding_window_cache` is 1, so `past_key` and `past_value` must be given")
    if scores:
        # The text does not say to which keys the columns belong, and onnxruntime does not return them.
        raise UnsupportedError(f"`qk_output` is {scores}; with `sliding_window_cache` = 1 it must be 0")


@jit_if_concrete
def _group_query(operands: tuple[Any, ...], options: _Options) -> tuple[Any, ...]:
    q, k, v, old_k, old_v, k_factor, v_factor, lengths, valid, cos, sin, ids, bias, sinks, q_weight, k_weight = operands
    heads, groups = options.heads, options.groups
    q, k, v = split_grouped_heads(q, k, v, heads, groups)
    if q_weight is not None:
        q = _normalized(q, q_weight, options.epsilon)
    if k_weight is not None:
        k = _normalized(k, k_weight, options.epsilon)
    ends = lengths.reshape(-1).astype(np.int32) + 1
    valid = None if valid is None else valid.reshape(-1).astype(np.int32)
    first = _is_prompt(options.total, q.shape[2]) if valid is None else False
    starts = _starts(ends, first, old_k, q.shape[2] if valid is None else valid)
    if cos is not None:
        angles = _positions(ids, starts, first, q.shape[2])
        turns = rows_of(cos, angles)[:, None], rows_of(sin, angles)[:, None]
        q = rotated(q, *turns, interleaved=options.interleaved)
        k = k if is_zero(k.shape[2]) else rotated(k, *turns, interleaved=options.interleaved)
    if options.bits:
        k_factor, v_factor = (x.reshape(x.shape if x.ndim == 4 else (1, 1, 1, 1)) for x in (k_factor, v_factor))
        k, v = quantized(k, k_factor, options.bits), quantized(v, v_factor, options.bits)
    if options.slides:
        occupied = cache_rows(starts, ends, k.shape[2], options.rows, options.window)
        keys, values = (staged(old, x, occupied) for old, x in ((old_k, k), (old_v, v)))
        present_k, present_v = (remembered(x, occupied, options.rows, options.window) for x in (keys, values))
    else:
        occupied = None
        present_k, present_v = (present(old, x, starts, options.rows) for old, x in ((old_k, k), (old_v, v)))
        keys, values = present_k, present_v
        if options.rows != options.total:  # a buffer, whose unused rows may hold anything
            values = only_first(values, ends)
    if options.bits:
        keys = dequantized(keys, k_factor, options.bits, q.dtype)
        values = dequantized(values, v_factor, options.bits, q.dtype)
    # The position of each key among the tokens of its sample.
    positions = lax.broadcasted_iota(np.int32, (1, 1, 1, keys.shape[2]), 3)
    if occupied is not None:
        positions = positions + occupied.first.reshape(-1, 1, 1, 1)
    visible = _visible(starts, ends, q.shape[2], positions, options)
    if bias is not None:
        bias = of_width(bias, options.rows) if occupied is None else columns(bias, positions)
    sink = sinks if sinks is not None else 0.0 if options.sink else None
    result = scaled_dot_product_attention(
        q,
        keys,
        values,
        scale=options.scale,
        bias=bias,
        mask=visible,
        softcap=options.softcap,
        sink=sink,
        stage=(None, "bias", "softmax")[options.scores],
    )
    sizes = (q.shape[0], q.shape[2], heads * q.shape[3])
    output = assert_sizes(merge_heads(result.output), sizes, q.dtype)
    if occupied is None:
        needed = ends if valid is None else jnp.maximum(ends, starts + jnp.asarray(k.shape[2], np.int32))
        output = jnp.where((needed > options.rows)[:, None, None], jnp.asarray(np.nan, output.dtype), output)
    scores = result.scores
    if scores is not None:
        scores = jnp.where(visible, scores, jnp.zeros((), scores.dtype))
        scores = scores[..., : options.total]
    return output, present_k, present_v, scores


def _normalized(x: Any, weight: Any, epsilon: float) -> Any:
    """Divides each head by the root of its mean square, then scales."""
    scaled, _, _ = normalized(x.astype(accumulation_type(x.dtype)), (3,), epsilon, True)
    return (scaled * broadcast_to(weight.astype(scaled.dtype), scaled.shape)).astype(x.dtype)


def _is_prompt(total: Any, length: Any) -> Any:
    """Returns True if all tokens are new: a Python bool if the sizes decide it, else a traced one."""
    if isinstance(total, int) and isinstance(length, int):
        return total == length
    return jnp.asarray(total, np.int32) == jnp.asarray(length, np.int32)


def _starts(ends: Any, first: Any, past: Any, count: Any) -> Any:
    """Returns the position of the first new token of each sample, (B,). count: of new tokens, one number or (B,)."""
    if past is None or first is True:
        return jnp.zeros_like(ends)
    starts = jnp.maximum(ends - jnp.asarray(count, ends.dtype), 0)
    return starts if first is False else jnp.where(first, 0, starts)


def _positions(ids: Any, starts: Any, first: Any, length: Any) -> Any:
    """Returns the position of each new token, (B, S)."""
    steps = lax.broadcasted_iota(np.int32, (1, length), 1)
    if ids is None:
        return starts[:, None] + steps
    ids = ids.reshape(-1, 1) if ids.ndim < 2 else ids
    prompt = jnp.broadcast_to(ids[:1, :1] + steps.astype(ids.dtype), (starts.shape[0], length))
    if first is True:
        return prompt
    ids = jnp.broadcast_to(ids, prompt.shape)
    return ids if first is False else jnp.where(first, prompt, ids)


def _visible(starts: Any, ends: Any, length: Any, positions: Any, options: _Options) -> Any:
    """Returns which keys each new token sees, booleans (B, 1, S, R). positions: of the keys, (1 or B, 1, 1, R)."""
    ends = ends.reshape(-1, 1, 1, 1)
    if options.causal:
        # As in onnxruntime, a padding token sees the same keys as the last token before it.
        steps = lax.broadcasted_iota(np.int32, (1, 1, length, 1), 2)
        ends = jnp.minimum(starts.reshape(-1, 1, 1, 1) + steps + 1, ends)
    seen = positions < ends
    return seen & (positions >= ends - options.window) if options.window >= 0 else seen
