"""Functions that operators on quantized numbers share: element types, zero points, rounding and saturation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, is_float, number
from jaxops.errors import DTypeError
from jaxops.kernels.matmul.int8 import without_zero
from jaxops.kernels.xla_workarounds import quotient
from jaxops.ops.tensor.casting import cast
from jaxops.shapes.math.quantized_products import single
from jaxops.static import Array, ArrayLike, array

FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
BYTES = ("int8", "uint8")
# Types of which 1, 2 or 4 numbers fill a byte.
PACKABLE = (*BYTES, "int4", "uint4", "int2", "uint2")
QUANTIZED = ("int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2", *FLOAT8, "float4_e2m1fn")
_NEAREST_EVEN = lax.RoundingMethod.TO_NEAREST_EVEN


def quantized(operand: str, value: ArrayLike, allowed: tuple[str, ...] = QUANTIZED) -> jax.Array:
    """An operand of quantized numbers as a JAX array; DTypeError for another type."""
    x = as_traced(value)
    if x.dtype.name not in allowed:
        raise DTypeError(f"`{operand}` is {x.dtype.name}; it must be of type {', '.join(allowed)}")
    return x


def scale(operand: str, value: Any, *, other: tuple[str, ...] = ()) -> jax.Array:
    """A scale as a JAX array: floats of 16 bits or more, or of a type in `other`; a Python number is float32."""
    x = as_traced(np.float32(value) if type(value) in (int, float) else value)
    if not (is_float(x.dtype) and x.dtype.itemsize > 1) and x.dtype.name not in other:
        more = f", {', '.join(other)}" if other else ""
        raise DTypeError(f"`{operand}` is {x.dtype.name}; it must be floating-point of 16 bits or more{more}")
    return x


def zero_point(operand: str, value: ArrayLike, dtype: Any, owner: str) -> Array:
    """A zero point as an array of type `dtype`, which a Python number takes; DTypeError for an array of another type.

    owner: the operand of that type, for the message. A static zero point stays static: if it is 0, nothing is
    subtracted.
    """
    x = array(number(f"`{operand}`", value, dtype) if type(value) is int else value)
    if x.dtype != dtype:
        raise DTypeError(f"`{operand}` is {x.dtype.name}; it must be {np.dtype(dtype).name}, as {owner} is")
    return x


def wide(x: jax.Array) -> jax.Array:
    """Quantized numbers in a type that holds them and their differences: int32, or float32."""
    return x.astype(jnp.float32 if is_float(x.dtype) else jnp.int32)


def in_precision(x: jax.Array, dtype: Any) -> jax.Array:
    """Rounds float32 numbers to those that a 16-bit type holds; returns x itself for a wider type.

    A conversion to the 16-bit type and back does not round, because XLA drops it.
    """
    if dtype == jnp.bfloat16:
        return lax.reduce_precision(x, 8, 7)
    if dtype == np.float16:
        # reduce_precision turns subnormal numbers, the multiples of 2**-24 below 2**-14, into 0.
        small = lax.round(x * np.float32(2.0**24), _NEAREST_EVEN) * np.float32(2.0**-24)
        return jnp.where(jnp.abs(x) < np.float32(2.0**-14), small, lax.reduce_precision(x, 5, 10))
    return x


def saturated(x: jax.Array, zero: jax.Array | None, target: np.dtype, *, saturate: bool = True) -> jax.Array:
    """round(x) + zero in the type `target`: ties round to even, a number out of range becomes the nearest in range.

    x: floats, or int32. zero: of type `target`, any sizes that broadcast to x, or None. saturate: whether 8-bit floats,
    which are not rounded to whole numbers, saturate. The standard does not say what NaN becomes: the smallest integer,
    as in onnxruntime.
    """
    zero = None if zero is None else jnp.broadcast_to(wide(zero), x.shape)
    if is_float(target):
        x = x if is_float(x.dtype) else x.astype(jnp.float32)
        return cast(x if zero is None else x + zero.astype(x.dtype), to=target, saturate=int(saturate))  # pyright: ignore[reportReturnType]
    low, high = int(jnp.iinfo(target).min), int(jnp.iinfo(target).max)
    if not is_float(x.dtype):
        clipped = jnp.clip(x, low, high) if zero is None else jnp.clip(x, low - zero, high - zero) + zero
        return clipped.astype(target)
    x = lax.round(x, _NEAREST_EVEN)
    # A sum beyond the integers of the float type is beyond those of `target`, too.
    x = x if zero is None else x + zero.astype(x.dtype)
    # `low` is the first choice of this select: the second one of such a select may be a scale (`quotient`), and
    # `compiler.passes.lift_scalars` compares the numbers that stand at one place.
    x = jnp.clip(jnp.where(x != x, jnp.full_like(x, low), x), low, high)
    return x.astype(jnp.int32).astype(target)


def requantized(
    product: jax.Array, a_scale: jax.Array, b_scale: jax.Array, y_scale: jax.Array, y_zero: jax.Array
) -> jax.Array:
    """Converts a product of quantized numbers to the scale and the type of the result.

    a_scale, b_scale: the scales of the factors, which broadcast to the product. y_scale, y_zero: those of the result,
    one number each. The standard leaves the precision open: as in onnxruntime, all is float32, and the scales are
    combined first.
    """
    a, b, y = (v.astype(jnp.float32) for v in (a_scale, b_scale, y_scale))
    sizes = jnp.broadcast_shapes(a.shape, b.shape)
    factor = quotient(
        jnp.broadcast_to(a, sizes) * jnp.broadcast_to(b, sizes), jnp.broadcast_to(jnp.reshape(y, ()), sizes)
    )
    ratio = product.astype(jnp.float32) * jnp.broadcast_to(factor, product.shape)
    return saturated(ratio, jnp.reshape(y_zero, ()), y_zero.dtype)


def with_zero_point(
    name: str, x: ArrayLike, zero: ArrayLike | None, allowed: tuple[str, ...] = BYTES
) -> tuple[jax.Array, Array | None]:
    """An operand of quantized numbers and its zero point, which may be left out: see `quantized` and `zero_point`."""
    data = quantized(name, x, allowed)
    return data, None if zero is None else zero_point(f"{name}_zero_point", zero, data.dtype, f"`{name}`")


def with_parameters(
    name: str, x: ArrayLike, by: ArrayLike, zero: ArrayLike | None
) -> tuple[jax.Array, jax.Array, Array]:
    """int8 or uint8 numbers with their scale and zero point: (numbers, float32 scalar, scalar in their type)."""
    data = quantized(name, x, BYTES)
    return (data, *parameters(name, by, zero, data.dtype))


def parameters(name: str, by: ArrayLike, zero: ArrayLike | None, dtype: Any) -> tuple[jax.Array, Array]:
    """The scale and the zero point of all elements: (float32 scalar, scalar of the type). A zero point of None is 0."""
    factor = scale(f"{name}_scale", by)  # pyright: ignore[reportArgumentType]
    origin = jnp.zeros((), dtype) if zero is None else zero_point(f"{name}_zero_point", zero, dtype, f"`{name}`")
    for operand, value in (("scale", factor), ("zero_point", origin)):
        single(f"{name}_{operand}", value.shape)
    return factor.reshape(()).astype(jnp.float32), origin.reshape(())


def dequantized(x: jax.Array, by: jax.Array, zero: jax.Array) -> jax.Array:
    """(x - zero) · by in float32; scale and zero point broadcast to x."""
    return without_zero(x, zero, jnp.int32).astype(jnp.float32) * jnp.broadcast_to(by, x.shape)


def requantized_from_floats(x: jax.Array, by: jax.Array, zero: jax.Array) -> jax.Array:
    """round(x / by + zero) in the type of the zero point; scale and zero point are scalars."""
    return with_zero(quotient(x, jnp.broadcast_to(by, x.shape)), zero)


def with_zero(ratio: jax.Array, zero: jax.Array) -> jax.Array:
    """round(ratio + zero) in the type of the zero point, which is added before rounding, as in onnxruntime."""
    return saturated(ratio + jnp.broadcast_to(zero.astype(jnp.float32), ratio.shape), None, zero.dtype)
