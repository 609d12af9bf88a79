"""Products of 8-bit integers with zero points, as products of int8, or of uint8 and int8, with int32 sums.

XLA:CPU has fast instructions for these pairs of types only. So uint8 becomes int8, or int8 becomes uint8, by a shift of
128, and zero points are taken out of the sums: Σ (a - z)·(b - w) = Σ a·b - z·Σ b - w·Σ a + K·z·w. All terms wrap around
in 32 bits, so the result is exact if the true sum fits.
"""

import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced
from jaxops.kernels.dequantize import Quantized
from jaxops.kernels.matmul import dot
from jaxops.kernels.matmul.uint8_int8 import data_type, mixed_product
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned
from jaxops.static import Array

# One row is computed as this many, since XLA:CPU has a slow loop for a single row of integers.
_ROWS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 2


def as_bytes(x: jax.Array, zero: Any, dtype: Any = jnp.int8) -> tuple[jax.Array, Any]:
    """Converts int8 or uint8 numbers to `dtype`, one of these; returns them and their zero point, int32. None is 0."""
    if x.dtype == dtype:
        return x, zero
    shift = 128 if dtype == jnp.uint8 else -128
    shifted = lax.bitcast_convert_type(x ^ np.array(128, np.uint8).view(x.dtype), dtype)
    return shifted, jnp.int32(shift) if zero is None else zero + shift


def without_zero(x: jax.Array, zero: Array | None, dtype: Any) -> jax.Array:
    """Returns x - zero in `dtype`; None is a zero point of 0."""
    x = x.astype(dtype)
    return x if zero is None else x - jnp.broadcast_to(zero.astype(dtype), x.shape)


def split_zeros(*zeros: Array | None) -> tuple[tuple[bool, ...], list[jax.Array]]:
    """Returns, for each zero point, whether it may differ from 0; and those that may, as int32."""
    has_zero = tuple(z is not None and not (isinstance(z, np.ndarray) and not z.any()) for z in zeros)
    return has_zero, [as_traced(z, jnp.int32) for z, has in zip(zeros, has_zero, strict=True) if has]


def join_zeros(zeros: Sequence[jax.Array], has_zero: Sequence[bool]) -> list[jax.Array | None]:
    """Returns the arguments of `split_zeros` again, with None for 0."""
    remaining = iter(zeros)
    return [next(remaining) if has else None for has in has_zero]


def matrix_product(a: jax.Array, b: jax.Array, a_zero: Array | None, b_zero: Array | None) -> jax.Array:
    """Returns (a - a_zero) · (b - b_zero) in int32, with the shapes of `jnp.matmul`.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). int8 or uint8, each. Zero points broadcast to their operand, and are
    constant along K. None is 0.
    """
    has_zero, zeros = split_zeros(a_zero, b_zero)
    return _integer_product(a, b, *zeros, has_zero=has_zero)


def _of_int8(a: jax.Array, b: jax.Array, *zeros: jax.Array, has_zero: tuple[bool, ...]) -> jax.Array:
    return _sums(a, b, join_zeros(zeros, has_zero), jnp.int8)


def _of_uint8(a: jax.Array, b: jax.Array, *zeros: jax.Array, has_zero: tuple[bool, ...]) -> jax.Array:
    return _sums(a, b, join_zeros(zeros, has_zero), jnp.uint8)


def _with_a_row_of_ones(a: jax.Array, b: jax.Array, *zeros: jax.Array, has_zero: tuple[bool, ...]) -> jax.Array:
    """Returns the product; the sums of the columns of `b`, by which a zero point of `a` is multiplied, are one more row
    of it. To add up weights by themselves, XLA:CPU would convert all to int32, which takes longer than the product.
    """
    return _sums(a, b, join_zeros(zeros, has_zero), jnp.int8, with_row=has_zero[0] or a.dtype == jnp.uint8)


def _select_product(target: Target, a: Any, b: Any, *zeros: Any, has_zero: tuple[bool, ...]) -> Any:
    if target.platform != "cpu" or b.ndim != 2:
        return None
    if not target.prepared:  # the sums of columns, and weights turned for uint8, are computed at each call
        return _with_a_row_of_ones
    return _of_uint8 if data_type(target) == jnp.uint8 else None


_integer_product = NamedCall("integer_product", _of_int8, _select_product)


def _sums(a: jax.Array, b: jax.Array, zeros: Sequence[Any], data: Any, with_row: bool = False) -> jax.Array:
    """Returns the product; `a` is converted to the type `data`. with_row: see `_with_a_row_of_ones`."""
    left, a_zero = as_bytes(a, zeros[0], data)
    right, b_zero = as_bytes(b, zeros[1])
    if with_row:
        rows = lax.reshape(left, (math.prod(left.shape[:-1]), left.shape[-1]))
        y = product(lax.concatenate([rows, lax.full((1, left.shape[-1]), 1, data)], 0), right)
        y, column_sums = lax.reshape(y[:-1], (*left.shape[:-1], right.shape[1])), y[-1]
    else:
        y, column_sums = product(left, right), None

    def spread(x: jax.Array, other_rank: int, axis: int) -> jax.Array:
        """Broadcasts numbers, one for each row or column of an operand, to the product."""
        # If the other operand is a vector, the product has no axis for it.
        x = jnp.expand_dims(x, axis) if x.ndim and other_rank > 1 else x
        return jnp.broadcast_to(as_traced(x), y.shape)

    rows = None if a_zero is None else spread(_line(a_zero, a.ndim, -1), b.ndim, -1)
    columns = None if b_zero is None else spread(_line(b_zero, b.ndim, -2), a.ndim, -2)
    result = y
    if rows is not None:
        result = result - rows * spread(_sum(right, -2) if column_sums is None else column_sums, a.ndim, -2)
    if columns is not None:
        result = result - columns * spread(_sum(left, -1), b.ndim, -1)
    if rows is not None and columns is not None:
        result = result + jnp.broadcast_to(as_traced(a.shape[-1], jnp.int32), y.shape) * rows * columns
    return result


def exact_sum(count: int) -> bool:
    """Returns True if every sum of `count` products of 8-bit integers fits 32 bits."""
    return count * 255 * 255 < 1 << 31


def dequantized_dot(a: Quantized, b: Quantized, dimensions: Any) -> Callable[[Quantized, Quantized], Any] | None:
    """Returns the function that computes `lax.dot_general` of two dequantized arrays with their integers.

    Returns None if a scale varies within a sum, or if sums may not fit 32 bits. a, b: the types of the operands.
    """
    (over_a, over_b), (batch_a, batch_b) = dimensions
    left, right = a.numbers.shape, b.numbers.shape
    by_column = len(right) == 2 and not batch_a and b.axis not in over_b
    if len(over_a) != 1 or min(len(left), len(right)) < 2 or not exact_sum(left[over_a[0]]):
        return None
    if not a.has_one_scale or not (b.has_one_scale or by_column):
        return None
    rows = [axis for axis in range(len(left)) if axis not in (*batch_a, *over_a)]
    columns = [axis for axis in range(len(right)) if axis not in (*batch_b, *over_b)]

    def multiply(a: Quantized, b: Quantized) -> jax.Array:
        x = lax.transpose(a.numbers, (*batch_a, *rows, *over_a))
        y = lax.transpose(b.numbers, (*batch_b, *over_b, *columns))
        sizes, (*batch, k) = (*x.shape[:-1], *y.shape[len(batch_b) + 1 :]), y.shape[: len(batch_b) + 1]
        if batch:
            x = lax.reshape(x, (*batch, math.prod(x.shape[len(batch) : -1]), k))
        y = lax.reshape(y, (*batch, k, math.prod(y.shape[len(batch) + 1 :])))
        return lax.reshape(dequantized_matmul(a.with_numbers(x), b.with_numbers(y)), sizes)

    return multiply


def dequantized_matmul(a: Quantized, b: Quantized) -> jax.Array:
    """Returns the float32 product of two dequantized matrices, computed with their integers.

    a: (…, M, K), one scale. b: (…, K, N), one scale; or (K, N), one for each column.
    """
    sums = matrix_product(a.numbers, b.numbers, a.zero, b.zero)
    return sums.astype(jnp.float32) * jnp.broadcast_to(a.scale * b.scale, sums.shape)


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a matrix product in int32: of two int8 operands, or of uint8 (…, K) and int8 (K, N)."""

    if b.ndim == 2 and all(d == 1 for d in a.shape[:-1]):
        return _row_product(a, b)
    return _product(a, b)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return mixed_product(a, b) if a.dtype == jnp.uint8 else dot.matrix_product(a, b, jnp.int32)


def _product_of_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    rows = lax.pad(lax.reshape(a, (1, a.shape[-1])), a.dtype.type(0), [(0, _ROWS - 1, 0), (0, 0, 0)])
    return lax.reshape(lax.slice_in_dim(_product(rows, b), 0, 1), (*a.shape[:-1], b.shape[1]))


def _select(target: Target, a: Any, b: Any) -> Any:
    return _product_of_rows if target.platform == "cpu" else None


_row_product = NamedCall("integer_row_product", _product, _select)


def _sum(x: jax.Array, axis: int) -> jax.Array:
    return jnp.sum(x, max(axis, -x.ndim), jnp.int32)


def _line(zero: Any, rank: int, axis: int) -> jax.Array:
    """Returns a zero point without the summed axis, along which it has one element."""
    return jnp.squeeze(zero, max(axis, -rank)) if zero.ndim > 1 or (zero.ndim and rank == 1) else zero
