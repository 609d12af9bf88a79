"""Finds bounds of sizes under which an inequality holds, or an equation with minima or maxima."""

import re
from collections.abc import Callable
from typing import Any

from jaxops.errors import symbols_in
from jaxops.shapes.arithmetic import larger, smaller
from jaxops.static import Undecided, evaluated, is_symbolic, symbolic_shape
from jaxops.symbolic import recomputed

_MOST = 4  # minima and maxima in one equation; each has two operands
_TRIED = 8192  # limits up to half of this are found
_SIGN = re.compile(r" (==|>=) ")


def bounds(needs: str) -> list[str]:
    """Limits under which `needs`, an equation or `… >= …`, holds: ["t <= 63"] for `b*min(t, 63) == b*t`, or `126 >=
    2*t`.

    Empty for an equation without minima and maxima, and where no choice among their operands helps.
    """
    sign = _SIGN.search(needs)
    if sign is None:
        return []
    if "min(" in needs or "max(" in needs:
        left, right = symbolic_shape(_SIGN.sub(", ", needs))
        return [_plain(limit) for limit in _limits_of(left - right, sign[1] == "==", ()) or ()]
    return [_plain(needs)] if sign[1] == ">=" else []


def _limits_of(difference: Any, equation: bool, chosen: tuple[str, ...]) -> tuple[str, ...] | None:
    """The limits under which a difference is 0 (or not negative); None if there are none. chosen: limits so far."""
    open_ = _choices(difference) if is_symbolic(difference) else []
    if not open_:
        return chosen if _holds(difference, equation) else None
    if len(open_) + len(chosen) > _MOST:
        return None
    name, a, b = open_[0]
    for value, other in ((a, b), (b, a)):
        less = (name == "min") != isinstance(value, int)  # JAX rejects a limit of a number
        limit = f"{other if isinstance(value, int) else value} {'<=' if less else '>='} "
        limit += str(value if isinstance(value, int) else other)
        limits = _limits_of(_with(difference, open_[0], value), equation, (*chosen, limit))
        if limits is not None:
            return limits
    return None


def _holds(difference: Any, equation: bool) -> bool:
    if equation:
        return not is_symbolic(difference) and difference == 0
    try:
        return bool(difference >= 0)
    except Undecided:
        return False


def _choices(size: Any) -> list[tuple[str, Any, Any]]:
    """The minima and maxima in a size, the innermost first: ("min" or "max", the two operands)."""
    choices: dict[str, tuple[str, Any, Any]] = {}

    def noted(name: str, fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        def run(a: Any, b: Any) -> Any:
            choices.setdefault(f"{name}({a}, {b})", (name, a, b))
            return fn(a, b)

        return run

    recomputed(size, {**_DIVISIONS, "min": noted("min", smaller), "max": noted("max", larger)})
    return list(choices.values())


def _with(size: Any, choice: tuple[str, Any, Any], value: Any) -> Any:
    """A size with `value` in place of one of its minima or maxima."""
    name, *operands = choice

    def chosen(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda a, b: value if [str(a), str(b)] == list(map(str, operands)) else fn(a, b)

    functions: dict[str, Callable[..., Any]] = {"min": smaller, "max": larger}
    return recomputed(size, {**_DIVISIONS, **functions, name: chosen(functions[name])})


_DIVISIONS: dict[str, Callable[..., Any]] = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b}


def _plain(limit: str) -> str:
    """A limit of one symbol in its simplest form, if there is one: `t <= 32` for `2*t - 1 <= 63`."""
    left, sign, right = re.split(r" (<=|>=) ", limit)
    a, b = symbolic_shape(f"{left}, {right}")
    difference = a - b if sign == ">=" else b - a
    if len(symbols_in(difference)) != 1:
        return limit
    (symbol,) = symbols_in(difference)
    holds = [evaluated(difference, {symbol: n}) >= 0 for n in range(1, _TRIED + 1)]
    changes = [n for n in range(1, _TRIED) if holds[n] != holds[n - 1]]
    if len(changes) != 1 or changes[0] > _TRIED // 2:
        return limit
    return f"{symbol} <= {changes[0]}" if holds[0] else f"{symbol} >= {changes[0] + 1}"
