"""Products of quantized matrices: integers are multiplied as integers, and their sums wrap around in 32 bits only."""

__all__ = ["matmul_integer", "qlinear_matmul"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.matmul.int8 import matrix_product, without_zero
from jaxops.ops.common.quantized_numbers import BYTES, FLOAT8, quantized, requantized, scale, with_zero_point
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.math import linear_algebra as sizes_of, quantized_products as sizes_of_scales
from jaxops.signature import Traits, Weight
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="linear", precision="exact")


def matmul_integer(
    a: Weight[ArrayLike],
    b: Weight[ArrayLike],
    a_zero_point: ArrayLike | None = None,
    b_zero_point: ArrayLike | None = None,
) -> jax.Array:
    """(a - a_zero_point) · (b - b_zero_point), as `matmul` of integers.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). int8 or uint8, each. a_zero_point: a scalar, (M,) or (…, M, 1), in the
    type of a. b_zero_point: a scalar, (N,) or (…, 1, N), in the type of b. 0 when None. Returns int32.
    Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: ONNX MatMulInteger, opset 10.

    >>> matmul_integer(jnp.array([[255, 2]], jnp.uint8), jnp.array([[-3], [1]], jnp.int8), jnp.uint8(1)).tolist()
    [[-761]]
    """
    left, left_zero = with_zero_point("a", a, a_zero_point)
    right, right_zero = with_zero_point("b", b, b_zero_point)
    return quantized_product((left, right, left_zero, right_zero))


@jit_if_concrete
def quantized_product(operands: tuple[Any, ...]) -> jax.Array:
    """The matrix product (a - a_zero) · (b - b_zero): int32 for integers, float32 for 8-bit floats.

    operands: a, b, and their zero points; None for a zero point of 0.
    """
    a, b, a_zero, b_zero = operands
    sizes = sizes_of.matmul(a.shape, b.shape)
    if a_zero is not None:
        a_zero = a_zero.reshape(sizes_of_scales.of_rows("a_zero_point", a.shape, a_zero.shape))
    if b_zero is not None:
        b_zero = b_zero.reshape(sizes_of_scales.of_columns("b_zero_point", b.shape, b_zero.shape))
    integers = a.dtype.name in BYTES and b.dtype.name in BYTES
    if integers:
        y = matrix_product(a, b, a_zero, b_zero)
    else:
        left, right = without_zero(a, a_zero, jnp.float32), without_zero(b, b_zero, jnp.float32)
        y = jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
    return assert_sizes(y, sizes, np.int32 if integers else np.float32)


def qlinear_matmul(
    a: Weight[ArrayLike],
    a_scale: ArrayLike,
    a_zero_point: ArrayLike,
    b: Weight[ArrayLike],
    b_scale: ArrayLike,
    b_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
) -> jax.Array:
    """The product of the dequantized matrices a and b, quantized: round(product / y_scale) + y_zero_point.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). int8, uint8 or an 8-bit float, each. a_scale, a_zero_point: a scalar,
    (M,) or (…, M, 1), the zero point in the type of a. b_scale, b_zero_point: a scalar, (N,) or (…, 1, N).
    y_scale, y_zero_point: a scalar. Scales are floats of 16 bits or more.
    Returns: the type of y_zero_point, rounded half to even and saturated. Integers have an exact product, which is
    multiplied by a_scale · b_scale / y_scale in float32, as in onnxruntime; the standard leaves this precision open.
    Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: ONNX QLinearMatMul, opsets 10–21.

    >>> a, b, one = jnp.array([[3, 4]], jnp.uint8), jnp.array([[9], [2]], jnp.int8), jnp.float32(1)
    >>> qlinear_matmul(a, 0.5, jnp.uint8(1), b, one, jnp.int8(0), one, jnp.int8(-2)).tolist()
    [[10]]
    """
    allowed = (*BYTES, *FLOAT8)
    left, left_zero = with_zero_point("a", a, a_zero_point, allowed)
    right, right_zero = with_zero_point("b", b, b_zero_point, allowed)
    zeros = left_zero, right_zero, quantized("y_zero_point", y_zero_point, allowed)
    scales = scale("a_scale", a_scale), scale("b_scale", b_scale), scale("y_scale", y_scale)
    return _qlinear_matmul((left, right, *zeros, *scales))


@jit_if_concrete
def _qlinear_matmul(operands: tuple[jax.Array, ...]) -> jax.Array:
    a, b, a_zero, b_zero, y_zero, a_by, b_by, y_by = operands
    product = quantized_product((a, b, a_zero, b_zero))
    rows = a_by.reshape(sizes_of_scales.of_rows("a_scale", a.shape, a_by.shape))
    columns = b_by.reshape(sizes_of_scales.of_columns("b_scale", b.shape, b_by.shape))
    sizes_of_scales.single("y_scale", y_by.shape)
    sizes_of_scales.single("y_zero_point", y_zero.shape)
    # The product lacks an axis for each 1-D operand, so the scales of the other operand lose that axis, too.
    if min(a.ndim, b.ndim) == 1:
        rows, columns = _without_axis(rows, -1, b.ndim == 1), _without_axis(columns, -2, a.ndim == 1)
    return requantized(product, rows, columns, y_by, y_zero)


def _without_axis(x: jax.Array, axis: int, drop: bool) -> jax.Array:
    return lax.squeeze(x, (axis % x.ndim,)) if drop and x.ndim > 1 else x
