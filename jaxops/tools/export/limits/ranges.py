"""Ranges of symbolic sizes; JAX's own computation is slow for quotients."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxops.errors import symbols_in
from jaxops.jax_internals import evaluated, terms
from jaxops.static import Dim, is_symbolic
from jaxops.symbolic import computed
from jaxops.tools.export.limits.factors import factored, reduced
from jaxops.tools.export.limits.quasi_polynomials import Undetermined, bounds, quasi_polynomial


def line(size: Dim, symbol: str, equation: bool) -> tuple[float, float]:
    """The smallest and the largest number for which a size a·symbol + b is 0 (or not negative); else, any number."""
    if not all(str(term.size) in (symbol, "1") for term in terms(size)):
        return 1, math.inf
    b = evaluated(size, {symbol: 0})
    a = evaluated(size, {symbol: 1}) - b
    if equation:
        return (-b // a, -b // a) if b % a == 0 else (1, math.inf)
    return (max(1, -(b // a)), math.inf) if a > 0 else (1, b // -a)


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`. Arithmetic on ranges gives a range that holds the result for all numbers in
    them.
    """

    low: float = 1
    high: float = math.inf

    def __add__(self, other: Any) -> "Range":
        other = _range(other)
        return Range(self.low + other.low, self.high + other.high)

    __radd__ = __add__

    def __neg__(self) -> "Range":
        return Range(-self.high, -self.low)

    def __sub__(self, other: Any) -> "Range":
        return self + -_range(other)

    def __rsub__(self, other: Any) -> "Range":
        return -self + other

    def __mul__(self, other: Any) -> "Range":
        other = _range(other)
        products = [a * b if a and b else 0 for a in (self.low, self.high) for b in (other.low, other.high)]
        return Range(min(products), max(products))

    __rmul__ = __mul__

    def __pow__(self, power: int) -> "Range":
        return math.prod([self] * power, start=Range(1, 1))

    def over(self, other: Any) -> "Range":
        """The quotient, rounded down; any number for a divisor that may be 0 or less."""
        other = _range(other)
        if other.low < 1:
            return ANY
        quotients = [_floored(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        return Range(min(quotients), max(quotients))

    def modulo(self, other: Any) -> "Range":
        """The remainder of that division."""
        other = _range(other)
        return Range(0, other.high - 1) if other.low >= 1 else ANY


ANY = Range(-math.inf, math.inf)


def _range(value: Any) -> Range:
    return value if isinstance(value, Range) else Range(value, value)


def _floored(a: float, b: float) -> float:
    if math.isinf(b):
        return 0 if a >= 0 else -1 if math.isfinite(a) else a
    return a if math.isinf(a) else a // b


_FUNCTIONS = {
    "floordiv": lambda a, b: _range(a).over(b),
    "mod": lambda a, b: _range(a).modulo(b),
    "max": lambda a, b: Range(max(_range(a).low, _range(b).low), max(_range(a).high, _range(b).high)),
    "min": lambda a, b: Range(min(_range(a).low, _range(b).low), min(_range(a).high, _range(b).high)),
}


def bounds_known(ranges: Mapping[str, Range], size: Dim) -> tuple[float, float] | None:
    """The smallest and the largest value of a size; None if JAX may find better bounds.

    ranges: of symbols; others begin at 1.
    """
    if "[" in str(size):  # a size that JAX has named, such as args[1].shape[0]
        return None
    bounds = _range_of(ranges, size)
    return (bounds.low, bounds.high) if bounds.low >= 0 or bounds.high < 0 or _exact(size) else None


def _exact(size: Dim) -> bool:
    """Returns True if the bounds of `_range_of` are the best possible."""
    try:
        quasi_polynomial(reduced(size))
    except Undetermined:
        return False
    return True


def _range_of(ranges: Mapping[str, Range], size: Dim) -> Range:
    """The best known range of a size of one symbol, of a product of such sizes, or of a sum of sizes or products."""
    names = symbols_in(size)
    if not names:  # such as floordiv(9, 6)
        return _range(evaluated(size, {}) if is_symbolic(size) else size)
    if len(names) == 1:
        symbol_range = ranges.get(names[0], Range())
        try:
            return Range(*bounds(size, int(symbol_range.low), symbol_range.high))
        except Undetermined:
            pass
    factor, remaining = factored(size)
    if factor != 1 and is_symbolic(remaining):
        return _range_of(ranges, factor) * _range_of(ranges, remaining)
    groups = _groups(size)
    if len(groups) > 1:
        return sum((_range_of(ranges, group) for group in groups), Range(0, 0))
    return _range(computed(size, lambda name: ranges.get(name, Range()), _FUNCTIONS))


def _groups(size: Dim) -> list[Dim]:
    """The size as a sum of sizes that have no symbol in common."""
    groups: list[tuple[set[str], Dim]] = []
    for term in terms(size):
        names, together = set(symbols_in(term.size)), term.number * term.size
        for group in [group for group in groups if not names.isdisjoint(group[0])]:
            groups.remove(group)
            names, together = names | group[0], group[1] + together
        groups.append((names, together))
    return [group for _, group in groups]
