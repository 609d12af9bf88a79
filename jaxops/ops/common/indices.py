"""Shared by gathers and scatters: normalizes integer indices, and checks those that are known.

The rule for an out-of-range index: a static one raises BoundsError. A traced one cannot, as no program can raise. To
clamp it, as hardware would, is silent; so it reads NaN, or where there is none the smallest integer (the largest of an
unsigned type, True), and an update that it places is dropped. onnxruntime raises.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, require_integers
from jaxops.errors import BoundsError
from jaxops.memory import bounded_operands
from jaxops.static import Array, array, is_static, is_symbolic


def from_start(indices: Any, limits: Any) -> Any:
    """Traced indices, with negative ones counted from the start; out-of-range ones stay so, also in 32 bits.

    limits: a size, or one for each element of the last axis. Returns at least 32 bits, which hold every size.
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
        return lax.min(indices, bound)  # JAX would read larger ones as negative
    indices = lax.select(indices < 0, indices + bound, indices)
    if kind == np.int64:
        indices = lax.clamp(np.int64(-1), indices, bound)  # JAX drops the upper 32 bits
    return indices


def checked_indices(op: str, indices: Any, limits: Any) -> tuple[Array, bool]:
    """(integer indices counted from the start, True if all are known to be in range).

    limits: a size, or one for each element of the last axis.
    """
    indices = array(indices)
    bounded_operands(op, (indices,))
    if is_symbolic(indices):
        return as_traced(indices), False
    require_integers(op, "indices", indices)
    sizes = limits if isinstance(limits, tuple) else (limits,)
    if not is_static(indices) or not all(isinstance(d, int) for d in sizes):
        return as_traced(indices), False
    # Narrow types may not hold the size.
    indices = indices if indices.dtype == np.uint64 else indices.astype(np.int64)
    bound = np.asarray(limits, np.int64)
    bad = np.argwhere((indices < -bound) | (indices >= bound))
    if len(bad):
        first_bad = tuple(bad[0])
        size = bound[first_bad[-1]] if bound.ndim else bound
        position = tuple(map(int, first_bad))
        raise BoundsError(
            f"{op}: index {indices[first_bad]} at position {position} is out of range for a size of {size}"
        )
    indices = indices.astype(np.int64, copy=False)
    return np.where(indices < 0, indices + bound, indices), True
