"""Attention operators that take queries, keys and values of many heads, in several layouts."""

__all__ = ["decoder_masked_multi_head_attention", "multi_head_attention"]

from typing import Any

import jax

from jaxops.attributes import flag
from jaxops.dtypes import floats_of_one_type, integral
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.scaled_dot_product import merge_heads, split_heads
from jaxops.ops.microsoft.attentions.cached_attention import Options, cached, known_length, scale_of
from jaxops.ops.microsoft.attentions.projected_attention import along_last, beam_samples
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft.attentions import cached_attention as sizes_of, multi_head as layouts
from jaxops.signature import Bias, FourthOutput, Static, Traits
from jaxops.static import ArrayLike, array, jit_if_concrete, known as known_value

TRAITS = Traits(kind="attention")


def multi_head_attention(
    query: ArrayLike,
    key: ArrayLike | None = None,
    value: ArrayLike | None = None,
    bias: Bias[ArrayLike] | None = None,
    key_padding_mask: ArrayLike | None = None,
    attention_bias: ArrayLike | None = None,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    past_sequence_length: Any = None,
    cache_indirection: ArrayLike | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: int = 0,
    return_scores: FourthOutput = False,
) -> tuple[jax.Array, ...]:
    """Computes attention of queries to keys and values, with biases, masks and a cache.

    query, key, value: (B, S, N · H), (B, L, N · H) and (B, L, N · Hv), floats; N is num_heads. Or key is
    (B, L, N, 2, H) with the values, or query is (B, S, N, 3, H) with both. A key and value (B, N, L, H) come from an
    encoder and are used as they are. bias: (D + D + Dv,), added to queries, keys and values, D = N · H, Dv = N · Hv.
    past_key, past_value: (B, N, P, H), put before key and value. With past_sequence_length, one integer, they are
    buffers of P rows, whose first past_sequence_length rows are in use; a traced one that leaves no room gives NaN. T
    is the number of keys, old and new. cache_indirection: integers (B / W, W, P): which of W beams each row of the
    buffer comes from.
    key_padding_mask: integers; (B,) or (3B + 2,): the first B are the numbers of keys; (B, L) or (B, T), or
    (B, S, T): 1 for a key to use, 0 for one that gets mask_filter_value added. attention_bias: floats
    (1 or B, 1 or N, S, T), added to the scores. unidirectional: 1 hides later keys. scale: of the scores, 1 / sqrt(H)
    for None or 0.
    Returns the output (B, S, Dv), the present keys and values (B, N, T, …) or the buffers, and with return_scores the
    scores before the softmax, (B, N, S, T).
    Raises ShapeError, DTypeError, ArgumentError, StaticError for scores with a traced past_sequence_length.
    Source: com.microsoft MultiHeadAttention, opset 1.

    >>> import jax.numpy as jnp
    >>> x, y = jnp.ones((1, 3, 8)), jnp.ones((1, 5, 8))
    >>> output, keys, values = multi_head_attention(x, y, y, num_heads=2)
    >>> output.shape, keys.shape
    ((1, 3, 8), (1, 2, 5, 4))
    """
    shared = past_key is not None and past_sequence_length is not None
    options = _options(mask_filter_value, unidirectional, shared, return_scores)
    beams = beam_samples(cache_indirection, None, (array(query).shape or (0,))[0])
    operands = (query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value)
    outputs = _checked("key_padding_mask", operands, past_sequence_length, beams, num_heads, scale, options)
    return outputs if return_scores else outputs[:3]


def decoder_masked_multi_head_attention(
    query: ArrayLike,
    key: ArrayLike | None = None,
    value: ArrayLike | None = None,
    mask_index: ArrayLike | None = None,
    attention_bias: ArrayLike | None = None,
    past_key: ArrayLike | None = None,
    past_value: ArrayLike | None = None,
    past_sequence_length: Any = None,
    beam_width: Static = None,
    cache_indirection: ArrayLike | None = None,
    bias: Bias[ArrayLike] | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    output_qk: int = 0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[jax.Array, ...]:
    """Computes `multi_head_attention` for one new token, as a step of decoding.

    query: (B, 1, N · H), with key and value alike, or (B, 1, 3 · N · H) with both inside, or with a key and value
    (B, N, L, H) of an encoder. past_key, past_value: (B, N, P, H), put before key and value; with
    past_present_share_buffer they are buffers whose first past_sequence_length rows are in use. mask_index: (B, T).
    cache_indirection: integers (B / W, W, P), needed if beam_width is W > 1. output_qk: 1 returns the scores.
    The other operands and the results are those of `multi_head_attention`. As in onnxruntime on a CPU, the buffer of
    keys keeps the order of its axes.
    Raises ShapeError, DTypeError, ArgumentError, StaticError for scores with a traced past_sequence_length.
    Source: com.microsoft DecoderMaskedMultiHeadAttention, opset 1.

    >>> import jax.numpy as jnp
    >>> x, buffer = jnp.ones((1, 1, 8)), jnp.zeros((1, 2, 5, 4))
    >>> given = {"past_key": buffer, "past_value": buffer, "past_sequence_length": 3}
    >>> decoder_masked_multi_head_attention(x, x, x, **given, num_heads=2, past_present_share_buffer=1)[1].shape
    (1, 2, 5, 4)
    """
    shape = array(query).shape
    must_fit("query", shape, ("B", 1, "D"), reason=", one token")
    shared = flag("past_present_share_buffer", past_present_share_buffer) and past_key is not None
    scores = flag("output_qk", output_qk)
    options = _options(mask_filter_value, 0, shared, scores)
    beams = beam_samples(cache_indirection, beam_width, shape[0])
    operands = (query, key, value, bias, mask_index, attention_bias, past_key, past_value)
    outputs = _checked("mask_index", operands, past_sequence_length, beams, num_heads, scale, options)
    return outputs if scores else outputs[:3]


def _options(masked: float, causal: int, shared: bool, scores: bool) -> Options:
    return Options(
        masked=float(masked), causal=flag("unidirectional", causal), shared=shared, stage="bias" if scores else None
    )


def _checked(
    mask_name: str,
    inputs: tuple[Any, ...],
    past_length: Any,
    beams: Any,
    heads: int,
    scale: float | None,
    options: Options,
) -> tuple[jax.Array, ...]:
    query, key, value, bias, mask_index, attention_bias, past_key, past_value = inputs
    arrays = floats_of_one_type(
        query=query,
        key=key,
        value=value,
        bias=bias,
        attention_bias=attention_bias,
        past_key=past_key,
        past_value=past_value,
    )
    q, k, v, b, extra, old_k, old_v = arrays
    shapes = [None if x is None else x.shape for x in arrays]
    batch, length, new, size, value_size = layouts.heads(q.shape, shapes[1], shapes[2], heads)
    layouts.bias(shapes[3], heads * size, heads * value_size)
    layouts.past(shapes[5], shapes[6], (batch, heads, size), value_size)
    if old_k is not None and k is not None and k.ndim == 4:
        raise ShapeError(f"`key` of {shape_text(k.shape)} comes from an encoder, so `past_key` must be left out")
    rows: Any = 0 if old_k is None else old_k.shape[2]
    before = rows
    if options.shared:
        if options.stage and past_length is not None:  # the number of tokens is a size of the scores
            past_length = known_value("past_sequence_length", past_length)
        before = known_length(past_length)
        if before is None:
            raise ArgumentError("with a shared buffer `past_sequence_length` must be given")
        sizes_of.buffer(rows, before if isinstance(before, int) else None, new)
    is_static_length = isinstance(before, int) or not options.shared
    total = before + new if is_static_length else None
    (mask,) = integral(**{mask_name: mask_index})
    sizes_of.mask(mask_name, None if mask is None else mask.shape, batch, length, total)
    sizes_of.bias(shapes[4], batch, heads, length, total)
    static_before = before if options.shared and is_static_length else None
    operands = (q, k, v, b, mask, extra, old_k, old_v, None if is_static_length else before, beams)
    return _multi_head(operands, heads, static_before, scale_of(scale, size), options)


@jit_if_concrete
def _multi_head(
    operands: tuple[Any, ...], heads: int, before: int | None, scale: float, options: Options
) -> tuple[Any, ...]:
    q, k, v, bias, mask, extra, old_k, old_v, traced_before, beams = operands
    before = traced_before if before is None else before
    encoded = k is not None and k.ndim == 4
    q, k, v = _separate(q, k, v, heads)
    if bias is not None:
        width = q.shape[2]
        q = q + along_last(bias[:width], q)
        if not encoded:
            k, v = k + along_last(bias[width : 2 * width], k), v + along_last(bias[2 * width :], v)
    q = split_heads(q, heads)
    if not encoded:
        k, v = split_heads(k, heads), split_heads(v, heads)
    past = None if old_k is None else (old_k, old_v)
    result, present_k, present_v = cached(q, k, v, past, before, beams, mask, extra, scale, options)
    sizes = (q.shape[0], q.shape[2], v.shape[1] * v.shape[3])
    output = assert_sizes(merge_heads(result.output), sizes, q.dtype)
    return output, present_k, present_v, result.scores


def _separate(q: Any, k: Any, v: Any, heads: int) -> tuple[Any, Any, Any]:
    """Returns queries, keys and values; packed layouts are split into (B, S, N · H) each."""

    def merged(x: Any) -> Any:
        return x.reshape(*x.shape[:2], heads * x.shape[-1])

    if k is None and q.ndim == 5:
        return merged(q[..., 0, :]), merged(q[..., 1, :]), merged(q[..., 2, :])
    if k is None:
        width = q.shape[2] // 3
        return q[..., :width], q[..., width : 2 * width], q[..., 2 * width :]
    if v is None:
        return q, merged(k[..., 0, :]), merged(k[..., 1, :])
    return q, k, v
