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


@dataclass(frozen=True)
class Quantization:
    """The attributes of the two operators. dynamic: whether the scale follows from the data.

    axis, block_size, precision: of the quantization. back_axis, back_block_size: of the dequantization.
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
    """dequantize(*quantized), with a derivative for x, of which the quantized numbers are made.

    quantized: numbers, scale and zero point, as `dequantize_linear` takes them. origin: x with its scale and zero
    point, as `quantize_linear` takes them; None for a zero point that is left out.

    The derivative takes rounding for the identity, and saturation for what it is: for x it is 1 where the rounded
    number is in the range of the quantized type (and of a Clip after it), and 0 elsewhere, as in PyTorch's
    `fake_quantize`. For the scale it is that of learned step sizes (LSQ): (round(x / scale) - x / scale) in the range,
    the distance of its end from the zero point outside. A dynamic scale is a constant. x of integers has none.

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
    y = dequantize(lax.stop_gradient(as_traced(q)), y_scale, *zero)  # floats of 8 bits have a derivative, too
    data = as_traced(x)
    if not is_float(data.dtype):
        return y
    operands = tuple(None if v is None else as_traced(v) for v in (x_scale, x_zero, q, y_scale))
    return _value(attributes, y, data, operands)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _value(attributes: Quantization, y: jax.Array, x: jax.Array, operands: tuple[Any, ...]) -> jax.Array:
    """y, whose derivative is its own and that of `_unrounded`."""
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
    pattern = scale_layout("quantize_linear", "y_scale", x.shape, by.shape, attributes.axis, attributes.block_size)
    pattern_of_y = scale_layout(
        "dequantize_linear", "x_scale", x.shape, y_by.shape, attributes.back_axis, attributes.back_block_size
    )
    number = ratio(x, by, pattern, attributes.precision)
    origin = 0 if zero is None else spread(wide(zero), pattern, x.shape).astype(number.dtype)
    if is_float(q.dtype):
        is_inside = jnp.abs(number + origin) <= float(jnp.finfo(q.dtype).max)
    else:
        is_inside = lax.round(number, lax.RoundingMethod.TO_NEAREST_EVEN) + origin == wide(q).astype(number.dtype)
    divisor = spread(by.astype(number.dtype), pattern, x.shape)
    factor = spread(lax.stop_gradient(y_by).astype(number.dtype), pattern_of_y, x.shape)
    factor = factor / jnp.where(is_inside, divisor, 1)  # a scale of 0 has no quotient, and no derivative either
    return jnp.where(is_inside, x.astype(number.dtype) * factor, 0).astype(dtype)
