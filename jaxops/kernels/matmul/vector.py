"""A row times a matrix, and a matrix times a column, on a CPU, without a loop that XLA must compile.

XLA compiles a kernel for each such product, and two or three for the mean over all positions of an image. A convolution
whose window is the complete row calls Eigen instead, and a product of two rows calls YNNPACK, which need no
compilation. Squeeze-and-excitation has one mean and two such products: EfficientNet-B0, with 16 of these blocks, starts
sooner with its products and means in this form. Such a product may sum the last columns in another order than the first
ones, so equal channels may differ by an ulp, as in any product.
"""

import math
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
_MOST_OF_A_SUM: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 14
# Up to this many numbers, a mean is a convolution; for more, two rows. With two rows, a small loop selects one of the
# results, which takes time to compile.
_MOST_NUMBERS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 140_000
# For a mean over fewer positions, the loop is not worth replacing. Over more positions, one sum would be off by 1e-5,
# so parts are summed.
_FEWEST_PLACES: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 32
_MOST_PLACES = 1024
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


def mean_of_places(x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the mean (1, C) of one image (1, C, d1, …, dn) over its spatial axes; None for other means.

    In a specialized program on a CPU it is computed as a product, if this is faster.
    """
    return _mean_of_places(x) if _is_mean_of_image(x, axes) else None


def _is_mean_of_image(x: Any, axes: tuple[int, ...]) -> bool:
    if x.dtype != np.float32 or x.ndim < 4 or axes != tuple(range(2, x.ndim)):
        return False
    if x.shape[0] != 1 or not all(isinstance(d, int) for d in x.shape):
        return False
    pixels = math.prod(x.shape[2:])
    return pixels >= _FEWEST_PLACES and (pixels <= _MOST_PLACES or _parts(pixels) > 1)


def _quotient(x: jax.Array) -> jax.Array:
    total = lax.reduce_sum(x, tuple(range(2, x.ndim)))
    return lax.div(total, lax.full_like(total, math.prod(x.shape[2:])))


def _as_product(x: jax.Array) -> jax.Array:
    channels, pixels, axes = x.shape[1], math.prod(x.shape[2:]), range(2, x.ndim)
    x = lax.transpose(x, (0, *axes, 1))
    if pixels <= _MOST_PLACES and x.size <= _MOST_NUMBERS:
        return _as_convolution(_weights(pixels, pixels), lax.reshape(x, (pixels, channels)))[None]
    parts = _parts(pixels)
    sums = _of_two_rows(_weights(pixels // parts, pixels), lax.reshape(x, (pixels // parts, parts * channels)))
    return lax.reduce_sum(lax.reshape(sums, (1, parts, channels)), (1,))


def _parts(pixels: int) -> int:
    return next(d for d in range(_MOST_PARTS, 0, -1) if pixels % d == 0)


_mean_of_places = NamedCall(
    "mean_of_places", _quotient, lambda target, x: _as_product if _is_specialized_cpu(target) else None
)


def _is_specialized_cpu(target: Target) -> bool:
    return target.platform == "cpu" and target.specialized


def _weights(count: int, pixels: int) -> np.ndarray:
    """Returns `count` weights 1 / pixels. The last one differs, so that their sum is exact, and since XLA would compile
    a loop for an array of equal numbers."""
    weights = np.full(count, 1 / pixels, np.float32)
    weights[-1] = count / pixels - (count - 1) * float(weights[0])
    return weights
