"""Matrix products, Einstein sums and determinants; 16-bit floats are accumulated in float32."""

__all__ = ["det", "einsum", "gemm", "matmul"]

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type, as_written, canonical, floating, is_float
from jaxops.errors import ArgumentError, SignatureError
from jaxops.kernels.matmul import dot
from jaxops.ops.common.elementwise import broadcast_to, traced_operands
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.math import linear_algebra as sizes_of
from jaxops.signature import Bias, Traits, Weight, operator
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="linear", grows=True)


def gemm(
    a: Weight[ArrayLike],
    b: Weight[ArrayLike],
    c: Bias[ArrayLike] | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> jax.Array:
    """alpha · a' · b' + beta · c, where a' and b' are the matrices, transposed if asked.

    a: (M, K), or (K, M) with transA. b: (K, N), or (N, K) with transB. c: broadcasts to (M, N); None is 0.
    Numbers of one dtype. Returns that dtype, (M, N). Integer results are exact, truncated toward zero.
    Raises ShapeError when the shapes do not fit, DTypeError when the dtypes differ, ArgumentError when alpha or
    beta cannot multiply integers of this type exactly.
    Source: ONNX Gemm, opsets 7–13.

    >>> gemm(jnp.ones((2, 3)), jnp.ones((4, 3)), jnp.array([1.0]), alpha=0.5, transB=1).shape
    (2, 4)
    """
    arrays = traced_operands((a, b) if c is None else (a, b, c), "numbers")
    return _gemm(arrays, float(alpha), float(beta), flag("transA", transA), flag("transB", transB))


@jit_if_concrete
def _gemm(arrays: tuple[jax.Array, ...], alpha: float, beta: float, trans_a: bool, trans_b: bool) -> jax.Array:
    a, b = arrays[:2]
    c = arrays[2] if len(arrays) == 3 else None
    sizes = sizes_of.gemm(a.shape, b.shape, None if c is None else c.shape, trans_a, trans_b)
    contract = ((0 if trans_a else 1,), (1 if trans_b else 0,))
    wide = accumulation_type(a.dtype)
    if not is_float(a.dtype) and not (alpha.is_integer() and beta.is_integer()):
        wide = a.dtype if a.dtype == canonical(np.uint64) else canonical(np.int64)
        product = dot.dot(a.astype(wide), b.astype(wide), (contract, ((), ())), wide)
        return assert_sizes(_whole_sum(product, alpha, c, beta).astype(a.dtype), sizes, a.dtype)
    product = _with_addend(dot.dot(a, b, (contract, ((), ())), wide), alpha, c, beta)
    return assert_sizes(product.astype(a.dtype), sizes, a.dtype)


def _with_addend(product: jax.Array, alpha: float, c: jax.Array | None, beta: float) -> jax.Array:
    product = scaled(product, alpha)
    if c is not None and beta != 0:
        product = product + scaled(broadcast_to(c.astype(product.dtype), product.shape), beta)
    return product


def _whole_sum(x: jax.Array, alpha: float, y: jax.Array | None, beta: float) -> jax.Array:
    """alpha · x + beta · y of integers, truncated toward zero.

    With alpha = p / d and beta = q / d it adds p · (x // d), q · (y // d) and the remainders, which must fit the type.
    """
    p, q = as_written("alpha", alpha), as_written("beta", 0 if y is None else beta)
    d = math.lcm(p.denominator, q.denominator)
    p, q = int(p * d), int(q * d)
    if (abs(p) + abs(q)) * d > jnp.iinfo(x.dtype).max or (jnp.iinfo(x.dtype).min == 0 and min(p, q) < 0):
        raise ArgumentError(
            f"`alpha` {alpha} and `beta` {beta} cannot be applied exactly to integers in {x.dtype.name}; give "
            f"fractions like 0.5, or convert the operands with jaxops.cast"
        )
    truncated, remainder = x // d * p, x % d * p
    if y is not None:
        y = broadcast_to(y.astype(x.dtype), x.shape)
        truncated, remainder = truncated + y // d * q, remainder + y % d * q
    quotient, remainder = truncated + remainder // d, remainder % d
    return quotient + ((quotient < 0) & (remainder > 0)).astype(x.dtype)


def scaled(x: jax.Array, factor: float) -> jax.Array:
    """x · factor, in the type of x."""
    if factor == 1:
        return x
    return x * (factor if is_float(x.dtype) else int(factor))


def matmul(a: Weight[ArrayLike], b: Weight[ArrayLike]) -> jax.Array:
    """The matrix product; batch axes broadcast. A 1-D operand is a row (a) or a column (b).

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). Numbers of one dtype. Returns that dtype, (…, M, N); a 1-D a has no M,
    a 1-D b no N.
    Raises ShapeError when the shapes do not fit, DTypeError when the dtypes differ.
    Source: ONNX MatMul, opsets 1–13.

    >>> matmul(jnp.ones((5, 1, 2, 3)), jnp.ones((4, 3, 6))).shape
    (5, 4, 2, 6)
    """
    return _matmul(traced_operands((a, b), "numbers"))


@jit_if_concrete
def _matmul(arrays: tuple[jax.Array, ...]) -> jax.Array:
    a, b = arrays
    sizes = sizes_of.matmul(a.shape, b.shape)
    product = dot.matrix_product(a, b, accumulation_type(a.dtype))
    return assert_sizes(product.astype(a.dtype), sizes, a.dtype)


@operator(kind="")
def einsum(inputs: Sequence[ArrayLike], *, equation: str) -> jax.Array:
    """The Einstein sum of the operands: `ij,jk->ik` is the matrix product.

    inputs: numbers of one dtype. Returns that dtype, of the sizes that the output term names.
    equation: one term per operand, of letters and at most one '...' (axes that broadcast); letters missing after '->'
    are summed over. Without '->', the output is '...' and then the letters that occur once, in ASCII order.
    Raises ArgumentError for a malformed equation, ShapeError when it does not fit the operands, DTypeError when their
    dtypes differ, SignatureError without operands.
    Source: ONNX Einsum, opsets 12–28.

    >>> einsum([jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))], equation="bij, bjk -> bik").shape
    (2, 3, 5)
    """
    if not inputs:
        raise SignatureError("there are no operands; at least one is needed")
    return _einsum(traced_operands(inputs, "numbers"), equation)


def _einsum_of_any(*inputs: jax.Array, equation: str, dtype: np.dtype) -> jax.Array:
    # jnp.einsum mixes the operands with float32 intermediate sums.
    with jax.numpy_dtype_promotion("standard"):
        return jnp.einsum(equation, *inputs, preferred_element_type=dtype)


@jit_if_concrete
def _einsum(inputs: tuple[jax.Array, ...], equation: str) -> jax.Array:
    explicit, sizes = sizes_of.einsum(equation, [x.shape for x in inputs])
    options = (("equation", explicit), ("dtype", accumulation_type(inputs[0].dtype)))
    if len(inputs) == 2:
        total = dot.bilinear(dot.Multiply(_einsum_of_any, options), *inputs, rows=inputs[0].size)
    else:
        total = _einsum_of_any(*inputs, equation=explicit, dtype=accumulation_type(inputs[0].dtype))
    return assert_sizes(total.astype(inputs[0].dtype), sizes, inputs[0].dtype)


@operator(kind="", precision="exact")
def det(x: ArrayLike) -> jax.Array:
    """The determinant of square matrices.

    x: (…, M, M), floating-point. Returns the same dtype, (…).
    Raises ShapeError when the last two sizes differ.
    Source: ONNX Det, opsets 11–22.

    >>> det(jnp.array([[2.0, 0.0], [0.0, 3.0]]))
    Array(6., dtype=float32)
    """
    return _det(*floating(x=x))


@jit_if_concrete
def _det(x: jax.Array) -> jax.Array:
    sizes = sizes_of.square(x.shape)
    determinant = jnp.linalg.det(x.astype(accumulation_type(x.dtype)))
    return assert_sizes(determinant.astype(x.dtype), sizes, x.dtype)
