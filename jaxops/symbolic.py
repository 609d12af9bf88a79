"""Symbolic dimensions of `jax.export`, computed with other operations or values, and texts of sizes."""

import ast
import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from jaxops.errors import symbols_in
from jaxops.jax_internals import Factor, Term, terms
from jaxops.static import Dim, symbolic_shape

# What the text of a size consists of.
_SIGNS: Any = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow}
# The functions in a size, for numbers and for arrays.
OF_NUMBERS: Any = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}
OF_ARRAYS: Any = {"floordiv": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum}
_COMPARISON = re.compile(r"\s*(<=|>=|==)\s*")


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


def sides(comparison: str) -> tuple[str, str, str]:
    """The left side, the sign and the right side of a text such as `s <= 512`."""
    left, sign, right = _COMPARISON.split(comparison, 1)
    return left, sign, right


def computed(size: Dim, value_of: Callable[[str], Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
    """A symbolic dimension with values for its symbols, and these functions for its quotients, remainders, maxima and
    minima."""

    def of(factor: Factor) -> Any:
        operands = [computed(operand, value_of, functions) for operand in factor.operands]
        value = functions[factor.name](*operands) if operands else value_of(factor.name)
        return value if factor.power == 1 else value**factor.power

    products = []
    for number, factors, _ in terms(size):
        values = [of(factor) for factor in factors]
        products.append(functools.reduce(operator.mul, values if number == 1 and values else [number, *values]))
    return functools.reduce(operator.add, products)


def recomputed(size: Dim, functions: Mapping[str, Callable[..., Dim]], values: Mapping[str, Dim] | None = None) -> Dim:
    """A symbolic dimension, with these functions for its quotients, remainders, maxima and minima, and these values for
    some of its symbols."""
    symbols = values or {}
    return computed(
        size,
        lambda name: symbols[name] if name in symbols else symbolic_shape(name, scope=size.scope)[0],
        functions,
    )


def without_shared_operations(size: Dim, divisor: Dim) -> tuple[Dim, Dim]:
    """Two sizes without the quotients, remainders, maxima and minima that are factors of all terms of both.

    JAX's own division may not terminate if they stay: `4*floordiv(b*k, 4)^2` by `floordiv(b*k, 4)`, where an equation
    rewrites `4*floordiv(b*k, 4)`.
    """
    powers = [Counter({f.size: f.power for f in t.factors if f.operands}) for x in (size, divisor) for t in terms(x)]
    shared = functools.reduce(operator.and_, powers)

    def remaining(term: Term) -> Dim:
        return math.prod((f.size ** (f.power - shared[f.size]) for f in term.factors), start=term.number)

    return (sum(map(remaining, terms(size))), sum(map(remaining, terms(divisor)))) if shared else (size, divisor)


def operations(size: Dim) -> Iterator[Factor]:
    """Yields the quotients, remainders, maxima and minima in a size, the innermost first."""
    for term in terms(size):
        for factor in term.factors:
            for operand in factor.operands:
                yield from operations(operand)
            if factor.operands:
                yield factor


def arguments_of(function: str, size: Dim) -> tuple[Dim, ...]:
    """The two operands of a size that is a `min`, or another function; none for any other size."""
    match terms(size):
        case [(1, (Factor(name=name, power=1, operands=operands),), _)] if name == function:
            return operands
    return ()


def quotient_in(size: Dim) -> tuple[Dim, int] | None:
    """The dividend and the divisor of a symbolic dimension that is a quotient by a number, plus a number; else None."""
    first, *more = terms(size)
    match arguments_of("floordiv", first.size) if first.number == 1 else ():
        case (dividend, int(divisor)) if not any(term.factors for term in more):
            return dividend + divisor * sum(term.number for term in more), divisor
    return None


def at_zero(size: Dim) -> int:
    """A symbolic dimension with 0 for its symbols; 0 if that divides by one of them."""
    try:
        return computed(size, lambda name: 0, OF_NUMBERS)
    except ZeroDivisionError:
        return 0


# More combinations of numbers are not looked at one by one.
_MOST_COMBINATIONS = 1 << 22


def numbers_of(size: Dim, ranges: Mapping[str, range]) -> np.ndarray | None:
    """Returns every value that a size can take. ranges: the values of each symbol in it.

    None for too many combinations, or if a divisor may be 0.
    """
    names = symbols_in(size)
    if math.prod(len(ranges[name]) for name in names) > _MOST_COMBINATIONS:
        return None
    grids = dict(zip(names, np.ix_(*(np.asarray(ranges[name], np.int64) for name in names)), strict=True))
    try:
        with np.errstate(divide="raise"):
            return np.asarray(computed(size, grids.__getitem__, OF_ARRAYS))
    except FloatingPointError:
        return None
