"""Rotary position embedding: rotates pairs of elements by angles that grow with the position.

16-bit types are computed in float32.
"""

__all__ = ["gemma_rotary_embedding", "m_rotary_embedding", "rotary_embedding"]

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, ints, one_of
from jaxops.dtypes import accumulation_type, as_traced, at_least_int32, floating, require_integers
from jaxops.errors import BoundsError, ShapeError, describe, shape_text
from jaxops.ops.common.scaled_dot_product import rotated
from jaxops.shapes.microsoft.attentions import rotary as sizes_of
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import Table
from jaxops.static import ArrayLike, array, is_symbolic, jit_if_concrete

Layout = Literal[0, 1]


def rotary_embedding(
    input: ArrayLike,
    position_ids: ArrayLike,
    cos_cache: Table[ArrayLike],
    sin_cache: Table[ArrayLike],
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
) -> jax.Array:
    """Rotates the first R elements of each head by the angles of its position, and keeps later elements.

    input: (B, S, N · H) or (B, N, S, H), floats. position_ids: integers in [0, M), (B, S), or one number, the position
    of the first token. cos_cache, sin_cache: (M, R / 2), the cosines and sines of each position. R is
    rotary_embedding_dim, or H if that is 0; H then follows from the tables, else from num_heads. interleaved: 1 pairs
    neighbours, 0 element i with element i + R / 2. is_packed_batching and scale are ignored, as in onnxruntime.
    Returns an array like input.
    Raises ShapeError, DTypeError, ArgumentError, BoundsError for an out-of-range static position; a traced one
    gives NaN.
    Source: com.microsoft RotaryEmbedding, opset 1.

    >>> rotary_embedding(jnp.ones((1, 2, 2)), np.zeros((1, 2), int), jnp.zeros((9, 1)), jnp.ones((9, 1)))[0, 0].tolist()
    [-1.0, 1.0]
    """
    x, cos, sin = floating(input=input, cos_cache=cos_cache, sin_cache=sin_cache)
    flag("is_packed_batching", is_packed_batching)
    pairs = flag("interleaved", interleaved)
    width = cos.shape[-1] if cos.ndim else 0
    sizes = sizes_of.by_heads(x.shape, num_heads, rotary_embedding_dim, width)
    sizes_of.tables(cos.shape, sin.shape, sizes[3], rotary_embedding_dim)
    ids = checked_positions(position_ids, cos.shape[0])
    sizes_of.positions(ids.shape, sizes[:2])
    return _rotary((x, ids, cos, sin), sizes[2], pairs)


def checked_positions(position_ids: Any, limit: Any) -> Any:
    """Returns positions as a JAX array of integers. Raises BoundsError for a static one outside of [0, limit)."""
    ids = array(position_ids)
    require_integers("position_ids", ids)
    checked = isinstance(ids, np.ndarray) and not is_symbolic(ids) and isinstance(limit, int) and ids.size
    if checked and not 0 <= ids.min() <= ids.max() < limit:
        wrong = ids[(ids < 0) | (ids >= limit)][0]
        raise BoundsError(f"`position_ids` holds {wrong}, but `cos_cache` has positions 0 to {limit - 1}")
    return at_least_int32(as_traced(ids))


def rows(table: Any, ids: Any) -> Any:
    """Returns the rows of a table at some positions; NaN for a position that is out of range."""
    check_inhabited("a table", table.shape, (0,), ids.shape)
    ids = jnp.where(ids < 0, jnp.asarray(table.shape[0], ids.dtype), ids)  # negative positions are out of range, too
    return jnp.take(table, ids, 0, mode="fill", fill_value=np.nan)


@jit_if_concrete
def _rotary(operands: tuple[Any, ...], heads: Any, interleaved: bool) -> Any:
    x, ids, cos, sin = operands
    length = x.shape[2] if x.ndim == 4 else x.shape[1]
    if ids.size == 1 and ids.ndim < 2:
        ids = ids.reshape(1, 1) + lax.broadcasted_iota(ids.dtype, (1, length), 1)
    return _turned(x, rows(cos, ids), rows(sin, ids), heads, interleaved)


def _turned(x: Any, cos: Any, sin: Any, heads: Any, interleaved: bool) -> Any:
    """Rotates x (B, S, heads · H) or (B, heads, S, H) by the angles (B, S, R / 2)."""
    if x.ndim == 4:
        return rotated(x, cos[:, None], sin[:, None], interleaved=interleaved)
    split = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    return rotated(split, cos[:, :, None], sin[:, :, None], interleaved=interleaved).reshape(x.shape)


def m_rotary_embedding(
    input: ArrayLike,
    position_ids: ArrayLike,
    cos_cache: Table[ArrayLike],
    sin_cache: Table[ArrayLike],
    *,
    mrope_section: Sequence[int],
    interleaved: int = 0,
    is_packed_batching: int = 0,
    mrope_layout: Layout = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
) -> jax.Array:
    """Applies `rotary_embedding` with three positions per token (time, height, width), each for some of the angles.

    input, cos_cache, sin_cache, interleaved: as in `rotary_embedding`; an input of 3 axes needs num_heads.
    position_ids: (3, B, S). mrope_section: for each position, its number of the R / 2 angles. mrope_layout: 0 for one
    block after another; 1 for interleaved ones: height and width take every third angle from 1 and 2 on, time the
    remaining ones. scale: a factor of cosines and sines; None is 1. is_packed_batching is ignored. Returns an array
    like input. Raises the errors of `rotary_embedding`. Source: com.microsoft MRotaryEmbedding, opset 1.

    >>> x, tables = jnp.ones((1, 1, 2, 4)), (jnp.ones((9, 2)), jnp.zeros((9, 2)))
    >>> m_rotary_embedding(x, np.zeros((3, 1, 2), int), *tables, mrope_section=(1, 1, 0)).shape
    (1, 1, 2, 4)
    """
    x, cos, sin = floating(input=input, cos_cache=cos_cache, sin_cache=sin_cache)
    flag("is_packed_batching", is_packed_batching)
    pairs, layout = flag("interleaved", interleaved), one_of("mrope_layout", mrope_layout, Layout)
    width = cos.shape[-1] if cos.ndim else 0
    sizes = sizes_of.by_heads(x.shape, num_heads, rotary_embedding_dim, width)
    sizes_of.tables(cos.shape, sin.shape, sizes[3], rotary_embedding_dim)
    chosen = sizes_of.streams(ints("mrope_section", mrope_section), layout, width)
    ids = checked_positions(position_ids, cos.shape[0])
    sizes_of.positions(ids.shape, (3, *sizes[:2]))
    return _m_rotary((x, ids, cos, sin), sizes[2], pairs, tuple(chosen), 1.0 if scale is None else float(scale))


@jit_if_concrete
def _m_rotary(operands: tuple[Any, ...], heads: Any, interleaved: bool, chosen: tuple[int, ...], scale: float) -> Any:
    x, ids, cos, sin = operands
    stream = np.asarray(chosen, np.int32)

    def angles(table: Any) -> Any:
        by_stream = rows(table, ids)  # (3, B, S, R / 2)
        selected = jnp.where(stream == 0, by_stream[0], jnp.where(stream == 1, by_stream[1], by_stream[2]))
        return (selected.astype(accumulation_type(table.dtype)) * scale).astype(table.dtype)

    return _turned(x, angles(cos), angles(sin), heads, interleaved)


def gemma_rotary_embedding(
    emb: ArrayLike, q: ArrayLike, q_rot: ArrayLike, k: ArrayLike, k_rot: ArrayLike
) -> tuple[jax.Array, jax.Array]:
    """Returns q · cos(emb) + q_rot · sin(emb), and the same for k.

    emb: (B, S, H), floats. q, q_rot, k, k_rot: (B, N, S, H), floats of one dtype; cosines and sines take that dtype.
    Returns two arrays like q and k. Raises ShapeError, DTypeError.
    Source: com.microsoft GemmaRotaryEmbedding, opset 1.

    >>> one = jnp.ones((1, 2, 3, 4), jnp.float16)
    >>> gemma_rotary_embedding(jnp.zeros((1, 3, 4)), one, one, one, one)[0].shape
    (1, 2, 3, 4)
    """
    arrays = floating(emb=emb, q=q, q_rot=q_rot, k=k, k_rot=k_rot)
    angle, *states = arrays
    for name, state in zip(("q", "q_rot", "k", "k_rot"), states, strict=True):
        fits = state.ndim == 4 and angle.shape == (state.shape[0], *state.shape[2:])
        if not fits or state.shape[0] != states[0].shape[0] or state.dtype != states[0].dtype:
            raise ShapeError(
                f"`{name}` is {describe(state)}; with `emb` of {shape_text(angle.shape)} and `q` of "
                f"{states[0].dtype.name} it must be (B, N, S, H) of that dtype"
            )
    return _gemma(arrays)


@jit_if_concrete
def _gemma(arrays: tuple[Any, ...]) -> Any:
    emb, q, q_rot, k, k_rot = arrays
    work = accumulation_type(q.dtype)
    cos, sin = (fn(emb)[:, None].astype(q.dtype).astype(work) for fn in (jnp.cos, jnp.sin))

    def turned(x: Any, rotated_x: Any) -> Any:
        return (x.astype(work) * cos + rotated_x.astype(work) * sin).astype(x.dtype)

    return turned(q, q_rot), turned(k, k_rot)
