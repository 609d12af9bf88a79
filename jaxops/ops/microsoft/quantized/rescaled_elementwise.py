"""Elementwise operators on quantized arrays, from the scales of the operands to the scale of the result.

The documentation does not state a precision; everything is computed in float32. onnxruntime computes QLinearAdd in
fixed-point numbers on some machines, so a result halfway between two integers may be the other one.
"""

__all__ = [
    "mul_integer",
    "qlinear_add",
    "qlinear_concat",
    "qlinear_leaky_relu",
    "qlinear_mul",
    "qlinear_sigmoid",
    "qlinear_softmax",
    "qlinear_where",
]

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.attributes import axis as resolve_axis, integer
from jaxops.dtypes import as_traced
from jaxops.errors import DTypeError, SignatureError, amount
from jaxops.kernels.matmul.int8 import without_zero
from jaxops.kernels.xla_workarounds import computed_once, quotient
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.ops.common.quantized_numbers import (
    BYTES,
    dequantized,
    parameters,
    quantized,
    saturated,
    with_parameters,
    with_zero,
    zero_point,
)
from jaxops.ops.tensor.joining import concat
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.signature import Traits, operator
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(precision="exact")


def qlinear_add(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    c_scale: ArrayLike,
    c_zero_point: ArrayLike | None = None,
) -> jax.Array:
    """Returns the quantized sum of the dequantized a and b; the operands broadcast.

    a, b: int8 or uint8, of one type. Scales: float32 scalars. Zero points: scalars in the type of a; 0 when None.
    Returns: the type of a, round((a - a_zero_point) · a_scale / c_scale + (b - b_zero_point) · b_scale / c_scale) +
    c_zero_point, rounded half to even and saturated.
    Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: com.microsoft QLinearAdd, opset 1, as onnxruntime defines it.

    >>> qlinear_add(jnp.uint8([4, 200]), 0.5, 2, jnp.uint8([8, 200]), 1.0, 0, 0.5, jnp.uint8(1)).tolist()
    [19, 255]
    """
    return _binary((a, a_scale, a_zero_point), (b, b_scale, b_zero_point), (c_scale, c_zero_point), is_product=False)


def qlinear_mul(
    a: ArrayLike,
    a_scale: ArrayLike,
    a_zero_point: ArrayLike | None,
    b: ArrayLike,
    b_scale: ArrayLike,
    b_zero_point: ArrayLike | None,
    c_scale: ArrayLike,
    c_zero_point: ArrayLike | None = None,
) -> jax.Array:
    """Returns the quantized product of the dequantized a and b; the operands broadcast.

    Operands, result and exceptions are those of `qlinear_add`; the integers have an exact product.
    Source: com.microsoft QLinearMul, opset 1, as onnxruntime defines it.

    >>> qlinear_mul(jnp.int8([4, -3]), 0.5, 2, jnp.int8([8, 100]), 1.0, 0, 2.0).tolist()
    [4, -125]
    """
    return _binary((a, a_scale, a_zero_point), (b, b_scale, b_zero_point), (c_scale, c_zero_point), is_product=True)


def _binary(a: tuple[Any, ...], b: tuple[Any, ...], c: tuple[Any, Any], *, is_product: bool) -> jax.Array:
    left = with_parameters("a", *a)
    right = with_parameters("b", *b)
    _one_type(a=left[0], b=right[0])
    by, zero = parameters("c", *c, left[0].dtype)
    return _combined((left[0], right[0], *left[1:], *right[1:], by, zero), is_product)


def _one_type(**arrays: jax.Array) -> None:
    if len({x.dtype for x in arrays.values()}) > 1:
        names, types = (" and ".join(v) for v in ((f"`{n}`" for n in arrays), (x.dtype.name for x in arrays.values())))
        raise DTypeError(f"{names} must have one element type, got {types}")


@jit_if_concrete
def _combined(operands: tuple[jax.Array, ...], is_product: bool) -> jax.Array:
    a, b, a_by, a_zero, b_by, b_zero, c_by, c_zero = operands
    sizes = broadcast(a.shape, b.shape)
    left, right = (broadcast_to(without_zero(x, z, jnp.int32), sizes) for x, z in ((a, a_zero), (b, b_zero)))
    if is_product:
        factor = quotient(a_by * b_by, c_by)
        return with_zero((left * right).astype(jnp.float32) * broadcast_to(factor, sizes), c_zero)
    one, other = (
        x.astype(jnp.float32) * broadcast_to(quotient(by, c_by), sizes) for x, by in ((left, a_by), (right, b_by))
    )
    return saturated(computed_once(one + other), c_zero, c_zero.dtype)


def mul_integer(
    a: ArrayLike, a_zero_point: ArrayLike | None, b: ArrayLike, b_zero_point: ArrayLike | None = None
) -> jax.Array:
    """Returns (a - a_zero_point) · (b - b_zero_point), element by element; the operands broadcast.

    a, b: int8 or uint8, of one type. Zero points: scalars in the type of a; 0 when None. Returns int32.
    Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: com.microsoft MulInteger, opset 1, as onnxruntime documents it; it has no kernel on a CPU.

    >>> mul_integer(jnp.uint8([1, 255]), jnp.uint8(2), jnp.uint8([3, 255])).tolist()
    [-3, 64515]
    """
    left, _, a_zero = with_parameters("a", a, 1.0, a_zero_point)
    right, _, b_zero = with_parameters("b", b, 1.0, b_zero_point)
    _one_type(a=left, b=right)
    return _mul_integer((left, right, a_zero, b_zero))


@jit_if_concrete
def _mul_integer(operands: tuple[jax.Array, ...]) -> jax.Array:
    a, b, a_zero, b_zero = operands
    sizes = broadcast(a.shape, b.shape)
    left, right = (broadcast_to(without_zero(x, z, jnp.int32), sizes) for x, z in ((a, a_zero), (b, b_zero)))
    return left * right


@operator(kind="activation")
def qlinear_sigmoid(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None = None,
) -> jax.Array:
    """Returns the quantized 1 / (1 + exp(-v)) for each element v of the dequantized x.

    x: any shape, int8 or uint8. Scales: float32 scalars. Zero points: scalars in the type of x; 0 when None.
    Returns: the shape and type of x. Raises ShapeError, DTypeError for other sizes or types.
    Source: com.microsoft QLinearSigmoid, opset 1, as onnxruntime defines it.

    >>> qlinear_sigmoid(jnp.int8([0, 100]), 0.5, 0, 1 / 256, -128).tolist()
    [0, 127]
    """
    return _unary(jax.nn.sigmoid, x, x_scale, x_zero_point, y_scale, y_zero_point)


@operator(kind="activation")
def qlinear_leaky_relu(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None = None,
    *,
    alpha: float = 0.01,
) -> jax.Array:
    """Returns the quantized leaky ReLU of the dequantized x: negative numbers times `alpha`.

    Operands, result and exceptions are those of `qlinear_sigmoid`.
    Source: com.microsoft QLinearLeakyRelu, opset 1, as onnxruntime defines it.

    >>> qlinear_leaky_relu(jnp.int8([-100, 40]), 0.5, 0, 0.25, 1, alpha=0.1).tolist()
    [-19, 81]
    """
    operands = x, x_scale, x_zero_point, y_scale, y_zero_point
    return _unary(_leaky, *operands, float(alpha))


def _leaky(x: jax.Array, alpha: float) -> jax.Array:
    return jnp.where(x >= 0, x, x * alpha)


def _unary(
    fn: Callable[..., jax.Array], x: Any, by: Any, zero: Any, y_by: Any, y_zero: Any, *options: float
) -> jax.Array:
    data, factor, origin = with_parameters("x", x, by, zero)
    y_factor, y_origin = parameters("y", y_by, y_zero, data.dtype)
    return _mapped((data, factor, origin, y_factor, y_origin), fn, options)


@jit_if_concrete
def _mapped(operands: tuple[jax.Array, ...], fn: Callable[..., jax.Array], options: tuple[float, ...]) -> jax.Array:
    x, by, zero, y_by, y_zero = operands
    return _requantized(fn(dequantized(x, by, zero), *options), y_by, y_zero)


def _requantized(x: jax.Array, by: jax.Array, zero: jax.Array) -> jax.Array:
    return saturated(quotient(x, broadcast_to(by, x.shape)), zero, zero.dtype)


@operator(kind="activation")
def qlinear_softmax(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike | None,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    *,
    opset: int,
    axis: int = -1,
) -> jax.Array:
    """Returns the quantized softmax of the dequantized x.

    x: int8 or uint8. Scales: float32 scalars. Zero points: scalars in the type of x; x_zero_point has no effect.
    opset: below 13 the softmax is over all axes from `axis` on, else over `axis`.
    Returns: the shape and type of x. Like onnxruntime, multiplies by floor(1 / y_scale) instead of dividing by
    y_scale; int8 saturates at 127, where onnxruntime wraps around.
    Raises ShapeError, DTypeError for other sizes or types, AxisError.
    Source: com.microsoft QLinearSoftmax, opset 1, as onnxruntime defines it.

    >>> qlinear_softmax(jnp.uint8([[7, 7, 7, 7]]), 0.5, 0, 1 / 256, 0, opset=13).tolist()
    [[64, 64, 64, 64]]
    """
    data, by, _ = with_parameters("x", x, x_scale, x_zero_point)
    y_by, zero = parameters("y", y_scale, y_zero_point, data.dtype)
    first = resolve_axis(axis, data.ndim)
    axes = tuple(range(first, data.ndim)) if integer("opset", opset) < 13 else (first,)
    return _softmax((data, by, y_by, zero), axes)


@jit_if_concrete
def _softmax(operands: tuple[jax.Array, ...], axes: tuple[int, ...]) -> jax.Array:
    x, by, y_by, zero = operands
    if 0 in x.shape:
        return x
    wide = x.astype(jnp.int32)
    above = wide - lax.expand_dims(lax.reduce_max(wide, axes), axes)
    powers = jnp.exp(above.astype(jnp.float32) * broadcast_to(by, x.shape))
    total = broadcast_to(lax.expand_dims(lax.reduce_sum(powers, axes), axes), x.shape)
    steps = broadcast_to(jnp.floor(quotient(jnp.float32(1), y_by)), x.shape)
    return saturated(quotient(powers * steps, total), zero, zero.dtype)


def qlinear_where(
    condition: ArrayLike,
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    y: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    z_scale: ArrayLike,
    z_zero_point: ArrayLike,
) -> jax.Array:
    """Selects the dequantized x where the condition is true, else y, and quantizes the result; all three broadcast.

    condition: booleans. x, y: int8 or uint8, of one type. Scales: float32 scalars. Zero points: scalars in the type
    of x. Returns: the type of x. Raises ShapeError when the shapes do not fit, DTypeError for other types.
    Source: com.microsoft QLinearWhere, opset 1, as onnxruntime defines it.

    >>> one, two = (jnp.uint8([8]), 0.5, 0), (jnp.uint8([9]), 1.0, 1)
    >>> qlinear_where(jnp.array([True, False]), *one, *two, 0.25, jnp.uint8(3)).tolist()
    [19, 35]
    """
    chosen = as_traced(condition)
    if chosen.dtype != bool:
        raise DTypeError(f"`condition` is {chosen.dtype.name}; it must be bool")
    one = with_parameters("x", x, x_scale, x_zero_point)
    other = with_parameters("y", y, y_scale, y_zero_point)
    _one_type(x=one[0], y=other[0])
    by, zero = parameters("z", z_scale, z_zero_point, one[0].dtype)
    return _where((chosen, *one, *other, by, zero))


@jit_if_concrete
def _where(operands: tuple[jax.Array, ...]) -> Any:
    chosen, x, x_by, x_zero, y, y_by, y_zero, z_by, z_zero = operands
    sizes = broadcast(chosen.shape, x.shape, y.shape)
    one = _requantized(dequantized(x, x_by, x_zero), z_by, z_zero)
    other = _requantized(dequantized(y, y_by, y_zero), z_by, z_zero)
    return lax.select(*(broadcast_to(v, sizes) for v in (chosen, one, other)))


def qlinear_concat(y_scale: ArrayLike, y_zero_point: ArrayLike, inputs: Sequence[ArrayLike], *, axis: int) -> jax.Array:
    """Joins dequantized arrays along an axis, and quantizes the result.

    inputs: for each array its numbers (int8 or uint8), its scale (a float32 scalar) and its zero point. y_scale,
    y_zero_point: those of the result, scalars. All numbers and zero points are of one type, that of the result.
    Raises ShapeError when the shapes do not fit, DTypeError for other types, AxisError, SignatureError.
    Source: com.microsoft QLinearConcat, opset 1, as onnxruntime defines it.

    >>> qlinear_concat(0.5, jnp.uint8(0), [jnp.uint8([3, 5]), 1.0, 1, jnp.uint8([7]), 0.5, 0], axis=0).tolist()
    [4, 8, 7]
    """
    if not inputs or len(inputs) % 3:
        raise SignatureError(f"got {amount(len(inputs), 'input')}; each array comes with its scale and zero point")
    zero = quantized("y_zero_point", y_zero_point, BYTES)
    by, zero = parameters("y", y_scale, zero, zero.dtype)
    pieces = []
    for i in range(0, len(inputs), 3):
        data, factor, origin = with_parameters(f"inputs[{i}]", *inputs[i : i + 3])
        zero_point(f"inputs[{i}]", data, zero.dtype, "the result")
        pieces.append(_rescaled((data, factor, origin, by, zero)))
    return as_traced(concat(pieces, axis=axis))


@jit_if_concrete
def _rescaled(operands: tuple[jax.Array, ...]) -> jax.Array:
    x, by, zero, y_by, y_zero = operands
    return _requantized(dequantized(x, by, zero), y_by, y_zero)
