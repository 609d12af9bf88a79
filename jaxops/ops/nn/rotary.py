"""Rotary embedding: the position of a token as the angle of pairs of elements."""

__all__ = ["rotary_embedding"]

from typing import Any

import jax
import jax.numpy as jnp  # noqa: F401 - the doctest uses it
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import floating, unify
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.scaled_dot_product import rotated
from jaxops.ops.tensor.gathering import gather
from jaxops.shapes.arithmetic import all_agree, must_fit
from jaxops.shapes.nn import dot_product_attention as heads_of
from jaxops.signature import Table
from jaxops.static import ArrayLike, Dim, Sizes, array, jit_if_concrete


def _rotated_elements(rotary_embedding_dim: int, head_size: Dim) -> Dim:
    """The number of elements at the start of each head that turn, in pairs; an attribute of 0 means all."""
    count = rotary_embedding_dim or head_size
    if isinstance(count, int) and isinstance(head_size, int) and not (0 <= count <= head_size and count % 2 == 0):
        raise ArgumentError(
            f"`rotary_embedding_dim` is {rotary_embedding_dim}, which rotates {count} elements of each head; "
            f"their number must be even and at most the head size, {head_size}"
        )
    return count


def _check_tables(positions: Sizes | None, batch: Dim, length: Dim, count: Dim, **tables: Sizes) -> None:
    """Raises ShapeError unless the tables are (positions, count / 2), or (B, S, count / 2) without `position_ids`."""
    if positions is not None:
        must_fit("position_ids", positions, (batch, length), reason=", one per token")
    expected = ("positions", count // 2) if positions is not None else (batch, length, count // 2)
    fixed = slice(1 if positions is not None else 0, None)
    for name, sizes in tables.items():
        without = "with" if positions is not None else "without"
        problem = (
            f"`{name}` of {shape_text(sizes)} must be {shape_text(expected)} {without} `position_ids`, as "
            f"{count} elements of each head turn"
        )
        if len(sizes) != len(expected) or not all_agree(problem, sizes[fixed], expected[fixed]):
            raise ShapeError(problem)


def rotary_embedding(
    x: ArrayLike,
    cos_cache: Table[ArrayLike],
    sin_cache: Table[ArrayLike],
    position_ids: ArrayLike | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> jax.Array:
    """Turns pairs of elements of each head by the angle that belongs to the position of the token.

    x: (B, N, S, H), or (B, S, N · H) with `num_heads`; floats. rotary_embedding_dim: R, how many elements at the start
    of each head turn; 0 means all H.
    cos_cache, sin_cache: cosines and sines of the angles, in the dtype of x: (positions, R / 2), of which
    `position_ids` (B, S) chooses one for each token, or (B, S, R / 2) without it.
    interleaved: a pair is two neighbours, else element i and element i + R / 2.
    Returns an array like x; 16-bit types are computed in float32.
    Raises ShapeError, DTypeError, ArgumentError for an odd R, SignatureError without `num_heads` if it is needed,
    BoundsError for a static out-of-range position.
    Source: ONNX RotaryEmbedding, opset 23.

    >>> rotary_embedding(jnp.array([[[[1.0, 2.0]]]]), jnp.array([[[0.0]]]), jnp.array([[[1.0]]])).tolist()
    [[[[-2.0, 1.0]]]]
    """
    values, cos, sin = floating(x=x, cos_cache=cos_cache, sin_cache=sin_cache)
    unify((values, cos, sin), ("x ", "cos_cache ", "sin_cache "))
    heads = None if num_heads is None or (num_heads == 0 and values.ndim == 4) else integer("num_heads", num_heads)
    batch, _, length, size = heads_of.split("x", values.shape, heads, "num_heads")
    count = _rotated_elements(integer("rotary_embedding_dim", rotary_embedding_dim), size)
    positions = None if position_ids is None else array(position_ids)
    position_sizes = None if positions is None else positions.shape
    _check_tables(position_sizes, batch, length, count, cos_cache=cos.shape, sin_cache=sin.shape)
    if positions is not None:
        cos, sin = gather(cos, positions), gather(sin, positions)
    return _rotary_embedding((values, cos, sin), size, flag("interleaved", interleaved))


@jit_if_concrete
def _rotary_embedding(operands: tuple[Any, ...], size: Any, interleaved: bool) -> Any:
    x, cos, sin = operands
    axis = 1 if x.ndim == 4 else 2  # that of the heads
    heads = x if x.ndim == 4 else x.reshape(*x.shape[:2], x.shape[2] // size, size)
    cos, sin = lax.expand_dims(cos, [axis]), lax.expand_dims(sin, [axis])
    return rotated(heads, cos, sin, interleaved=interleaved).reshape(x.shape)
