"""Attention with a cache and a mask of blocks. 16-bit types are computed in float32."""

__all__ = ["sparse_attention"]

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import as_traced, floats_of_one_type, integral, require_integers
from jaxops.errors import ArgumentError, ShapeError, SizeError, describe, shape_text
from jaxops.ops.common.scaled_dot_product import merge_heads, rotated, scaled_dot_product_attention, split_grouped_heads
from jaxops.ops.microsoft.attentions.cached_attention import scale_of
from jaxops.ops.microsoft.attentions.rotary import rows as rows_of
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft.attentions import group_query as grouped, rotary as rotary_sizes
from jaxops.signature import Table, Traits
from jaxops.static import ArrayLike, Dim, Sizes, Tracer, Undecided, array, jit_if_concrete

TRAITS = Traits(kind="attention")


def _layouts(rows: Sizes, columns: Sizes, heads: int) -> tuple[Dim, Dim]:
    """Returns (layouts, blocks) for block_row_indices (layouts, blocks + 1) and block_col_indices (layouts, n)."""
    if len(rows) != 2 or (isinstance(rows[1], int) and rows[1] < 2):
        raise ShapeError(f"`block_row_indices` of {shape_text(rows)} must be (layouts, blocks + 1)")
    if not isinstance(rows[0], int) or rows[0] < 1 or heads % rows[0]:
        raise ShapeError(f"the {rows[0]} layouts of `block_row_indices` must divide the {heads} heads")
    must_fit("block_col_indices", columns, (rows[0], "n"), reason=", as the row indices")
    return rows[0], rows[1] - 1


def _check_room(new: Dim, buffer: Dim) -> None:
    """Checks that the new tokens fit into the rows of a buffer. Raises SizeError if that depends on a symbolic size."""
    problem = f"the {new} new tokens do not fit into the {buffer} rows of `past_key`"
    try:
        if new > buffer:
            raise ShapeError(problem)
    except Undecided as error:
        raise SizeError(problem, new, buffer, needs=f"{new} <= {buffer}") from error


def _check_total(count: Dim, new: Dim, buffer: Dim, masked: Dim) -> None:
    """Checks `total_sequence_length`: it covers the new tokens, and fits into the rows of buffer and mask."""
    concrete = all(isinstance(d, int) for d in (count, new, buffer, masked))
    if concrete and not new <= count <= min(buffer, masked):
        raise ArgumentError(
            f"`total_sequence_length` is {count}; it must be at least {new}, the new tokens, and at most "
            f"{buffer}, the rows of `past_key`, and {masked}, those of the block mask"
        )


@dataclass(frozen=True)
class _Options:
    heads: int
    groups: int
    block: int
    scale: float
    interleaved: bool
    prompt: bool | None  # True if all tokens are new; None if a traced total decides it


def sparse_attention(
    query: ArrayLike,
    key: ArrayLike | None,
    value: ArrayLike | None,
    past_key: ArrayLike,
    past_value: ArrayLike,
    block_row_indices: ArrayLike,
    block_col_indices: ArrayLike,
    total_sequence_length: Any,
    key_total_sequence_lengths: ArrayLike,
    cos_cache: Table[ArrayLike] | None = None,
    sin_cache: Table[ArrayLike] | None = None,
    *,
    kv_num_heads: int,
    num_heads: int,
    sparse_block_size: int,
    do_rotary: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes attention of grouped heads to a cache; a mask selects which blocks of keys a block of queries sees.

    query: (B, S, N · H), floats; N is num_heads. key, value: (B, S, K · H); K is kv_num_heads, a divisor of N. Without
    them query is (B, S, (N + 2 · K) · H) and holds all three. past_key, past_value: (B, K, M, H), buffers that the new
    keys and values are written into. key_total_sequence_lengths: integers (B,), the tokens of each sample, old and new.
    total_sequence_length: one integer, the largest of these. If it is S, this is the prompt: the tokens have the
    positions 0 to S - 1, with padding on the right. Otherwise they are the last S tokens of each sample. A sample with
    more than M tokens gives NaN.

    The mask has blocks of sparse_block_size tokens, and layouts that the heads use in turn. Row r of layout l sees the
    columns block_col_indices[l, j] for block_row_indices[l, r] <= j < block_row_indices[l, r + 1]. No query sees a
    later key. block_row_indices: (layouts, blocks + 1). block_col_indices: (layouts, n); -1 is padding.
    do_rotary: 1 rotates query and key by the angles of their positions, in cos_cache and sin_cache, (R, H / 2);
    rotary_interleaved as in `rotary_embedding`. scale: of the scores, 1 / sqrt(H) for None or 0.
    Returns the output (B, S, N · H), and the buffers with the new keys and values.
    Raises ShapeError, DTypeError, ArgumentError. Source: com.microsoft SparseAttention, opset 1. (onnxruntime 1.32 on a
    CPU mixes up samples of different lengths; here each sample is computed as if alone.)

    >>> x, buffer = jnp.ones((1, 2, 8)), jnp.zeros((1, 1, 4, 8))
    >>> mask = np.array([[0, 1, 3]]), np.array([[0, 0, 1]])
    >>> how = {"num_heads": 1, "kv_num_heads": 1, "sparse_block_size": 2}
    >>> sparse_attention(x, x, x, buffer, buffer, *mask, 2, np.array([2]), **how)[1][0, 0, :, 0].tolist()
    [1.0, 1.0, 0.0, 0.0]
    """
    heads, groups = integer("num_heads", num_heads), integer("kv_num_heads", kv_num_heads)
    block = integer("sparse_block_size", sparse_block_size, least=1)
    floats = floats_of_one_type(
        query=query,
        key=key,
        value=value,
        past_key=past_key,
        past_value=past_value,
        cos_cache=cos_cache,
        sin_cache=sin_cache,
    )
    q, k, v, old_k, old_v, cos, sin = floats
    size = grouped.head_size(q.shape, None if k is None else k.shape, None if v is None else v.shape, heads, groups)
    batch, new = q.shape[:2]
    buffer = grouped.past(old_k.shape, old_v.shape, batch, groups, size)
    rows, columns, lengths = integral(
        block_row_indices=block_row_indices,
        block_col_indices=block_col_indices,
        key_total_sequence_lengths=key_total_sequence_lengths,
    )
    _, blocks = _layouts(rows.shape, columns.shape, heads)
    _check_room(new, buffer)
    must_fit("key_total_sequence_lengths", lengths.shape, (batch,))
    tokens = array(total_sequence_length)
    require_integers("total_sequence_length", tokens)
    if tokens.size != 1:
        raise ArgumentError(f"`total_sequence_length` must be one integer, got {describe(tokens)}")
    prompt = None
    if not isinstance(tokens, Tracer):
        count = np.asarray(tokens).reshape(())[()]
        _check_total(int(count) if isinstance(count, np.integer) else count, new, buffer, blocks * block)
        prompt = bool(count == new) if isinstance(count, np.integer) and isinstance(new, int) else None
    if not flag("do_rotary", do_rotary):
        cos = sin = None
    elif cos is None or sin is None:
        raise ArgumentError("`do_rotary` is 1, so `cos_cache` and `sin_cache` must be given")
    else:
        rotary_sizes.tables(cos.shape, sin.shape, size, 2 * cos.shape[-1] if cos.ndim else 0)
    options = _Options(
        heads, groups, block, scale_of(scale, size), flag("rotary_interleaved", rotary_interleaved), prompt
    )
    operands = (q, k, v, old_k, old_v, rows, columns, lengths, as_traced(tokens).reshape(()), cos, sin)
    return _sparse(operands, options)


@jit_if_concrete
def _sparse(operands: tuple[Any, ...], options: _Options) -> tuple[jax.Array, jax.Array, jax.Array]:
    q, k, v, old_k, old_v, rows, columns, lengths, total, cos, sin = operands
    heads, groups = options.heads, options.groups
    q, k, v = split_grouped_heads(q, k, v, heads, groups)
    length, ends = q.shape[2], lengths.astype(np.int32)
    starts = ends - jnp.asarray(length, np.int32)
    if options.prompt is None:
        starts = jnp.where(total == jnp.asarray(length, total.dtype), 0, starts)
    elif options.prompt:
        starts = jnp.zeros_like(ends)
    positions = starts[:, None] + lax.broadcasted_iota(np.int32, (1, length), 1)
    if cos is not None:
        turns = rows_of(cos, positions)[:, None], rows_of(sin, positions)[:, None]
        q, k = (rotated(x, *turns, interleaved=options.interleaved) for x in (q, k))
    zero = np.int32(0)  # the type of starts, also while x64 is on
    present_k, present_v = (
        jax.vmap(lambda c, n, s: lax.dynamic_update_slice(c, n, (zero, s, zero)))(old, x, starts)
        for old, x in ((old_k, k), (old_v, v))
    )
    seen = lax.broadcasted_iota(np.int32, (1, 1, 1, present_k.shape[2]), 3) <= positions[:, None, :, None]
    by_block = _by_block(rows, columns)[np.arange(heads) % rows.shape[0]]
    row = jnp.clip(positions // options.block, 0, by_block.shape[1] - 1)
    column = jnp.clip(lax.iota(np.int32, present_k.shape[2]) // options.block, 0, by_block.shape[2] - 1)
    allowed = jnp.take(jnp.moveaxis(jnp.take(by_block, row, 1), 0, 1), column, 3)
    output = merge_heads(
        scaled_dot_product_attention(q, present_k, present_v, scale=options.scale, mask=seen & allowed).output
    )
    beyond = (starts + length > present_k.shape[2])[:, None, None]
    return jnp.where(beyond, jnp.asarray(np.nan, output.dtype), output), present_k, present_v


def _by_block(rows: Any, columns: Any) -> Any:
    """Returns the block mask, boolean (layouts, blocks, blocks)."""
    rows, columns = rows.astype(np.int32), columns.astype(np.int32)
    layouts, blocks, count = rows.shape[0], rows.shape[1] - 1, columns.shape[1]
    entry = lax.broadcasted_iota(rows.dtype, (layouts, blocks, count), 2)
    row = jnp.sum((rows[:, 1:, None] <= entry).astype(np.int32), 1)
    layout = lax.broadcasted_iota(np.int32, row.shape, 0)
    column = jnp.where(columns < 0, jnp.asarray(blocks, columns.dtype), columns)
    return jnp.zeros((layouts, blocks, blocks), bool).at[layout, row, column].set(True, mode="drop")
