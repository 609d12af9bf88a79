"""Operators that split an array along an axis."""

__all__ = ["split", "variadic_split"]

from itertools import accumulate

import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, check_not_negative, integer, ints
from jaxops.dtypes import traced_for_sizes
from jaxops.errors import SignatureError
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes.tensor import splitting as sizes_of
from jaxops.signature import Static, StaticInts, Traits
from jaxops.static import A, Array, Operand, Sizes, jit_if_concrete

TRAITS = Traits(kind="movement", foldable=True)


@moves_strings(0)
@tracks_sizes
def split(
    input: Operand[A], split: StaticInts = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[A, ...]:
    """Splits `input` along `axis`, into pieces of the lengths `split` or into `num_outputs` pieces.

    input: any dtype. Returns a tuple of arrays.
    split: static, 1-D integers >= 0 that sum to the size of the axis.
    num_outputs: each piece has ceil(size / num_outputs) elements, the last one has what is left. Give one of the two.
    Raises ShapeError when the lengths do not fill the axis, AxisError, SignatureError for both or neither.
    Source: ONNX Split, opsets 2–18.

    >>> [piece.shape for piece in split(np.zeros(7), num_outputs=3)]
    [(3,), (3,), (1,)]
    """
    if (split is None) == (num_outputs is None):
        raise SignatureError("give either the lengths `split` or `num_outputs`")
    lengths = None if split is None else ints("split", split)
    check_not_negative("split", lengths or (), "lengths")
    parts = None if num_outputs is None else integer("num_outputs", num_outputs)
    return _split(input, integer("axis", axis), lengths, parts)


@moves_strings(0)
def variadic_split(data: Operand[A], axis: Static, split_lengths: Static) -> tuple[A, ...]:
    """Splits `data` along `axis` into pieces of the given lengths.

    data: any dtype. Returns a tuple, as many arrays as there are lengths.
    axis: static, an integer (or one in a 1-D array) in [-n, n-1].
    split_lengths: static, 1-D integers >= -1; one may be -1, the remaining size, which may be 0. Without a -1 the
    lengths sum to the size of the axis; an empty list fits only an axis of size 0.
    Raises ShapeError when the lengths do not fill the axis or exceed it, AxisError.
    Source: OpenVINO VariadicSplit-1.

    >>> [piece.shape for piece in variadic_split(np.zeros((6, 2)), 0, (1, -1, 3))]
    [(1, 2), (2, 2), (3, 2)]
    """
    lengths = ints("split_lengths", split_lengths)
    return _split(data, integer("axis", axis), lengths, None)


@jit_if_concrete
def _split(data: Array, axis: int, lengths: Sizes | None, parts: int | None) -> tuple[Array, ...]:
    along = resolve_axis(axis, data.ndim)
    if parts is not None:
        lengths = sizes_of.ceil_chunks(data.shape[along], parts)
    elif lengths is not None:
        lengths = sizes_of.pieces(data.shape[along], lengths)
    if not lengths:
        return ()
    data = traced_for_sizes(data, lengths)
    if isinstance(data, np.ndarray):
        return tuple(np.split(data, list(accumulate(lengths))[:-1], axis=along))
    before, after = data.shape[:along], data.shape[along + 1 :]
    pieces = zip(lax.split(data, lengths, axis=along), lengths, strict=True)
    return tuple(assert_sizes(piece, (*before, n, *after), data.dtype) for piece, n in pieces)
