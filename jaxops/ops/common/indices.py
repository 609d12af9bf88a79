"""Functions that gathers and scatters share: they normalize integer indices, and check static ones.

The rule for an out-of-range index: a static one raises BoundsError. A traced one cannot, since a compiled program does
not raise. Clamping it would hide the mistake. So a read at such an index gives NaN, or for types without NaN the
smallest signed integer, the largest unsigned one, or True; and an update at such an index is dropped. In onnxruntime
both are errors.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, at_least_int32, require_integers
from jaxops.errors import BoundsError
from jaxops.memory import bounded_operands
from jaxops.static import Array, array, is_static, is_symbolic


def from_start(indices: Any, limits: Any) -> Any:
    """Turns negative traced indices into indices from the start; out-of-range ones stay out of range, also in 32 bits.

    limits: the size of the axis, or a tuple of sizes, one for each element of the last axis of `indices`. Returns
    integers of at least 32 bits, which hold every size.
    """
    signed = jnp.issubdtype(indices.dtype, jnp.signedinteger)
    indices = at_least_int32(indices)
    kind = indices.dtype
    if not signed and kind != np.uint64:
        return indices
    if isinstance(limits, tuple):
        bound = jnp.broadcast_to(jnp.stack([lax.convert_element_type(d, kind) for d in limits]), indices.shape)
    else:
        bound = lax.convert_element_type(limits, kind)
    if not signed:
        return lax.min(indices, bound)  # JAX would read larger ones as negative
    indices = lax.select(indices < 0, indices + bound, indices)
    if kind == np.int64:
        indices = lax.clamp(np.int64(-1), indices, bound)  # JAX drops the upper 32 bits
    return indices


def checked_indices(indices: Any, limits: Any) -> tuple[Array, bool]:
    """(integer indices, True if all are known to be in range). Static indices then count from the start.

    limits: the size of the axis, or a tuple of sizes, one for each element of the last axis of `indices`.
    Raises BoundsError for a static index out of range, DTypeError for anything but integers.
    """
    indices = array(indices)
    bounded_operands((indices,))
    if is_symbolic(indices):
        return as_traced(indices), False
    require_integers("indices", indices)
    sizes = limits if isinstance(limits, tuple) else (limits,)
    if not is_static(indices) or not all(isinstance(d, int) for d in sizes):
        return as_traced(indices), False
    # Narrow types may not hold the size.
    indices = indices if indices.dtype == np.uint64 else indices.astype(np.int64, copy=False)
    bound = np.asarray(limits, np.int64)
    outside = (indices < -bound) | (indices >= bound)
    if outside.any():  # NumPy's search for the positions takes longer than all the rest of a small gather
        first_bad = tuple(np.argwhere(outside)[0])
        size = bound[first_bad[-1]] if bound.ndim else bound
        position = tuple(map(int, first_bad))
        raise BoundsError(f"index {indices[first_bad]} at position {position} is out of range for a size of {size}")
    indices = indices.astype(np.int64, copy=False)
    negative = indices < 0
    return np.where(negative, indices + bound, indices) if negative.any() else indices, True
