"""Operators that move data, most of them like operators of the standard, and a test for finite numbers."""

__all__ = ["expand_dims", "gather_nd", "is_all_finite", "pad", "range", "trilu", "unfold_tensor", "unique"]

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import axis as resolve_axis, flag, integer
from jaxops.dtypes import as_traced, floating, widened
from jaxops.errors import ArgumentError, ShapeError, SignatureError, describe, shape_text
from jaxops.ops.generator.ranges import range as standard_range
from jaxops.ops.tensor.gathering import gather_nd as standard_gather_nd
from jaxops.ops.tensor.padding import PadMode, pad as standard_pad
from jaxops.ops.tensor.reshaping import unsqueeze
from jaxops.ops.tensor.selection import unique as standard_unique
from jaxops.ops.tensor.triangles import trilu as standard_trilu
from jaxops.shapes.arithmetic import floored
from jaxops.signature import DataSize, Static, Traits, operator
from jaxops.static import A, ArrayLike, Dim, Operand, Sizes, array, is_symbolic, jit_if_concrete, known

TRAITS = Traits(foldable=True)


@operator(kind="form")
def expand_dims(x: Operand[A], axis: Static) -> A:
    """Inserts an axis of size 1.

    x: n axes, any dtype. axis: static, one integer in [-n - 1, n]. Returns n + 1 axes, same dtype.
    Raises AxisError, StaticError. Source: com.microsoft ExpandDims, opset 1.

    >>> expand_dims(jnp.ones((2, 3)), 1).shape
    (2, 1, 3)
    """
    return unsqueeze(x, (integer("axis", axis),))


def gather_nd(data: Operand[A], indices: Operand[A]) -> A:
    """Picks elements or slices of `data` by tuples of indices; the standard's `gather_nd` without batch axes.

    Operands, result and exceptions are those of `jaxops.gather_nd`. Source: com.microsoft GatherND, opset 1.

    >>> gather_nd(np.array([[0, 1], [2, 3]]), np.array([[0, 0], [1, 1]]))
    array([0, 3])
    """
    return standard_gather_nd(data, indices)


def pad(data: Operand[A], pads: Static, value: Any = None, *, mode: PadMode = "constant") -> A:
    """Adds elements before and after each axis; negative pads crop. The standard's `pad` of all axes.

    pads: static integers, a begin for each axis, then an end for each: 1-D, or 2-D with one row. value: one number, the
    fill.
    Raises the same exceptions as the standard's `pad`. Source: com.microsoft Pad, opset 1.

    >>> pad(jnp.arange(3), np.array([[1, 2]]), mode="reflect").tolist()
    [1, 0, 1, 2, 1, 0]
    """
    widths = known("pads", pads)
    if widths.ndim == 2 and widths.shape[0] == 1:
        widths = widths[0]
    return standard_pad(data, widths, value, mode=mode)


@operator(precision="exact", grows=True)
def range(start: Static, limit: Static, delta: Static = None) -> np.ndarray:
    """Returns start, start + delta, … up to `limit`, as the standard's `range` does; delta may be None.

    start, limit, delta: static, one number each, of one dtype; a delta of None is 1.
    Raises the same exceptions as the standard's `range`. Source: com.microsoft Range, opset 1.

    >>> range(np.int32(2), np.int32(5))
    array([2, 3, 4], dtype=int32)
    """
    step = known("start", start).dtype.type(1) if delta is None else delta
    return standard_range(start, limit, step)


def trilu(x: Operand[A], k: Any = None, *, upper: int = 1) -> A:
    """Returns the upper or lower triangle of each matrix, with zeros elsewhere, as the standard's `trilu` does.

    Operands, result and exceptions are those of `jaxops.trilu`. Source: com.microsoft Trilu, opset 1.

    >>> trilu(jnp.ones((2, 2), int), upper=0).tolist()
    [[1, 0], [1, 1]]
    """
    return standard_trilu(x, k, upper=upper)


def _window_count(sizes: Sizes, axis: int, size: int, step: int) -> Dim:
    """Returns the number of slices of `size` elements, `step` apart, along an axis."""
    length = sizes[axis]
    if isinstance(length, int) and size > length:
        raise ShapeError(f"`size` is {size}, but axis {axis} of {shape_text(sizes)} has {length} elements")
    return floored(length - size, step) + 1


def unfold_tensor(input: Operand[A], *, dim: int = -1, size: int, step: int = 1) -> A:
    """Returns all slices of `size` elements along an axis, `step` apart, on a new last axis.

    input: any dtype. dim: the axis. size: at most the length of the axis. step: positive. Returns the axis with
    (length - size) // step + 1 elements, and a last axis of `size`.
    Raises AxisError, ShapeError when size exceeds the axis, ArgumentError.
    Source: com.microsoft UnfoldTensor, opset 1.

    >>> unfold_tensor(jnp.arange(5), size=3, step=2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    x = array(input)
    along = resolve_axis(dim, x.ndim, operand="dim")
    length, apart = integer("size", size, least=1), integer("step", step, least=1)
    count = _window_count(x.shape, along, length, apart)
    if is_symbolic(count):
        x = as_traced(x)
    return widened(lambda xs: _unfolded(xs[0], along, length, apart, count), (x,))


@jit_if_concrete
def _unfolded(x: Any, axis: int, size: int, step: int, count: Any) -> Any:
    if isinstance(x, np.ndarray):
        indices = np.arange(count)[:, None] * step + np.arange(size)
        return np.moveaxis(np.take(x, indices, axis=axis), axis + 1, -1)
    first, offset = jnp.arange(count, dtype=np.int32) * step, jnp.arange(size, dtype=np.int32)
    indices = first[:, None] + offset[None]
    return jnp.moveaxis(jnp.take(x, indices, axis=axis, mode="clip"), axis + 1, -1)


def _distinct(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    return jnp.count_nonzero(results[2])


@operator(data_size=DataSize(_distinct, lambda inputs, attributes: inputs[0].shape[0]))
def unique(x: Operand[A], *, size: Static = None) -> tuple[A, A, A]:
    """Returns the distinct elements of a vector, in the order of their first places.

    x: (n,), any dtype. Returns (y, idx, counts): the elements, for each element of x its index in y, and how often each
    element of y occurs. size: static, the number of elements of y, which is cropped or padded with its smallest
    element, with counts of 0; needed if x is traced.
    Raises StaticError for a traced x without `size`, ShapeError unless x has one axis.
    Source: com.microsoft Unique, opset 1.

    >>> [v.tolist() for v in unique(np.array([2, 1, 1, 3]))]
    [[2, 1, 3], [0, 1, 1, 2], [1, 2, 1]]
    """
    values = array(x)
    if values.ndim != 1:
        raise ShapeError(f"x must have one axis, got {describe(values)}")
    y, _, positions, counts = standard_unique(values, sorted=0, size=size)
    return y, positions, counts


@operator(foldable=False)
def is_all_finite(input: Sequence[ArrayLike], *, isinf_only: int = 0, isnan_only: int = 0) -> jax.Array:
    """Returns True if no element of any operand is infinite or NaN.

    input: floats of one dtype. isinf_only: 1 looks for infinities only; isnan_only: 1 looks for NaN only; not both.
    Returns one boolean. Raises ArgumentError, SignatureError, DTypeError. Source: com.microsoft IsAllFinite, opset 1.

    >>> bool(is_all_finite([jnp.ones(2), jnp.array([jnp.nan])], isinf_only=1))
    True
    """
    if not input or any(x is None for x in input):
        raise SignatureError("an operand is missing; at least one is needed, and each must be an array")
    infinities, nans = flag("isinf_only", isinf_only), flag("isnan_only", isnan_only)
    if infinities and nans:
        raise ArgumentError("`isinf_only` and `isnan_only` are both 1; at most one of them may be")
    bad = jnp.isinf if infinities else jnp.isnan if nans else lambda x: ~jnp.isfinite(x)
    operands = floating(**{f"input {i}": x for i, x in enumerate(input)})
    checks: list[jax.Array] = [~jnp.any(bad(x)) for x in operands]
    return jnp.stack(checks).all()
