"""Float32 matrix products with the precision of `jax.default_matmul_precision`, on a CPU too.

XLA:CPU multiplies in float32, whatever the precision. Some processors (AMX, AVX512-BF16 of AMD) are two to three times
as fast for a bfloat16 product. The error of an element is then about 4e-3 of the scale of its terms, with float32 1e-6.
Three bfloat16 products in place of one, which the precision "high" allows, have 2e-5. But they took longer than float32
on AMX, and twice the memory of the weights, so "high" is float32 here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels import kept_scores
from jaxops.kernels.matmul.narrow_product import narrow_product, one_of_two
from jaxops.kernels.matmul.plain_derivatives import with_derivatives_of
from jaxops.kernels.matmul.vector import column_product
from jaxops.kernels.matmul.wide_integers import integer_product
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# JAX's names of the precisions that allow bfloat16 products.
_BFLOAT16 = {"bfloat16", "BF16_BF16_F32"}
# The name of the primitive for a product that may be computed in bfloat16.
BFLOAT16_PRODUCT = "bfloat16_product"
# The features of a processor (as Linux names them) with which bfloat16 products are faster than float32: AMX, and
# AVX512-BF16 if it adds twice as many terms per cycle as float32. AMD's does. On another processor, whose maker was not
# recorded, bfloat16 was slower.
_AMX = {"amx_bf16"}
_FAST = _AMX, {"avx512_bf16", "AuthenticAMD"}
# With at least this many rows (the vocabulary of a language model, say), weights (N, K) stay as they are: the file has
# this table for the embedding, so no second one is made. For up to `_MOST_OF_SECOND` rows they go first.
_MANY_WORDS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 40_000
# Fewer rows are multiplied in float32: for one row, the time is that of reading the matrix, and in bfloat16 it is
# longer.
_FEW_ROWS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 8
# See `_reads_rows`.
_TURNED_ROWS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 100
# Up to so many rows, weights go first (see `_goes_first`). XLA:CPU multiplies tiles of 16 rows, so prepared weights go
# first only if the rows are few or fill the last tile.
_MOST_OF_SECOND: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 64
_FEW_OF_SECOND: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 8
_TILE = 16
_FEWEST_WEIGHTS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 18
# There are at least this many times as many columns as rows.
_WIDE: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 4
# Weights of more bytes are packed slowly; the bytes of a panel of them, and for how many rows there are panels.
_LARGE: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 32 << 20
_PANEL: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 4 << 20
_MOST_PANEL_ROWS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 95
_FEWEST_OF_COLUMNS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 49


def in_bfloat16(target: Target, a: Any, b: Any, rows: Any) -> bool:
    """Returns True if a target multiplies these operands in bfloat16 at the current precision.

    rows: the number of rows of `a`.
    """
    return _may_be_bfloat16(a, b, rows) and _is_fast(target)


def has_amx(target: Target) -> bool:
    """Returns True if a processor has AMX, which multiplies bfloat16 several times as fast as float32."""
    return target.features >= _AMX


def _is_fast(target: Target) -> bool:
    return target.platform == "cpu" and any(features <= target.features for features in _FAST)


def _may_be_bfloat16(a: Any, b: Any, rows: Any) -> bool:
    is_asked_for = str(cast(Any, jax.config).jax_default_matmul_precision) in _BFLOAT16
    is_few = isinstance(rows, int) and rows < _FEW_ROWS
    return is_asked_for and a.dtype == b.dtype == jnp.float32 and not is_few


@dataclass(frozen=True)
class Multiply:
    """The function `fn(a, b, **keywords)` as a hashable object; equal for equal `fn` and keywords."""

    fn: Callable[..., Any]
    keywords: tuple[tuple[str, Any], ...]

    def __call__(self, a: Any, b: Any) -> Any:
        return self.fn(a, b, **dict(self.keywords))


def dot(a: Any, b: Any, dimensions: Any, dtype: Any) -> Any:
    """Returns `lax.dot_general(a, b, dimensions)`, summed in `dtype`, at the current precision."""
    ((over_a, _), (batch, _)) = dimensions
    rest = [d for axis, d in enumerate(a.shape) if axis not in (*over_a, *batch)]
    rows = math.prod(rest)
    # XLA:CPU of JAX 0.10 transposes weights (N, K) at each call for a row of more axes.
    if len(rest) > 1 and _is_row(rows) and b.ndim == 2 and len(over_a) == 1:
        columns = dot(lax.reshape(a, (1, a.size)), b, (((1,), dimensions[0][1]), ((), ())), dtype)
        return lax.reshape(columns, (*rest, columns.shape[1]))
    if b.ndim == 2 and not batch and len(over_a) == 1 and _is_narrow(a, b, rows):
        return narrow_product(jnp.moveaxis(a, over_a[0], -1), b, dimensions[0][1][0], np.dtype(dtype))
    multiply = Multiply(
        lax.dot_general, (("dimension_numbers", dimensions), ("preferred_element_type", np.dtype(dtype)))
    )
    return bilinear(multiply, a, b, rows)


def _is_narrow(a: Any, b: Any, rows: Any) -> bool:
    """Returns True if XLA:CPU may convert `b` to float32 for this product."""
    return a.dtype == b.dtype and (b.dtype == jnp.float16 or (b.dtype == jnp.bfloat16 and _is_row(rows)))


def dot_form(target: Target, operands: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """Returns a function of both operands that is faster on a CPU than `lax.dot_general`; None if there is none.

    It makes the weights the first operand, transposes them, which is done once if they are prepared, multiplies large
    ones in panels, or computes a single row of bfloat16 as two.

    operands, params: the types of the operands and the parameters of a `dot_general`.
    """
    a, b = operands
    (over_a, over_b), (batch, _) = params["dimension_numbers"]
    if not (target.platform == "cpu" and target.specialized and b.ndim == 2 and len(over_b) == 1 and not batch):
        return None
    rest = [d for axis, d in enumerate(a.shape) if axis not in over_a]
    if not all(isinstance(d, int) for d in (*rest, *b.shape)):
        return None
    rows, (over,) = math.prod(rest), over_b
    is_usual = a.ndim == 2 or over_a == (a.ndim - 1,)
    first = is_usual and _goes_first(target, b, over, rows)
    turns = over == 0 if first else target.prepared and (_reads_columns(b) if over == 0 else _reads_rows(b, rows))
    over = 1 - over if turns else over
    # For one row, XLA converts all bfloat16 weights to float32; for two rows it does not.
    in_two = b.dtype == jnp.bfloat16 and _is_row(rows)
    in_panels = not first and _in_panels(target, b, over, rows)
    if not (turns or first or in_two or in_panels):
        return None
    options = {name: params[name] for name in ("precision", "preferred_element_type")}

    def multiply(a: Any, b: Any) -> Any:
        if turns:
            b = lax.transpose(b, (1, 0))
        if first:
            return _weights_first(a, b, over_a, options)
        if in_panels:
            return _panels(a, b, over_a, options)
        if not in_two:
            return lax.dot_general(a, b, ((over_a, (over,)), ((), ())), **options)
        return one_of_two(a, b, over, **options)

    return multiply


def _is_row(rows: Any) -> bool:
    return isinstance(rows, int) and rows == 1


def _goes_first(target: Target, b: Any, over: int, rows: int) -> bool:
    """Returns True if a CPU multiplies faster with weights as the first operand: see `_weights_first`.

    over: the axis of `b` that is summed. Weights that are prepared may also be turned to (K, N), which is faster if the
    rows leave a tile half empty, or if the weights stay in a processor's caches.
    """
    if b.dtype not in (jnp.float32, jnp.bfloat16) or rows < 2 or b.shape[1 - over] < _WIDE * rows:
        return False
    if over == 0 and not target.prepared:
        return False
    if _is_packed_slowly(target, b):
        return rows <= _MOST_PANEL_ROWS
    if over == 1 and not (target.prepared and b.shape[0] < _MANY_WORDS):
        return rows <= _MOST_OF_SECOND
    fills = rows <= _FEW_OF_SECOND or rows % _TILE == 0
    return rows <= _MOST_OF_SECOND and fills and b.size >= _FEWEST_WEIGHTS


def _weights_first(a: Any, b: Any, over_a: Sequence[int], options: Mapping[str, Any]) -> Any:
    """Returns a · bᵀ for weights b (N, K), computed as (b · aᵀ)ᵀ.

    XLA:CPU packs the second operand at each call, which takes as long as multiplying a few rows. So the rows are the
    second operand here, and the weights are read as they lie.
    """
    rest = [d for axis, d in enumerate(a.shape) if axis not in over_a]
    rows = lax.reshape(a, (math.prod(rest), b.shape[1])) if a.ndim > 2 else a
    over = over_a[0] if a.ndim == 2 else 1
    y = lax.dot_general(b, rows, (((1,), (over,)), ((), ())), **options)
    # Without the barrier, XLA would swap the operands.
    return lax.reshape(lax.transpose(lax.optimization_barrier(y), (1, 0)), (*rest, b.shape[0]))


def _reads_columns(b: Any) -> bool:
    """Returns True if a CPU multiplies faster with weights (K, N) that are prepared as (N, K)."""
    # As (N, K), bfloat16 and int8 weights need not be packed at each call. float16: see `narrow_product`.
    return b.dtype in (jnp.bfloat16, jnp.int8)


def _reads_rows(b: Any, rows: int) -> bool:
    """Returns True if a CPU multiplies faster with weights (N, K) that are prepared as (K, N).

    YNNPACK packs (K, N) faster. From 100 rows on the gain is a few percent, which is not worth a second copy of many
    more weights.
    """
    return b.dtype == jnp.float32 and 1 < rows < _TURNED_ROWS and b.shape[0] < _MANY_WORDS


def _in_panels(target: Target, b: Any, over: int, rows: int) -> bool:
    """Returns True if a CPU multiplies large weights (K, N) faster panel by panel.

    XLA of JAX 0.10 packs them at each call, from 49 rows on; from 96 rows on it multiplies in another way.
    """
    return over == 0 and _FEWEST_OF_COLUMNS <= rows <= _MOST_PANEL_ROWS and _is_packed_slowly(target, b)


def _is_packed_slowly(target: Target, b: Any) -> bool:
    """Returns True if a packed matrix is larger than the memory that glibc keeps, so that Linux provides new pages at
    each call, which takes time."""
    return target.packs_whole and b.dtype == jnp.float32 and b.size * b.dtype.itemsize > _LARGE


def _panels(a: Any, b: Any, over_a: Sequence[int], options: Mapping[str, Any]) -> Any:
    dimensions, (terms, columns) = ((tuple(over_a), (0,)), ((), ())), b.shape
    width = max(1, _PANEL // (terms * b.dtype.itemsize))
    last = columns // width * width

    def panel(first: Any, size: int, sums: Any) -> Any:
        products = lax.dot_general(a, lax.dynamic_slice_in_dim(b, first, size, 1), dimensions, **options)
        return lax.dynamic_update_slice_in_dim(sums, products, first, -1)

    rest = [d for axis, d in enumerate(a.shape) if axis not in over_a]
    sums = lax.full((*rest, columns), 0, options["preferred_element_type"] or a.dtype)
    sums = lax.fori_loop(0, last // width, lambda i, sums: panel(i * width, width, sums), sums)
    return panel(last, columns - last, sums) if last < columns else sums


def matrix_product(a: Any, b: Any, dtype: Any) -> Any:
    """Returns `jnp.matmul(a, b)`, summed in `dtype`, at the current precision."""
    if b.ndim == 2:
        return dot(a, b, (((a.ndim - 1,), (0,)), ((), ())), dtype)
    multiply = Multiply(jnp.matmul, (("preferred_element_type", np.dtype(dtype)),))
    sums = column_product(a, b, multiply)
    return bilinear(multiply, a, b, a.shape[-2] if a.ndim > 1 else 1) if sums is None else sums


def bilinear(multiply: Multiply, a: Any, b: Any, rows: Any) -> Any:
    """Returns `multiply(a, b)`, a function that is linear in each operand, at the current precision.

    multiply: must return float32 for bfloat16 operands. The derivatives are those of `multiply`. rows: as in
    `in_bfloat16`.
    """
    if _may_be_bfloat16(a, b, rows):
        product = _product(a, b, multiply=multiply)
    elif a.dtype == b.dtype == jnp.int8:
        return _product_of_bytes(a, b, multiply=multiply)
    elif (product := integer_product(a, b, multiply)) is None:
        product = multiply(a, b)
    kept_scores.check(a, b, product)
    return product


def _narrowed(a: Any, b: Any, multiply: Multiply) -> Any:
    def run(a: Any, b: Any) -> Any:
        # The barrier keeps XLA from moving a transpose into the product, as not each such product runs in bfloat16.
        return multiply(*(lax.optimization_barrier(x.astype(jnp.bfloat16)) for x in (a, b)))

    return with_derivatives_of(multiply, run)(a, b)


def _select(target: Target, a: Any, b: Any, multiply: Multiply) -> Any:
    return _narrowed if _is_fast(target) else None


_product = NamedCall(BFLOAT16_PRODUCT, lambda a, b, multiply: multiply(a, b), _select)


def _in_fours_or_wide(a: Any, b: Any, multiply: Multiply) -> Any:
    """Computes a product of int8 so that a CUDA GPU returns the right sums.

    XLA may hand it to Triton, which doubles the sums of small results (JAX 0.11, H200): 8×33×8, or batches of 1×4×4. If
    the number of terms is a multiple of four, XLA hands a product without batch axes to cuBLAS instead. A product with
    batch axes is computed in int32.
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
