"""Operators that pick elements by index."""

from typing import Any

import chex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced
from jaxops.errors import BoundsError, DTypeError, describe
from jaxops.static import (
    Array,
    array,
    axis as resolve_axis,
    is_static,
    is_symbolic,
    kernel,
    structural,
)


@structural
def gather(data: Array, indices: Array, *, axis: int = 0) -> Array:
    """Picks entries of `data` along `axis`.

    data: (d0, …, dn-1), any dtype. indices: any shape, integers in [-d, d-1] of the axis; negative ones count
    from the end. Returns data.shape[:axis] + indices.shape + data.shape[axis+1:].
    Raises BoundsError for a static index outside the axis; a traced one gives NaN there, or the smallest
    integer (the largest of an unsigned type), as `jnp.take` does. AxisError, DTypeError for other indices.
    Source: ONNX Gather, opsets 1–13.

    >>> gather(jnp.arange(5.0), np.array([[0, -1]]))
    Array([[0., 4.]], dtype=float32)
    """
    data, indices = array(data), array(indices)
    if not (jnp.issubdtype(indices.dtype, jnp.integer) or is_symbolic(indices)):
        raise DTypeError(f"gather: `indices` must be integers, got {describe(indices)}")
    at = resolve_axis("gather", axis, data.ndim)
    count = data.shape[at]
    if isinstance(count, int) and count == 0 and indices.size:
        raise BoundsError(f"gather: there is nothing to pick on axis {at} of {describe(data)}")
    if is_static(indices) and not is_symbolic(indices) and not is_symbolic(count):
        # Narrow types cannot be compared with every size, nor hold it.
        indices = indices if indices.dtype == np.uint64 else indices.astype(np.int64)
        bad = indices[(indices < -count) | (indices >= count)]
        if bad.size:
            raise BoundsError(f"gather: index {bad.flat[0]} is outside axis {at} of size {count} ({describe(data)})")
        if is_static(data):
            return np.asarray(np.take(data, indices, axis=at))  # of a symbolic size it is no array
        return _gather((data, as_traced(np.where(indices < 0, indices + count, indices))), at, True)
    return _gather((as_traced(data), as_traced(indices)), at, False)


def from_start(indices: Any, limits: Any) -> Any:
    """Traced indices, negative ones counted from the start; what is outside stays outside, also in 32 bits.

    limits: a size, or one for each element of the last axis. Returns 32 bits or more, which hold every size.
    """
    signed = jnp.issubdtype(indices.dtype, jnp.signedinteger)
    if jnp.iinfo(indices.dtype).bits < 32:
        indices = lax.convert_element_type(indices, np.int32)
    kind = indices.dtype
    if not signed and kind != np.uint64:
        return indices
    if isinstance(limits, tuple):
        bound = jnp.broadcast_to(jnp.stack([lax.convert_element_type(d, kind) for d in limits]), indices.shape)
    else:
        bound = lax.convert_element_type(limits, kind)
    if not signed:
        return lax.min(indices, bound)  # JAX takes larger ones for negative
    indices = lax.select(indices < 0, indices + bound, indices)
    if kind == np.int64:
        indices = lax.clamp(np.int64(-1), indices, bound)  # JAX drops the upper 32 bits
    return indices


@kernel
def _gather(operands: tuple[Array, Array], axis: int, inside: bool) -> Array:
    data, indices = operands
    if not inside:
        indices = from_start(indices, data.shape[axis])
    dims = lax.GatherDimensionNumbers(
        offset_dims=(*range(axis), *range(axis + indices.ndim, data.ndim - 1 + indices.ndim)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
    )
    picked = lax.gather(
        data,
        lax.expand_dims(indices, (indices.ndim,)),
        dims,
        slice_sizes=(*data.shape[:axis], 1, *data.shape[axis + 1 :]),
        mode="promise_in_bounds" if inside else "fill",
    )
    chex.assert_equal(picked.shape, data.shape[:axis] + indices.shape + data.shape[axis + 1 :])
    return picked
