"""Strings that traced numbers choose, in operators that move or compare elements: numbers stand for them."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced, is_float, is_string
from jaxops.memory import bounded_operands
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.elementwise import broadcast_to
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.static import StaticValue, Tracer

F = TypeVar("F", bound=Callable[..., Any])
_NONE = StaticValue(np.array([], object))


def moves_strings(*positions: int) -> Callable[[F], F]:
    """Marks an operator that moves elements without reading them, so that it moves chosen strings under `jit`.

    The result is `ChosenStrings` where traced numbers choose strings among the operands, or where a traced operand
    knows how to move static strings. positions: those of the operands with elements, some of which may be None.
    """

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def run(*args: Any, **attributes: Any) -> Any:
            traced = any(map(_is_traced, args)) or any(map(_is_traced, attributes.values()))
            if not traced or attributes.get("reduction", "none") != "none":  # a reduction reads the elements
                return fn(*args, **attributes)
            given = [k for k in positions if k < len(args) and args[k] is not None]
            numbers, strings = _as_numbers([args[k] for k in given])
            if strings is None:
                return fn(*args, **attributes)
            numbered = dict(zip(given, numbers, strict=True))
            result = fn(*(numbered.get(k, x) for k, x in enumerate(args)), **attributes)
            if type(result) is tuple:
                return tuple(ChosenStrings(y, strings) for y in result)
            return ChosenStrings(result, strings)

        return cast(F, run)

    return decorate


def compares_strings(fn: F) -> F:
    """Marks an operator that only compares elements for equality, so that it compares chosen strings under `jit`."""

    @functools.wraps(fn)
    def run(a: Any, b: Any) -> Any:
        return fn(*_as_numbers([a, b])[0]) if _is_traced(a) or _is_traced(b) else fn(a, b)

    return cast(F, run)


def maps_strings(fn: F) -> F:
    """Marks an operator that maps each element of its first operand by itself, so that it maps the strings among which
    traced numbers choose, and the numbers choose among the results.

    An index out of range, which has no string, gives NaN, -1 or False, and an error where the result is a string.
    """

    @functools.wraps(fn)
    def run(*args: Any, **attributes: Any) -> Any:
        x = args[0] if args else None
        if not isinstance(x, ChosenStrings) or not _is_traced(x):
            return fn(*args, **attributes)
        results = fn(x.items.value, **attributes)
        if is_string(results):
            return ChosenStrings(x.array, StaticValue(results))
        table = as_traced(results)
        fill = np.nan if is_float(table.dtype) else False if table.dtype == bool else -1
        inside = (x.array >= 0) & (x.array < len(results))
        place = jnp.where(inside, x.array, jnp.full_like(x.array, len(results)))
        return jnp.append(table, jnp.asarray(fill).astype(table.dtype))[place]

    return cast(F, run)


def joins_strings(fn: F) -> F:
    """Marks an operator that maps each pair of elements of its two operands by itself to a string, so that it maps all
    pairs of strings among which traced numbers choose. An index out of range has no string, nor has its pair.
    """

    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def run(*arguments: Any, **named: Any) -> Any:
        operands = signature.bind(*arguments, **named).args
        if not any(map(_is_traced, operands)) or not all(map(holds_strings, operands)):
            return fn(*operands)
        (a, first), (b, second) = ((numbers, items) for [numbers], items in (_as_numbers([x]) for x in operands))
        assert first is not None
        assert second is not None
        whole = fn(first.value[:, None], second.value[None, :])
        sizes = broadcast(a.shape, b.shape)
        a, b = (broadcast_to(as_traced(x), sizes) for x in (a, b))
        inside = (a >= 0) & (a < whole.shape[0]) & (b >= 0) & (b < whole.shape[1])
        place = jnp.where(inside, a * whole.shape[1] + b, jnp.full_like(a, -1))
        return ChosenStrings(place, StaticValue(whole.reshape(-1)))

    return cast(F, run)


def appended_strings(value: Any, strings: list[str]) -> ChosenStrings:
    """Strings as positions in a list that several values share, to which theirs are appended.

    The result has no strings of its own: values with the same list may take each other's place.
    """
    own = value if isinstance(value, ChosenStrings) else ChosenStrings.all_of(np.asarray(value, object))
    count, before = len(own.items.value), len(strings)
    strings += own.items.value.tolist()
    inside = (own.array >= 0) & (own.array < count)
    return ChosenStrings(jnp.where(inside, own.array + before, jnp.full_like(own.array, -1)), _NONE)


def _is_traced(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_is_traced, value))
    return isinstance(value.array if isinstance(value, ChosenStrings) else value, Tracer)


def _as_numbers(operands: Sequence[Any]) -> tuple[list[Any], StaticValue | None]:
    """Numbers in place of strings, equal where the strings are, and the string of each number.

    operands: arrays, and lists of arrays. Returns them and None unless all of them hold strings.
    """
    arrays = [x for operand in operands for x in (operand if type(operand) in (list, tuple) else (operand,))]
    if not arrays or not all(map(holds_strings, arrays)):
        return list(operands), None
    if len(arrays) == 1 and isinstance(arrays[0], ChosenStrings):
        numbers, strings = [arrays[0].array], arrays[0].items
    else:
        tables = [np.asarray(x.items.value if isinstance(x, ChosenStrings) else x).astype(object) for x in arrays]
        bounded_operands(tables)
        number_of: dict[Any, int] = {}
        codes = [
            np.array([number_of.setdefault(text, len(number_of)) for text in table.flat], np.int32).reshape(table.shape)
            for table in tables
        ]
        numbers = [
            _chosen(code, x) if isinstance(x, ChosenStrings) else code for code, x in zip(codes, arrays, strict=True)
        ]
        strings = StaticValue(np.array(list(number_of), object))
    left = iter(numbers)
    return [[next(left) for _ in x] if type(x) in (list, tuple) else next(left) for x in operands], strings


def holds_strings(value: Any) -> bool:
    """Returns True for strings, static ones or chosen ones."""
    return isinstance(value, ChosenStrings | str) or (isinstance(value, np.ndarray) and is_string(value))


def _chosen(codes: np.ndarray, strings: ChosenStrings) -> Any:
    """The codes of chosen strings. codes: that of each string; a position out of range gets -1, which is no string."""
    inside = (strings.array >= 0) & (strings.array < len(codes))
    place = jnp.where(inside, strings.array, jnp.full_like(strings.array, len(codes)))
    return jnp.asarray(np.append(codes, np.int32(-1)))[place]
