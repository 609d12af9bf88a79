"""Matrix products; products of 16-bit floats are accumulated in float32."""

__all__ = ["fused_matmul"]

import jax
import jax.numpy as jnp  # noqa: F401 - the doctest uses it
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type
from jaxops.errors import ShapeError, shape_text
from jaxops.kernels.matmul import dot
from jaxops.ops.common.elementwise import traced_operands
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.math.linear_algebra import scaled
from jaxops.shapes.math.linear_algebra import matmul as product_sizes
from jaxops.static import Array, Sizes, jit_if_concrete


def fused_matmul(
    a: Array,
    b: Array,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> jax.Array:
    """alpha · a' · b', where a' and b' are the operands, transposed if asked; batch axes broadcast.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). Floats of one dtype. Returns that dtype, (…, M, N); a 1-D a has no M,
    a 1-D b no N.
    transA, transB: 1 swaps the last two axes of the operand, if it has two. transBatchA, transBatchB: 1 moves the first
    axis behind the batch axes, so a is (M, …, K), or (K, …, M) with transA; the operand needs at least 3 axes.
    Raises ShapeError when the shapes do not fit, DTypeError when the dtypes differ or are not floating-point,
    ArgumentError for a flag other than 0 and 1.
    Source: com.microsoft FusedMatMul, opset 1, as onnxruntime defines it.

    >>> fused_matmul(jnp.ones((3, 5, 2)), jnp.ones((5, 4, 2)), alpha=0.5, transBatchA=1, transB=1).shape
    (5, 3, 4)
    """
    op = "fused_matmul"
    arrays = traced_operands(op, (a, b), "floating-point")
    swapped = (flag(op, "transA", transA), flag(op, "transB", transB))
    batched = (flag(op, "transBatchA", transBatchA), flag(op, "transBatchB", transBatchB))
    return _fused_matmul(arrays, float(alpha), swapped, batched)


def _axis_order(op: str, operand: str, sizes: Sizes, transposed: bool, batch_transposed: bool) -> tuple[int, ...]:
    """The axes as (batch …, rows, columns).

    batch_transposed: first moves the first axis behind the batch. transposed: then swaps the last two axes.
    A single axis stays in place.
    """
    axes = list(range(len(sizes)))
    if batch_transposed:
        if len(sizes) < 3:
            raise ShapeError(
                f"{op}: `{operand}` of {shape_text(sizes)} has no batch axes to transpose; it needs at least 3 axes"
            )
        axes.insert(-1, axes.pop(0))
    if transposed and len(sizes) > 1:
        axes[-2:] = reversed(axes[-2:])
    return tuple(axes)


@jit_if_concrete
def _fused_matmul(
    arrays: tuple[jax.Array, ...], alpha: float, swapped: tuple[bool, bool], batched: tuple[bool, bool]
) -> jax.Array:
    a, b = (
        lax.transpose(x, _axis_order("fused_matmul", name, x.shape, swap, batch))
        for name, x, swap, batch in zip("ab", arrays, swapped, batched, strict=True)
    )
    sizes = product_sizes(a.shape, b.shape, "fused_matmul")
    product = dot.matrix_product(a, b, accumulation_type(a.dtype))
    product = scaled(product, alpha)
    return assert_sizes("fused_matmul", product.astype(a.dtype), sizes, a.dtype)
