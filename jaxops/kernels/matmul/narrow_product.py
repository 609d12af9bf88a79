"""Products with a matrix of 16-bit floats, on a CPU.

XLA:CPU converts float16 to float32, a complete matrix at a time, and often all matrices of a program before the first
product: together they take twice the bytes of the weights. In panels that stay in a processor's caches, a product of up
to 64 rows takes a half to a seventh of the time, one of 1024 rows as long (two cores of AMD EPYC, Zen 4, JAX 0.10.1 and
0.12, 2026-11-29), and the memory is that of a panel. bfloat16 is converted for one row alone; as one of two rows, such
a product is fast.
"""

import functools
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.matmul.plain_derivatives import with_derivatives_of
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# The number of weights in a panel, 2 MiB in float32. For more than one row, fewer than `_FEWEST` are converted at once.
_PANEL: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 19
_FEWEST: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 17
# The smallest number of rows of a panel of (K, N).
_FEWEST_ROWS = 8
# Up to so many rows, products with panels of K are summed; for more, panels of N are faster.
_FEW_ROWS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 16
# Up to so many rows, panels (N, K) are the first operand: XLA:CPU packs the second one.
_MOST_OF_SECOND: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 64


def narrow_product(a: Any, b: Any, over: int, dtype: np.dtype) -> Any:
    """Returns the product of (…, K) and a matrix, both float16 or bfloat16, summed in `dtype`, a wider type.

    b: (K, N) or (N, K). over: the axis of b that is K.
    """
    return _narrow_product(a, b, over=over, dtype=dtype)


def _plain(a: Any, b: Any, over: int, dtype: np.dtype) -> jax.Array:
    return lax.dot_general(a, b, (((a.ndim - 1,), (over,)), ((), ())), preferred_element_type=dtype)


def one_of_two(a: Any, b: Any, over: int, **options: Any) -> jax.Array:
    """Returns the product of a row and a matrix, with the axes of the row, multiplied as the first of two rows.

    a: of any shape whose axes beside the contracted one are 1. over: the contracted axis of b. options: as
    of `lax.dot_general`.
    """
    rows = lax.pad(lax.reshape(a, (1, a.size)), a.dtype.type(0), [(0, 1, 0), (0, 0, 0)])
    y = lax.dot_general(rows, b, (((1,), (over,)), ((), ())), **options)[0]
    return lax.reshape(y, (*(1,) * (a.ndim - 1), y.size))


def _as_one_of_two(a: Any, b: Any, over: int, dtype: np.dtype) -> jax.Array:
    return one_of_two(a, b, over, preferred_element_type=dtype)


def _in_panels(a: Any, b: Any, over: int, dtype: np.dtype) -> jax.Array:
    """Returns the product as a loop over panels of `b`, each of which is converted to float32."""

    def run(a: Any, b: Any) -> jax.Array:
        *lead, k = a.shape
        rows = lax.reshape(a, (math.prod(lead), k)).astype(jnp.float32)
        summed = over == 0 and len(rows) <= _FEW_ROWS
        y = _sum_of_panels(rows, b) if summed else _columns_of_panels(rows, b, over)
        return lax.reshape(y.astype(dtype), (*lead, b.shape[1 - over]))

    # A derivative of the loop would add an array of the size of `b` for each panel.
    return with_derivatives_of(functools.partial(_plain, over=over, dtype=dtype), run)(a, b)


def _sum_of_panels(rows: Any, b: Any) -> jax.Array:
    """Returns rows (R, K) times b (K, N), the sum over panels of K."""
    k, n = b.shape
    size = min(-(-k // 2), max(_FEWEST_ROWS, _PANEL // n))
    count = k // size

    def panel(first: Any, size: int) -> jax.Array:
        part = lax.dynamic_slice_in_dim(rows, first, size, 1)
        weights = _floats(lax.dynamic_slice_in_dim(b, first, size, 0))
        return one_of_two(part, weights, 0) if len(rows) == 1 else lax.dot(part, weights)

    sums = panel(count * size, k - count * size) if k % size else jnp.zeros((len(rows), n), jnp.float32)
    return lax.fori_loop(0, count, lambda i, sums: sums + panel(i * size, size), sums)


def _columns_of_panels(rows: Any, b: Any, over: int) -> jax.Array:
    """Returns rows (R, K) times b, (K, N) or (N, K), panel by panel of N."""
    axis, (r, k) = 1 - over, rows.shape
    n = b.shape[axis]
    count = max(2, -(-n * k // _PANEL))
    size = -(-n // count)
    first = over == 1 and r <= _MOST_OF_SECOND
    rows = lax.optimization_barrier(rows)

    def panel(i: Any, y: Any) -> Any:
        # If N is not a multiple of a panel, the last panel begins earlier, and overlaps the one before.
        start = lax.min(i * size, n - size)
        weights = _floats(lax.dynamic_slice_in_dim(b, start, size, axis))
        operands = (weights, rows) if first else (rows, weights)
        product = lax.dot_general(*operands, (((1,), (1 if first else over,)), ((), ())))
        # Without the barrier, XLA would swap the operands.
        part = lax.transpose(lax.optimization_barrier(product), (1, 0)) if first else product
        return lax.dynamic_update_slice_in_dim(y, part, start, 1)

    return lax.fori_loop(0, -(-n // size), panel, jnp.zeros((r, n), jnp.float32))


def _floats(panel: Any) -> Any:
    """Returns a panel in float32, stored, since XLA would convert it inside a slow product for each row."""
    return lax.optimization_barrier(panel.astype(jnp.float32))


def _turned(a: Any, b: Any, over: int, dtype: np.dtype) -> jax.Array:
    """Returns the product with weights (K, N) that are prepared as (N, K)."""
    return _in_panels(a, lax.transpose(b, (1, 0)), 1 - over, dtype)


def _select(target: Target, a: Any, b: Any, over: int, dtype: np.dtype) -> Any:
    rows = math.prod(a.shape[:-1])
    if target.platform != "cpu" or not all(isinstance(d, int) and d > 0 for d in (rows, *b.shape)):
        return None
    is_prepared = target.specialized and target.prepared
    if b.dtype == jnp.bfloat16:
        return _as_one_of_two if rows == 1 and not is_prepared else None  # `dot_form` turns prepared weights, too
    if target.partitioned or (rows > 1 and math.prod(b.shape) < _FEWEST):
        return None
    return _turned if is_prepared and target.packs_whole and over == 0 and rows == 1 else _in_panels


_narrow_product = NamedCall("narrow_product", _plain, _select, rows=True)
