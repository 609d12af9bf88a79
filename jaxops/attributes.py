"""Attributes and static operands as Python values: integers, axes, flags; each with its checks and messages."""

from collections.abc import Sequence
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from jaxops.dtypes import canonical, is_float
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, amount, message, shape_text
from jaxops.static import Ints, Sizes, known

_FLOAT_TYPES = ("float16", "bfloat16", "float32", "float64")


def ints(operand: str, value: Ints, *, single: bool = False) -> Sizes:
    """A static 1-D operand as a tuple of Python integers (or symbolic dimensions).

    single: a single integer is accepted as a list of one.
    """
    if type(value) is tuple:
        for item in value:
            if type(item) is not int:
                break
        else:
            return value
    if single and _is_one(value):
        return (_int(operand, value),)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview):
        return tuple(_int(operand, item) for item in value)
    values = known(operand, value)
    if values.ndim != 1:
        raise ShapeError(
            message(f"`{operand}` must be 1-D, but has {amount(values.ndim, 'axis', 'axes')}", **{operand: values})
        )
    return tuple(_int(operand, item) for item in _items(operand, values))


def _is_one(value: Any) -> bool:
    return isinstance(value, int | float) or is_symbolic_dim(value) or getattr(value, "ndim", None) == 0


def integer(operand: str, value: Any, *, least: int | None = None) -> int:
    """A static integer: a Python or NumPy one, or an array of one integer with at most one axis.

    least: raises ArgumentError for one below it; a symbolic size is not looked at.
    """
    number = value if type(value) is int else _int(operand, value, one_axis=True)
    if least is not None and isinstance(number, int) and number < least:
        raise ArgumentError(f"`{operand}` is {number}; it must be at least {least}")
    return number


def _int(operand: str, value: Any, *, one_axis: bool = False) -> Any:
    if type(value) is int or is_symbolic_dim(value):
        return value
    values = known(operand, value)
    if values.ndim > one_axis or values.size != 1:
        expected = "one integer" if one_axis else "one integer per item"
        raise ShapeError(message(f"`{operand}` must hold {expected}", **{operand: value}))
    return _items(operand, values.reshape(1))[0]


def _items(operand: str, values: Any) -> list[Any]:
    # Sub-byte integers of ml_dtypes have kind 'V', so ask for the name. An empty list arrives as float64.
    name = values.dtype.name
    if name == "object":
        fits = all(type(v) is int or is_symbolic_dim(v) or isinstance(v, np.integer) for v in values)
    else:
        fits = "int" in name or (values.size == 0 and name == "float64")
    if not fits:
        raise DTypeError(message(f"`{operand}` must be integers, got {name}", **{operand: values}))
    return [int(v) for v in values] if name.endswith(("int2", "int4")) else values.tolist()


def whole_numbers(operand: str, value: Any, *, single: bool = False) -> Sizes:
    """`ints` of a static operand that may be floats, if without fractions."""
    values = known(operand, value)
    if not is_float(values.dtype):
        return ints(operand, values, single=single)
    if not (np.isfinite(values) & (values == np.trunc(values)) & (np.abs(values) < 2**63)).all():
        raise ArgumentError(message(f"`{operand}` must be whole numbers", **{operand: values}))
    return ints(operand, values.astype(np.int64), single=single)


def axis(value: Any, rank: int, *, operand: str = "axis", end: bool = False) -> int:
    """The axis in [0, rank) that `value` in [-rank, rank-1] names; with `end`, `rank` is allowed too."""
    index = integer(operand, value)
    last = rank if end else rank - 1
    if not -rank <= index <= last:
        allowed = f"[{-rank}, {last}]" if rank or end else "empty: it is a scalar"
        has = amount(rank, "axis", "axes")
        raise AxisError(f"`{operand}` is {index}, but the operand has {has}; the range is {allowed}")
    return index + rank if index < 0 else index


def axes(values: Ints, rank: int, *, operand: str = "axes") -> tuple[int, ...]:
    """Distinct axes in [0, rank), in the given order; a single integer is one axis."""
    indices = tuple(axis(value, rank, operand=operand) for value in ints(operand, values, single=True))
    if len(set(indices)) != len(indices):
        has = amount(rank, "axis", "axes")
        raise AxisError(f"`{operand}` names an axis twice: {tuple(indices)} of {has}")
    return indices


def check_not_negative(operand: str, numbers: Sizes, subject: str = "sizes") -> None:
    """Raises ArgumentError if a number of a static operand is negative; a symbolic size is not looked at."""
    negative = [n for n in numbers if isinstance(n, int) and n < 0]
    if negative:
        raise ArgumentError(f"`{operand}` {shape_text(numbers)} holds {negative[0]}; {subject} must not be negative")


def flag(operand: str, value: int) -> bool:
    """An attribute that is 0 or 1."""
    number = value if isinstance(value, int) else integer(operand, value)
    if number not in (0, 1):
        raise ArgumentError(f"`{operand}` is {number}; it must be 0 or 1")
    return number == 1


def one_of(operand: str, value: Any, choices: Any) -> Any:
    """An enumerated attribute; `choices` is the `Literal[…]` of the signature."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ArgumentError(f"`{operand}` is {value!r}; it must be one of {', '.join(map(repr, allowed))}")
    return value


def element_type(operand: str, value: Any) -> np.dtype:
    """An element type, from anything that `np.dtype` accepts; strings have kind 'U', 'S', 'T' or 'O'."""
    try:
        dtype = None if value is None else np.dtype(value)  # np.dtype(None) is float64
    except (TypeError, ValueError, SyntaxError):  # 'f4,' begins a structure
        dtype = None
    if dtype is None or not (dtype.kind in "bUSTO" or jnp.issubdtype(dtype, jnp.number) or is_float(dtype)):
        raise DTypeError(
            f"`{operand}` is {value!r}; it must be an element type, such as np.float32, or str for strings"
        )
    return dtype


def float_type(operand: str, value: Any) -> np.dtype:
    """An attribute that names the type of a step of the computation; float64 is float32 while x64 is off."""
    dtype = element_type(operand, value)
    if dtype.name not in _FLOAT_TYPES:
        raise DTypeError(f"`{operand}` is {dtype.name}; it must be one of {', '.join(_FLOAT_TYPES)}")
    return canonical(dtype)


def stash(stash_type: Any) -> np.dtype:
    """The attribute `stash_type`, the type that a step is computed in."""
    return float_type("stash_type", stash_type)
