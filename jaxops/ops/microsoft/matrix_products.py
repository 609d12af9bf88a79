"""Matrix products, alone or fused with an activation, inverses and distances; 16-bit floats are computed in float32."""

__all__ = [
    "cdist",
    "fused_gemm",
    "fused_matmul",
    "fused_matmul_activation",
    "gemm_fast_gelu",
    "inverse",
    "sparse_to_dense_matmul",
    "transpose_matmul",
]

from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import flag, one_of
from jaxops.dtypes import accumulation_type, as_traced, floating, is_float
from jaxops.errors import ShapeError, shape_text
from jaxops.kernels.matmul import dot
from jaxops.kernels.xla_workarounds import root_of_squares
from jaxops.ops.common.elementwise import traced_operands
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.math.linear_algebra import gemm, matmul, scaled
from jaxops.ops.microsoft.fused_activations import named
from jaxops.ops.microsoft.gelu_variants import fast_gelu
from jaxops.shapes.arithmetic import sizes_fit
from jaxops.shapes.math.linear_algebra import matmul as product_sizes, square
from jaxops.signature import Bias, Traits, Weight, operator
from jaxops.static import ArrayLike, Sizes, jit_if_concrete

TRAITS = Traits(kind="linear", grows=True)

Metric = Literal["sqeuclidean", "euclidean"]


def fused_gemm(
    a: Weight[ArrayLike],
    b: Weight[ArrayLike],
    c: Bias[ArrayLike] | None = None,
    *,
    activation: str | None = None,
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> jax.Array:
    """Returns activation(alpha · a' · b' + beta · c), with the operands of `gemm`.

    activation: the name of a standard operator such as 'Relu' or 'LeakyRelu', or 'Silu'; None or '': none.
    activation_alpha, activation_beta, activation_gamma: its alpha, beta and gamma; None: the standard's default.
    Raises what `gemm` raises, ArgumentError for an unknown activation. Source: com.microsoft FusedGemm, opset 1.

    >>> fused_gemm(jnp.ones((1, 2)), -jnp.ones((2, 1)), activation="LeakyRelu", activation_alpha=0.5).tolist()
    [[-1.0]]
    """
    parameters = {"alpha": activation_alpha, "beta": activation_beta, "gamma": activation_gamma}
    last = named(activation, **parameters)
    return last(gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB))


def fused_matmul(
    a: Weight[ArrayLike],
    b: Weight[ArrayLike],
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> jax.Array:
    """Returns alpha · a' · b', where a' and b' are a and b or their transposes; batch axes broadcast.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). Floats of one dtype. Returns (…, M, N), same dtype; without M if a is
    1-D, without N if b is.
    transA, transB: 1 swaps the last two axes of the operand, if it has two. transBatchA, transBatchB: 1 moves the first
    axis after the batch axes, so a is (M, …, K), or (K, …, M) with transA; the operand needs at least 3 axes.
    Raises ShapeError when the shapes do not fit, DTypeError when the dtypes differ or are not floating-point,
    ArgumentError for a flag other than 0 and 1.
    Source: com.microsoft FusedMatMul, opset 1, as onnxruntime defines it.

    >>> fused_matmul(jnp.ones((3, 5, 2)), jnp.ones((5, 4, 2)), alpha=0.5, transBatchA=1, transB=1).shape
    (5, 3, 4)
    """
    arrays = traced_operands((a, b), "floating-point")
    swapped = (flag("transA", transA), flag("transB", transB))
    batched = (flag("transBatchA", transBatchA), flag("transBatchB", transBatchB))
    return _fused_matmul(arrays, float(alpha), swapped, batched)


def _axis_order(operand: str, sizes: Sizes, transposed: bool, batch_transposed: bool) -> tuple[int, ...]:
    """Returns the axes in the order (batch …, rows, columns).

    batch_transposed: first moves the first axis after the batch. transposed: then swaps the last two axes.
    A single axis stays in place.
    """
    axes = list(range(len(sizes)))
    if batch_transposed:
        if len(sizes) < 3:
            raise ShapeError(
                f"`{operand}` of {shape_text(sizes)} has no batch axes to transpose; it needs at least 3 axes"
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
        lax.transpose(x, _axis_order(name, x.shape, swap, batch))
        for name, x, swap, batch in zip("ab", arrays, swapped, batched, strict=True)
    )
    sizes = product_sizes(a.shape, b.shape)
    product = dot.matrix_product(a, b, accumulation_type(a.dtype))
    product = scaled(product, alpha)
    return assert_sizes(product.astype(a.dtype), sizes, a.dtype)


def fused_matmul_activation(
    a: Weight[ArrayLike],
    b: Weight[ArrayLike],
    *,
    activation: str,
    activation_alpha: float | None = None,
    activation_axis: int | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> jax.Array:
    """Returns an activation of `fused_matmul`.

    activation and its attributes are as in `fused_gemm`; 'Softmax', 'LogSoftmax' and 'Hardmax' take `activation_axis`.
    Raises what `fused_matmul` raises, ArgumentError for an unknown activation.
    Source: com.microsoft FusedMatMulActivation, opset 1.

    >>> fused_matmul_activation(jnp.ones((1, 2)), -jnp.ones((2, 1)), activation="Relu").tolist()
    [[0.0]]
    """
    last = named(
        activation,
        alpha=activation_alpha,
        axis=activation_axis,
        beta=activation_beta,
        gamma=activation_gamma,
    )
    return last(
        fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB, transBatchA=transBatchA, transBatchB=transBatchB)
    )


def transpose_matmul(
    a: Weight[ArrayLike], b: Weight[ArrayLike], *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> jax.Array:
    """Returns alpha · a' · b', as `fused_matmul` does; this older operator does not transpose batch axes.

    Raises what `fused_matmul` raises. Source: com.microsoft TransposeMatMul, opset 1.

    >>> transpose_matmul(jnp.ones((2, 5, 3)), jnp.ones((2, 5, 4)), transA=1).shape
    (2, 3, 4)
    """
    return fused_matmul(a, b, alpha=alpha, transA=transA, transB=transB)


def gemm_fast_gelu(x: ArrayLike, w: Weight[ArrayLike], bias: Bias[ArrayLike] | None = None) -> jax.Array:
    """Returns fast_gelu(x · w + bias).

    x: (…, K), floating-point. w: (K, N). bias: (N,). One dtype. Returns (…, N), same dtype.
    Raises ShapeError when the shapes do not fit, DTypeError. Source: com.microsoft GemmFastGelu, opset 1.

    >>> gemm_fast_gelu(jnp.ones((1, 100)), jnp.ones((100, 1))).tolist()
    [[100.0]]
    """
    return fast_gelu(fused_matmul(x, w), bias)


@operator(kind="")
def inverse(x: ArrayLike) -> jax.Array:
    """Returns the inverses of square matrices.

    x: (…, M, M), floating-point. Returns an array like x; a singular matrix gives infinities or NaN.
    Raises ShapeError when the last two sizes differ, DTypeError. Source: com.microsoft Inverse, opset 1.

    >>> inverse(jnp.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _inverse(*floating(x=x))


@jit_if_concrete
def _inverse(x: jax.Array) -> jax.Array:
    square(x.shape)
    return jnp.linalg.inv(x.astype(accumulation_type(x.dtype))).astype(x.dtype)


@operator(kind="")
def cdist(a: ArrayLike, b: ArrayLike, *, metric: Metric = "sqeuclidean") -> jax.Array:
    """Returns the distance of each row of a to each row of b.

    a: (M, C), floating-point. b: (K, C), of a's dtype. Returns (M, K), same dtype.
    metric: 'sqeuclidean', the sum of squared differences, or 'euclidean', its root, whose derivative is 0 at 0.
    onnxruntime has no other metric either.
    Raises ShapeError when the shapes do not fit, DTypeError, ArgumentError. Source: com.microsoft CDist, opset 1.

    >>> cdist(jnp.array([[0.0, 0.0]]), jnp.array([[3.0, 4.0]]), metric="euclidean").tolist()
    [[5.0]]
    """
    one_of("metric", metric, Metric)
    return _cdist(traced_operands((a, b), "floating-point"), metric == "euclidean")


def _distance_sizes(a: Sizes, b: Sizes) -> Sizes:
    """Returns (M, K) for rows (M, C) and (K, C)."""
    problem = f"a of {shape_text(a)} and b of {shape_text(b)} must be matrices with the same number of columns"
    if len(a) != 2 or not sizes_fit(problem, b, (None, a[1])):
        raise ShapeError(problem)
    return a[0], b[0]


@jit_if_concrete
def _cdist(operands: tuple[jax.Array, ...], root: bool) -> jax.Array:
    a, b = (v.astype(accumulation_type(v.dtype)) for v in operands)
    _distance_sizes(a.shape, b.shape)
    # |a|² - 2ab + |b|² would lose precision for close rows; XLA fuses the difference into the sum.
    total = jnp.sum(lax.square(a[:, None] - b[None]), -1)
    return (root_of_squares(total) if root else total).astype(operands[0].dtype)


def _check_matrices(**shapes: Sizes) -> None:
    """Raises ShapeError unless each of `shapes` has two axes."""
    for name, sizes in shapes.items():
        if len(sizes) != 2:
            raise ShapeError(f"`{name}` must be a matrix, got {shape_text(sizes)}")


def sparse_to_dense_matmul(
    a: ArrayLike, b: Weight[ArrayLike], *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> jax.Array:
    """Returns alpha · a' · b', where a is given as a dense matrix, although files have a sparse one.

    a: (M, K), or (K, M) with transA. b: (K, N), or (N, K) with transB. Numbers of one dtype. Returns (M, N), same
    dtype.
    Raises ShapeError when the shapes do not fit, DTypeError, ArgumentError.
    Source: com.microsoft SparseToDenseMatMul, opset 1.

    >>> sparse_to_dense_matmul(jnp.eye(2), jnp.ones((3, 2)), alpha=2.0, transB=1).tolist()
    [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]
    """
    arrays = traced_operands((a, b), "numbers")
    turned = flag("transA", transA), flag("transB", transB)
    _check_matrices(a=arrays[0].shape, b=arrays[1].shape)
    left, right = (x.T if turn else x for x, turn in zip(arrays, turned, strict=True))
    if is_float(left.dtype):
        return fused_matmul(left, right, alpha=alpha)
    return scaled(as_traced(matmul(left, right)), alpha)
