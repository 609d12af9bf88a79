"""Symbolic dimensions of `jax.export`: their texts, other forms of them, and facts about them."""

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from jaxops.errors import symbols_in
from jaxops.static import Dim, is_symbolic, symbolic_shape

_QUOTIENT = re.compile(r"(floordiv\(.*\))( [+-] \d+)?")


# What the text of a size consists of.
_SIGNS: Any = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}

_OF_NUMBERS: Any = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}


def size_of_text(
    text: str, value_of: Callable[[str], Dim], functions: Mapping[str, Callable[..., Dim]] | None = None
) -> Dim:
    """The size that a text such as `past + sequence` means. value_of: that of a name."""

    def of(tree: ast.AST) -> Dim:
        match tree:
            case ast.BinOp():
                return _SIGNS[type(tree.op)](of(tree.left), of(tree.right))
            case ast.UnaryOp(op=ast.USub()):
                return -of(tree.operand)
            case ast.Call(func=ast.Name(id=name)):
                return (functions or {})[name](*map(of, tree.args))
            case ast.Name():
                return value_of(tree.id)
        return ast.literal_eval(tree)

    return of(ast.parse(text.replace("^", "**"), mode="eval").body)


def recomputed(size: Dim, functions: Mapping[str, Callable[..., Dim]], values: Mapping[str, Dim] | None = None) -> Dim:
    """A symbolic dimension, with these functions for its quotients, remainders, maxima and minima, and these values for
    some of its symbols."""
    symbols = values or {}
    return size_of_text(
        str(size),
        lambda name: symbols[name] if name in symbols else symbolic_shape(name, scope=size.scope)[0],
        functions,
    )


def note_equal(a: Dim, b: Dim) -> None:
    """Tells JAX that two symbolic dimensions are equal, as it looks for minutes at some."""
    for difference in (a - b, b - a):
        bounds = difference.scope._bounds_cache if is_symbolic(difference) else None
        if bounds:  # an answer is as precise as another one
            bounds[difference] = (0, 0, next(iter(bounds.values()))[2])


def arguments_of(function: str, text: str) -> list[str]:
    """The two arguments of `min(…, …)`; none for any other text."""
    if not (text.startswith(f"{function}(") and text.endswith(")")):
        return []
    inner, depth = text[len(function) + 1 : -1], 0
    for i, letter in enumerate(inner):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return []
        if letter == "," and not depth:
            return [inner[:i].strip(), inner[i + 1 :].strip()]
    return []


def quotient_in(size: Dim) -> tuple[Dim, int] | None:
    """The dividend and the divisor of a symbolic dimension that is a quotient by a number, plus a number; else None."""
    match = _QUOTIENT.fullmatch(str(size))
    parts = arguments_of("floordiv", match[1]) if match else []
    if not match or len(parts) != 2 or not parts[1].isdigit():
        return None
    divisor, more = int(parts[1]), int((match[2] or "0").replace(" ", ""))
    return symbolic_shape(parts[0], scope=size.scope)[0] + divisor * more, divisor


def at_zero(size: Dim) -> int:
    """A symbolic dimension with 0 for its symbols; 0 where that divides by one of them."""
    try:
        return size_of_text(str(size), lambda name: 0, _OF_NUMBERS)
    except ZeroDivisionError:
        return 0


# More combinations of numbers are not looked at one by one.
_MOST_COMBINATIONS = 1 << 22
_OF_ARRAYS: Any = {"floordiv": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum}


def numbers_of(size: Dim, ranges: Mapping[str, range]) -> np.ndarray | None:
    """All numbers that a symbolic dimension can be. ranges: those that each symbol in it can be.

    None where there are too many, and where it divides by one that may be 0.
    """
    names = symbols_in(size)
    if math.prod(len(ranges[name]) for name in names) > _MOST_COMBINATIONS:
        return None
    grids = dict(zip(names, np.ix_(*(np.asarray(ranges[name], np.int64) for name in names)), strict=True))
    try:
        with np.errstate(divide="raise"):
            return np.asarray(size_of_text(str(size), grids.__getitem__, _OF_ARRAYS))
    except FloatingPointError:
        return None


class _Bounds(dict[Any, Any]):
    """The bounds of sizes that JAX has computed; `exact` computes those that it has not.

    with_none: the bounds if a size that JAX takes for positive may be 0, where they differ; else None.
    """

    precision = SimpleNamespace(value=math.inf)

    def __init__(self, exact: Callable[[Dim], tuple[float, float] | None], with_none: "_Bounds | None") -> None:
        self.exact, self.with_none = exact, with_none

    def get(self, size: Dim, default: Any = None) -> Any:
        if size not in self:
            bounds = self.exact(size)
            if bounds is None:
                return default
            self[size] = (*bounds, self.precision)
        return self[size]


def bounded_by(
    scope: Any,
    exact: Callable[[Dim], tuple[float, float] | None],
    with_none: Callable[[Dim], tuple[float, float] | None] | None = None,
) -> None:
    """Lets JAX compare the symbolic sizes of a scope by bounds that are known; None: it finds them itself.

    with_none: the bounds if sizes that JAX takes for positive may be 0, for `may_be_none`.
    """
    scope._bounds_cache = _Bounds(exact, None if with_none is None else _Bounds(with_none, None))


def bounds_of(scope: Any) -> Callable[[Dim], tuple[float, float] | None]:
    """The function that `bounded_by` got for a scope; None for every size without one."""
    bounds = scope._bounds_cache
    return bounds.exact if isinstance(bounds, _Bounds) else lambda size: None


def is_counted(size: Dim) -> bool:
    """Returns True for a symbolic dimension whose symbols may be 0."""
    bounds = size.scope._bounds_cache if is_symbolic(size) else None
    return isinstance(bounds, _Bounds) and bounds.with_none is not None


def may_be_none(fn: Callable[[Dim, Dim], Any]) -> Callable[[Dim, Dim], Any]:
    """Runs `fn(a, b)` with the bounds of sizes that may be 0, such as the number of nonzero elements.

    JAX takes every symbol for positive. That is harmless where it rejects empty arrays, but not in a model's own
    arithmetic on sizes, where `n > 0` may be a question.
    """

    @functools.wraps(fn)
    def run(a: Dim, b: Dim) -> Any:
        if not is_counted(a) and not is_counted(b):
            return fn(a, b)
        scope: Any = a.scope if is_symbolic(a) else b.scope
        bounds = scope._bounds_cache
        scope._bounds_cache = bounds.with_none
        try:
            return fn(a, b)
        finally:
            scope._bounds_cache = bounds

    return run
