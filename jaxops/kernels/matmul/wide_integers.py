"""Products of integers of 16, 32 and 64 bits, modulo 2^bits, for a CPU.

XLA:CPU has a fast product of int32. For other types it compiles a plain loop over all terms, which takes a hundred
times as long. Numbers of 16 bits, and unsigned ones, have the same sums in int32. Numbers of 64 bits are divided into
parts that are multiplied in float64: three parts of 22 bits, or four of 16 bits. A part is signed, so that the product
of two has at most 42 (30) bits. The sum of 2^11 (2^23) such products is at most 2^53, and so is each sum on the way:
all of them are exact in float64, in any order.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target

# The bits of a part, and the largest number of terms whose sums are exact.
_PARTS = ((22, 1 << 11), (16, 1 << 23))
# With fewer multiplications, rows, columns or terms, dividing the operands takes longer than the plain loop.
_FEWEST, _FEWEST_ROWS, _FEWEST_TERMS = 1 << 21, 8, 64
_IN_32_BITS = {"int16", "uint16", "uint32"}


def integer_product(a: Any, b: Any, multiply: Any) -> Any:
    """Returns `multiply(a, b)`, which sums the products of integers of one dtype in this dtype; None for other dtypes.

    multiply: `lax.dot_general` or `jnp.matmul`, as a hashable object with these keywords (`jaxops.kernels.matmul.dot`).
    """
    keywords = dict(multiply.keywords)
    if not a.dtype == b.dtype == keywords.get("preferred_element_type"):
        return None
    return _product(a, b, multiply=multiply) if a.dtype.name in {*_IN_32_BITS, "int64", "uint64"} else None


def _in_type(multiply: Any, dtype: Any) -> Any:
    """Returns the function that sums in another type."""
    return type(multiply)(multiply.fn, tuple({**dict(multiply.keywords), "preferred_element_type": dtype}.items()))


def _in_int32(a: jax.Array, b: jax.Array, multiply: Any) -> jax.Array:
    dtype = np.dtype(np.int32)
    return _in_type(multiply, dtype)(a.astype(dtype), b.astype(dtype)).astype(a.dtype)


def _in_float64(a: jax.Array, b: jax.Array, multiply: Any) -> jax.Array:
    terms = _terms(a, b, multiply)
    bits = next(bits for bits, most in _PARTS if terms <= most)
    product = _in_type(multiply, np.dtype(np.float64))
    left, right = _parts(a, bits), _parts(b, bits)
    total = None
    for weight in range(len(left)):
        for i in range(weight + 1):
            y = lax.shift_left(product(left[i], right[weight - i]).astype(jnp.int64), np.int64(bits * weight))
            total = y if total is None else total + y
    assert total is not None
    return total.astype(a.dtype)


def _parts(x: jax.Array, bits: int) -> list[jax.Array]:
    """Returns signed parts in float64, the lowest first: x is the sum of part[i] · 2^(bits · i), modulo 2^64."""
    rest, parts = x.astype(jnp.int64), []
    for _ in range(0, 64, bits):
        # The lowest bits as a signed number. What is left divides by 2^bits, even where the difference wraps around.
        part = lax.shift_right_arithmetic(lax.shift_left(rest, np.int64(64 - bits)), np.int64(64 - bits))
        rest = lax.shift_right_arithmetic(rest - part, np.int64(bits))
        parts.append(part.astype(jnp.float64))
    return parts


def _terms(a: Any, b: Any, multiply: Any) -> Any:
    """Returns the number of products in each sum."""
    dimensions = dict(multiply.keywords).get("dimension_numbers")
    over: Sequence[int] = (-1,) if dimensions is None else dimensions[0][0]
    return np.prod([a.shape[axis] for axis in over], dtype=object)


def _select(target: Target, a: Any, b: Any, multiply: Any) -> Any:
    if target.platform != "cpu":
        return None
    if a.dtype.name in _IN_32_BITS:
        return _in_int32
    sizes = (*a.shape, *b.shape)
    terms = _terms(a, b, multiply)
    if not all(isinstance(d, int) for d in sizes) or not _FEWEST_TERMS <= terms <= _PARTS[-1][1]:
        return None
    products = jax.eval_shape(multiply, a, b).size * terms
    # Each element of one operand is multiplied by as many of the other one as this has columns, or rows.
    is_large = products >= max(_FEWEST, _FEWEST_ROWS * a.size, _FEWEST_ROWS * b.size)
    return _in_float64 if is_large else None


_product = NamedCall("integer_product", lambda a, b, multiply: multiply(a, b), _select)
