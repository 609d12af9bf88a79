"""Operators that reorder elements."""

__all__ = ["depth_to_space", "reverse_sequence", "space_to_depth", "transpose"]

from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, ints, one_of
from jaxops.dtypes import as_traced, at_least_int32, require_integers
from jaxops.errors import ArgumentError, AxisError, ShapeError, shape_text
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.elementwise import traced_if_symbolic
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.tensor.gathering import gather_nd
from jaxops.ops.tensor.reshaping import reshape
from jaxops.shapes.arithmetic import all_agree, divided, must_fit
from jaxops.signature import Traits
from jaxops.static import A, Array, Dim, Ints, Operand, array, beside, jit_if_concrete

TRAITS = Traits(kind="form", foldable=True)

DepthMode = Literal["DCR", "CRD"]


@moves_strings(0)
def transpose(data: Operand[A], *, perm: Ints | None = None) -> A:
    """The axes of `data` in the order `perm`; reversed when `perm` is None.

    data: n axes, any dtype. perm: static, a permutation of 0 … n-1; axis i of the result is axis perm[i] of data.
    Raises AxisError when `perm` is not a permutation of the axes.
    Source: ONNX Transpose, opsets 1–25.

    >>> transpose(np.zeros((2, 3, 4)), perm=(2, 0, 1)).shape
    (4, 2, 3)
    """
    return _transpose(data, None if perm is None else ints("perm", perm))


def permutation(perm: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """The axes of a transpose; None reverses them."""
    if perm is None:
        return tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        raise AxisError(f"`perm` {perm} is not a permutation of the {rank} axes {tuple(range(rank))}")
    return perm


@jit_if_concrete
def _transpose(data: Array, perm: tuple[int, ...] | None) -> Array:
    order = permutation(perm, data.ndim)
    y = np.transpose(data, order) if isinstance(data, np.ndarray) else lax.transpose(data, order)
    return assert_sizes(y, tuple(data.shape[axis] for axis in order), data.dtype)


def _divided(dividend: str, size: Dim, count: int) -> Dim:
    """size / count, which must be an integer."""
    return divided(f"{dividend} {size} is not a multiple of {count}", size, count)


def depth_to_space(input: Operand[A], *, blocksize: int, mode: DepthMode = "DCR") -> A:
    """Rearranges channels into spatial blocks.

    input: (N, C, H, W), any dtype; C a multiple of blocksize². Returns
    (N, C / blocksize², H · blocksize, W · blocksize).
    mode: the order of C: 'DCR' has the block first, 'CRD' the remaining channels first.
    Raises ShapeError for another rank or when blocksize² does not divide C, ArgumentError.
    Source: ONNX DepthToSpace, opsets 1–28.

    >>> depth_to_space(np.arange(4).reshape(1, 4, 1, 1), blocksize=2).tolist()
    [[[[0, 1], [2, 3]]]]
    """
    x, b = array(input), integer("blocksize", blocksize, least=1)
    must_fit("input", x.shape, ("N", "C", "H", "W"))
    n, c, h, w = x.shape
    channels = _divided("C", c, b * b)
    if one_of("mode", mode, DepthMode) == "DCR":
        x = transpose(reshape(x, (n, b, b, channels, h, w), allowzero=1), perm=(0, 3, 4, 1, 5, 2))
    else:
        x = transpose(reshape(x, (n, channels, b, b, h, w), allowzero=1), perm=(0, 1, 4, 2, 5, 3))
    return reshape(x, (n, channels, h * b, w * b), allowzero=1)


def space_to_depth(input: Operand[A], *, blocksize: int, mode: DepthMode = "DCR") -> A:
    """Rearranges spatial blocks into channels; the inverse of `depth_to_space`.

    input: (N, C, H, W), any dtype; H and W multiples of blocksize. Returns (N, C · blocksize², H / blocksize,
    W / blocksize). mode: as in `depth_to_space`. Raises ShapeError for another rank or a remainder.
    Source: ONNX SpaceToDepth, opsets 1–28.

    >>> space_to_depth(np.arange(4).reshape(1, 1, 2, 2), blocksize=2).shape
    (1, 4, 1, 1)
    """
    x, b = array(input), integer("blocksize", blocksize, least=1)
    must_fit("input", x.shape, ("N", "C", "H", "W"))
    n, c, h, w = x.shape
    h, w = _divided("H", h, b), _divided("W", w, b)
    x = reshape(x, (n, c, h, b, w, b), allowzero=1)
    order = (0, 3, 5, 1, 2, 4) if one_of("mode", mode, DepthMode) == "DCR" else (0, 1, 3, 5, 2, 4)
    return reshape(transpose(x, perm=order), (n, c * b * b, h, w), allowzero=1)


@moves_strings(0)
def reverse_sequence(input: Operand[A], sequence_lens: Operand[A], *, batch_axis: int = 1, time_axis: int = 0) -> A:
    """Reverses the first `sequence_lens[i]` steps of sequence i and keeps the rest.

    input: at least two axes, any dtype; `batch_axis` and `time_axis` are 0 and 1 or 1 and 0.
    sequence_lens: (batch,), integers in [0, time]; they may be traced.
    Raises ShapeError unless there is one length per sequence, ArgumentError, AxisError for equal axes.
    Source: ONNX ReverseSequence, opsets 10–28.

    >>> reverse_sequence(np.arange(3).reshape(3, 1), np.array([2])).ravel()
    array([1, 0, 2])
    """
    x = array(input)
    lengths = array(beside(x, "sequence_lens", sequence_lens))
    (lengths,) = traced_if_symbolic(lengths)
    if {batch_axis, time_axis} != {0, 1}:
        raise AxisError(f"`batch_axis` is {batch_axis} and `time_axis` {time_axis}; one must be 0, the other 1")
    problem = (
        f"`sequence_lens` of {shape_text(lengths.shape)} must have one length for each entry of "
        f"axis {batch_axis} of {shape_text(x.shape)}"
    )
    if x.ndim < 2 or not all_agree(problem, lengths.shape, (x.shape[batch_axis],)):
        raise ShapeError(problem)
    require_integers("sequence_lens", lengths)
    lengths = at_least_int32(lengths)
    order = (batch_axis, time_axis, *range(2, x.ndim))
    if not isinstance(x.shape[time_axis], int):
        lengths = as_traced(lengths)
    xp = np if isinstance(lengths, np.ndarray) else jnp
    if isinstance(lengths, np.ndarray) and ((lengths < 0).any() or (lengths > x.shape[time_axis]).any()):
        raise ArgumentError(f"`sequence_lens` is {lengths.tolist()}; each must be in [0, {x.shape[time_axis]}]")
    step, length = xp.arange(x.shape[time_axis], dtype=lengths.dtype)[None, :], lengths[:, None]
    source = xp.where(step < length, length - 1 - step, step)
    return transpose(gather_nd(transpose(x, perm=order), source[..., None], batch_dims=1), perm=order)
