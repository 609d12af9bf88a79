"""Operators that track floats of symbolic sizes until they are sizes again; see `symbolic_floats`."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import numpy as np

from jaxops.dtypes import is_float
from jaxops.errors import SizeError
from jaxops.ops.common import symbolic_floats as floats
from jaxops.ops.common.elementwise import on_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.static import Dim, FromSizes, array, static_array

F = TypeVar("F", bound=Callable[..., Any])


def _items(value: Any, dtype: Any) -> Any:
    """The elements of an operand: each a `SizeRatio`, a boolean, or the SizeError that tells why it does not follow
    from a size.

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
    return test if isinstance(test, SizeError) else x if test else y


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
        with_elements = args if rule else args[:1]  # later operands tell how to move the elements
        operands = [x for arg in with_elements for x in (arg if type(arg) in (list, tuple) else (arg,))]
        from_sizes = next((x for x in operands if type(x) is FromSizes), None)
        if from_sizes is None:
            return fn(*args, **attributes)
        traced = fn(*map(_as_traced, with_elements), *args[len(with_elements) :], **attributes)
        if any(isinstance(x, jax.Array) for x in operands):
            return traced
        if rule is None:
            return _result(traced, fn(_items(args[0], from_sizes.dtype), *args[1:], **attributes))
        return _result(traced, rule(*(_items(arg, from_sizes.dtype) for arg in args), **attributes))

    return cast(F, run)


def _as_traced(arg: Any) -> Any:
    if type(arg) in (list, tuple):
        return [_as_traced(x) for x in arg]
    return arg.traced if isinstance(arg, FromSizes) else arg
