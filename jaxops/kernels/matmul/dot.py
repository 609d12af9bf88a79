"""Products of float32 at the precision that `jax.default_matmul_precision` names, on a CPU too.

XLA:CPU multiplies float32 exactly, whatever is asked for. A processor that is fast at products of bfloat16 takes a
third (AMX) or a half (AVX512-BF16 of AMD) of the time for such a product. The error of an element is then about 4e-3
of the scale of its terms, where float32 has 1e-6. Three such products in place of one, which "high" allows, have 2e-5;
they took 1.3 times as long as float32 (AMX, geometric mean of 13 models), and the memory of twice the weights, so
"high" is float32 here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from jaxops.kernels.matmul.vector import column_product
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target

# JAX's names for products of bfloat16.
_BFLOAT16 = {"bfloat16", "BF16_BF16_F32"}
# The features of a processor, as Linux names them, that make them faster than those of float32: AMX; AVX512-BF16 where
# it adds up twice as many terms a cycle as float32. AMD's does (64×768×3072 1.8 → 0.9 ms). On a processor of another
# kind, whose maker was not noted, they took 1.3 → 2.0.
_AMX = {"amx_bf16"}
_FAST = _AMX, {"avx512_bf16", "AuthenticAMD"}
# With this many columns, as of the words of a language model, weights (K, N) are kept as (N, K): the file has them so
# for the embedding, and no second table is made. In JAX 0.11 both are as fast; for 0.10 see `_in_panels`.
_MANY_COLUMNS = 40_000
# A row times a matrix takes as long as to read the matrix: 1×768×3072 0.6 ms, in bfloat16 2.8.
_FEW_ROWS = 8
# See `_reads_rows`.
_TURNED_ROWS = 100
# See `_in_panels`: the bytes of weights, those of a panel, and the most rows, for (K, N) the fewest.
_LARGE, _PANEL, _MOST_PANEL_ROWS, _FEWEST_OF_COLUMNS = 32 << 20, 4 << 20, 95, 49


def in_bfloat16(target: Target, a: Any, b: Any, rows: Any) -> bool:
    """Tells whether a target multiplies these in bfloat16 at the precision asked for.

    rows: how many of them `b` is multiplied by.
    """
    return _may_be_bfloat16(a, b, rows) and _is_fast(target)


def has_amx(target: Target) -> bool:
    """Tells whether a processor has AMX, five times as fast at products of bfloat16 as at those of float32; other
    processors are twice as fast at most."""
    return target.features >= _AMX


def _is_fast(target: Target) -> bool:
    return target.platform == "cpu" and any(features <= target.features for features in _FAST)


def _may_be_bfloat16(a: Any, b: Any, rows: Any) -> bool:
    is_asked_for = str(cast(Any, jax.config).jax_default_matmul_precision) in _BFLOAT16
    is_few = isinstance(rows, int) and rows < _FEW_ROWS
    return is_asked_for and a.dtype == b.dtype == jnp.float32 and not is_few


@dataclass(frozen=True)
class Multiply:
    """`fn(a, b, **keywords)`, equal for equal functions and keywords."""

    fn: Callable[..., Any]
    keywords: tuple[tuple[str, Any], ...]

    def __call__(self, a: Any, b: Any) -> Any:
        return self.fn(a, b, **dict(self.keywords))


def dot(a: Any, b: Any, dimensions: Any, dtype: Any) -> Any:
    """`lax.dot_general(a, b, dimensions)`, summed in `dtype`, at the precision asked for."""
    ((over_a, _), (batch, _)) = dimensions
    rows = math.prod(d for axis, d in enumerate(a.shape) if axis not in (*over_a, *batch))
    multiply = Multiply(
        lax.dot_general, (("dimension_numbers", dimensions), ("preferred_element_type", np.dtype(dtype)))
    )
    return bilinear(multiply, a, b, rows)


def dot_form(target: Target, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """Returns the function of both operands that is faster on a CPU than `lax.dot_general`, for weights that are
    prepared in another layout, or a row of bfloat16; None where there is none.

    operands, params: the types of the operands and the parameters of a `dot_general`.
    """
    a, b = operands
    (over_a, over_b), (batch, _) = params["dimension_numbers"]
    if not (target.platform == "cpu" and target.specialized and b.ndim == 2 and len(over_b) == 1 and not batch):
        return None
    rest = [d for axis, d in enumerate(a.shape) if axis not in over_a]
    rows, (over,) = math.prod(rest), over_b
    turns = target.prepared and (_reads_columns(b, rows) if over == 0 else _reads_rows(b, rows))
    over = 1 - over if turns else over
    # XLA makes float32 of all weights for one row: a perceptron of four layers takes 10.8 ms, with two rows 1.0.
    is_row = b.dtype == jnp.bfloat16 and isinstance(rows, int) and rows == 1
    in_panels = _in_panels(target, b, over, rows)
    if not (turns or is_row or in_panels):
        return None
    options = {name: params[name] for name in ("precision", "preferred_element_type")}

    def multiply(a: Any, b: Any) -> Any:
        if turns:
            b = lax.transpose(b, (1, 0))
        if in_panels:
            return _panels(a, b, over_a, over, options)
        if not is_row:
            return lax.dot_general(a, b, ((over_a, (over,)), ((), ())), **options)
        two = lax.pad(lax.reshape(a, (1, a.size)), a.dtype.type(0), [(0, 1, 0), (0, 0, 0)])
        products = lax.dot_general(two, b, (((1,), (over,)), ((), ())), **options)
        return lax.reshape(lax.slice_in_dim(products, 0, 1), (*rest, products.shape[1]))

    return multiply


def _reads_columns(b: Any, rows: Any) -> bool:
    """Tells whether a CPU multiplies faster with weights (K, N) that are prepared as (N, K)."""
    # Those of bfloat16 and int8 need not be packed at each call then: 64×768×3072 3.1 → 1.8 and 0.7 → 0.5 ms.
    return b.dtype in (jnp.bfloat16, jnp.int8) or (b.dtype == jnp.float32 and b.shape[1] >= _MANY_COLUMNS and rows != 1)


def _reads_rows(b: Any, rows: Any) -> bool:
    """Tells whether a CPU multiplies faster with weights (N, K) that are prepared as (K, N).

    YNNPACK packs (K, N) faster: 49×512×2048 takes 0.79 → 0.66 ms, 49×160×960 0.15 → 0.11. From 100 rows on what is
    gained is a few hundredths, and would cost a second copy of many more weights.
    """
    is_few = isinstance(rows, int) and 1 < rows < _TURNED_ROWS
    return b.dtype == jnp.float32 and is_few


def _in_panels(target: Target, b: Any, over: int, rows: Any) -> bool:
    """Tells whether a CPU multiplies faster with one panel of a large matrix after another.

    XLA of JAX 0.10 packs the matrix at each call, (K, N) from 49 rows on, and takes memory for it from Linux each time,
    if it is larger than what glibc keeps: 64×768×50257 takes 58 → 22 ms, 32 rows of (N, K) 48 → 16, 8×8192×8192
    76 → 18, 32×4096×4096 21 → 8. From 96 rows on it multiplies in another way. Where weights are not prepared, (K, N)
    may be a table of words transposed, which panels would make a second table of at each call.
    """
    is_large = b.dtype == jnp.float32 and b.size * b.dtype.itemsize > _LARGE
    fewest = _FEWEST_OF_COLUMNS if over == 0 else 2
    is_few = isinstance(rows, int) and fewest <= rows <= _MOST_PANEL_ROWS
    return target.packs_whole and is_large and is_few and (target.prepared or over == 1)


def _panels(a: Any, b: Any, over_a: Sequence[int], over: int, options: Mapping[str, Any]) -> Any:
    axis, dimensions = 1 - over, ((tuple(over_a), (over,)), ((), ()))
    columns = b.shape[axis]
    width = max(1, _PANEL // (b.shape[over] * b.dtype.itemsize))
    last = columns // width * width

    def panel(first: Any, size: int, sums: Any) -> Any:
        products = lax.dot_general(a, lax.dynamic_slice_in_dim(b, first, size, axis), dimensions, **options)
        return lax.dynamic_update_slice_in_dim(sums, products, first, -1)

    rest = [d for axis, d in enumerate(a.shape) if axis not in over_a]
    sums = lax.full((*rest, columns), 0, options["preferred_element_type"] or a.dtype)
    sums = lax.fori_loop(0, last // width, lambda i, sums: panel(i * width, width, sums), sums)
    return panel(last, columns - last, sums) if last < columns else sums


def matrix_product(a: Any, b: Any, dtype: Any) -> Any:
    """`jnp.matmul(a, b)`, summed in `dtype`, at the precision asked for."""
    if b.ndim == 2:
        return dot(a, b, (((a.ndim - 1,), (0,)), ((), ())), dtype)
    multiply = Multiply(jnp.matmul, (("preferred_element_type", np.dtype(dtype)),))
    sums = column_product(a, b, multiply)
    return bilinear(multiply, a, b, a.shape[-2] if a.ndim > 1 else 1) if sums is None else sums


def bilinear(multiply: Multiply, a: Any, b: Any, rows: Any) -> Any:
    """`multiply(a, b)`, linear in each operand, at the precision asked for. rows: as in `in_bfloat16`.

    It must give float32 for operands of bfloat16. Derivatives are those of `multiply`.
    """
    if _may_be_bfloat16(a, b, rows):
        return _product(a, b, multiply=multiply)
    return _product_of_bytes(a, b, multiply=multiply) if a.dtype == b.dtype == jnp.int8 else multiply(a, b)


def _narrowed(a: Any, b: Any, multiply: Multiply) -> Any:
    @jax.custom_jvp
    def run(a: Any, b: Any) -> Any:
        # Behind the barrier XLA moves no transpose into the product: not all that it would make runs in bfloat16.
        return multiply(*(lax.optimization_barrier(x.astype(jnp.bfloat16)) for x in (a, b)))

    def rule(values: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        (a, b), (along_a, along_b) = values, tangents
        parts = [] if isinstance(along_a, SymbolicZero) else [multiply(along_a, b)]
        parts += [] if isinstance(along_b, SymbolicZero) else [multiply(a, along_b)]
        return run(a, b), sum(parts[1:], parts[0])

    run.defjvp(rule, symbolic_zeros=True)
    return run(a, b)


def _select(target: Target, a: Any, b: Any, multiply: Multiply) -> Any:
    return _narrowed if _is_fast(target) else None


_product = NamedCall("bfloat16_product", lambda a, b, multiply: multiply(a, b), _select)


def _in_fours_or_wide(a: Any, b: Any, multiply: Multiply) -> Any:
    """A product of int8 that a GPU of CUDA computes right.

    XLA may hand it to Triton, which doubles the sums of small results (JAX 0.11, H200): 8×33×8, or batches of 1×4×4.
    One product without batches goes to cuBLAS instead, where the terms of a sum are a multiple of four.
    """
    (over, (batch, _)) = dict(multiply.keywords).get("dimension_numbers", ((), ((0,), (0,))))
    if batch or len(over[0]) != 1:
        return multiply(a.astype(jnp.int32), b.astype(jnp.int32))
    more = -a.shape[over[0][0]] % 4

    def extended(x: Any, axis: int) -> Any:
        return lax.pad(x, x.dtype.type(0), [(0, more * (k == axis), 0) for k in range(x.ndim)])

    return multiply(*(extended(x, axis) for x, (axis,) in zip((a, b), over, strict=True)))


def _select_product_of_bytes(target: Target, a: Any, b: Any, multiply: Multiply) -> Any:
    return _in_fours_or_wide if target.platform == "gpu" else None


_product_of_bytes = NamedCall("integer_dot", lambda a, b, multiply: multiply(a, b), _select_product_of_bytes)
