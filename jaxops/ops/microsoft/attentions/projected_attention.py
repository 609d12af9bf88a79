"""Attention operators that compute queries, keys and values from their input.

16-bit types are multiplied in their own precision and accumulated in float32.
"""

__all__ = ["attention", "decoder_attention", "decoder_masked_self_attention"]

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, ints
from jaxops.dtypes import accumulation_type, as_traced, floats_of_one_type, integral
from jaxops.errors import ArgumentError, ShapeError, describe, shape_text
from jaxops.kernels.matmul import dot
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.scaled_dot_product import merge_heads, rotated, scaled_dot_product_attention, split_heads
from jaxops.ops.microsoft.attentions.cached_attention import Options, cached, known_length, scale_of
from jaxops.shapes.arithmetic import agree, must_fit, sizes_fit
from jaxops.shapes.microsoft.attentions import cached_attention as sizes_of
from jaxops.signature import Bias, Static, Traits, Weight
from jaxops.static import ArrayLike, array, jit_if_concrete, known

TRAITS = Traits(kind="attention")


def attention(
    input: ArrayLike,
    weights: Weight[ArrayLike],
    bias: Bias[ArrayLike] | None = None,
    mask_index: ArrayLike | None = None,
    past: ArrayLike | None = None,
    attention_bias: ArrayLike | None = None,
    past_sequence_length: Any = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Sequence[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> tuple[jax.Array, jax.Array | None]:
    """Computes attention whose queries, keys and values are the columns of input · weights + bias.

    input: (B, S, Di), floats. weights: (Di, D + D + Dv), for queries, keys and values of N = num_heads heads; bias:
    (D + D + Dv,). qkv_hidden_sizes: D, D and Dv; by default a third of the columns each.
    past: (2, B, N, P, H), keys and values before those of the input. With past_present_share_buffer it is a buffer
    (2, B, N, M, H) whose first past_sequence_length rows are in use; a traced length that leaves no room gives NaN. T
    is the number of keys, old and new.
    mask_index: integers. (B,): the lengths of the samples. (2B,): their ends, then their starts. (3B + 2,): begins with
    the lengths. (B, T), (B, S, T), or (B, 1, M, M) with a row for each position: 1 for a key to use, 0 for a key whose
    scores get mask_filter_value added. (B, 1), (1, 1): no mask. attention_bias: floats (1 or B, 1 or N, S, T),
    added to the scores. unidirectional: 1 hides later keys. scale: of the scores, 1 / sqrt(H) for None or 0.
    do_rotary: 1 rotates the first rotary_embedding_dim elements of each query and key (0: all) by the angles
    position / 10000^(2i / rotary_embedding_dim).
    Returns the output (B, S, Dv), and the present keys and values: (2, B, N, T, H), or the buffer with the new ones;
    None if the values have another width than the keys.
    Raises ShapeError, DTypeError, ArgumentError.
    Source: com.microsoft Attention, opset 1.

    >>> output, present = attention(jnp.ones((1, 3, 8)), jnp.ones((8, 24)), jnp.ones(24), num_heads=2)
    >>> output.shape, present.shape
    ((1, 3, 8), (2, 1, 2, 3, 4))
    """
    operands = (input, weights, bias, mask_index, past, attention_bias, past_sequence_length)
    return _projected(
        operands,
        num_heads=num_heads,
        do_rotary=do_rotary,
        mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer,
        qkv_hidden_sizes=qkv_hidden_sizes,
        rotary_embedding_dim=rotary_embedding_dim,
        scale=scale,
        unidirectional=unidirectional,
    )


def decoder_masked_self_attention(
    input: ArrayLike,
    weights: Weight[ArrayLike],
    bias: Bias[ArrayLike],
    mask_index: ArrayLike | None = None,
    past: ArrayLike | None = None,
    attention_bias: ArrayLike | None = None,
    past_sequence_length: Any = None,
    beam_width: Static = None,
    cache_indirection: ArrayLike | None = None,
    *,
    num_heads: int,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    past_present_share_buffer: int = 0,
    scale: float | None = None,
) -> tuple[jax.Array, jax.Array | None]:
    """Computes `attention` for one new token, as a step of decoding.

    input: (B, 1, Di). The other operands and attributes are those of `attention`; mask_index is (B, T).
    cache_indirection: integers (B / W, W, M), needed if beam_width is W > 1: for each beam of each of the B / W
    samples, the beam that each row of the buffer comes from. The buffer keeps the order of its axes, as in `attention`.
    Returns the output (B, 1, Dv) and the present keys and values. Raises ShapeError, DTypeError, ArgumentError.
    Source: com.microsoft DecoderMaskedSelfAttention, opset 1.

    >>> given = jnp.ones((1, 1, 8)), jnp.ones((8, 24)), jnp.ones(24), None, jnp.zeros((2, 1, 2, 5, 4)), None, 3
    >>> decoder_masked_self_attention(*given, num_heads=2, past_present_share_buffer=1)[1].shape
    (2, 1, 2, 5, 4)
    """
    shape = array(input).shape
    must_fit("input", shape, ("B", 1, "Di"), reason=", one token")
    return _projected(
        (input, weights, bias, mask_index, past, attention_bias, past_sequence_length),
        beams=beam_samples(cache_indirection, beam_width, shape[0]),
        num_heads=num_heads,
        do_rotary=do_rotary,
        mask_filter_value=mask_filter_value,
        past_present_share_buffer=past_present_share_buffer,
        qkv_hidden_sizes=None,
        rotary_embedding_dim=0,
        scale=scale,
        unidirectional=0,
    )


def _static_flag(name: str, value: Any) -> bool:
    """Returns a static boolean, given as a Python bool or an array of one."""
    flag_array = known(name, value)
    if flag_array.size != 1 or flag_array.dtype.kind not in "bi":
        raise ArgumentError(f"`{name}` is {describe(flag_array)}; it must be one boolean")
    return bool(flag_array.reshape(()))


def beam_samples(indirection: Any, width: Any, batch: Any) -> Any:
    """Returns the sample of the batch that each row of the buffer comes from, (B, M); None without beams."""
    if indirection is None:
        if width is not None and integer("beam_width", width) > 1:
            raise ArgumentError("`beam_width` is more than 1, so `cache_indirection` must be given")
        return None
    (beams,) = integral(cache_indirection=indirection)
    problem = f"`cache_indirection` of {shape_text(beams.shape)} must be (B / W, W, M), for a batch of {batch}"
    if beams.ndim != 3 or not agree(problem, beams.shape[0] * beams.shape[1], batch):
        raise ShapeError(problem)
    first = lax.broadcasted_iota(beams.dtype, beams.shape, 0) * beams.shape[1]
    return (first + beams).reshape(batch, beams.shape[2])


def _projected(
    inputs: tuple[Any, ...],
    *,
    num_heads: int,
    do_rotary: int,
    mask_filter_value: float,
    past_present_share_buffer: int,
    qkv_hidden_sizes: Sequence[int] | None,
    rotary_embedding_dim: int,
    scale: float | None,
    unidirectional: int,
    beams: Any = None,
) -> tuple[jax.Array, jax.Array | None]:
    input, weights, bias, mask_index, past, attention_bias, past_length = inputs
    arrays = floats_of_one_type(input=input, weights=weights, bias=bias, past=past, attention_bias=attention_bias)
    x, w, b, old, extra = arrays
    must_fit("input", x.shape, ("B", "S", "Di"))
    hidden = None if qkv_hidden_sizes is None else ints("qkv_hidden_sizes", qkv_hidden_sizes)
    width, value_width = sizes_of.projections(x.shape, w.shape, None if b is None else b.shape, hidden, num_heads)
    size, batch, length = width // num_heads, x.shape[0], x.shape[1]
    shared = flag("past_present_share_buffer", past_present_share_buffer) and old is not None
    if old is not None:
        problem = (
            f"`past` of {shape_text(old.shape)} must be {shape_text((2, batch, num_heads, 'P', size))}, with "
            f"values as wide as the keys"
        )
        if value_width != width or not sizes_fit(problem, old.shape, (2, batch, num_heads, None, size)):
            raise ShapeError(problem)
    rows: Any = 0 if old is None else old.shape[3]
    before = known_length(past_length) if shared else rows
    if shared:
        if before is None:
            raise ArgumentError("with a shared buffer `past_sequence_length` must be given")
        sizes_of.buffer(rows, before if isinstance(before, int) else None, length)
    total = None if shared and not isinstance(before, int) else before + length
    (mask,) = integral(mask_index=mask_index)
    sizes_of.mask("mask_index", None if mask is None else mask.shape, batch, length, total)
    sizes_of.bias(None if extra is None else extra.shape, batch, num_heads, length, total)
    turned = (rotary_embedding_dim or size) if flag("do_rotary", do_rotary) else 0
    if turned % 2 or turned > size:
        raise ArgumentError(f"`rotary_embedding_dim` is {turned}; it must be even and at most {size}")
    options = Options(masked=float(mask_filter_value), causal=flag("unidirectional", unidirectional), shared=shared)
    static_before, traced_before = (before, None) if shared and isinstance(before, int) else (None, before)
    operands = (x, w, b, mask, old, extra, traced_before if shared else None, beams)
    return _attention(operands, num_heads, width, turned, static_before, scale_of(scale, size), options)


@jit_if_concrete
def _attention(
    operands: tuple[Any, ...], heads: int, width: int, turned: int, before: int | None, scale: float, options: Options
) -> tuple[Any, Any]:
    x, w, b, mask, old, extra, traced_before, beams = operands
    before = traced_before if before is None else before
    projected = project(x, w, b)
    q, k, v = (
        split_heads(part, heads)
        for part in (projected[..., :width], projected[..., width : 2 * width], projected[..., 2 * width :])
    )
    if turned:
        first = before if options.shared else 0 if old is None else old.shape[3]
        cos, sin = _angles(first, x.shape[1], turned)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
    past = None if old is None else (old[0], old[1])
    result, present_k, present_v = cached(q, k, v, past, before, beams, mask, extra, scale, options)
    output = assert_sizes(merge_heads(result.output), (*x.shape[:2], v.shape[1] * v.shape[3]), x.dtype)
    return output, jnp.stack([present_k, present_v]) if present_k.shape == present_v.shape else None


def project(x: Any, weights: Any, bias: Any) -> Any:
    """Returns x · weights + bias, in the dtype of x."""
    product = dot.matrix_product(x, weights, accumulation_type(x.dtype))
    return (product if bias is None else product + along_last(bias.astype(product.dtype), product)).astype(x.dtype)


def along_last(bias: Any, x: Any) -> Any:
    """Returns a bias (D,) with the rank of x (…, D)."""
    return bias.reshape((1,) * (x.ndim - 1) + bias.shape)


def _angles(first: Any, length: Any, turned: int) -> tuple[Any, Any]:
    """Returns cosines and sines, (S, turned / 2), for `length` positions from `first` on."""
    positions = jnp.asarray(first, np.float32) + lax.broadcasted_iota(np.float32, (length, 1), 0)
    frequencies = 10000.0 ** (-np.arange(0, turned, 2, dtype=np.float32) / turned)
    angles = positions * frequencies.astype(np.float32)[None]
    return jnp.cos(angles), jnp.sin(angles)


def decoder_attention(
    query: ArrayLike,
    key: ArrayLike,
    q_weight: ArrayLike,
    kv_weight: ArrayLike,
    bias: Bias[ArrayLike],
    key_padding_mask: ArrayLike | None = None,
    key_cache: ArrayLike | None = None,
    value_cache: ArrayLike | None = None,
    static_kv: Static = False,
    use_past: Static = False,
    has_layer_state: Static = False,
    has_key_padding_mask: Static = False,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes attention of a decoder to itself or, with static_kv, to an encoder; the first axis is the sequence.

    query: (S, B, D), floats. key: (L, B, D). q_weight: (D, D). kv_weight: (D, 2 · D). bias: (3 · D,), for queries, keys
    and values. Keys and values are computed from key with static_kv, else from query. With use_past and
    has_layer_state, static_kv takes them from key_cache and value_cache (B, N, P, H) instead; without static_kv they
    follow these.
    key_padding_mask: booleans (B, T), used with has_key_padding_mask; True adds mask_filter_value to a key's scores.
    The four flags are static. Returns the output (S, B, D), and keys and values (B, N, T, H).
    Raises ShapeError, DTypeError, ArgumentError, StaticError for a traced flag.
    Source: com.microsoft DecoderAttention, opset 1.

    >>> x = jnp.ones((3, 1, 8))
    >>> output, keys, values = decoder_attention(x, x, jnp.ones((8, 8)), jnp.ones((8, 16)), jnp.ones(24), num_heads=2)
    >>> output.shape, keys.shape
    ((3, 1, 8), (1, 2, 3, 4))
    """
    flags = {
        "static_kv": static_kv,
        "use_past": use_past,
        "has_layer_state": has_layer_state,
        "has_key_padding_mask": has_key_padding_mask,
    }
    settings = {name: _static_flag(name, value) for name, value in flags.items()}
    cached_before = settings["use_past"] and settings["has_layer_state"]
    arrays = floats_of_one_type(
        query=query,
        key=key,
        q_weight=q_weight,
        kv_weight=kv_weight,
        bias=bias,
        key_cache=key_cache if cached_before else None,
        value_cache=value_cache if cached_before else None,
    )
    q, k, wq, wkv, b, old_k, old_v = arrays
    width = q.shape[-1] if q.ndim else 0
    size = sizes_of.head_size("query", width, num_heads)
    shapes = ", ".join(shape_text(x.shape) for x in (q, k, wq, wkv, b))
    problem = (
        f"query, key, q_weight, kv_weight and bias of {shapes} must be "
        f"(S, B, D), (L, B, D), (D, D), (D, 2 · D) and (3 · D,)"
    )
    fits = q.ndim == 3 and sizes_fit(problem, k.shape, (None, *q.shape[1:]))
    if not fits or (wq.shape, wkv.shape, b.shape) != ((width, width), (width, 2 * width), (3 * width,)):
        raise ShapeError(problem)
    batch, length = q.shape[1], k.shape[0] if settings["static_kv"] else q.shape[0]
    if cached_before:
        for name, cache in (("key_cache", old_k), ("value_cache", old_v)):
            shape = None if cache is None else shape_text(cache.shape)
            problem = f"`{name}` of {shape} must be {shape_text((batch, num_heads, 'P', size))}"
            if cache is None or not sizes_fit(problem, cache.shape, (batch, num_heads, None, size)):
                raise ShapeError(problem)
        length = old_k.shape[2] if settings["static_kv"] else old_k.shape[2] + q.shape[0]
    padding = None
    if settings["has_key_padding_mask"] and key_padding_mask is not None:
        padding = as_traced(key_padding_mask)
        must_fit("key_padding_mask", padding.shape, (batch, length))
    operands = (q, k, wq, wkv, b, old_k, old_v, padding)
    return _decoder(operands, num_heads, settings["static_kv"], scale_of(None, size), float(mask_filter_value))


@jit_if_concrete
def _decoder(
    operands: tuple[Any, ...], heads: int, static_kv: bool, scale: float, masked: float
) -> tuple[Any, Any, Any]:
    query, key, wq, wkv, b, old_k, old_v, padding = operands
    width = query.shape[2]

    def by_head(x: Any) -> Any:
        return split_heads(x.transpose(1, 0, 2), heads)

    q = by_head(project(query, wq, b[:width]))
    if old_k is not None and static_kv:
        k, v = old_k, old_v
    else:
        both = project(key if static_kv else query, wkv, b[width:])
        k, v = by_head(both[..., :width]), by_head(both[..., width:])
        if old_k is not None:
            k, v = jnp.concatenate([old_k, k], 2), jnp.concatenate([old_v, v], 2)
    bias = None
    if padding is not None:
        bias = jnp.where(padding.astype(bool)[:, None, None], np.float32(masked), np.float32(0))
    output = scaled_dot_product_attention(q, k, v, scale=scale, bias=bias).output
    return merge_heads(output).transpose(1, 0, 2), k, v
