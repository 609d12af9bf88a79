"""Products of integer matrices, as integers or scaled to floats. Sums wrap around in 32 bits."""

__all__ = ["dynamic_quantize_matmul", "matmul_integer16", "matmul_integer_to_float", "qgemm"]

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import as_traced, floating
from jaxops.errors import DTypeError, message
from jaxops.kernels.xla_workarounds import quotient
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.common.quantized_numbers import BYTES, quantized, scale, with_zero, with_zero_point
from jaxops.ops.math.quantized_products import quantized_product
from jaxops.ops.quantization.linear_quantization import dynamic_quantize_linear
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.math import linear_algebra as sizes_of, quantized_products as sizes_of_scales
from jaxops.shapes.math.broadcasting import must_broadcast
from jaxops.signature import Bias, Traits, Weight
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(kind="linear", precision="exact")


def matmul_integer16(a: Weight[ArrayLike], b: Weight[ArrayLike]) -> jax.Array:
    """Returns a · b of 16-bit integers, as `matmul`; sums wrap around in 32 bits.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). int16 or uint16, each.
    Returns: uint32 if both are uint16, else int32. Raises ShapeError, DTypeError for other types.
    Source: com.microsoft MatMulInteger16, opset 1, as onnxruntime defines it; its CPU has int16 only.

    >>> matmul_integer16(jnp.int16([[300, 2]]), jnp.int16([[-300], [1]])).tolist()
    [[-89998]]
    """
    allowed = ("int16", "uint16")
    return _matmul_integer16((quantized("a", a, allowed), quantized("b", b, allowed)))


@jit_if_concrete
def _matmul_integer16(operands: tuple[jax.Array, ...]) -> jax.Array:
    a, b = operands
    sizes_of.matmul(a.shape, b.shape)
    wide = jnp.uint32 if a.dtype == b.dtype == jnp.uint16 else jnp.int32
    return jnp.matmul(a.astype(wide), b.astype(wide), preferred_element_type=wide)


def matmul_integer_to_float(
    a: ArrayLike,
    b: Weight[ArrayLike],
    a_scale: ArrayLike,
    b_scale: ArrayLike,
    a_zero_point: ArrayLike | None = None,
    b_zero_point: ArrayLike | None = None,
    bias: Bias[ArrayLike] | None = None,
) -> jax.Array:
    """Returns (a - a_zero_point) · (b - b_zero_point) · a_scale · b_scale + bias; the matrix product is of integers.

    a: (…, M, K) or (K,). b: (…, K, N) or (K,). int8 or uint8, each. a_scale, a_zero_point: a scalar, (M,) or
    (…, M, 1). b_scale, b_zero_point: a scalar, (N,) or (…, 1, N). bias: (N,). Zero points have the type of their
    numbers, and are 0 when None. Scales and bias are floats of one type, that of the result.
    Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: com.microsoft MatMulIntegerToFloat, opset 1, as onnxruntime defines it.

    >>> a, b = jnp.uint8([[3, 4]]), jnp.int8([[9], [2]])
    >>> matmul_integer_to_float(a, b, 0.5, 2.0, jnp.uint8(1), bias=jnp.array([0.25])).tolist()
    [[24.25]]
    """
    left, left_zero = with_zero_point("a", a, a_zero_point)
    right, right_zero = with_zero_point("b", b, b_zero_point)
    scales = scale("a_scale", a_scale), scale("b_scale", b_scale)
    return _scaled_product((left, right, left_zero, right_zero, *scales, *floating(bias=bias)))


@jit_if_concrete
def _scaled_product(operands: tuple[Any, ...]) -> jax.Array:
    a, b, a_zero, b_zero, a_by, b_by, bias = operands
    product = quantized_product((a, b, a_zero, b_zero))
    if min(a.ndim, b.ndim) == 1:
        for name, value in (("a_scale", a_by), ("b_scale", b_by)):
            sizes_of_scales.single(name, value.shape)
        rows, columns = a_by.reshape(()), b_by.reshape(())
    else:
        rows = a_by.reshape(sizes_of_scales.of_rows("a_scale", a.shape, a_by.shape))
        columns = b_by.reshape(sizes_of_scales.of_columns("b_scale", b.shape, b_by.shape))
    factors = (broadcast_to(v.astype(jnp.float32), product.shape) for v in (rows, columns))
    y = product.astype(jnp.float32) * next(factors) * next(factors)
    return _with_bias(y, bias).astype(a_by.dtype)


def _with_bias(y: jax.Array, bias: jax.Array | None) -> jax.Array:
    if bias is None:
        return y
    must_broadcast("bias", bias.shape, y.shape)
    return y + broadcast_to(bias.astype(y.dtype), y.shape)


def dynamic_quantize_matmul(
    a: ArrayLike,
    b: Weight[ArrayLike],
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None = None,
    bias: Bias[ArrayLike] | None = None,
) -> jax.Array:
    """Multiplies floats by a quantized matrix; `dynamic_quantize_linear` quantizes a first.

    a: (…, M, K) or (K,), float32. b: (…, K, N) or (K,), int8 or uint8. b_scale: a scalar, (N,) or (…, 1, N), float32.
    b_zero_point: a scalar, (N,) or (…, 1, N), in the type of b; 0 when None. bias: (N,), float32.
    Returns float32. Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: com.microsoft DynamicQuantizeMatMul, opset 1, as onnxruntime defines it.

    >>> dynamic_quantize_matmul(jnp.array([[0.0, 255.0]]), jnp.int8([[5], [-2]]), 0.5).tolist()
    [[-255.0]]
    """
    left = as_traced(a)
    if left.dtype != jnp.float32:
        raise DTypeError(f"`a` is {left.dtype.name}; it must be float32, use jaxops.cast")
    rounded, by, zero = dynamic_quantize_linear(left)
    right, origin = with_zero_point("b", b, b_zero_point)
    operands = (rounded, right, zero, origin, by, scale("b_scale", b_scale), *floating(bias=bias))
    return _scaled_product(operands)


def qgemm(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike,
    b: Weight[ArrayLike],
    b_scale: ArrayLike,
    b_zero_point: ArrayLike,
    c: Bias[ArrayLike] | None = None,
    y_scale: ArrayLike | None = None,
    y_zero_point: ArrayLike | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> jax.Array:
    """Returns alpha · (a' · b' + c) of the dequantized a and b, quantized if y_scale is given.

    a' is a, (M, K), or with `transA` the transpose of a, (K, M). b' is b, (K, N), or with `transB` the transpose of
    b, (N, K). int8 or uint8, each. a_scale, a_zero_point: scalars. b_scale, b_zero_point: scalars, or (N,). c: int32,
    in units of a_scale · b_scale, broadcasts to (M, N); 0 when None. y_scale, y_zero_point: scalars, both or none.
    Scales are float32, zero points have the type of their numbers.
    Returns: (M, N), float32, or the type of y_zero_point, rounded half to even and saturated.
    Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: com.microsoft QGemm, opset 1, as onnxruntime defines it.

    >>> a, b = jnp.uint8([[3, 4]]), jnp.int8([[9, 2]])
    >>> qgemm(a, 0.5, 1, b, 2.0, 0, jnp.int32([1]), transB=1).tolist()
    [[25.0]]
    """
    left, left_zero = with_zero_point("a", a, a_zero_point)
    right, right_zero = with_zero_point("b", b, b_zero_point)
    if (y_scale is None) != (y_zero_point is None):
        raise DTypeError("give both `y_scale` and `y_zero_point` for a quantized result, or none for float32")
    operands: tuple[Any, ...] = (
        *(left, right, left_zero, right_zero),
        *(scale("a_scale", a_scale), scale("b_scale", b_scale)),
        None if c is None else as_traced(c),
        None if y_scale is None else scale("y_scale", y_scale),
        None if y_zero_point is None else quantized("y_zero_point", y_zero_point, BYTES),
    )
    if c is not None and operands[6].dtype != jnp.int32:
        raise DTypeError(message("`c` must be int32", c=operands[6]))
    return _qgemm(operands, float(alpha), flag("transA", transA), flag("transB", transB))


@jit_if_concrete
def _qgemm(operands: tuple[Any, ...], alpha: float, swap_a: bool, swap_b: bool) -> jax.Array:
    a, b, a_zero, b_zero, a_by, b_by, c, y_by, y_zero = operands
    a, b = _matrix("a", a, swap_a), _matrix("b", b, swap_b)
    for name, value in (("a_scale", a_by), ("a_zero_point", a_zero)):
        sizes_of_scales.single(name, value.shape)
    total = quantized_product((a, b, a_zero, b_zero))
    if c is not None:
        must_broadcast("c", c.shape, total.shape)
        total = total + broadcast_to(c, total.shape)
    columns = b_by.reshape(sizes_of_scales.of_columns("b_scale", b.shape, b_by.shape))
    factor = jnp.float32(alpha) * a_by.reshape(()).astype(jnp.float32) * columns.astype(jnp.float32)
    if y_by is None:
        return total.astype(jnp.float32) * broadcast_to(factor, total.shape)
    for name, value in (("y_scale", y_by), ("y_zero_point", y_zero)):
        sizes_of_scales.single(name, value.shape)
    factor = quotient(factor, broadcast_to(y_by.astype(jnp.float32).reshape(()), factor.shape))
    return with_zero(total.astype(jnp.float32) * broadcast_to(factor, total.shape), y_zero.reshape(()))


def _matrix(operand: str, x: jax.Array, swap: bool) -> jax.Array:
    must_fit(operand, x.shape, ("rows", "columns"))
    return lax.transpose(x, (1, 0)) if swap else x
