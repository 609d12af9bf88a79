"""Products of 8-bit integers in a loop whose steps multiply by the same matrix.

The matrix is transposed once, before the loop. XLA:CPU packs a matrix at each product; for one row that takes longer
than the product, so a row has a form of its own.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.matmul.int8 import as_bytes, product
from jaxops.kernels.matmul.uint8_int8 import data_type
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.stored_values import stored_value
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# See `_in_lanes`: the number of elements in a term, for rows shorter than `_FROM` and for longer ones; the fewest terms
# that LLVM vectorizes; and the longest row for which this form is faster.
_LANES = 16
_WIDE_LANES = 32
_FROM: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 512
_FEWEST_TERMS = 16
_LONGEST: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 2048


class Turned(NamedTuple):
    """A transposed matrix of 8-bit integers.

    numbers: (N, K), int8, as the loop reads them. zero: (1 or N,), int32. sums: of the numbers in each row, int32.
    """

    numbers: jax.Array
    zero: jax.Array
    sums: jax.Array


def turned(b: jax.Array, zero: jax.Array) -> Turned:
    """Prepares a matrix (K, N) of int8 or uint8 with its zero point, (1, 1) or (1, N)."""
    numbers, origin = as_bytes(b, lax.reshape(zero.astype(jnp.int32), (zero.size,)))
    return Turned(stored_value(lax.transpose(numbers, (1, 0))), origin, jnp.sum(numbers, 0, jnp.int32))


def turned_product(a: jax.Array, zero: jax.Array, matrix: Turned) -> jax.Array:
    """Returns (a - zero) times the matrix in int32, (M, N). a: (M, K), uint8. zero: a scalar."""
    y = _turned_product(a, zero.astype(jnp.int32), matrix.numbers, matrix.sums)
    # As float32: if another operation converted `a` to int32, too, XLA would multiply numbers of 32 bits.
    total = jnp.sum(a.astype(jnp.float32) - zero.astype(jnp.float32), 1, keepdims=True).astype(jnp.int32)
    return y - jnp.broadcast_to(total, y.shape) * jnp.broadcast_to(matrix.zero, y.shape)


def _turned_int8(a: jax.Array, zero: jax.Array, rows: jax.Array, sums: jax.Array, data: Any = jnp.int8) -> jax.Array:
    numbers, origin = as_bytes(a, zero, data)
    y = product(numbers, lax.transpose(rows, (1, 0)))
    return y - jnp.broadcast_to(origin * sums, y.shape)


def _in_lanes(a: jax.Array, zero: jax.Array, rows: jax.Array, _: jax.Array) -> jax.Array:
    """Multiplies one row in a loop that reads the matrix once.

    LLVM unrolls a loop of fewer than sixteen terms, and does not vectorize it. Elements of 16 bits take half as long as
    those of 32: a processor multiplies and adds two of them at once.
    """
    n, k = rows.shape
    lanes = _LANES if k < _FROM else _WIDE_LANES
    # Without the barrier XLA would convert the matrix to int32 before the loop, which would read four times the bytes.
    rows, x = lax.optimization_barrier((rows, a.astype(jnp.int16) - zero.astype(jnp.int16)))

    def term(numbers: jax.Array, start: int) -> jax.Array:
        return lax.slice(rows, (0, start), (n, start + lanes)).astype(jnp.int32) * numbers.astype(jnp.int32)

    full, more = divmod(k, lanes)
    terms = [term(lax.slice(x, (0, i * lanes), (1, (i + 1) * lanes)), i * lanes) for i in range(full)]
    if more:  # the last term begins earlier; its first elements are multiplied by zeros
        last = lax.pad(lax.slice(x, (0, k - more), (1, k)), np.int16(0), [(0, 0, 0), (lanes - more, 0, 0)])
        terms.append(term(last, k - lanes))
    return lax.reduce_sum(sum(terms[1:], terms[0]), (1,))[None]


def _in_floats(a: jax.Array, zero: jax.Array, rows: jax.Array, _: jax.Array) -> jax.Array:
    """Multiplies by a small matrix in float32, in which the sums are exact."""
    numbers = a.astype(jnp.float32) - zero.astype(jnp.float32)
    return lax.dot_general(numbers, rows.astype(jnp.float32), (((1,), (1,)), ((), ()))).astype(jnp.int32)


def _turned_mixed(a: jax.Array, zero: jax.Array, rows: jax.Array, sums: jax.Array) -> jax.Array:
    rows, a = lax.optimization_barrier((rows, a))
    return _turned_int8(a, zero, rows, sums, jnp.uint8)


def _select_turned(target: Target, a: Any, *_: Any) -> Any:
    m, k = a.shape
    if target.platform == "cpu" and isinstance(k, int):
        if k <= (_FEWEST_TERMS - 1) * _LANES:
            return _in_floats
        if m == 1 and k <= _LONGEST:
            return _in_lanes
    return _turned_mixed if data_type(target) == jnp.uint8 else None


_turned_product = NamedCall("turned_product", _turned_int8, _select_turned)
