"""Packed batches, which hold tokens without padding: attention, and removal and restoration of the padding.

A batch (B, S, …) with padding on the right is packed into its tokens (T, …). `token_offset`, (B, S), holds the
flat positions of the tokens in the batch, then those of the padding. 16-bit types are accumulated in float32.
"""

__all__ = ["packed_attention", "packed_multi_head_attention", "remove_padding", "restore_padding"]

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import floating, floats_of_one_type, integral, require_integers
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.scaled_dot_product import merge_heads, scaled_dot_product_attention, split_heads
from jaxops.ops.microsoft.attentions.cached_attention import scale_of
from jaxops.ops.microsoft.attentions.projected_attention import along_last, project
from jaxops.shapes.arithmetic import must_agree, must_fit
from jaxops.shapes.microsoft.attentions import (
    cached_attention as sizes_of,
    multi_head as layouts,
    packing as packed_sizes,
)
from jaxops.signature import Bias, Static, Weight, operator
from jaxops.static import ArrayLike, jit_if_concrete, known


@operator(kind="attention")
def packed_attention(
    input: ArrayLike,
    weights: Weight[ArrayLike],
    bias: Bias[ArrayLike],
    token_offset: ArrayLike,
    cumulative_sequence_length: ArrayLike,
    attention_bias: ArrayLike | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None = None,
    scale: float | None = None,
) -> jax.Array:
    """Computes `attention` of a packed batch: each token attends to those of its own sequence.

    input: (T, Di), floats. weights: (Di, D + D + Dv). bias: (D + D + Dv,). token_offset: integers (B, S).
    cumulative_sequence_length: integers (B + 1,), the sums of the first lengths. attention_bias: floats
    (1 or B, 1 or N, S, S), added to the scores. num_heads, qkv_hidden_sizes, scale: as in `attention`.
    Returns (T, Dv). Raises ShapeError, DTypeError, ArgumentError.
    Source: com.microsoft PackedAttention, opset 1.

    >>> given = jnp.ones((3, 8)), jnp.ones((8, 24)), jnp.ones(24), np.array([[0, 2], [3, 1]]), np.array([0, 1, 3])
    >>> packed_attention(*given, num_heads=2).shape
    (3, 8)
    """
    x, w, b, extra = floats_of_one_type(input=input, weights=weights, bias=bias, attention_bias=attention_bias)
    must_fit("input", x.shape, ("T", "Di"))
    hidden = None if qkv_hidden_sizes is None else ints("qkv_hidden_sizes", qkv_hidden_sizes)
    width, _ = sizes_of.projections(x.shape, w.shape, b.shape, hidden, num_heads)
    offset, ends = _offsets(x, token_offset, cumulative_sequence_length, extra, num_heads)
    return _packed_projected((x, w, b, offset, ends, extra), num_heads, width, scale_of(scale, width // num_heads))


def _offsets(tokens: Any, offset: Any, cumulative: Any, bias: Any, heads: int) -> tuple[Any, Any]:
    (offset,) = integral(token_offset=offset)
    (ends,) = integral(cumulative_sequence_length=cumulative)
    packed_sizes.places(tokens.shape, offset.shape, ends.shape)
    batch, length = offset.shape
    sizes_of.bias(None if bias is None else bias.shape, batch, heads, length, length)
    return offset, ends


@jit_if_concrete
def _packed_projected(operands: tuple[Any, ...], heads: int, width: int, scale: float) -> Any:
    x, w, b, offset, ends, extra = operands
    both = project(x, w, b)
    parts = (both[:, :width], both[:, width : 2 * width], both[:, 2 * width :])
    return _within_sequences(parts, offset, ends, extra, heads, scale)


def _within_sequences(parts: Any, offset: Any, ends: Any, bias: Any, heads: int, scale: float) -> Any:
    """Computes attention of packed queries, keys and values (T, …) within each sequence; returns it packed."""
    if isinstance(parts[0].shape[0], int) and parts[0].shape[0] == 0:  # all is padding
        return jnp.zeros((0, parts[2].shape[1]), parts[0].dtype)
    batch, length = offset.shape
    starts, counts = ends[:-1], ends[1:] - ends[:-1]
    steps = lax.broadcasted_iota(ends.dtype, (batch, length), 1)
    real = steps < counts[:, None]
    rows = jnp.where(real, starts[:, None] + steps, 0)
    q, k, v = (split_heads(jnp.take(x, rows, 0, mode="clip"), heads) for x in parts)
    output = merge_heads(scaled_dot_product_attention(q, k, v, scale=scale, bias=bias, mask=real[:, None, None]).output)
    flat = output.reshape(batch * length, output.shape[2])
    packed = jnp.take(flat, offset.reshape(-1)[: parts[0].shape[0]], 0, mode="clip")
    return assert_sizes(packed, (parts[0].shape[0], parts[2].shape[1]), parts[0].dtype)


@operator(kind="attention")
def packed_multi_head_attention(
    query: ArrayLike,
    key: ArrayLike | None = None,
    value: ArrayLike | None = None,
    bias: Bias[ArrayLike] | None = None,
    token_offset: ArrayLike | None = None,
    cumulative_sequence_length: Any = None,
    attention_bias: ArrayLike | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
) -> jax.Array:
    """Computes `multi_head_attention` of a packed batch: each token attends to those of its own sequence.

    query, key, value: (T, D), (T, D) and (T, Dv), floats, or query is (T, N, 3, H) and holds all three.
    bias: (D + D + Dv,). token_offset, cumulative_sequence_length, attention_bias: as in `packed_attention`. scale: of
    the scores, 1 / sqrt(H) for None or 0. mask_filter_value has no effect,
    since tokens of other sequences are excluded.
    Returns (T, Dv). Raises ShapeError, DTypeError, ArgumentError.
    Source: com.microsoft PackedMultiHeadAttention, opset 1.

    >>> given = jnp.ones((3, 2, 3, 4)), None, None, None, np.array([[0, 2], [3, 1]]), np.array([0, 1, 3])
    >>> packed_multi_head_attention(*given, num_heads=2).shape
    (3, 8)
    """
    q, k, v, b, extra = floats_of_one_type(query=query, key=key, value=value, bias=bias, attention_bias=attention_bias)
    if k is None:
        must_fit("query", q.shape, ("T", "N", 3, "H"), reason=" if there is no key")
    k_shape, v_shape = (None if x is None else (1, *x.shape) for x in (k, v))
    _, _, new, size, value_size = layouts.heads((1, *q.shape), k_shape, v_shape, num_heads)
    must_agree(f"`key` and `value` have {new} tokens, but `query` has {q.shape[0]}", (new,), q.shape[:1])
    layouts.bias(None if b is None else b.shape, num_heads * size, num_heads * value_size)
    if token_offset is None or cumulative_sequence_length is None:
        raise ArgumentError("`token_offset` and `cumulative_sequence_length` must be given")
    offset, ends = _offsets(q, token_offset, cumulative_sequence_length, extra, num_heads)
    return _packed_heads((q, k, v, b, offset, ends, extra), num_heads, scale_of(scale, size))


@jit_if_concrete
def _packed_heads(operands: tuple[Any, ...], heads: int, scale: float) -> Any:
    q, k, v, bias, offset, ends, extra = operands
    if k is None:
        q, k, v = (q[:, :, i].reshape(q.shape[0], heads * q.shape[3]) for i in range(3))
    if bias is not None:
        width = q.shape[1]
        parts = zip((q, k, v), (bias[:width], bias[width : 2 * width], bias[2 * width :]), strict=True)
        q, k, v = (x + along_last(b, x) for x, b in parts)
    return _within_sequences((q, k, v), offset, ends, extra, heads, scale)


def remove_padding(input: ArrayLike, sequence_token_count: Static) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Packs the tokens of a batch with padding on the right.

    input: (B, S, D), floats. sequence_token_count: integers (B,), the tokens of each sequence; static, since their sum
    T is a size. Returns the tokens (T, D) and, in int32, their flat positions and then those of the padding (B, S), the
    sums of the first lengths (B + 1,), and the largest length (1,).
    Raises ShapeError, DTypeError, StaticError for a traced count, ArgumentError for one outside of [0, S].
    Source: com.microsoft RemovePadding, opset 1.

    >>> tokens, offset, cumulative, longest = remove_padding(jnp.ones((2, 2, 3)), np.array([1, 2]))
    >>> tokens.shape, offset.tolist(), cumulative.tolist(), longest.tolist()
    ((3, 3), [[0, 2], [3, 1]], [0, 1, 3], [2])
    """
    (x,) = floating(input=input)
    counts = known("sequence_token_count", sequence_token_count)
    require_integers("sequence_token_count", counts)
    if x.ndim != 3 or counts.shape != x.shape[:1]:
        raise ShapeError(
            f"`input` of {shape_text(x.shape)} must be (B, S, D), and `sequence_token_count` of "
            f"{shape_text(counts.shape)} must be (B,)"
        )
    batch, length, width = x.shape
    if counts.size and not 0 <= counts.min() <= counts.max() <= length:
        raise ArgumentError(f"`sequence_token_count` is {counts}; sequences have 0 to {length} tokens")
    padding = np.arange(length) >= counts[:, None]
    order = np.argsort(padding.reshape(-1), kind="stable")
    total = int(counts.sum())
    tokens = jnp.take(x.reshape(batch * length, width), jnp.asarray(order[:total], np.int32), 0)
    sums = np.concatenate([[0], np.cumsum(counts)])
    longest = counts.max(initial=0)
    offset, cumulative, most = (
        jnp.asarray(v, np.int32) for v in (order.reshape(batch, length), sums, np.reshape(longest, 1))
    )
    return tokens, offset, cumulative, most


def restore_padding(input: ArrayLike, token_offset: ArrayLike) -> jax.Array:
    """Restores the batch whose tokens `remove_padding` has packed, with zeros as padding.

    input: (T, D), floats. token_offset: integers (B, S). Returns (B, S, D). Raises ShapeError, DTypeError.
    Source: com.microsoft RestorePadding, opset 1.

    >>> restore_padding(jnp.ones((3, 1)), np.array([[0, 2], [3, 1]]))[..., 0].tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    (x,) = floating(input=input)
    (offset,) = integral(token_offset=token_offset)
    packed_sizes.offsets("input", x.shape, offset.shape)
    return restored((x, offset))


@jit_if_concrete
def restored(operands: tuple[Any, Any]) -> Any:
    """Writes tokens (T, D) at their places in a batch (B, S, D) of zeros."""
    x, offset = operands
    batch, length = offset.shape
    flat = jnp.zeros((batch * length, x.shape[1]), x.dtype)
    flat = flat.at[offset.reshape(-1)[: x.shape[0]]].set(x, mode="drop", unique_indices=True)
    return flat.reshape(batch, length, x.shape[1])
