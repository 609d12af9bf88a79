"""Writes static values as Python literals."""

import ast
import functools
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import is_float, is_string
from jaxops.errors import symbols_in
from jaxops.jax_internals import Factor, terms
from jaxops.memory import bounded_operands
from jaxops.static import is_symbolic
from jaxops.tools.python.expressions import Data, Expression, Size, call, flat, sequence
from jaxops.tools.python.quoting import string

# An array with at least this many elements is written to the file of constants.
_LARGE = 17


def literal(value: Any, *, plain: bool = False, short_floats: bool = True) -> Expression:
    """A static value or an attribute.

    plain: whether integers and vectors of them may be Python numbers and tuples. short_floats: whether 0.1 may replace
    the float32 next to it.
    """
    if is_symbolic(value):
        return written_sizes(value) if plain else call("np.array", [written_sizes(value)])
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return _array(np.asarray(value), plain)
    if isinstance(value, np.dtype | type):
        return dtype_text(np.dtype(value))
    if isinstance(value, tuple | list):
        return sequence("()", [literal(item, plain=plain, short_floats=short_floats) for item in value])
    if isinstance(value, float):
        return _float(value, short_floats)
    if isinstance(value, str):
        return string(value)
    assert value is None or isinstance(value, int), value
    return _int(value)


def written_sizes(value: Any) -> Expression:
    """Symbolic sizes, one or an array of them, as arithmetic on their symbols."""
    if np.ndim(value):
        return sequence("()", [written_sizes(item) for item in value])
    value = value.item() if isinstance(value, np.ndarray) else value
    text = ast.unparse(_arithmetic(value)).replace(" ** ", "**")
    symbols = symbols_in(value)
    return Size(text, tuple(symbols)) if symbols else text


def _arithmetic(size: Any) -> ast.expr:
    """A size as Python's arithmetic; only `max` and `min` are calls."""

    def factor(f: Factor) -> ast.expr:
        match f.name, [_arithmetic(operand) for operand in f.operands]:
            case name, []:
                base = ast.Name(name)
            case ("floordiv" | "mod") as name, [a, b]:
                base = ast.BinOp(a, ast.FloorDiv() if name == "floordiv" else ast.Mod(), b)
            case name, operands:
                base = ast.Call(ast.Name(name), operands, [])
        return base if f.power == 1 else ast.BinOp(base, ast.Pow(), ast.Constant(f.power))

    total: ast.expr | None = None
    for number, factors, _ in terms(size):
        items = [factor(f) for f in factors]
        if abs(number) != 1 or not factors:
            items.insert(0, ast.Constant(abs(number)))
        if total is None and number < 0:
            items[0] = ast.UnaryOp(ast.USub(), items[0])
        product = functools.reduce(lambda a, b: ast.BinOp(a, ast.Mult(), b), items)
        total = product if total is None else ast.BinOp(total, ast.Sub() if number < 0 else ast.Add(), product)
    assert total is not None
    return total


def dtype_text(dtype: np.dtype) -> str:
    """An element type."""
    if dtype.kind in "Ob":
        return "str" if dtype.kind == "O" else "bool"
    return f"np.{dtype.name}" if hasattr(np, dtype.name) else f"jnp.{dtype.name}"


def _float(value: float, short: bool) -> str:
    if np.isnan(value):
        return "np.nan"
    if np.isinf(value):
        return "np.inf" if value > 0 else "-np.inf"
    return repr(short_float(value) if short else value).replace("e+", "e")


def short_float(value: float) -> float:
    """The number with the fewest digits next to a float32; any other number unchanged."""
    return float(str(np.float32(value))) if np.float32(value) == value else value


def _int(value: int | bool | None) -> str:
    """A number; the limits of int64, which mean "no limit", are written as powers."""
    return {2**63 - 1: "2**63 - 1", -(2**63): "-(2**63)"}.get(value, repr(value)) if type(value) is int else repr(value)


def _number(value: Any, dtype: np.dtype) -> str:
    if dtype.kind == "O":
        return string(str(value))
    if is_float(dtype):
        return _float(float(value), dtype != np.float64)
    return _int(value.item() if dtype.kind in "biuc" else int(value))


def _array(value: np.ndarray, plain: bool) -> Expression:
    bounded_operands((value,), "to_python: a static value")
    dtype = value.dtype
    if plain and dtype.kind in "iu" and value.ndim < 2 and value.size < _LARGE:
        return sequence("()", [_int(v) for v in value.tolist()]) if value.ndim else _int(value.item())
    dtype_args = ["object" if is_string(value) else dtype_text(dtype)]
    kind = [] if dtype.name in ("int64", "bool") else dtype_args
    if not value.ndim:
        return call("np.array", [_number(value[()], dtype), *kind])
    if value.size and value.ndim < 2 and value.size < _LARGE:
        return call("np.array", [_nested(value, dtype), *kind])
    shape = sequence("()", [str(size) for size in value.shape]) if value.ndim > 1 else str(value.size)
    if not value.size:
        return call("np.zeros", [shape, *dtype_args])
    if is_string(value):
        return call("np.array", [_nested(value, dtype), *dtype_args])
    if dtype.kind == "c":
        return Data(value)
    first = value.reshape(-1)[0]
    if np.full_like(value, first).tobytes() == value.tobytes():
        fill = {"0": "zeros", "0.0": "zeros", "1": "ones", "1.0": "ones"}.get(number := _number(first, dtype))
        return call(f"np.{fill}", [shape, *dtype_args]) if fill else call("np.full", [shape, number, *dtype_args])
    if dtype.kind == "i" and np.array_equal(value.reshape(-1), np.arange(value.size)):
        range_call = call("np.arange", [str(value.size), *kind], ["", *["dtype"] * len(kind)])
        return (
            range_call if value.ndim == 1 else call(f"{flat(range_call)}.reshape", [str(size) for size in value.shape])
        )
    if value.size < _LARGE and value.ndim == 2:
        return call("np.array", [_nested(value, dtype), *kind])
    return Data(value)


def _nested(value: Any, dtype: np.dtype) -> Expression:
    """The elements in lists of lists."""
    if np.ndim(value) == 0:
        return _number(value, dtype)
    return sequence("[]", [_nested(item, dtype) for item in value])
