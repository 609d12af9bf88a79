"""Biases of attention scores that depend on the distance of query and key."""

__all__ = ["gated_relative_position_bias", "relative_position_bias"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import accumulation_type, floating, integral
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.scaled_dot_product import split_heads
from jaxops.ops.microsoft.attentions.packing import restored
from jaxops.ops.microsoft.attentions.projected_attention import along_last
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft.attentions import cached_attention as sizes_of, packing as packed_sizes
from jaxops.signature import Bias, Static, Weight
from jaxops.static import ArrayLike, Dim, jit_if_concrete, known


def relative_position_bias(
    bias_table: ArrayLike, query_length: Static, key_length: Static, *, max_distance: int, is_bidirectional: int = 0
) -> jax.Array:
    """Returns a learned bias for each distance of query and key; larger distances share buckets (T5).

    bias_table: (buckets, N), floats; its memory holds the buckets of the first head, then of the second, and so on.
    query_length, key_length: static, one integer S; both must be equal. Distances below half the buckets have one each,
    those up to max_distance share the remaining buckets by their logarithm. is_bidirectional: 1 gives keys after the
    query half of the buckets; 0 gives them the bucket of the same distance before it. Returns (1, N, S, S). Raises
    ShapeError, ArgumentError, DTypeError, StaticError for a traced length. Source: com.microsoft RelativePositionBias,
    opset 1; there is no kernel for a CPU in onnxruntime.

    >>> relative_position_bias(jnp.arange(8.0).reshape(4, 2), 3, 3, max_distance=8)[0, 1].tolist()
    [[4.0, 5.0, 6.0], [5.0, 4.0, 5.0], [6.0, 5.0, 4.0]]
    """
    (table,) = floating(bias_table=bias_table)
    must_fit("bias_table", table.shape, ("buckets", "N"))
    length, keys = _length("query_length", query_length), _length("key_length", key_length)
    if length != keys:
        raise ShapeError(f"`query_length` is {length} and `key_length` is {keys}; they must be equal")
    both = flag("is_bidirectional", is_bidirectional)
    exact = table.shape[0] // (4 if both else 2)
    distance = integer("max_distance", max_distance)
    if exact < 1 or distance <= exact:
        raise ArgumentError(
            f"`max_distance` is {distance}; with {table.shape[0]} buckets it must be more than {max(exact, 1)}, "
            f"and there must be at least {4 if both else 2} buckets"
        )
    return _relative(table, length, distance, both)


def _length(name: str, value: Any) -> Any:
    return integer(name, known(name, value).reshape(-1))


@jit_if_concrete
def _relative(table: Any, length: Dim, max_distance: int, both: bool) -> Any:
    buckets, heads = table.shape
    by_head = table.reshape(heads, buckets)
    used = buckets // 2 if both else buckets
    exact = used // 2
    far = lax.broadcasted_iota(np.int32, (length,), 0)
    # The quotient of the logarithms and their truncation are those of float32, as in T5.
    ratio = jnp.log(jnp.maximum(far, 1).astype(np.float32) / np.float32(exact))
    large = exact + (ratio / np.float32(math.log(max_distance / exact)) * (used - exact)).astype(np.int32)
    bucket = jnp.where(far < exact, far, jnp.minimum(large, used - 1))
    before = jnp.take(by_head, bucket, 1)
    after = jnp.take(by_head, bucket + used, 1, mode="clip") if both else before
    rows = lax.broadcasted_iota(np.int32, (length, length), 0)
    columns = lax.broadcasted_iota(np.int32, (length, length), 1)
    away = jnp.abs(columns - rows)
    biases = jnp.where(columns > rows, jnp.take(after, away, 1), jnp.take(before, away, 1))
    return assert_sizes(biases[None], (1, heads, length, length), by_head.dtype)


def gated_relative_position_bias(
    query_layer: ArrayLike,
    query_bias: ArrayLike,
    rel_pos: ArrayLike,
    weight: Weight[ArrayLike],
    bias: Bias[ArrayLike],
    eco_a: ArrayLike,
    token_offset: ArrayLike | None = None,
    *,
    num_heads: int,
) -> jax.Array:
    """Returns rel_pos, scaled for each query by a gate that is computed from the query.

    The two halves of (query + query_bias) · weight + bias are summed and go through a sigmoid to u and r; the gate is
    u · (r · eco_a - 1) + 2.
    query_layer: (B, S, N · H), floats, or packed tokens (T, N · H) with token_offset, integers (B, S); see
    `restore_padding`. query_bias: (N · H,). rel_pos: (1, N, S, S). weight: (H, D) with an even D. bias: (D,).
    eco_a: (1, N, 1, 1). Returns (B, N, S, S). Raises ShapeError, DTypeError, ArgumentError.
    Source: com.microsoft GatedRelativePositionBias, opset 1; there is no kernel for a CPU in onnxruntime.

    >>> given = jnp.ones((1, 3, 8)), jnp.ones(8), jnp.ones((1, 2, 3, 3)), jnp.ones((4, 8)), jnp.ones(8)
    >>> gated_relative_position_bias(*given, jnp.ones((1, 2, 1, 1)), num_heads=2).shape
    (1, 2, 3, 3)
    """
    arrays = floating(
        query_layer=query_layer, query_bias=query_bias, rel_pos=rel_pos, weight=weight, bias=bias, eco_a=eco_a
    )
    query, first, rel, w, b, eco = arrays
    (offset,) = integral(token_offset=token_offset)
    if offset is not None:
        packed_sizes.offsets("query_layer", query.shape, offset.shape)
        query = restored((query, offset))
    must_fit("query_layer", query.shape, ("B", "S", "N · H"))
    size = sizes_of.head_size("query_layer", query.shape[2], num_heads)
    length, width = query.shape[1], w.shape[-1] if w.ndim else 0
    expected_sizes = {
        "query_bias": (first, query.shape[2:]),
        "rel_pos": (rel, (1, num_heads, length, length)),
        "weight": (w, (size, width)),
        "bias": (b, (width,)),
        "eco_a": (eco, (1, num_heads, 1, 1)),
    }
    for name, (value, sizes) in expected_sizes.items():
        must_fit(name, value.shape, sizes)
    if width % 2:
        raise ShapeError(f"`weight` of {shape_text(w.shape)} must have an even number of columns")
    return _gated((query, first, rel, w, b, eco), num_heads)


@jit_if_concrete
def _gated(operands: tuple[Any, ...], heads: int) -> Any:
    query, first, rel, w, b, eco = operands
    work = accumulation_type(query.dtype)
    q = split_heads(query + along_last(first, query), heads)
    projected = jnp.matmul(q, w, preferred_element_type=work)
    projected = projected + along_last(b.astype(work), projected)
    halves = projected.reshape(*projected.shape[:3], 2, projected.shape[3] // 2).sum(-1)
    gates = jax.nn.sigmoid(halves)
    gate = gates[..., :1] * (gates[..., 1:] * eco.astype(work) - 1.0) + 2.0
    return (gate * rel.astype(work)).astype(query.dtype)
