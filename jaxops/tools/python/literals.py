"""Static values as Python writes them."""

import keyword
import re
from typing import Any

import numpy as np

from jaxops.dtypes import is_float, is_string
from jaxops.static import is_symbolic
from jaxops.tools.python.expressions import Data, Expression, Size, call, sequence

# From this many elements on an array is data, and goes to the file of the parameters.
_LARGE = 17


def literal(value: Any, *, plain: bool = False, short_floats: bool = True) -> Expression:
    """A static value or an attribute.

    plain: integers and vectors of them may be Python numbers and tuples, as an operator takes them. short_floats:
    0.1 may stand for the float32 next to it.
    """
    if is_symbolic(value):
        sizes = written_sizes(value)
        assert sizes is not None, "a size that cannot be written is a value of its own"
        return sizes if plain else call("np.array", [sizes])
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value), plain)
    if isinstance(value, np.dtype):
        return dtype_text(value)
    if isinstance(value, tuple | list):
        return sequence("()", [literal(item, plain=plain, short_floats=short_floats) for item in value])
    if isinstance(value, float):
        return _float(value, short_floats)
    if isinstance(value, str):
        return string(value)
    assert value is None or isinstance(value, int), value
    return _int(value)


def written_sizes(value: Any) -> Expression | None:
    """Symbolic sizes, one or a vector, as arithmetic on their symbols; None for what Python's operators do not say."""
    if np.ndim(value) > 1:
        return None
    items = [_size(item) for item in np.asarray(value, object).reshape(-1)]
    if None in items:
        return None
    return sequence("()", [item for item in items if item]) if np.ndim(value) else items[0]


def _size(value: Any) -> Expression | None:
    text = str(value)
    if re.search(r"[^\w +*-]", text):  # mod(a, b), a^2
        return None
    symbols = tuple(dict.fromkeys(re.findall(r"[A-Za-z_]\w*", text)))
    return Size(text.replace("*", " * "), symbols) if symbols else text


def string(value: str) -> str:
    """A string in double quotes, unless that takes more escapes."""
    text = repr(value)
    return text if '"' in value or text[0] == '"' else f'"{text[1:-1]}"'


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
    if short and float(np.float32(value)) == value:
        return str(np.float32(value)).replace("e+", "e")
    return repr(value).replace("e+", "e")


def _int(value: int | bool | None) -> str:
    """A number; the ends of int64, which stand for no end, as powers."""
    return {2**63 - 1: "2**63 - 1", -(2**63): "-(2**63)"}.get(value, repr(value)) if type(value) is int else repr(value)


def _number(value: Any, dtype: np.dtype) -> str:
    if dtype.kind == "O":
        return string(str(value))
    if is_float(dtype):
        return _float(float(value), dtype != np.float64)
    return _int(value.item() if dtype.kind in "biuc" else int(value))


def _array(value: np.ndarray, plain: bool) -> Expression:
    dtype = value.dtype
    if plain and dtype.kind in "iu" and value.ndim < 2 and value.size < _LARGE:
        return sequence("()", [_int(v) for v in value.tolist()]) if value.ndim else _int(value.item())
    own = ["object" if is_string(value) else dtype_text(dtype)]
    kind = [] if dtype.name in ("int64", "bool") else own
    if not value.ndim:
        return call("np.array", [_number(value[()], dtype), *kind])
    if value.size and value.ndim < 2 and value.size < _LARGE:
        return call("np.array", [sequence("[]", [_number(v, dtype) for v in value]), *kind])
    shape = sequence("()", [str(size) for size in value.shape]) if value.ndim > 1 else str(value.size)
    if not value.size:
        return call("np.zeros", [shape, *own])
    if is_string(value) or dtype.kind == "c":
        return Data(value)
    first = value.reshape(-1)[0]
    if np.full_like(value, first).tobytes() == value.tobytes():
        fill = {"0": "zeros", "0.0": "zeros", "1": "ones", "1.0": "ones"}.get(number := _number(first, dtype))
        return call(f"np.{fill}", [shape, *own]) if fill else call("np.full", [shape, number, *own])
    if dtype.kind == "i" and np.array_equal(value.reshape(-1), np.arange(value.size)):
        flat = call("np.arange", [str(value.size), *kind])
        return flat if value.ndim == 1 else call(f"{_flat(flat)}.reshape", [str(size) for size in value.shape])
    if value.size < _LARGE and value.ndim == 2:
        rows = [sequence("[]", [_number(v, dtype) for v in row]) for row in value]
        return call("np.array", [sequence("[]", rows), *kind])
    return Data(value)


def _flat(expression: Any) -> str:
    return expression.opening + ", ".join(expression.items) + expression.closing


def identifier(text: str, taken: Any = ()) -> str:
    """A name for Python that is not taken, from any text."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", text)
    words = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_").lower() or "x"
    while "__" in words:
        words = words.replace("__", "_")
    base = f"x{words}" if words[0].isdigit() else words
    base = f"{base}_" if keyword.iskeyword(base) or base == "l" else base
    found, count = base, 1
    while found in taken:
        count += 1
        found = f"{base.rstrip('_')}_{count}"
    return found
