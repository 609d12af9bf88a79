"""The triangles of matrices."""

__all__ = ["trilu"]

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import as_traced
from jaxops.errors import ShapeError, describe
from jaxops.ops.common.elementwise import traced_if_symbolic
from jaxops.signature import Traits
from jaxops.static import A, Array, Operand, array, jit_if_concrete

TRAITS = Traits(foldable=True)


def trilu(input: Operand[A], k: Any = None, *, upper: int = 1) -> A:
    """The upper or lower triangle of each matrix, zeros elsewhere.

    input: (…, n, m), any dtype. k: one integer, which may be traced: the last diagonal that the triangle includes;
    a positive k is above the main diagonal; None is 0. Returns the same shape and dtype.
    Raises ShapeError for an input of fewer than two axes or unless k is one integer.
    Source: ONNX Trilu, opset 14.

    >>> trilu(jnp.ones((2, 2), int), upper=0).tolist()
    [[1, 0], [1, 1]]
    """
    x, (k,) = array(input), traced_if_symbolic(array(0 if k is None else k))
    upper = flag("upper", upper)
    if x.ndim < 2:
        raise ShapeError(f"the operand needs at least two axes, got {describe(x)}")
    if k.size != 1 or not jnp.issubdtype(k.dtype, jnp.integer):
        raise ShapeError(f"`k` must be one integer, got {describe(k)}")
    k = k.reshape(())
    if isinstance(x, np.ndarray) and isinstance(k, np.ndarray):
        triangle: Any = np.triu(x, int(k)) if upper else np.tril(x, int(k))
        return triangle
    # A diagonal beyond int32 is beyond every matrix.
    own, narrow = jnp.iinfo(k.dtype), jnp.iinfo(np.int32)
    k = (np if isinstance(k, np.ndarray) else jnp).clip(k, max(own.min, narrow.min + 1), min(own.max, narrow.max))
    return _trilu((as_traced(x), as_traced(k.astype(np.int32))), upper)


@jit_if_concrete
def _trilu(operands: tuple[Any, Any], upper: bool) -> Array:
    x, k = operands
    sizes = x.shape[-2:]
    row, column = (lax.broadcasted_iota(jnp.int32, sizes, i) for i in (0, 1))
    is_inside = column - row >= k if upper else column - row <= k
    return lax.select(jnp.broadcast_to(is_inside, x.shape), x, lax.full_like(x, 0))
