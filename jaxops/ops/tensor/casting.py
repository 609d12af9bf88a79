"""Conversion between element types, and reading the bits of one type as another."""

__all__ = ["bit_cast", "cast", "cast_like"]

import typing
from typing import Any, Literal

import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

from jaxops.attributes import element_type, flag, one_of
from jaxops.dtypes import as_traced, canonical, is_float, is_string, loses_sign
from jaxops.errors import ArgumentError, DTypeError, OutOfRangeError, ShapeError
from jaxops.memory import bounded
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.chosen_strings import maps_strings
from jaxops.ops.common.elementwise import on_facts
from jaxops.ops.common.size_tracking import sizes_as, tracks_sizes
from jaxops.ops.common.words import from_words, words_of
from jaxops.shapes import arithmetic as of_sizes
from jaxops.signature import ElementType, ShapeOnly, SizesKept, Traits, operator
from jaxops.static import A, Array, Operand, array, is_symbolic, jit_if_concrete, known

TRAITS = Traits(kind="form", foldable=True)

# Eight-bit floats, which overflow to their largest number under `saturate`.
_SATURATING = {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
RoundMode = Literal["up", "down", "nearest"]
# What Python takes for each: the string of a number, and the number that is read from one.
_BYTES_OF_STRING, _BYTES_OF_NUMBER = 72, 32


def _gains_digits(operands: Any, result: np.dtype | None, attributes: Any) -> bool:
    """True if an integer result may not fit 32 bits. One of float16 or a narrower float fits; so does one of an integer
    that fits, unless a change of sign makes it larger.
    """
    source = getattr(operands[0], "dtype", operands[0])
    if source is None or is_float(source):
        return source is None or source.name == "bfloat16" or source.itemsize > 2
    return loses_sign(source, np.dtype(np.int64) if result is None else result)


@operator(grows=_gains_digits)
@tracks_sizes
@maps_strings
def cast(input: SizesKept[Operand[A]], *, to: ElementType, saturate: int = 1, round_mode: RoundMode = "up") -> A:
    """Converts the elements of `input` to another type.

    input: any shape and dtype; strings are static. to: static, the new dtype; `str` for strings. Returns the same
    shape.
    saturate: 1 turns a number that overflows an 8-bit float into the largest one, 0 into NaN or infinity.
    round_mode: 'up', 'down' or 'nearest', for float8_e8m0fnu, which holds powers of two.
    Floats are truncated to integers, and integers keep their lower bits. The standard does not define the result for a
    float out of range of an integer type. Here it becomes the nearest number of a type of 32 bits or more (of int32
    where int32 stands for int64); a narrower type keeps the lower bits of the nearest int32. NaN becomes 0.
    Raises ArgumentError for a string that does not hold a number of the type; StaticError for traced numbers to
    strings; DTypeError when `to` is not an element type; with x64 off OutOfRangeError for traced signed integers to
    uint64, and for traced uint32 to int64.
    Source: ONNX Cast, opsets 1–28.

    >>> cast(jnp.array([1.7, -1.7]), to=np.int32)
    Array([ 1, -1], dtype=int32)
    >>> cast(np.array(["3.5", "INF"]), to=np.float32)
    array([3.5, inf], dtype=float32)
    """
    one_of("round_mode", round_mode, RoundMode)
    overflow, target = flag("saturate", saturate), element_type("to", to)
    if target.kind in "USTO" and isinstance(input, ChosenStrings):
        return typing.cast(Any, input)
    data = array(input)
    if is_symbolic(data):
        if jnp.issubdtype(target, jnp.integer) and jnp.iinfo(target).bits >= 32:
            return data
        if target.kind in "USTO":
            raise DTypeError("symbolic sizes cannot become strings, which are static")
        if target.kind == "b":
            try:
                return on_facts(lambda d: not of_sizes.equal(d, 0), data)
            except ShapeError:
                pass  # decided when the program runs
        traced = as_traced(data)
        if target.name in ("float16", "bfloat16", "float32", "float64"):
            return sizes_as(data, target, _cast(traced, canonical(target), overflow, round_mode))  # pyright: ignore
        data = traced
    if target.kind in "USTO":
        strings: Any = data if is_string(data) else _to_strings(known("input", data))
        return strings
    if is_string(data):
        return _cast(_from_strings(np.asarray(data), target), target, overflow, round_mode)
    if isinstance(data, np.ndarray):
        return _cast(data, target, overflow, round_mode)
    if loses_sign(data.dtype, target) and canonical(target) != target:
        raise OutOfRangeError(
            f"traced {data.dtype.name} may not fit {canonical(target).name}, which stands for {target.name} "
            f"while x64 is off; cast to {canonical(target).name}, which keeps the lower bits, or turn x64 on with "
            "jax.config.update('jax_enable_x64', True), or for a model with load(…, x64=True)"
        )
    return _cast(data, canonical(target), overflow, round_mode)


@operator(grows=_gains_digits)
def cast_like(input: Operand[A], target_type: ShapeOnly, *, saturate: int = 1, round_mode: RoundMode = "up") -> A:
    """Converts the elements of `input` to the type of `target_type`.

    input: any shape and dtype; strings are static. target_type: an array of any shape; only its dtype is looked at.
    saturate, round_mode: as in `cast`. Raises as `cast` does.
    Source: ONNX CastLike, opsets 15–25.

    >>> cast_like(jnp.array([1.7]), np.int32(0))
    Array([1], dtype=int32)
    """
    like = array(target_type)
    to = np.int64 if is_symbolic(like) else like.dtype
    return cast(input, to=to, saturate=saturate, round_mode=round_mode)


@operator(kind="", differentiable=False)
def bit_cast(input: Operand[A], *, to: ElementType) -> A:
    """The bits of each element, read as a number of another type.

    input: any shape and dtype but strings; a boolean is a byte that is 0 or 1, and any other byte is True. to: static,
    a dtype of as many bits. Returns: the same shape.
    Raises DTypeError for strings, for types of different widths, and, with x64 off, for a traced input and a type `to`
    of 64 bits, since JAX has only 32-bit types then.
    Source: ONNX BitCast, opset 26.

    >>> bit_cast(jnp.array([1.0, -0.0]), to=np.uint32).tolist()
    [1065353216, 2147483648]
    """
    data, target = array(input), element_type("to", to)
    if is_symbolic(data):
        if target == np.int64:
            return data
        data = as_traced(data)
    if target.kind in "USTO" or is_string(data):
        raise DTypeError("strings have no fixed number of bits; give numbers, and a type of numbers as `to`")
    if not isinstance(data, np.ndarray) and canonical(target) != target:
        raise DTypeError(
            f"`to` is {target.name}, but a traced array can only be {canonical(target).name} while x64 is "
            f"off; turn it on with jax.config.update('jax_enable_x64', True), or give a NumPy array"
        )
    if _bits(data.dtype) != _bits(target):
        raise DTypeError(
            f"`input` is {data.dtype.name} of {_bits(data.dtype)} bits, `to` is {target.name} of "
            f"{_bits(target)}; both must have the same number of bits"
        )
    return _bit_cast(data, target)


def _bits(dtype: np.dtype) -> int:
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).bits
    return jnp.finfo(dtype).bits if is_float(dtype) else dtype.itemsize * 8


@jit_if_concrete
def _bit_cast(data: Array, target: np.dtype) -> Array:
    if data.dtype == target:
        return data
    if isinstance(data, np.ndarray):
        if _bits(target) < 8:  # each element is the lower bits of a byte
            return (data.view(np.uint8) & np.uint8(2 ** _bits(target) - 1)).view(target)
        return data.view(np.uint8) != 0 if target.kind == "b" else data.view(target)
    if data.dtype == bool:
        data = data.astype(np.uint8)
    elif data.dtype == np.complex64:
        data = from_words([lax.real(data), lax.imag(data)], np.uint64)
    if target.kind == "b":
        return lax.bitcast_convert_type(data, np.uint8) != 0
    if target == np.complex64:
        return lax.complex(*(from_words([word], np.float32) for word in words_of(data)))
    return lax.bitcast_convert_type(data, target)


@jit_if_concrete
def _cast(data: Array, target: np.dtype, saturate: bool, round_mode: str) -> Array:
    xp = np if isinstance(data, np.ndarray) else jnp
    if data.dtype == target:
        return data
    if target.name == "float8_e8m0fnu":
        return _to_e8m0(xp, _convert(data, np.dtype(np.float32)), saturate, round_mode)
    if saturate and target.name in _SATURATING:
        if data.dtype.itemsize < 4 or not is_float(data.dtype):
            data = _convert(data, np.dtype(np.float32))
        largest = np.asarray(ml_dtypes.finfo(target).max, data.dtype)
        return _convert(xp.clip(data, -largest, largest), target)
    if is_float(data.dtype) and jnp.issubdtype(target, jnp.integer) and jnp.iinfo(target).bits < 32:
        # Undefined out of range; like onnxruntime, convert to int32 first.
        data = _convert(data, np.dtype(np.int32))
    return _convert(data, target)


def _convert(data: Array, target: np.dtype) -> Array:
    if not isinstance(data, np.ndarray):
        return lax.convert_element_type(data, target)
    with np.errstate(invalid="ignore", over="ignore"):
        if data.dtype.isbuiltin == 2 and target.isbuiltin == 2:
            # NumPy cannot convert between most narrow types; float32 and int32 hold each of them exactly.
            data = data.astype(np.float32 if is_float(data.dtype) else np.int32)
        if is_float(data.dtype) and target.kind in "iu":
            return _truncated(data, target)
        return data.astype(target)


def _truncated(data: np.ndarray, target: np.dtype) -> np.ndarray:
    """Converts floats to integers; out of range as XLA does, since NumPy's result depends on the processor."""
    data = data.astype(np.float32) if data.dtype.itemsize < 4 else data
    low, high = np.iinfo(target).min, np.iinfo(target).max
    # `high` may not be a float; float(high) rounds up then, so that >= finds every value out of range.
    outside = [np.isnan(data), data <= float(low), data >= float(high)]
    return np.select(outside, [target.type(0), target.type(low), target.type(high)], data.astype(target))


def _to_e8m0(xp: Any, data: Array, saturate: bool, round_mode: str) -> Array:
    """Rounds float32 to powers of two: the 8 bits are the exponent, 255 is NaN; zero becomes the smallest, 2**-127."""
    bits = data.view(np.uint32) if xp is np else lax.bitcast_convert_type(data, jnp.uint32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    # Exponent 0 stands for 2**-127, half of the smallest normal number.
    floor = xp.where(exponent == 0, np.uint32(0x400000), np.uint32(0))
    if round_mode == "up":
        exponent = exponent + (fraction > floor).astype(np.uint32)
    elif round_mode == "nearest":
        half = xp.where(exponent == 0, np.uint32(0x200000), np.uint32(0x400000))
        exponent = exponent + (fraction >= floor + half).astype(np.uint32)
    if saturate:
        exponent = xp.minimum(exponent, np.uint32(254))
    else:
        # Compare the bits: XLA treats floats below 2**-127 as 0 in comparisons.
        exponent = xp.where(bits & 0x7FFFFFFF < 0x400000, np.uint32(255), exponent)
    exponent = xp.where(xp.isnan(data), np.uint32(255), exponent)
    small = _convert(exponent, np.dtype(np.uint8))
    target = ml_dtypes.float8_e8m0fnu
    return small.view(target) if xp is np else lax.bitcast_convert_type(small, target)


def _to_strings(data: np.ndarray) -> np.ndarray:
    """Numbers as onnxruntime prints them: 8 significant digits, 17 for float64; NaN, INF and -INF."""
    bounded(data.shape, _BYTES_OF_STRING, "the strings of its result")
    if not is_float(data.dtype):
        return np.array([str(int(x)) for x in data.flat], dtype=object).reshape(data.shape)
    digits = 17 if data.dtype == np.float64 else 8
    text = [f"{float(x):.{digits}g}".replace("nan", "NaN").replace("inf", "INF") for x in data.flat]
    return np.array(text, dtype=object).reshape(data.shape)


def _from_strings(data: np.ndarray, target: np.dtype) -> np.ndarray:
    """The numbers that strings hold, as float64 or integers of 64 bits."""
    bounded(data.shape, _BYTES_OF_NUMBER, "the numbers of its result")
    is_integer = jnp.issubdtype(target, jnp.integer)
    limits = jnp.iinfo(target) if is_integer else None

    def number(item: Any) -> Any:
        text = item.decode() if isinstance(item, bytes) else str(item)
        try:
            if "_" in text or not text.isascii():
                raise ValueError("Python accepts more than the standard")
            if limits is None:
                return float(text)
            value = int(text) if text.lstrip("+-").isdigit() else int(float(text))
            if not limits.min <= value <= limits.max:
                raise OverflowError("it does not fit")
            return value
        except (ValueError, OverflowError) as error:
            raise ArgumentError(f"the string {text!r} is not a number of type {target.name}") from error

    widest = np.uint64 if jnp.issubdtype(target, jnp.unsignedinteger) else np.int64 if is_integer else np.float64
    return np.array([number(item) for item in data.flat], widest).reshape(data.shape)
