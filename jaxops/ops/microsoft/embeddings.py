"""Embeddings: the vectors of words, letters and positions."""

__all__ = ["embed_layer_normalization", "torch_embedding", "word_conv_embedding"]

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer
from jaxops.dtypes import accumulation_type, as_traced
from jaxops.errors import ShapeError, describe, shape_text
from jaxops.kernels.xla_workarounds import largest
from jaxops.ops.common.elementwise import broadcast_to, require, traced_operands
from jaxops.ops.microsoft.normalization import layer_normalization
from jaxops.ops.tensor.gathering import gather
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.microsoft import biases
from jaxops.signature import Bias, SecondOutput, Static, Weight, operator
from jaxops.static import ArrayLike, Dim, Sizes, jit_if_concrete, known


def _table_width(name: str, sizes: Sizes, width: Dim | None = None) -> Dim:
    """Returns the width of a table with one vector per row, which must be `width` if that is given."""
    must_fit(name, sizes, ("rows", "width" if width is None else width))
    return sizes[1]


def _check_ids(sizes: Sizes, positions: Sizes | None, **like: Sizes) -> None:
    """input_ids is (N, S); each of `like` has its shape; positions is (N, S) or (1, S)."""
    must_fit("input_ids", sizes, ("N", "S"))
    for name, shape in like.items():
        must_fit(name, shape, sizes, reason=", the shape of `input_ids`")
    must_fit("position_ids", positions, tuple(sizes), (1, *sizes[1:]))


def _check_word_filters(sequence: Sizes, w: Sizes, b: Sizes, c: Sizes) -> None:
    """sequence is (words, letters), w (M, 1, width, size), b (M,) and c (rows, size)."""
    must_fit("sequence", sequence, ("words", "letters"))
    must_fit("w", w, ("filters", 1, "width", "size"))
    must_fit("b", b, (w[0],))
    _table_width("c", c, w[3])
    if w[2] == 0:
        raise ShapeError(f"`w` has the shape {shape_text(w)}; filters must be at least one letter wide")
    if isinstance(sequence[1], int) and sequence[1] < w[2]:
        raise ShapeError(f"words of {sequence[1]} letters are shorter than the filters, which are {w[2]} wide")


@operator(kind="embedding", precision="float32")
def embed_layer_normalization(
    input_ids: ArrayLike,
    segment_ids: ArrayLike | None,
    word_embedding: ArrayLike,
    position_embedding: ArrayLike,
    segment_embedding: ArrayLike | None,
    gamma: Weight[ArrayLike],
    beta: Bias[ArrayLike],
    mask: ArrayLike | None = None,
    position_ids: ArrayLike | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int | None = None,
    return_all: SecondOutput = False,
) -> Any:
    """Adds word, position and segment embeddings, and normalizes each sum.

    input_ids, segment_ids, mask: (N, S), integers. position_ids: (N, S) or (1, S); None is 0 to S - 1. The tables:
    (rows, C). gamma, beta: (C,), all of one floating dtype. segment_ids and segment_embedding are given together.
    Returns (N, S, C); with `return_all` (y, mask_index, sum), where mask_index counts the ones in each row of mask, as
    int32 (zeros without a mask), and sum is the input of the normalization. mask_index_type has no effect.
    Raises ShapeError when the shapes do not fit, BoundsError for a static index that is out of range, DTypeError.
    Source: com.microsoft EmbedLayerNormalization, opset 1.

    >>> ids, table = jnp.zeros((1, 1), int), jnp.array([[-1.0, 1.0]])
    >>> embed_layer_normalization(ids, None, table, table, None, jnp.ones(2), jnp.zeros(2)).round(3).tolist()
    [[[-1.0, 1.0]]]
    """
    named_tables = {"word_embedding": word_embedding, "position_embedding": position_embedding}
    if (segment_ids is None) != (segment_embedding is None):
        raise ShapeError("`segment_ids` and `segment_embedding` must be given together; one of them is missing")
    if segment_embedding is not None:
        named_tables["segment_embedding"] = segment_embedding
    *tables, scale, shift = traced_operands((*named_tables.values(), gamma, beta), "floating-point")
    width = _table_width("word_embedding", tables[0].shape)
    for name, table in zip(named_tables, tables, strict=True):
        _table_width(name, table.shape, width)
    words = as_traced(input_ids)
    like = {name: as_traced(v) for name, v in (("segment_ids", segment_ids), ("mask", mask)) if v is not None}
    positions = None if position_ids is None else as_traced(position_ids)
    require("integer", words, *like.values())
    _check_ids(words.shape, None if positions is None else positions.shape, **{n: v.shape for n, v in like.items()})
    biases.last_axis(tables[0].shape, gamma=scale.shape, beta=shift.shape)
    if positions is None:
        positions = lax.broadcasted_iota(np.int32, (1, words.shape[1]), 1)
    wide = accumulation_type(scale.dtype)
    indices = (words, positions, like["segment_ids"]) if "segment_ids" in like else (words, positions)
    total = reduce(lax.add, _rows([t.astype(wide) for t in tables], indices))
    y = layer_normalization(total, scale.astype(wide), shift.astype(wide), epsilon=epsilon).astype(scale.dtype)
    if not return_all:
        return y
    counts = jnp.zeros(words.shape[:1], np.int32)
    if "mask" in like:
        counts = jnp.sum(like["mask"] == 1, 1, dtype=np.int32)
    return y, counts, total.astype(scale.dtype)


def _rows(tables: Sequence[jax.Array], indices: Sequence[jax.Array]) -> list[jax.Array]:
    """Returns the rows of each table at its indices, broadcast to each other."""
    looked_up = [as_traced(gather(table, index)) for table, index in zip(tables, indices, strict=True)]
    sizes = jnp.broadcast_shapes(*(rows.shape for rows in looked_up))
    return [broadcast_to(rows, sizes) for rows in looked_up]


@operator(kind="embedding")
def torch_embedding(
    weight: Weight[ArrayLike], indices: ArrayLike, padding_idx: Static = None, scale_grad_by_freq: Static = None
) -> jax.Array:
    """Returns the rows of `weight` at `indices`.

    weight: (rows, C), any dtype. indices: any shape, integers. Returns (…, C), same dtype.
    padding_idx: static, one integer: no gradient flows to that row; None or a negative one means no row.
    scale_grad_by_freq: static, one boolean: the gradient of a row is divided by the number of its occurrences.
    Raises ShapeError, BoundsError for a static index that is out of range, DTypeError.
    Source: com.microsoft TorchEmbedding, opset 1.

    >>> torch_embedding(jnp.array([[1.0], [2.0]]), jnp.array([1, 0])).tolist()
    [[2.0], [1.0]]
    """
    table, ids = as_traced(weight), as_traced(indices)
    _table_width("weight", table.shape)
    rows = gather(table, ids)
    if padding_idx is not None:
        padding_row = integer("padding_idx", padding_idx)
        if padding_row >= 0:
            rows = jnp.where((ids == padding_row)[..., None], lax.stop_gradient(rows), rows)
    if scale_grad_by_freq is not None and known("scale_grad_by_freq", scale_grad_by_freq).any():
        counts = jnp.zeros(table.shape[0], rows.dtype).at[ids].add(1)
        share = (1 / counts[ids])[..., None]
        # The value is unchanged, and the gradient is multiplied by the share.
        rows = rows * share + lax.stop_gradient(rows * (1 - share))
    return rows


@operator(kind="embedding")
def word_conv_embedding(
    sequence: ArrayLike,
    w: Weight[ArrayLike],
    b: Bias[ArrayLike],
    c: ArrayLike,
    *,
    char_embedding_size: int | None = None,
    conv_window_size: int | None = None,
    embedding_size: int | None = None,
) -> jax.Array:
    """Returns a vector for each word: the largest tanh of a convolution over the vectors of its letters.

    sequence: (words, letters), int32; a word ends where letters are 0. w: (M, 1, width, size), filters. b: (M,).
    c: (rows, size), the vectors of letters. Floats of one dtype. Returns (words, M), same dtype; a word that begins
    with 0 gives zeros, for which onnxruntime leaves uninitialized memory. For a word shorter than the filters, letters
    after its end count too, up to the width of the filters.
    char_embedding_size, conv_window_size, embedding_size: must equal size, width and M, if given.
    Raises ShapeError when the shapes do not fit, DTypeError. Source: com.microsoft WordConvEmbedding, opset 1.

    >>> letters, table = jnp.array([[1, 0], [1, 1]]), jnp.array([[0.0], [100.0]])
    >>> word_conv_embedding(letters, jnp.ones((1, 1, 2, 1)), jnp.zeros(1), table).tolist()
    [[1.0], [1.0]]
    """
    letters, operands = as_traced(sequence), traced_operands((w, b, c), "floating-point")
    require("integer", letters)
    filters = operands[0]
    _check_word_filters(letters.shape, filters.shape, operands[1].shape, operands[2].shape)
    declared = {"embedding_size": (embedding_size, 0), "conv_window_size": (conv_window_size, 2)}
    for name, (value, axis) in (declared | {"char_embedding_size": (char_embedding_size, 3)}).items():
        if value is not None and value != filters.shape[axis]:
            raise ShapeError(f"`{name}` is {value}, but w is {describe(filters)}")
    return _word_conv_embedding((letters, *operands))


@jit_if_concrete
def _word_conv_embedding(operands: tuple[jax.Array, ...]) -> jax.Array:
    letters, w, b, c = operands
    wide, width = accumulation_type(w.dtype), w.shape[2]
    length = jnp.where(letters[:, 0] > 0, jnp.sum(letters > 0, 1, dtype=np.int32), 0)
    reach = jnp.maximum(length, width)
    # Letters after the end of the word have vectors of zeros.
    positions = lax.broadcasted_iota(np.int32, letters.shape, 1)
    vectors = as_traced(gather(c.astype(wide), letters)) * (positions < reach[:, None])[..., None].astype(wide)
    convolved = lax.conv_general_dilated(
        vectors, w[:, 0].astype(wide), (1,), [(0, 0)], dimension_numbers=("NHC", "OHI", "NHC")
    )
    convolved = lax.tanh(convolved + b.astype(wide)[None, None])
    counted = lax.broadcasted_iota(np.int32, convolved.shape, 1) < (reach - width + 1)[:, None, None]
    best = largest(jnp.where(counted, convolved, -jnp.inf), (1,))
    return jnp.where((length > 0)[:, None], best, 0).astype(w.dtype)
