"""Linear quantization: numbers as multiples of a scale, counted from a zero point."""

__all__ = ["dequantize_linear", "dynamic_quantize_linear", "quantize_linear"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, element_type, flag, integer
from jaxops.dtypes import as_traced, canonical, is_float
from jaxops.errors import DTypeError
from jaxops.kernels.dequantize import Quantized, spread_blocks
from jaxops.kernels.xla_workarounds import largest, quotient, smallest
from jaxops.ops.common.quantized_numbers import (
    BYTES,
    PACKABLE,
    QUANTIZED,
    in_precision,
    quantized,
    saturated,
    scale,
    wide,
    zero_point,
)
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.quantization.linear_quantization import Layout, layout, per_tensor, same_layout
from jaxops.signature import ElementType, Traits, operator
from jaxops.static import ArrayLike, Sizes, is_static, jit_if_concrete

TRAITS = Traits(precision="exact")


def quantize_linear(
    x: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int = 0,
    output_dtype: ElementType | None = None,
    precision: ElementType | None = None,
) -> jax.Array:
    """saturate(round(x / y_scale) + y_zero_point), rounded half to even; for float types without the rounding.

    x: any shape, floating-point or int32. y_scale: a scalar; (x.shape[axis],); or, with a `block_size`, the shape of x
    with ceil(size / block_size) on `axis`, one scale for each block. Floats, float8_e8m0fnu or int32. y_zero_point: the
    same shape, of the type of the result; 0 when None.
    Returns: the shape of x, in `output_dtype`, else the type of y_zero_point, else uint8. The type may be integers of
    2, 4, 8 or 16 bits, 8-bit floats other than float8_e8m0fnu, or float4_e2m1fn.
    saturate: 1 turns an 8-bit float out of range into the largest number, 0 into NaN or infinity.
    precision: the floating-point type of the division, by default that of y_scale, or float32 for a scale that is not a
    float of 16 bits or more. The quotient of int32 and an int32 scale is exact before it is rounded.
    Raises ShapeError when the scale does not fit, DTypeError for other types, ArgumentError, AxisError.
    Source: ONNX QuantizeLinear, opsets 10–28, without 6-bit floats, which JAX lacks.

    >>> quantize_linear(jnp.array([-1.0, 0.25, 0.75, 9.0]), 0.5, np.int8(1), output_dtype=np.int8).tolist()
    [-1, 1, 3, 19]
    """
    data = as_traced(x)
    if not (is_float(data.dtype) and data.dtype.itemsize > 1) and data.dtype != np.int32:
        raise DTypeError(f"`x` is {data.dtype.name}; it must be int32 or floating-point of 16 bits or more")
    kind = None if precision is None else canonical(element_type("precision", precision))
    if kind is not None and not (is_float(kind) and kind.itemsize > 1):
        raise DTypeError(f"`precision` is {kind.name}; it must be floating-point of 16 bits or more")
    target = _target(output_dtype, y_zero_point)
    operands = (data, scale("y_scale", y_scale, other=("float8_e8m0fnu", "int32")))
    if y_zero_point is not None:
        owner = "`output_dtype`" if output_dtype is not None else "the result"
        operands += (zero_point("y_zero_point", y_zero_point, target, owner),)
    options = integer("axis", axis), integer("block_size", block_size), flag("saturate", saturate)
    return _quantize(operands, *options, target, kind)


def _target(output_dtype: Any, zero: Any) -> np.dtype:
    if output_dtype is not None:
        target = element_type("output_dtype", output_dtype)
    elif zero is None or type(zero) is int:
        return np.dtype(np.uint8)
    else:
        return quantized("y_zero_point", zero).dtype
    if target.name not in QUANTIZED:
        raise DTypeError(f"`output_dtype` is {target.name}; it must be one of {', '.join(QUANTIZED)}")
    return target


@jit_if_concrete
def _quantize(
    operands: tuple[jax.Array, ...], axis: int, block_size: int, saturate: bool, target: np.dtype, kind: np.dtype | None
) -> jax.Array:
    x, by, *zero = operands
    pattern = scale_layout("y_scale", x.shape, by.shape, axis, block_size)
    if zero:
        same_layout(("y_scale", "y_zero_point"), by.shape, zero[0].shape)
    is_integer = jnp.issubdtype(by.dtype, jnp.integer) and not is_float(x.dtype)
    if is_integer and kind is None and not is_float(target):
        scaled = _rounded_quotient(x, spread(by, pattern, x.shape))
    else:
        scaled = ratio(x, by, pattern, kind)
    origin = spread(wide(zero[0]), pattern, x.shape) if zero else None
    return assert_sizes(saturated(scaled, origin, target, saturate=saturate), x.shape, target)


def ratio(x: jax.Array, by: jax.Array, pattern: Layout, kind: np.dtype | None) -> jax.Array:
    """x / by in the precision `kind`, by default that of `by`; returns float32 or float64."""
    if kind is None:
        kind = by.dtype if is_float(by.dtype) and by.dtype.itemsize > 1 else np.dtype(np.float32)
    data, divisor = (_converted(v, kind) for v in (x, by))
    return in_precision(quotient(data, spread(divisor, pattern, x.shape)), kind)


def scale_layout(operand: str, x: Sizes, scale: Sizes, axis: int, block_size: int) -> Layout:
    resolved = 0 if per_tensor(x, scale, block_size) else resolve_axis(axis, len(x))
    return layout(operand, x, scale, resolved, block_size)


def _converted(x: jax.Array, kind: np.dtype) -> jax.Array:
    """The numbers of x in the precision `kind`, as float32 or float64."""
    work = x.astype(kind if kind.itemsize > 4 else jnp.float32)
    return work if x.dtype == kind else in_precision(work, kind)


def _rounded_quotient(x: jax.Array, divisor: jax.Array) -> jax.Array:
    """Divides integers exactly, then rounds to the nearest integer, half to even."""
    floor = jnp.floor_divide(x, divisor)
    remainder = jnp.abs(x - floor * divisor)
    other = jnp.abs(divisor) - remainder  # the distance to the next integer
    up = (remainder > other) | ((remainder == other) & (floor % 2 == 1))
    return floor + up.astype(floor.dtype)


def spread(x: jax.Array, pattern: Layout, sizes: Sizes) -> jax.Array:
    """A scale or zero point broadcast to the sizes of the data."""
    x = lax.reshape(x, pattern.sizes)
    if pattern.axis is not None:
        x = spread_blocks(x, pattern.axis, pattern.block, sizes[pattern.axis])
    return lax.broadcast_in_dim(x, sizes, tuple(range(len(sizes))))


@operator(kind="form")
def dequantize_linear(
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: ElementType | None = None,
) -> jax.Array:
    """(x - x_zero_point) · x_scale.

    x: any shape, of a type that `quantize_linear` gives, or int32. x_scale: shaped as in `quantize_linear`, floats or
    float8_e8m0fnu. x_zero_point: same shape, in the type of x; 0 when None.
    Returns: the shape of x, in `output_dtype`, else the type of x_scale; floats of 16 bits or more. 16-bit results are
    computed in float32.
    Raises ShapeError when the scale does not fit, DTypeError for other types, ArgumentError, AxisError.
    Source: ONNX DequantizeLinear, opsets 10–28, without 6-bit floats, which JAX lacks.

    >>> dequantize_linear(jnp.array([[0, 4], [2, 3]], jnp.uint8), jnp.array([0.5, 2.0]), axis=0).tolist()
    [[0.0, 2.0], [4.0, 6.0]]
    """
    data = quantized("x", x, (*QUANTIZED, "int32"))
    operands = (data, scale("x_scale", x_scale, other=("float8_e8m0fnu",)))
    if x_zero_point is not None:
        operands += (zero_point("x_zero_point", x_zero_point, data.dtype, "`x`"),)
    target = operands[1].dtype if output_dtype is None else canonical(element_type("output_dtype", output_dtype))
    if not (is_float(target) and target.itemsize > 1):
        raise DTypeError(
            f"the result would be {target.name}; give a floating-point type of 16 bits or more as `output_dtype`"
        )
    return _dequantize(operands, integer("axis", axis), integer("block_size", block_size), target)


@jit_if_concrete
def _dequantize(operands: tuple[jax.Array, ...], axis: int, block_size: int, target: np.dtype) -> jax.Array:
    x, by, *zero = operands
    pattern = scale_layout("x_scale", x.shape, by.shape, axis, block_size)
    if zero:
        same_layout(("x_scale", "x_zero_point"), by.shape, zero[0].shape)
    block = pattern.block if pattern.axis is not None and x.ndim > 1 else 0
    is_known = x.dtype.name in (PACKABLE if block else BYTES) and (block or not block_size)
    if is_known and by.dtype == target == jnp.float32:
        is_zero = [is_static(z) and not z.any() for z in zero]
        nonzero = [wide(z) for z, nothing in zip(zero, is_zero, strict=True) if not nothing]
        y = Quantized((x, by, *nonzero), axis % max(x.ndim, 1), block).floats()
        return assert_sizes(y, x.shape, target)
    integers = wide(x)
    if zero:
        integers = integers - spread(wide(zero[0]), pattern, x.shape)
    work = target if target.itemsize > 4 else jnp.float32
    y = (integers.astype(work) * spread(by.astype(work), pattern, x.shape)).astype(target)
    return assert_sizes(y, x.shape, target)


def dynamic_quantize_linear(x: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Quantizes to uint8, with a scale and zero point computed from the data so that the range covers all data and 0.

    x: any shape, float32. Returns: y, uint8 of the shape of x; y_scale, a float32 scalar, the range / 255;
    y_zero_point, a uint8 scalar that represents 0. If all numbers are 0, the scale is 1.
    Raises DTypeError for another type.
    Source: ONNX DynamicQuantizeLinear, opset 11.

    >>> [v.tolist() for v in dynamic_quantize_linear(jnp.array([0.0, 51.0, -204.0]))]
    [[204, 255, 0], 1.0, 204]
    """
    data = as_traced(x)
    if data.dtype != np.float32:
        raise DTypeError(f"`x` is {data.dtype.name}; it must be float32, use jaxops.cast")
    return _dynamic_quantize(data)


@jit_if_concrete
def _dynamic_quantize(x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    axes, target = tuple(range(x.ndim)), np.dtype(np.uint8)
    low, high = jnp.minimum(smallest(x, axes), 0), jnp.maximum(largest(x, axes), 0)
    # By the text of the standard, the quotient would be 0 / 0; onnxruntime takes the scale 1.
    by = jnp.where(low == high, jnp.float32(1), quotient(high - low, jnp.float32(255)))
    zero = saturated(quotient(-low, by), None, target)
    return saturated(quotient(x, jnp.broadcast_to(by, x.shape)), zero, target), by, zero
