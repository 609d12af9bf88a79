"""Symbolic sizes as sums: their terms, and the factors that all terms share."""

import math
import re
from collections.abc import Iterable
from typing import Any

from jaxops.errors import symbols_in
from jaxops.static import is_symbolic, symbolic_shape

_COEFFICIENT = re.compile(r"(\d+)(?=\*|$)")


def terms(size: Any) -> list[tuple[bool, str]]:
    """The terms of a size: (True if it is subtracted, its text)."""
    text, texts, start, depth = str(size), [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and i > start and text[i : i + 3] in (" + ", " - "):
            texts.append(text[start:i])
            start = i + 1
    return [(term[:1] == "-", term.lstrip("+- ")) for term in (*texts, text[start:])]


def summed(signed: Iterable[tuple[bool, str]], scope: Any = None) -> Any:
    """The size that has these terms."""
    text = " ".join(f"{'-' if negative else '+'} {term}" for negative, term in signed)
    return symbolic_shape(text, scope=scope)[0] if text else 0


def reduced(size: Any) -> Any:
    """A size without the positive numbers and symbols that all its terms have as factors; so it has the same sign."""
    if not is_symbolic(size):
        return size
    numbers = [int(coefficient[1]) if (coefficient := _COEFFICIENT.match(term)) else 1 for _, term in terms(size)]
    for divisor in (math.gcd(*numbers), *(symbolic_shape(name, scope=size.scope)[0] for name in symbols_in(size))):
        while divisor != 1 and is_symbolic(size):
            quotient = size // divisor
            if str(quotient).count("floordiv") > str(size).count("floordiv"):
                break
            size = quotient
            divisor = divisor if is_symbolic(divisor) else 1
    return size
