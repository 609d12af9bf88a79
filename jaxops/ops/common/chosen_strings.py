"""Strings that traced numbers choose, in operators that move or compare elements: numbers stand for them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import is_string
from jaxops.memory import bounded_operands
from jaxops.opaque import ChosenStrings
from jaxops.static import StaticValue, Tracer

F = TypeVar("F", bound=Callable[..., Any])


def moves_strings(*positions: int) -> Callable[[F], F]:
    """Marks an operator that moves elements without reading them, so that it moves chosen strings under `jit`.

    The result is `ChosenStrings` where traced numbers choose strings among the operands, or where a traced operand
    tells how to move static strings. positions: those of the operands with elements.
    """

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def run(*args: Any, **attributes: Any) -> Any:
            if not any(map(_is_traced, args)) and not any(map(_is_traced, attributes.values())):
                return fn(*args, **attributes)
            given = [k for k in positions if k < len(args)]
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


def _is_traced(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_is_traced, value))
    return isinstance(value.array if isinstance(value, ChosenStrings) else value, Tracer)


def _as_numbers(operands: Sequence[Any]) -> tuple[list[Any], StaticValue | None]:
    """Numbers in place of strings, equal where the strings are, and the string of each number.

    operands: arrays, and lists of arrays. Returns them and None unless all of them hold strings.
    """
    arrays = [x for operand in operands for x in (operand if type(operand) in (list, tuple) else (operand,))]
    if not arrays or not all(map(_holds_strings, arrays)):
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


def _holds_strings(value: Any) -> bool:
    return isinstance(value, ChosenStrings | str) or (isinstance(value, np.ndarray) and is_string(value))


def _chosen(codes: np.ndarray, strings: ChosenStrings) -> Any:
    """The codes of chosen strings. codes: that of each string; a position out of range gets -1, which is no string."""
    inside = (strings.array >= 0) & (strings.array < len(codes))
    place = jnp.where(inside, strings.array, jnp.full_like(strings.array, len(codes)))
    return jnp.asarray(np.append(codes, np.int32(-1)))[place]
