"""The largest elements along an axis, sorted."""

__all__ = ["top_k"]

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer
from jaxops.dtypes import canonical, is_float
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.elementwise import one_of_kind, traced_if_symbolic
from jaxops.signature import Static, Traits
from jaxops.static import A, Operand, jit_if_concrete

TRAITS = Traits(foldable=True)


def top_k(x: Operand[A], k: Static, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[A, A]:
    """The k largest, or smallest, elements along `axis`, and their indices.

    x: numbers. k: static, one integer in [0, d]. Returns (values, indices), the latter of type int64.
    largest: 1 takes the largest elements, 0 the smallest. Both results are sorted, the largest (or smallest) first;
    equal elements, such as 0 and -0, keep their order. A NaN counts as infinity. sorted: has no effect; with 0 the
    standard allows any order.
    Raises ShapeError for a k out of range, AxisError, DTypeError.
    Source: ONNX TopK, opsets 1–24.

    >>> values, indices = top_k(jnp.array([3, 9, 9, 1]), 2)
    >>> values.tolist(), indices.tolist()
    ([9, 9], [1, 2])
    """
    (values,) = traced_if_symbolic(one_of_kind("real numbers", x))
    along = resolve_axis(axis, values.ndim)
    count = integer("k", k)
    size = values.shape[along]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise ShapeError(f"`k` is {count}, but axis {along} of {shape_text(values.shape)} has {size} elements")
    flag("sorted", sorted)
    return _top_k(values, count, along, flag("largest", largest))


@jit_if_concrete
def _top_k(x: Any, k: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    if isinstance(x, np.ndarray):
        # Sorted backwards and reversed, so that equal elements keep their order.
        keys = np.where(np.isnan(x), np.inf, x).astype(x.dtype) if is_float(x.dtype) else x
        indices = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(keys, axis), axis, kind="stable"), axis)
        indices = (indices if largest else np.argsort(keys, axis, kind="stable")).take(range(k), axis)
        return np.take_along_axis(x, indices, axis), indices
    rows = jnp.moveaxis(x, axis, -1)
    if is_float(x.dtype):
        # `lax.top_k` puts -0 below 0, and a NaN above or below everything, depending on its sign and on the shape.
        keys = jnp.where(jnp.isnan(rows), jnp.inf, jnp.where(rows == 0, 0, rows)).astype(x.dtype)
        keys = keys if largest else lax.neg(keys)
    else:
        # ~x reverses the order of integers; -x would overflow for the smallest.
        keys = rows if largest else lax.bitwise_not(rows)
    indices = lax.top_k(keys, k)[1]
    values = jnp.take_along_axis(rows, indices, -1, mode="clip")
    return jnp.moveaxis(values, -1, axis), jnp.moveaxis(indices.astype(canonical(np.int64)), -1, axis)
