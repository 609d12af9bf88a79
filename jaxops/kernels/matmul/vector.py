"""A row times a matrix, and a matrix times a column, on a CPU, without a loop that XLA must compile.

XLA compiles a kernel for each such product. A convolution whose window is the complete row calls Eigen instead, and a
product of two rows calls YNNPACK, which need no compilation. Squeeze-and-excitation has two such products:
EfficientNet-B0, with 16 of these blocks, starts sooner with them in this form. Such a product may sum the last columns
in another order than the first ones, so equal channels may differ by an ulp, as in any product.
"""

from typing import Annotated, Any

import jax
import numpy as np
from jax import lax

from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# Up to this many weights, a convolution is used; for more, two rows, although repeating the row needs a small loop.
_MOST_WEIGHTS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 16
# A larger matrix times a column stays XLA's loop; for a smaller one, such as 512×16, both are as fast.
_MOST_OF_A_SUM: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 1 << 14
# XLA sums more parts in two loops.
_MOST_PARTS = 32


def row_product(row: Any, matrix: jax.Array) -> jax.Array:
    """Returns the product of (K,) and (K, M), for K > 1."""
    return _as_convolution(row, matrix) if matrix.size <= _MOST_WEIGHTS else _of_two_rows(row, matrix)


def _as_convolution(row: Any, matrix: jax.Array) -> jax.Array:
    k, m = matrix.shape
    taps = next(d for d in range(2, k + 1) if k % d == 0)
    data, filters = lax.reshape(row, (1, taps, k // taps)), lax.reshape(matrix, (taps, k // taps, m))
    y = lax.conv_general_dilated(data, filters, (1,), [(0, 0)], dimension_numbers=("NWC", "WIO", "NWC"))
    return lax.reshape(y, (m,))


def _of_two_rows(row: Any, matrix: jax.Array) -> jax.Array:
    rows = np.stack([row, row]) if isinstance(row, np.ndarray) else lax.broadcast_in_dim(row, (2, row.size), (1,))
    return lax.dot(rows, matrix)[0]


def column_product(a: Any, b: Any, multiply: Any) -> Any:
    """Returns `multiply(a, b)` of one small matrix (…, M, K) and one column (…, K, 1); None for any other product.

    multiply: hashable. In a specialized program on a CPU the product is a sum: XLA compiles a kernel for each product,
    but one kernel for all equal sums: Mamba, whose 64 steps an export unrolls, starts sooner, and a call takes as long.
    """
    if min(a.ndim, b.ndim) < 2 or {a.dtype, b.dtype} != {np.dtype(np.float32)}:
        return None
    (m, k), batch = a.shape[-2:], {*a.shape[:-2], *b.shape[:-2]}
    if (
        b.shape[-1] != 1
        or not (isinstance(m, int) and isinstance(k, int))
        or batch - {1}
        or k > _MOST_PARTS
        or m * k > _MOST_OF_A_SUM
    ):
        return None
    return _column_product(a, b, multiply=multiply)


def _sums_of_columns(a: jax.Array, b: jax.Array, multiply: Any) -> jax.Array:
    m, k = a.shape[-2:]
    terms = lax.mul(lax.reshape(a, (m, k)), lax.broadcast_in_dim(lax.reshape(b, (k,)), (m, k), (1,)))
    sums = lax.reduce_sum(terms, (1,))
    return lax.reshape(sums, (*(1,) * (max(a.ndim, b.ndim) - 2), m, 1))


_column_product = NamedCall(
    "column_product",
    lambda a, b, multiply: multiply(a, b),
    lambda target, a, b, multiply: _sums_of_columns if _is_specialized_cpu(target) else None,
)


def _is_specialized_cpu(target: Target) -> bool:
    return target.platform == "cpu" and target.specialized
