"""Products of float32 at the precision that `jax.default_matmul_precision` names, on a CPU too.

XLA:CPU multiplies float32 exactly, whatever is asked for. A processor that multiplies bfloat16 in hardware (AMX) takes
a third of the time for one such product, and about as long as for float32 for three of them. The error of an element is
then about 4e-3 and 2e-5 of the scale of its terms, where float32 has 1e-6.
"""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jaxops.ops.platforms import by_platform
from jaxops.static import PREPARED

# JAX's names → how many products of bfloat16 stand for one of float32.
_PRODUCTS = {
    **dict.fromkeys(("bfloat16", "BF16_BF16_F32"), 1),
    **dict.fromkeys(("high", "tensorfloat32", "BF16_BF16_F32_X3"), 3),
}
# The features of a processor, as Linux names them, that make so many products faster than one of float32.
_FEATURES = {1: {"amx_bf16", "avx512_bf16"}, 3: {"amx_bf16"}}
# From this many columns on, the product with weights kept as columns (N, K) takes 0.6 of the time from two rows on:
# 64×768×50257 74 → 43 ms, 8 rows 32 → 18. For 32,000 columns 64 rows take as long, and 8 rows 20 → 15: not enough for
# a second table of 98 MB, where the file has (K, N).
_MANY_COLUMNS = 40_000
# A row times a matrix takes as long as to read the matrix: 1×768×3072 0.6 ms, in bfloat16 2.8.
_FEW_ROWS = 8


def products(a: Any, b: Any, rows: Any) -> int:
    """How many products of bfloat16 this processor should take for one of these; 0 for one in their own type.

    rows: how many of them `b` is multiplied by.
    """
    asked = _PRODUCTS.get(str(cast(Any, jax.config).jax_default_matmul_precision), 0)
    if not asked or a.dtype != jnp.float32 or b.dtype != jnp.float32 or (isinstance(rows, int) and rows < _FEW_ROWS):
        return 0
    return asked if _FEATURES[asked] & _features() else 0


def dot(a: Any, b: Any, dimensions: Any, dtype: Any) -> Any:
    """`lax.dot_general(a, b, dimensions)`, summed in `dtype`, at the precision asked for."""
    ((over_a, over_b), (batch, _)) = dimensions
    rows = math.prod(d for axis, d in enumerate(a.shape) if axis not in (*over_a, *batch))

    def multiply(a: Any, b: Any) -> Any:
        how = dimensions
        if b.ndim == 2 and tuple(over_b) == (0,) and _reads_columns(b, rows):
            b, how = lax.transpose(b, (1, 0)), ((over_a, (1,)), dimensions[1])
        return lax.dot_general(a, b, how, preferred_element_type=dtype)

    return bilinear(multiply, a, b, rows)


def _reads_columns(b: Any, rows: Any) -> bool:
    """Whether a CPU multiplies faster with weights (K, N) that are prepared as (N, K)."""
    if not PREPARED.get() or jax.default_backend() != "cpu":
        return False
    # Those of bfloat16 and int8 need not be packed at each call then: 64×768×3072 3.1 → 1.8 and 0.7 → 0.5 ms.
    return b.dtype in (jnp.bfloat16, jnp.int8) or (b.dtype == jnp.float32 and b.shape[1] >= _MANY_COLUMNS and rows != 1)


def matrix_product(a: Any, b: Any, dtype: Any) -> Any:
    """`jnp.matmul(a, b)`, summed in `dtype`, at the precision asked for."""
    if b.ndim == 2:
        return dot(a, b, (((a.ndim - 1,), (0,)), ((), ())), dtype)
    multiply = functools.partial(jnp.matmul, preferred_element_type=dtype)
    return bilinear(multiply, a, b, a.shape[-2] if a.ndim > 1 else 1)


def bilinear(multiply: Callable[[Any, Any], Any], a: Any, b: Any, rows: Any) -> Any:
    """`multiply(a, b)`, linear in each operand, at the precision asked for; rows: as in `products`.

    It must give float32 for operands of bfloat16. Derivatives are those of `multiply`.
    """
    count = products(a, b, rows)
    if not count:
        return multiply(a, b)

    @jax.custom_jvp
    def run(a: Any, b: Any) -> Any:
        return by_platform(a, b, cpu=functools.partial(_in_bfloat16, multiply, count), default=multiply)

    def rule(values: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        (a, b), (along_a, along_b) = values, tangents
        parts = [] if isinstance(along_a, SymbolicZero) else [multiply(along_a, b)]
        parts += [] if isinstance(along_b, SymbolicZero) else [multiply(a, along_b)]
        return run(a, b), sum(parts[1:], parts[0])

    run.defjvp(rule, symbolic_zeros=True)
    return run(a, b)


def _in_bfloat16(multiply: Callable[[Any, Any], Any], count: int, a: Any, b: Any) -> Any:
    # Behind the barrier XLA moves no transpose into the product: not all that it would make runs in bfloat16. And it
    # takes `x - high` for 0 without one, as excess precision is allowed.
    high_a, high_b = (lax.optimization_barrier(x.astype(jnp.bfloat16)) for x in (a, b))
    whole = multiply(high_a, high_b)
    if count == 1:
        return whole
    rest = multiply(high_a, _low(b, high_b)) + multiply(_low(a, high_a), high_b)
    # Infinity times a rest of 0 is not a number, but the whole is right.
    return whole + jnp.where(jnp.isnan(rest), 0, rest)


def _low(x: Any, high: Any) -> Any:
    """What bfloat16 leaves of numbers, as bfloat16."""
    return lax.optimization_barrier((x - high.astype(x.dtype)).astype(jnp.bfloat16))


@functools.cache
def _features() -> frozenset[str]:
    """What this processor can do; nothing, where no file says it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())
