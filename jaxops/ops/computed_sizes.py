"""Floats of symbolic sizes that become sizes again: Shape, Cast to float, Mul by 0.5, Floor, Cast to int64.

A `Number` is such a float, as an exact fraction of sizes. What the float arithmetic of the model makes of it is
computed beside it for every value of the size, up to `LARGEST`, and where rounding gives another size, that is an
error. So an exported program has the sizes that the model has when it runs with numbers.
"""

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar, cast

import jax
import numpy as np

from jaxops.dtypes import is_float
from jaxops.errors import SizeError
from jaxops.ops.elementwise import on_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import Dim, FromSizes, Undecided, array, is_symbolic, settled

# Sizes up to here are tried. float32 has 24 bits, so larger ones would leave fewer than 8 for the fraction.
LARGEST = 2**16
# What a constant of a model means: 0.7 in float32 is 7/10. Larger numbers could overflow the int32 of traced sizes.
_DENOMINATOR, _NUMERATOR = 1024, 2**14
_EXACT_TYPES = ("float32", "float64")

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class Number:
    """top / bottom, for sizes in `top`.

    of: the size that all is computed from; None for a constant. sizes: values of it; None where there are several such
    sizes. tops and floats: what `top` and the arithmetic in `dtype` are for these. exact: nothing has been rounded.
    """

    dtype: Any
    top: Dim
    bottom: int = 1
    of: Dim = None
    sizes: Any = 0
    tops: Any = 0
    floats: Any = 0
    exact: bool = True


def _constant(value: Any, dtype: Any) -> "Number | SizeError":
    if not math.isfinite(value):
        return SizeError(f"{value} times a symbolic size is no size")
    meant = Fraction(float(value)).limit_denominator(_DENOMINATOR)
    if dtype.type(float(meant)) != value or abs(meant.numerator) > _NUMERATOR:
        return SizeError(f"the factor {value} of a symbolic size is no ratio of small whole numbers")
    exact = Fraction(float(value)) == meant
    top, bottom = meant.numerator, meant.denominator
    return Number(dtype, top, bottom, tops=top, floats=np.asarray(value, dtype), exact=exact)


def _of_size(size: Dim, dtype: Any) -> "Number | SizeError":
    if not is_float(dtype):
        return Number(dtype, size)
    if dtype.name not in _EXACT_TYPES:
        return SizeError(f"{dtype.name} does not hold every size that {size} may be", size)
    if not is_symbolic(size):
        return _constant(dtype.type(size), dtype)
    sizes = np.arange(*_range(size))
    return Number(dtype, size, of=size, sizes=sizes, tops=sizes, floats=sizes.astype(dtype))


def _range(size: Dim) -> tuple[int, int]:
    """The values to try: from the least that the size can have, to the largest, as far as these are known."""

    low = next((n for n in (1, 0) if _holds(operator.ge, size, n)), -256)
    high = LARGEST
    while high > 1 and _holds(operator.le, size, high // 2):
        high //= 2
    return low, high + 1


def _holds(fact: Callable[[Any, Any], bool], size: Dim, number: int) -> bool:
    """Whether it is known to hold."""
    try:
        return fact(size, number)
    except Undecided:
        return False


def _joined(a: Number, b: Number, top: Callable[[Any, Any], Any], bottom: int, floats: Any, exact: bool = True) -> Any:
    """A number made of two. top: from the tops of both, sizes or arrays."""
    one = b if a.of is None else a
    other = a if one is b else b
    known = one.sizes is not None and other.sizes is not None and (other.of is None or other.of == one.of)
    return Number(
        a.dtype,
        top(a.top, b.top),
        bottom,
        one.of,
        one.sizes if known else None,
        top(a.tops, b.tops) if known else None,
        floats(a.floats, b.floats) if known else None,
        exact and a.exact and b.exact and bottom & (bottom - 1) == 0,
    )


def _linear(a: Number, b: Number, top: Callable[[Any, Any], Any], floats: Any) -> Number:
    """Both over one denominator."""
    bottom = math.lcm(a.bottom, b.bottom)
    x, y = bottom // a.bottom, bottom // b.bottom
    return _joined(a, b, lambda s, t: top(s * x, t * y), bottom, floats)


def _add(a: Number, b: Number) -> Number:
    return _linear(a, b, lambda s, t: s + t, np.add)


def _sub(a: Number, b: Number) -> Number:
    return _linear(a, b, lambda s, t: s - t, np.subtract)


def _max(a: Number, b: Number) -> Number:
    return _linear(a, b, _either(np.maximum, of_sizes.larger), np.maximum)


def _min(a: Number, b: Number) -> Number:
    return _linear(a, b, _either(np.minimum, of_sizes.smaller), np.minimum)


def _either(of_arrays: Any, of_dims: Any) -> Any:
    return lambda s, t: (of_arrays if isinstance(s, np.ndarray) or isinstance(t, np.ndarray) else of_dims)(s, t)


def _mul(a: Number, b: Number) -> Number:
    a, b = (b, a) if a.of is None else (a, b)
    if b.of is not None:
        return _joined(a, b, lambda s, t: s * t, a.bottom * b.bottom, np.multiply)
    factor = Fraction(b.top, a.bottom * b.bottom)
    return _joined(a, b, lambda s, t: s * factor.numerator, factor.denominator, np.multiply)


def _div(a: Number, b: Number) -> Number | SizeError:
    if not is_float(a.dtype):
        return Number(a.dtype, of_sizes.quotient(a.top, b.top))
    if b.of is None:
        if b.top == 0:
            return SizeError(f"{a.top} is divided by 0", a.top)
        factor = Fraction(b.bottom, a.bottom * b.top)
        return _joined(a, b, lambda s, t: s * factor.numerator, factor.denominator, np.divide)
    whole, part = a.top * b.bottom, b.top * a.bottom
    if not of_sizes.greater_or_equal(part, 1):
        return SizeError(f"{whole} is divided by {part}, which may be 0", part)
    ratio = whole // part
    if ratio * part != whole or not (a.exact and b.exact):
        return SizeError(f"{whole} / {part} is no multiple of a size", whole, part)
    return _of_size(ratio, a.dtype)  # a whole quotient is not rounded


def _pow(a: Number, b: Number) -> Number | SizeError:
    if b.of is not None or b.bottom != 1 or not 1 <= b.top <= 4:
        return SizeError(f"a power of {a.top} is no multiple of a size", a.top)
    return functools.reduce(_mul, [a] * b.top)


def _neg(a: Number) -> Number:
    return replace(a, top=-a.top, tops=None if a.tops is None else -a.tops, floats=-a.floats)


def _sqrt(a: Number) -> SizeError:
    return SizeError(f"the square root of {a.top} is no multiple of a size", a.top)


def _floor(a: Number) -> Number | SizeError:
    return _whole(a, lambda top: top // a.bottom, np.floor)


def _ceil(a: Number) -> Number | SizeError:
    return _whole(a, lambda top: -(-top // a.bottom), np.ceil)


def _round(a: Number) -> Number | SizeError:
    def nearest(top: Any) -> Any:
        if a.bottom == 1:
            return top
        twice, unit = 2 * top + a.bottom, 2 * a.bottom
        # A tie was rounded up: half of those sums lie at an odd number, from which the even one is one less.
        rest = twice % (2 * unit)
        return twice // unit - (rest // unit - rest // (unit + 1))

    return _whole(a, nearest, np.rint)


def _whole(a: Number, top: Callable[[Any], Any], rounded: Any) -> Number | SizeError:
    """The number rounded to whole ones, if the rounded floats are those for every size."""
    text = f"{a.top}" if a.bottom == 1 else f"({a.top}) / {a.bottom}"
    if a.sizes is None:
        if not a.exact:
            return SizeError(f"{text}, rounded in {a.dtype.name}, depends on several sizes", a.top)
    else:
        wrong = np.flatnonzero(np.broadcast_to(rounded(a.floats) != top(a.tops), np.shape(a.sizes)))
        if wrong.size:
            at = a.sizes[wrong[0]]
            return SizeError(f"{text} is rounded in {a.dtype.name} to another size where {a.of} is {at}", a.of)
    return _of_size(top(a.top), a.dtype)


def _cast(a: Number, dtype: Any) -> Number | SizeError:
    if is_float(dtype):
        if not is_float(a.dtype):
            return _of_size(a.top, dtype)
        if dtype.name not in _EXACT_TYPES:
            return SizeError(f"{dtype.name} does not hold every size that {a.top} may be", a.top)
        return replace(a, dtype=dtype, floats=None if a.floats is None else a.floats.astype(dtype))
    if not is_float(a.dtype):
        return a
    if a.bottom > 1 and not of_sizes.greater_or_equal(a.top, 0):
        return SizeError(f"({a.top}) / {a.bottom} is negative, and no size", a.top)
    found = _whole(a, lambda top: top // a.bottom, np.trunc)
    return found if isinstance(found, SizeError) else Number(dtype, found.top)


def _items(value: Any, dtype: Any) -> Any:
    """The elements of an operand: each a `Number`, a boolean, or the SizeError that says why it is none of a size.

    dtype: of the other operands, for a Python number.
    """
    if type(value) in (list, tuple):
        return [_items(item, dtype) for item in value]
    if isinstance(value, FromSizes):
        return value.items
    values = array(value) if isinstance(value, np.ndarray) else np.asarray(value, dtype)
    if values.dtype == bool:
        return values.astype(object)
    if is_float(values.dtype):
        return on_sizes(lambda v: _constant(v, values.dtype), values.astype(object))
    return on_sizes(lambda v: Number(np.dtype(np.int64), v), values.astype(object))


def sizes_as(sizes: np.ndarray, dtype: Any, traced: jax.Array) -> Any:
    """Symbolic sizes as floats of `dtype`. traced: the same as an array."""
    return FromSizes(traced, on_sizes(lambda d: _of_size(d, dtype), sizes))


def facts(fact: Callable[..., bool], traced: jax.Array, *arrays: np.ndarray) -> Any:
    """What holds of symbolic sizes, element by element; an element may be open. traced: the same as an array."""
    return _result(traced, _each(fact)(*arrays))


def steps(start: Any, limit: Any, delta: Any) -> Dim:
    """The number of elements of a range of floats, which sizes give. Raises SizeError where that is no size."""
    first, last, step = (_items(v, np.float32).reshape(())[()] for v in (start, limit, delta))
    found = _each(_ceil)(_each(_div)(_each(_sub)(last, first), step))[()]
    if isinstance(found, SizeError):
        raise found
    return of_sizes.larger(found.top, 0)


def _result(traced: Any, found: Any) -> Any:
    """The result of an operator: static where every element is a size, a constant or a fact."""
    if isinstance(found, tuple):
        return tuple(map(_result, traced, found))
    if all(isinstance(item, bool) for item in found.flat):
        return found.astype(bool)
    if all(isinstance(item, Number) for item in found.flat):
        if not is_float(traced.dtype):
            return settled(on_sizes(lambda item: item.top, found))
        if all(item.of is None for item in found.flat):
            return on_sizes(lambda item: item.floats, found).astype(found.flat[0].dtype)
    return FromSizes(traced, found)


def _each(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`fn` on each element. An error there is the result there, as the other elements may be all that is needed."""

    def one(*operands: Any) -> Any:
        problem = next((v for v in operands if isinstance(v, SizeError)), None)
        try:
            return problem or fn(*operands)
        except SizeError as error:
            return error

    return lambda *arrays: on_sizes(one, *arrays)


def _of_list(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda inputs: functools.reduce(_each(fn), inputs)


def _chosen(test: Any, x: Any, y: Any) -> Any:
    return test if isinstance(test, SizeError) else x if test else y


def _and(a: Any, b: Any) -> Any:
    return next((v for v in (a, b) if v is False), a if isinstance(a, SizeError) else b)


def _or(a: Any, b: Any) -> Any:
    return next((v for v in (a, b) if v is True), a if isinstance(a, SizeError) else b)


# What operators do to the elements of all operands. Every other one that is marked moves those of the first one.
_RULES: dict[str, Callable[..., Any]] = {
    **{f.__name__[1:]: _each(f) for f in (_add, _sub, _mul, _div, _pow, _neg, _sqrt, _floor, _ceil, _round)},
    "max": _of_list(_max),
    "min": _of_list(_min),
    "not_": _each(lambda a: not a),
    "and_": lambda a, b: on_sizes(_and, a, b),
    "or_": lambda a, b: on_sizes(_or, a, b),
    "where": lambda test, x, y: on_sizes(_chosen, test, x, y),
    "cast": lambda a, *, to, **_: _each(lambda item: _cast(item, np.dtype(to)))(a),
}


def computes_sizes(fn: F) -> F:
    """Marks an operator that keeps what its `FromSizes` operands know; to all others they are traced arrays."""
    rule = _RULES.get(fn.__name__)

    @functools.wraps(fn)
    def run(*args: Any, **attributes: Any) -> Any:
        operands = [x for arg in args for x in (arg if type(arg) in (list, tuple) else (arg,))]
        known = next((x for x in operands if type(x) is FromSizes), None)
        if known is None:
            return fn(*args, **attributes)
        traced = fn(*map(_as_traced, args), **attributes)
        if any(isinstance(x, jax.Array) for x in operands):
            return traced
        if rule is None:
            return _result(traced, fn(_items(args[0], known.dtype), *args[1:], **attributes))
        return _result(traced, rule(*(_items(arg, known.dtype) for arg in args), **attributes))

    return cast(F, run)


def _as_traced(arg: Any) -> Any:
    if type(arg) in (list, tuple):
        return [_as_traced(x) for x in arg]
    return arg.traced if isinstance(arg, FromSizes) else arg
