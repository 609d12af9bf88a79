"""The straight-through estimator: a derivative for numbers that are quantized and dequantized again."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, is_float
from jaxops.ops.common.quantized_numbers import wide
from jaxops.ops.quantization.linear_quantization import ratio, scale_layout, spread
from jaxops.static import is_static


@dataclass(frozen=True)
class Quantization:
    """The attributes of a quantization and the dequantization after it.

    axis, block_size, precision: of the quantization. back_axis, back_block_size: of the dequantization. dynamic: True
    if the scale is computed from the data.
    """

    axis: int = 1
    block_size: int = 0
    precision: np.dtype | None = None
    back_axis: int = 1
    back_block_size: int = 0
    dynamic: bool = False


def straight_through(
    dequantize: Callable[..., Any], quantized: Sequence[Any], origin: Sequence[Any], attributes: Quantization
) -> Any:
    """dequantize(*quantized), with a derivative with respect to x, from which the quantized numbers were computed.

    quantized: numbers, scale and zero point, as `dequantize_linear` takes them. origin: x with its scale and zero
    point, as `quantize_linear` takes them; None for a zero point that is left out.

    The derivative treats rounding as the identity, but keeps the effect of saturation. With respect to x it is 1 where
    the rounded number is in the range of the quantized type (and of a Clip after it), and 0 elsewhere, as in PyTorch's
    `fake_quantize`. With respect to the scale it is that of learned step size quantization (LSQ): inside the range
    round(x / scale) - x / scale, outside the distance of the end of the range from the zero point. A dynamic scale is
    treated as a constant. Integers x have no derivative.

    >>> from jaxops.ops import dequantize_linear, quantize_linear
    >>> def fake_quantized(x):
    ...     by, zero = np.float32(0.5), np.int8(0)
    ...     q = quantize_linear(x, by, zero)
    ...     return straight_through(dequantize_linear, (q, by, zero), (x, by, zero), Quantization())
    >>> jax.vmap(jax.value_and_grad(fake_quantized))(jnp.array([0.7, -9.1, 99.0]))
    (Array([ 0.5, -9. , 63.5], dtype=float32), Array([1., 1., 0.], dtype=float32))
    """
    q, y_scale, *zero = quantized
    x, x_scale, x_zero = origin
    if attributes.dynamic:
        x_scale, y_scale = lax.stop_gradient(as_traced(x_scale)), lax.stop_gradient(as_traced(y_scale))
    y = dequantize(lax.stop_gradient(as_traced(q)), y_scale, *zero)  # q of 8-bit floats would pass on a derivative
    data = as_traced(x)
    if not is_float(data.dtype):
        return y
    operands = tuple(None if v is None else as_traced(v) for v in (x_scale, x_zero, q, y_scale))
    return _value(attributes, y, data, operands)


def rounded(y: Any, x: Any) -> Any:
    """y, which is x after a rounding, with the derivative of x; static numbers have none.

    >>> jax.value_and_grad(lambda x: rounded(jnp.round(x), x) ** 2)(1.75)
    (Array(4., dtype=float32, weak_type=True), Array(4., dtype=float32, weak_type=True))
    """
    return y if is_static(y) else _rounded(y, x)


@jax.custom_jvp
def _rounded(y: jax.Array, x: jax.Array) -> jax.Array:
    return y


@_rounded.defjvp
def _of_unrounded(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return primals[0], tangents[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(attributes: Quantization, y: jax.Array, x: jax.Array, operands: tuple[Any, ...]) -> jax.Array:
    """y. Its derivative is the sum of that of y and that of `_unrounded`."""
    return y


@_value.defjvp
def _derivative(attributes: Quantization, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    y, *operands = primals
    of_y, *of_operands = tangents
    _, through = jax.jvp(functools.partial(_unrounded, attributes, y.dtype), operands, of_operands)
    return y, of_y + through


def _unrounded(attributes: Quantization, dtype: np.dtype, x: jax.Array, operands: tuple[Any, ...]) -> jax.Array:
    """x in the scale of the result, where it is in the range of the quantized numbers, else 0."""
    by, zero, q, y_by = operands
    pattern = scale_layout("y_scale", x.shape, by.shape, attributes.axis, attributes.block_size)
    pattern_of_y = scale_layout("x_scale", x.shape, y_by.shape, attributes.back_axis, attributes.back_block_size)
    number = ratio(x, by, pattern, attributes.precision)
    origin = 0 if zero is None else spread(wide(zero), pattern, x.shape).astype(number.dtype)
    if is_float(q.dtype):
        is_inside = jnp.abs(number + origin) <= float(jnp.finfo(q.dtype).max)
    else:
        is_inside = lax.round(number, lax.RoundingMethod.TO_NEAREST_EVEN) + origin == wide(q).astype(number.dtype)
    divisor = spread(by.astype(number.dtype), pattern, x.shape)
    factor = spread(lax.stop_gradient(y_by).astype(number.dtype), pattern_of_y, x.shape)
    factor = factor / jnp.where(is_inside, divisor, 1)  # 0 / 0 would be NaN, in the derivative, too
    return jnp.where(is_inside, x.astype(number.dtype) * factor, 0).astype(dtype)
