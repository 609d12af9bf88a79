"""Element types. Only this module decides what a 64-bit value becomes while JAX's x64 is off.

With x64 off, int64 becomes int32, uint64 becomes uint32, float64 becomes float32 and complex128 becomes complex64,
as in JAX itself; but a constant that does not fit raises an error. Static values keep their 64 bits.
"""

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, describe
from jaxops.memory import LARGE_VIEW, bounded_operands, read_once
from jaxops.static import Array, FromSizes, Sizes, array, as_array, is_symbolic, tracing

# XLA:CPU of jaxlib 0.10.2 aborts the process when it concatenates these; an 8-bit integer holds them all.
_FRAGILE = {"int2": jnp.int8, "uint2": jnp.uint8, "int4": jnp.int8, "uint4": jnp.uint8}
# The types that symbolic sizes may be cast to and stay sizes.
TYPES_OF_SIZES = {np.dtype(t) for t in (np.int32, np.uint32, np.int64, np.uint64)}
# Types that the standard only stores, moves and casts; NumPy and XLA disagree about their arithmetic.
SUB_BYTE = {*_FRAGILE, "float4_e2m1fn"}


def is_string(value: Any) -> bool:
    """Returns True for an array of strings."""
    dtype = value.dtype
    return dtype.kind in "USTO" and not is_symbolic(value)


def type_name(value: Any) -> str:
    """The name of an element type in messages: int64 for symbolic sizes, string for strings."""
    return "int64" if is_symbolic(value) else "string" if value.dtype.kind in "USTO" else value.dtype.name


# JAX has no arrays of these; static values may have them. JAX 0.10.1 does not know that they are floats.
_FLOAT6 = {"float6_e2m3fn", "float6_e3m2fn"}


def is_float(dtype: Any) -> bool:
    """Returns True for a floating-point type, including those of 8 and 4 bits."""
    return jnp.issubdtype(dtype, jnp.floating) or getattr(dtype, "name", "") in _FLOAT6


def is_inexact(dtype: Any) -> bool:
    """Returns True for types that have derivatives: floating-point and complex ones, but no random keys."""
    return is_float(dtype) or jnp.issubdtype(dtype, jnp.complexfloating)


def accumulation_type(*dtypes: Any) -> np.dtype:
    """The type to sum these types in: float32 for narrower floats, float64 if one of them is float64.

    Integers are summed in their own type.
    """
    if not any(map(is_float, dtypes)):
        return np.dtype(dtypes[0])
    return np.dtype(np.float64 if any(d == np.float64 for d in dtypes) else np.float32)


def wide(x: Any) -> Any:
    """Returns an array in the type that its sums are computed in: float32 for narrower floats."""
    return x.astype(accumulation_type(x.dtype)) if is_float(x.dtype) else x


def floating(**operands: Any) -> tuple[Any, ...]:
    """Floating-point operands as JAX arrays, else DTypeError; None passes."""
    arrays = tuple(None if v is None else as_traced(v) for v in operands.values())
    for name, value in zip(operands, arrays, strict=True):
        if value is not None and (not is_float(value.dtype) or value.dtype.name in SUB_BYTE):
            size = " of 8 bits or more" if value.dtype.name in SUB_BYTE else ""
            raise DTypeError(f"`{name}` must be floating-point{size}, got {describe(value)}; convert with jaxops.cast")
    return arrays


def floats_of_one_type(**operands: Any) -> tuple[Any, ...]:
    """Floating-point operands of one element type as JAX arrays, else DTypeError; None passes."""
    arrays = floating(**operands)
    present = {name: x for name, x in zip(operands, arrays, strict=True) if x is not None}
    unify(tuple(present.values()), tuple(f"{name} " for name in present))
    return arrays


def integral(**operands: Any) -> tuple[Any, ...]:
    """Integers of 32 bits or more as JAX arrays; None passes. Raises DTypeError for anything but integers."""
    arrays = tuple(None if v is None else as_traced(v) for v in operands.values())
    for name, value in zip(operands, arrays, strict=True):
        if value is not None:
            require_integers(name, value)
    return tuple(None if v is None else at_least_int32(v) for v in arrays)


def at_least_int32(x: Any) -> Any:
    """Converts integers of fewer than 32 bits to int32, which holds every size; a NumPy or a JAX array."""
    return x.astype(np.int32) if jnp.iinfo(x.dtype).bits < 32 else x


def require_integers(operand: str, value: Array) -> None:
    """Raises DTypeError unless an array has an integer type; symbolic sizes count as integers."""
    if not is_symbolic(value) and not jnp.issubdtype(value.dtype, jnp.integer):
        raise DTypeError(f"`{operand}` must be integers, got {describe(value)}; convert with jaxops.cast")


def canonical(dtype: Any) -> np.dtype:
    """The element type of a traced array made from `dtype`: 32 bits instead of 64 while x64 is off."""
    return jax.dtypes.canonicalize_dtype(dtype)


_STAND_INS = {"int64": np.int32, "uint64": np.uint32, "float64": np.float32, "complex128": np.complex64}


@functools.cache  # NumPy makes the name of a type anew each time, and each input of a model is asked for it
def stand_in(dtype: np.dtype) -> np.dtype:
    """The type that JAX uses for `dtype` while x64 is off, whether it is off or not."""
    return np.dtype(_STAND_INS.get(dtype.name, dtype))


def as_traced(value: Any, dtype: Any = None) -> jax.Array:
    """A value as a JAX array of `dtype`, by default of its own canonical type.

    Raises OutOfRangeError when a static 64-bit number does not fit the 32-bit type that replaces its own.
    """
    if isinstance(value, FromSizes):
        value = value.traced
    if isinstance(value, jax.Array):
        return value if dtype is None or value.dtype == canonical(dtype) else value.astype(canonical(dtype))
    values = as_array(value)
    if is_symbolic(values):
        dims = [jnp.asarray(d, canonical(np.int64 if dtype is None else dtype)) for d in values.flat]
        return jnp.stack(dims).reshape(values.shape) if values.ndim else dims[0]
    if values.dtype.kind in "USTO":
        raise DTypeError(f"strings stay static (NumPy) and cannot become a JAX array: {values!r:.80}")
    bounded_operands((values,))
    if tracing() and values.nbytes > LARGE_VIEW and (once := read_once(values)).size < values.size:
        return jnp.broadcast_to(as_canonical(once, dtype), values.shape)  # XLA fuses it into the readers
    values = as_canonical(values, dtype)
    # `jnp.asarray` compiles a program for each shape. `device_put` may keep the array that it is given.
    return jnp.asarray(values) if tracing() else jax.device_put(values.copy())


def as_declared(value: Any, dtype: Any) -> Any:
    """An array of int64 that was computed from sizes, in the integer type that a model declares; else the value."""
    return value.astype(dtype) if isinstance(value, np.ndarray | jax.Array) and value.dtype == np.int64 else value


def as_canonical(values: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Numbers in the type of a traced array made from them.

    Raises OutOfRangeError for one that does not fit, DTypeError for a type that JAX does not have.
    """
    if _is_float6(values.dtype):
        raise DTypeError(f"JAX has no arrays of {values.dtype.name}; convert them while they are NumPy arrays")
    target = canonical(values.dtype if dtype is None else dtype)
    _check_fits(values, target)
    return values.astype(target, copy=False)


@functools.cache  # as in `stand_in`
def _is_float6(dtype: np.dtype) -> bool:
    return dtype.name.startswith("float6_")


def traced_for_sizes(data: Array, sizes: Sizes) -> Array:
    """`data`, which is about to get `sizes`: a JAX array if one of them is symbolic, since NumPy has no such arrays."""
    return as_traced(data) if isinstance(data, np.ndarray) and any(map(is_symbolic, sizes)) else data


def loses_sign(source: np.dtype, target: np.dtype) -> bool:
    """Returns True if integers of a type may not fit the 32 bits that stand for a type of 64: -1 as uint64, 2**31 as
    int64.
    """
    if target == np.uint64:
        return source.kind == "i" or source.name in ("int2", "int4")
    return target == np.int64 and source.kind == "u" and source.itemsize >= 4


def out_of_range(values: np.ndarray, target: np.dtype) -> Any:
    """Returns a number that the 32-bit stand-in type cannot hold; None if all fit, perhaps rounded."""
    if values.dtype.itemsize <= target.itemsize or values.size == 0:
        return None
    if values.dtype.kind in "iu" and target.kind in "iu":
        low, high = int(values.min()), int(values.max())
        limits = np.iinfo(target)
        return low if low < limits.min else high if high > limits.max else None
    if values.dtype.kind in "fc" and target.kind in "fc":
        for part in (np.real(values), np.imag(values)) if values.dtype.kind == "c" else (values,):
            largest = np.max(np.abs(part), where=np.isfinite(part), initial=0)
            if largest > np.finfo(target).max:
                return largest
    return None


def _check_fits(values: np.ndarray, target: np.dtype) -> None:
    value = out_of_range(values, target)
    if value is not None:
        raise _out_of_range(value, values.dtype, target)


def _out_of_range(value: Any, dtype: np.dtype, target: np.dtype) -> OutOfRangeError:
    return OutOfRangeError(
        f"the {dtype.name} value {value} does not fit {target.name}, which stands for {dtype.name} while "
        f"x64 is off; turn it on with jax.config.update('jax_enable_x64', True), or for a model with load(…, x64=True)"
    )


def converted(subject: str, values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers converted to `dtype`; ArgumentError if NumPy would wrap a number or make it infinite."""
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    if is_float(dtype):
        low, high = float(jnp.finfo(dtype).min), float(jnp.finfo(dtype).max)
        lost = np.isfinite(values) & ~np.isfinite(result.astype(np.float64))
    elif dtype.kind == "c":
        return result
    else:
        low, high = (0, 1) if dtype.kind == "b" else (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
        lost = (values < low) | (values > high)
    if lost.any():
        raise ArgumentError(f"{subject} is {values[lost][0]}, but {dtype.name} holds {low} to {high}")
    return result


def as_written(operand: str, value: float) -> Fraction:
    """A Python or float32 number as the exact fraction of its shortest decimal: 0.1 is 1/10."""
    if not math.isfinite(value):
        raise ArgumentError(f"`{operand}` is {value}; on integers it must be finite")
    with np.errstate(over="ignore"):
        short = np.float32(value)
    return Fraction(str(short) if float(short) == value else str(value))


def number(subject: str, value: float, dtype: Any) -> np.ndarray:
    """A Python number as a scalar of this type; ArgumentError if it does not fit."""
    try:
        with np.errstate(over="ignore"):
            scalar = np.asarray(value, dtype)
        if is_float(dtype):
            fits = bool(np.isfinite(scalar)) or not math.isfinite(value)
        else:
            fits = dtype.kind == "c" or complex(scalar) == value
        if fits:
            return scalar
    except (OverflowError, ValueError):
        pass
    raise ArgumentError(
        f"{subject} {value!s:.40} does not fit {dtype.name}, the type of the other operands; "
        f"convert them with jaxops.cast"
    )


def unify(values: tuple[Any, ...], names: tuple[str, ...] = ()) -> tuple[Any, ...]:
    """Operands of one element type: NumPy arrays if all are static, else JAX arrays."""
    arrays = tuple(map(array, values))
    if any(map(is_symbolic, arrays)):
        arrays = _beside_sizes(arrays)
    bounded_operands(arrays)
    if any(isinstance(v, jax.Array) for v in arrays):
        arrays = tuple(as_traced(v) for v in arrays)
    if len({type_name(v) for v in arrays}) > 1:
        listing = ", ".join(f"{n}{type_name(v)}" for n, v in zip(names or [""] * len(arrays), arrays, strict=True))
        raise DTypeError(f"operands must have one element type, got {listing}; convert with jaxops.cast")
    return arrays


def _beside_sizes(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Operands among which one holds symbolic sizes, whose integer type is open: it takes the type of the other
    operands.
    """
    dtypes = {v.dtype for v in arrays if not is_symbolic(v)}
    if len(dtypes) != 1 or not dtypes <= TYPES_OF_SIZES:
        return arrays
    if any(isinstance(v, jax.Array) for v in arrays):
        return tuple(as_traced(v, *dtypes) for v in arrays)
    return tuple(v if is_symbolic(v) else v.astype(np.int64) for v in arrays)


def widened(fn: Any, arrays: tuple[Array, ...]) -> Any:
    """`fn(arrays)`, which moves data; sub-byte integers, which XLA:CPU cannot move, take 8 bits meanwhile.

    If `fn` returns several results, only the first one is narrowed again.
    """
    dtype = arrays[0].dtype
    wide = _FRAGILE.get(dtype.name)
    if wide is None:
        return fn(arrays)
    result = fn(tuple(a.astype(wide) for a in arrays))
    return (result[0].astype(dtype), *result[1:]) if isinstance(result, tuple) else result.astype(dtype)
