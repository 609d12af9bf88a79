"""One row times a matrix of 16-bit floats, on a CPU.

XLA:CPU converts the complete matrix to float32 for one row, and in JAX 0.10 element by element, which takes many times
as long as a float32 product. As one of two rows, a bfloat16 product is fast. In float16 it allocates float32 weights
for each product of a program; panels of them are faster. With JAX 0.10, weights (N, K) in float16 are fast.
"""

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# The number of weights in a panel, 128 KiB in float32, and its smallest number of rows.
_PANEL: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 1 << 15
_FEWEST_ROWS = 8


def narrow_row(a: Any, b: Any, dimensions: Any, dtype: np.dtype) -> Any:
    """Returns `lax.dot_general` of one row and a matrix, both float16 or bfloat16, summed in `dtype`, a wider type.

    a: of any shape whose axes beside the contracted one are 1. b: two axes.
    """
    return _narrow_row(a, b, dimensions=dimensions, dtype=dtype)


def _plain(a: Any, b: Any, dimensions: Any, dtype: np.dtype) -> jax.Array:
    return lax.dot_general(a, b, dimensions, preferred_element_type=dtype)


def one_of_two(a: Any, b: Any, over: int, **options: Any) -> jax.Array:
    """Returns the product of a row and a matrix, with the axes of the row, multiplied as the first of two rows.

    a: of any shape whose axes beside the contracted one are 1. over: the contracted axis of b. options: as
    of `lax.dot_general`.
    """
    rows = lax.pad(lax.reshape(a, (1, a.size)), a.dtype.type(0), [(0, 1, 0), (0, 0, 0)])
    y = lax.dot_general(rows, b, (((1,), (over,)), ((), ())), **options)[0]
    return lax.reshape(y, (*(1,) * (a.ndim - 1), y.size))


def _as_one_of_two(a: Any, b: Any, dimensions: Any, dtype: np.dtype) -> jax.Array:
    return one_of_two(a, b, dimensions[0][1][0], preferred_element_type=dtype)


def _in_panels(a: Any, b: Any, dimensions: Any, dtype: np.dtype) -> jax.Array:
    """Returns the product with weights (K, N), as a sum over panels of rows that are converted to float32 each."""
    k, n = b.shape
    row, size = lax.reshape(a, (1, k)).astype(jnp.float32), min(k, max(_FEWEST_ROWS, _PANEL // n))
    count = k // size

    def panel(first: Any, size: int) -> jax.Array:
        part, weights = (lax.dynamic_slice_in_dim(x, first, size, axis) for x, axis in ((row, 1), (b, 0)))
        return one_of_two(part, weights.astype(jnp.float32), 0)

    sums = panel(count * size, k - count * size) if k % size else jnp.zeros((1, n), jnp.float32)
    sums = lax.fori_loop(0, count, lambda i, sums: sums + panel(i * size, size), sums)
    return lax.reshape(sums.astype(dtype), (*(1,) * (a.ndim - 1), n))


def _select(target: Target, a: Any, b: Any, dimensions: Any, dtype: np.dtype) -> Any:
    is_static, is_prepared = all(isinstance(d, int) and d > 0 for d in b.shape), target.specialized and target.prepared
    if target.platform != "cpu" or not is_static:
        return None
    if b.dtype == jnp.bfloat16:
        return None if is_prepared else _as_one_of_two  # `dot_form` turns prepared weights, too
    turns = is_prepared and target.packs_whole
    return _in_panels if dimensions[0][1] == (0,) and not turns else None


_narrow_row = NamedCall("narrow_row", _plain, _select)
