"""Operators that track what comes from symbolic sizes until it is a size again: floats (see `symbolic_floats`), and
arrays of a symbolic shape that hold one number.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

import jax
import numpy as np

from jaxops.dtypes import is_float
from jaxops.errors import SizeError
from jaxops.ops.common import symbolic_floats as floats
from jaxops.ops.common.elementwise import on_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import Dim, FromSizes, Sizes, Undecided, array, is_symbolic, static_array

F = TypeVar("F", bound=Callable[..., Any])


def _items(value: Any, dtype: Any) -> Any:
    """The elements of an operand: each a `SizeRatio`, a boolean, or the SizeError with the reason why it does not
    follow from a size.

    dtype: the type that a Python number takes, that of the other operands.
    """
    if type(value) in (list, tuple):
        return [_items(item, dtype) for item in value]
    if isinstance(value, FromSizes):
        return value.items
    values = array(value) if isinstance(value, np.ndarray) else np.asarray(value, dtype)
    if values.dtype == bool:
        return values.astype(object)
    if is_float(values.dtype):
        return on_sizes(lambda v: floats.number_of(v, values.dtype), values.astype(object))
    return on_sizes(lambda v: floats.SizeRatio(np.dtype(np.int64), v), values.astype(object))


def sizes_as(sizes: np.ndarray, dtype: Any, traced: jax.Array) -> Any:
    """Symbolic sizes as floats of `dtype`. traced: the same floats as a traced array."""
    return FromSizes(traced, on_sizes(lambda d: floats.of_size(d, dtype), sizes))


def facts(fact: Callable[..., bool], traced: jax.Array, *arrays: np.ndarray) -> Any:
    """Evaluates a predicate on symbolic sizes, element by element; an element may stay undecided.

    traced: the same booleans as a traced array.
    """
    return _result(traced, _each(fact)(*arrays))


def repeated(value: Any, y: Any) -> Any:
    """The result `y` of an operator that repeats elements of `value`: tracked, if `value` holds one known integer."""
    if isinstance(y, np.ndarray):
        return y
    values = value if isinstance(value, FromSizes) else array(value)
    if isinstance(values, np.ndarray) and values.dtype != np.int64 and not is_symbolic(values):
        return y  # sizes are int64
    item = _only_item(values, values.dtype)
    return y if item is None else _filled(y, item)


def only_number(value: FromSizes) -> Dim | None:
    """The integer that all elements of an array have; None if that is not known."""
    item = _only_item(value, value.dtype)
    return item.numerator if isinstance(item, floats.SizeRatio) and not is_float(item.dtype) else None


def equal_in(fn: F) -> F:
    """Marks a reduction whose result for equal numbers is that number, such as a maximum."""

    @functools.wraps(fn)
    def run(data: Any, *args: Any, **attributes: Any) -> Any:
        y = fn(data, *args, **attributes)
        known = isinstance(data, FromSizes) and not data.items.ndim and _is_filled(data.shape)
        return _filled(y, data.items[()]) if known else y

    return cast(F, run)


def sums_equal(fn: F) -> F:
    """Marks a sum: of a known integer, it is the integer times the number of elements."""

    @functools.wraps(fn)
    def run(data: Any, *args: Any, **attributes: Any) -> Any:
        y = fn(data, *args, **attributes)
        number = only_number(data) if isinstance(data, FromSizes) and not data.items.ndim else None
        if number is None or data.dtype != y.dtype:
            return y
        count = of_sizes.divided("the elements of a sum", math.prod(data.shape), math.prod(y.shape))
        return _filled(y, floats.SizeRatio(np.dtype(np.int64), number * count))

    return cast(F, run)


def _is_filled(sizes: Sizes) -> bool:
    """Returns True if an array has an element for all values of its sizes."""
    try:
        return all(of_sizes.greater_or_equal(d, 1) for d in sizes)
    except SizeError:
        return False


def _only_item(value: Any, dtype: Any) -> Any:
    """The item that all elements of an operand are known to have; None if there is none. dtype: as in `_items`."""
    if type(value) in (list, tuple):
        found = [_only_item(v, dtype) for v in value]
        return found[0] if found and all(_same(found[0], item) for item in found) else None
    if isinstance(value, jax.Array) or (not isinstance(value, FromSizes) and np.size(value) != 1):
        return None
    if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.dtype != np.int64:
        return None  # a static integer that is tracked is int64
    items = _items(value, dtype)
    return items.reshape(())[()] if items.size == 1 else None


def _filled(traced: Any, item: Any) -> Any:
    """A result all of whose elements are `item`: static if its sizes and its elements are known."""
    if isinstance(traced, list | tuple):
        return type(traced)(_filled(y, item) for y in traced)
    number = isinstance(item, floats.SizeRatio)
    too_large = number and isinstance(item.numerator, int) and not -(2**63) <= item.numerator < 2**63
    if too_large or (number and item.dtype.kind in "iu" and item.dtype != np.int64) or 0 in traced.shape:
        return traced
    one = np.array(item, object)
    if any(map(is_symbolic, traced.shape)):
        return FromSizes(traced, one)
    y = _result(traced, one)
    if isinstance(y, np.ndarray):
        return np.broadcast_to(y, traced.shape)
    return FromSizes(traced, one.reshape(traced.shape)) if traced.size == 1 else traced


def _same(a: Any, b: Any) -> bool:
    """Returns True if two elements are known to be one integer or boolean."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    integers = all(isinstance(v, floats.SizeRatio) and not is_float(v.dtype) for v in (a, b))
    return integers and bool(a.numerator == b.numerator)


def steps(start: Any, limit: Any, delta: Any) -> Dim:
    """The number of elements of a range of floats computed from sizes. Raises SizeError if that is not a size."""
    first, last, step = (_items(v, np.float32).reshape(())[()] for v in (start, limit, delta))
    sub, div, ceil = (_each(floats.RULES[name]) for name in ("sub", "div", "ceil"))
    count = ceil(div(sub(last, first), step))[()]
    if isinstance(count, SizeError):
        raise count
    return of_sizes.larger(count.numerator, 0)


def _result(traced: Any, items: Any) -> Any:
    """The result of an operator: static if every element is a size, a constant or a boolean."""
    if isinstance(items, tuple):
        return tuple(map(_result, traced, items))
    if all(isinstance(item, bool) for item in items.flat):
        return items.astype(bool)
    if all(isinstance(item, floats.SizeRatio) for item in items.flat):
        if not is_float(traced.dtype):
            return static_array(on_sizes(lambda item: item.numerator, items))
        if all(item.base is None for item in items.flat):
            return on_sizes(lambda item: item.floats, items).astype(items.flat[0].dtype)
    return FromSizes(traced, items)


def _each(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Applies `fn` to each element. A SizeError becomes the result for its element: it may never be needed."""

    def one(*operands: Any) -> Any:
        problem = next((v for v in operands if isinstance(v, SizeError)), None)
        if problem and not problem.symbols:  # a constant makes the error: name the sizes that meet it
            problem = SizeError(problem.problem, *(v.numerator for v in operands if isinstance(v, floats.SizeRatio)))
        try:
            return problem or fn(*operands)
        except SizeError as error:
            return error

    return lambda *arrays: on_sizes(one, *arrays)


def _of_list(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda inputs: functools.reduce(_each(fn), inputs)


def _chosen(test: Any, x: Any, y: Any) -> Any:
    return x if _same(x, y) else test if isinstance(test, SizeError) else x if test else y


def _and(a: Any, b: Any) -> Any:
    return next((v for v in (a, b) if v is False), a if isinstance(a, SizeError) else b)


def _or(a: Any, b: Any) -> Any:
    return next((v for v in (a, b) if v is True), a if isinstance(a, SizeError) else b)


# Operators that compute on the elements of all operands. Any other marked operator moves elements of its first operand.
_RULES: dict[str, Callable[..., Any]] = {
    **{name: _each(rule) for name, rule in floats.RULES.items()},
    "max": _of_list(floats.RULES["max"]),
    "min": _of_list(floats.RULES["min"]),
    "cast": lambda a, *, to, **_: _each(lambda item: floats.RULES["cast"](item, np.dtype(to)))(a),
    "not_": _each(lambda a: not a),
    "and_": lambda a, b: on_sizes(_and, a, b),
    "or_": lambda a, b: on_sizes(_or, a, b),
    "where": lambda test, x, y: on_sizes(_chosen, test, x, y),
}


def tracks_sizes(fn: F) -> F:
    """Marks an operator that tracks its `FromSizes` operands; to any other operator they are traced arrays."""
    rule = _RULES.get(fn.__name__)

    @functools.wraps(fn)
    def run(*args: Any, **attributes: Any) -> Any:
        with_elements = args if rule else args[:1]  # later operands determine how the elements move
        operands = [x for arg in with_elements for x in (arg if type(arg) in (list, tuple) else (arg,))]
        from_sizes = next((x for x in operands if type(x) is FromSizes), None)
        if from_sizes is None:
            return fn(*args, **attributes)
        traced = fn(*map(_as_traced, with_elements), *args[len(with_elements) :], **attributes)
        if any(isinstance(x, jax.Array) for x in operands):
            return traced
        if any(isinstance(x, FromSizes) and not x.items.ndim and x.ndim for x in operands):
            return _of_filled(rule, traced, args[: len(with_elements)], from_sizes.dtype, attributes)
        if rule is None:
            return _result(traced, fn(_items(args[0], from_sizes.dtype), *args[1:], **attributes))
        return _result(traced, rule(*(_items(arg, from_sizes.dtype) for arg in args), **attributes))

    return cast(F, run)


def _of_filled(rule: Any, traced: Any, args: Sequence[Any], dtype: Any, attributes: Mapping[str, Any]) -> Any:
    """The result of an operator with an operand of one number; traced if another one has several."""
    if rule is None:
        item = _only_item(args[0], dtype)
        return traced if item is None else _filled(traced, item)
    found = jax.tree.map(lambda x: np.array(_only_item(x, dtype), object), list(args), is_leaf=_is_operand)
    if any(item[()] is None for item in jax.tree.leaves(found)):
        return traced
    try:
        return _filled(traced, rule(*found, **attributes)[()])
    except Undecided:
        return traced


def _is_operand(x: Any) -> bool:
    return type(x) not in (list, tuple)


def _as_traced(arg: Any) -> Any:
    if type(arg) in (list, tuple):
        return [_as_traced(x) for x in arg]
    return arg.traced if isinstance(arg, FromSizes) else arg
