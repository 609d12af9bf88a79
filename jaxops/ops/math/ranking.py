"""The largest elements along an axis, sorted."""

__all__ = ["top_k"]

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer
from jaxops.dtypes import as_traced, canonical, is_float
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.elementwise import one_of_kind
from jaxops.static import Array, Static, jit_if_concrete


def top_k(x: Array, k: Static, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:
    """The k largest, or smallest, elements along `axis`, and their indices.

    x: numbers. k: static, one integer in [0, d]. Returns (values, indices), the latter of type int64.
    Sorted, the largest (or smallest) first; equal elements keep their order. `sorted` 0 allows any order and gives
    the same one. Raises ShapeError for a k out of range, AxisError, DTypeError.
    Source: ONNX TopK, opsets 1–24.

    >>> values, indices = top_k(jnp.array([3, 9, 9, 1]), 2)
    >>> values.tolist(), indices.tolist()
    ([9, 9], [1, 2])
    """
    x = as_traced(one_of_kind("top_k", "real numbers", x))
    at = resolve_axis("top_k", axis, x.ndim)
    count = integer("top_k", "k", k)
    size = x.shape[at]
    if isinstance(count, int) and (count < 0 or (isinstance(size, int) and count > size)):
        raise ShapeError(f"top_k: `k` is {count}, but axis {at} of {shape_text(x.shape)} has {size} elements")
    flag("top_k", "sorted", sorted)
    return _top_k(x, count, at, flag("top_k", "largest", largest))


@jit_if_concrete
def _top_k(x: Any, k: Any, axis: int, largest: bool) -> tuple[Any, Any]:
    x = jnp.moveaxis(x, axis, -1)
    # ~x reverses the order of integers; -x would overflow for the smallest.
    turn = (lambda v: v) if largest else lax.neg if is_float(x.dtype) else lax.bitwise_not
    values, indices = lax.top_k(turn(x), k)
    indices = lax.convert_element_type(indices, canonical(np.int64))
    return jnp.moveaxis(turn(values), -1, axis), jnp.moveaxis(indices, -1, axis)
