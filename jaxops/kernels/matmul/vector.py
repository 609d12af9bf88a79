"""A row times a matrix on a CPU, without a loop that XLA would have to compile, and a matrix times a column.

XLA makes a kernel of its own of such a product, in 35 to 50 ms of processor time, and two or three, of 15 to 20 ms
each, of the mean of all places of an image. A convolution whose window is the whole row is one of Eigen's, which is
there; so is a product of two rows one of YNNPACK's. Squeeze and excitation has one mean and two such products:
EfficientNet-B0, with 16 of them, starts in 0.88 of the time with its products in this form, and in 0.82 with its means.
Such a product may sum the last columns in another order than the first ones, so that equal channels may differ by an
ulp, as those of any product do.
"""

import math
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target

# Microseconds of XLA's loop, as a convolution, as two rows: 1152×48 12, 18, 10; 672×168 49, 50, 35; 240×960 63, 103,
# 101. A small loop makes the two rows.
_MOST_WEIGHTS = 1 << 16
# A larger matrix times a column is XLA's loop; of a smaller one, 512×16, both take a few microseconds.
_MOST_OF_A_SUM = 1 << 14
# A mean, in two or three loops: 7×7×960 19, 14, 11; 28×28×72 56, 19, 12; 14×14×480 14, 23, 13; 56×56×144 64, 134, 76. A
# small loop takes one of the two results, and adds a twentieth to a start of EfficientNet-B0 below so many numbers.
_MOST_NUMBERS = 140_000
# Means of fewer places take no loop that is worth it; those of more, all the same, would be 1e-5 off as one sum.
_FEWEST_PLACES, _MOST_PLACES = 32, 1024
# XLA sums up more parts in two loops.
_MOST_PARTS = 32


def row_product(row: Any, matrix: jax.Array) -> jax.Array:
    """(K,) times (K, M), K > 1."""
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
    """`multiply(a, b)` of a small matrix (…, M, K) and a column (…, K, 1), in one batch; None for other products.

    multiply: hashable. On a CPU a specialized program has sums.

    XLA makes a kernel of each such product, and one of all equal sums. Mamba with four layers and 64 steps, which an
    export writes one after the other, starts in 0.71 of the time, and a call takes 1.0.
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
    """The mean of one image (1, C, d1, …, dn) over its spatial axes, (1, C); None for other means.

    On a CPU a specialized program has a product of it, where this is faster.
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
    """For so many of all pixels, 1 / pixels each; the last one makes their sum exact. XLA would make a loop of numbers
    that are all the same."""
    weights = np.full(count, 1 / pixels, np.float32)
    weights[-1] = count / pixels - (count - 1) * float(weights[0])
    return weights
