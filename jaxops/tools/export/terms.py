"""Symbolic sizes as sums: their terms, and the factors that all terms share."""

import functools
import math
import operator
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from jaxops.static import is_symbolic, symbolic_shape

_POWER = re.compile(r"(.+)\^(\d+)")


def terms(size: Any) -> list[tuple[bool, str]]:
    """The terms of a size: (True if it is subtracted, its text)."""
    return [(term.strip()[:1] == "-", term.lstrip("+- ")) for term in _parts(str(size), (" + ", " - "))]


def _parts(text: str, signs: tuple[str, ...]) -> list[str]:
    """Splits a text before each of these signs that is outside of parentheses."""
    texts, start, depth = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and i > start and text.startswith(signs, i):
            texts.append(text[start:i])
            start = i
    return [*texts, text[start:]]


def summed(signed: Iterable[tuple[bool, str]], scope: Any = None) -> Any:
    """The size that has these terms."""
    text = " ".join(f"{'-' if negative else '+'} {term}" for negative, term in signed)
    return symbolic_shape(text, scope=scope)[0] if text else 0


def factored(size: Any) -> tuple[Any, Any]:
    """Splits a size into (the product of positive numbers and symbols that are factors of all terms, the quotient).

    JAX's own division may not terminate if an equation rewrites a product of two symbols.
    """
    signed = [(negative, *_factors(term)) for negative, term in terms(size)]
    number = math.gcd(*(coefficient for _, coefficient, _ in signed)) or 1
    common = functools.reduce(operator.and_, (powers for _, _, powers in signed))
    common = Counter({name: power for name, power in common.items() if name.isidentifier()})
    remaining = [(negative, _product(k // number, powers - common)) for negative, k, powers in signed]
    scope = size.scope
    return summed([(False, _product(number, common))], scope), summed(remaining, scope)


def _factors(term: str) -> tuple[int, Counter[str]]:
    """The coefficient of a term, and the powers of its other factors."""
    coefficient, powers = 1, Counter[str]()
    for factor in _parts(term, ("*",)):
        text = factor.lstrip("*")
        power = _POWER.fullmatch(text)
        if text.isdigit():
            coefficient *= int(text)
        else:
            powers[power[1] if power else text] += int(power[2]) if power else 1
    return coefficient, powers


def _product(coefficient: int, powers: Counter[str]) -> str:
    return "*".join([str(coefficient), *(f"{factor}^{power}" for factor, power in powers.items())])


def reduced(size: Any) -> Any:
    """A size without the positive numbers and symbols that are factors of all terms; it has the same sign."""
    return factored(size)[1] if is_symbolic(size) else size
