"""Sizes of one symbol as quasi-polynomials: polynomials whose coefficients are periodic.

From some number on, a size such as 2 * ceil(h / 32) - ceil(h / 16) is one polynomial for each remainder of h by 32. So
a finite number of values determines for which h it is 0 or not negative, and what its bounds are.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxops.static import Dim
from jaxops.symbolic import size_of_text

# Limits: sizes with longer periods, larger numbers or higher degrees are undetermined.
_MOST, _LARGEST, _DEGREE = 1 << 17, 1 << 52, 3


class Undetermined(Exception):
    """A size that is not a quasi-polynomial of one symbol, or whose period is too long."""


@dataclass(frozen=True, eq=False)
class QuasiPolynomial:
    """A function of 0, 1, 2, … by its first values. The last `degree + 1` periods of them determine all others."""

    values: np.ndarray
    period: int = 1
    degree: int = 0

    def __post_init__(self) -> None:
        if np.abs(self.values).max() > _LARGEST:
            raise Undetermined

    @property
    def start(self) -> int:
        """The number from which the function is periodic."""
        return len(self.values) - (self.degree + 1) * self.period

    def differences(self) -> np.ndarray:
        """Forward differences of orders 0 to `degree`, each over one period: (degree + 1, period)."""
        rows = [self.values[self.start :].reshape(-1, self.period)]
        for _ in range(self.degree):
            rows.append(np.diff(rows[-1], axis=0))
        return np.stack([row[0] for row in rows])

    def first(self, count: int) -> np.ndarray:
        """The first values, as many as asked for."""
        if count <= len(self.values):
            return self.values[:count]
        if count > _MOST:
            raise Undetermined
        return np.concatenate([self.values[: self.start], self.later(np.arange(self.start, count))])

    def later(self, numbers: np.ndarray) -> np.ndarray:
        """The values at numbers in ascending order, all of them at least `start`."""
        periods, phases = divmod(numbers - self.start, self.period)
        later, binomial = np.zeros(len(phases), np.int64), np.ones(len(phases), np.int64)
        for order, difference in enumerate(self.differences()):
            if int(binomial[-1]) * int(np.abs(difference).max()) > _LARGEST:
                raise Undetermined
            later += binomial * difference[phases]
            binomial = binomial * (periods - order) // (order + 1)
        return later

    def spelled(self, start: int, period: int, degree: int) -> "QuasiPolynomial":
        """The same function, with a later start, a multiple of the period, and a degree that is not smaller."""
        return QuasiPolynomial(self.first(start + (degree + 1) * period), period, degree)

    def settled(self) -> "QuasiPolynomial":
        """The same function, listed up to the number from which each of its polynomials keeps its sign and its
        direction.
        """
        start, period = self.start, self.period
        while True:
            extended = self.spelled(start, period, self.degree)
            differences = extended.differences()
            if ((differences >= 0).all(0) | (differences <= 0).all(0)).all():
                return extended
            start += max(start, period)

    def _with(self, other: Any, fn: Callable[..., np.ndarray], degree: int | None = None) -> "QuasiPolynomial":
        other = _function(other)
        start, period = max(self.start, other.start), math.lcm(self.period, other.period)
        degree = max(self.degree, other.degree) if degree is None else degree
        values = fn(*(f.spelled(start, period, degree).values for f in (self, other)))
        return QuasiPolynomial(values, period, degree)._reduced()

    def _reduced(self) -> "QuasiPolynomial":
        if self.degree and not self.differences()[-1].any():
            return QuasiPolynomial(self.values[: -self.period], self.period, self.degree - 1)._reduced()
        return self

    def __add__(self, other: Any) -> "QuasiPolynomial":
        return self._with(other, np.add)

    __radd__ = __add__

    def __neg__(self) -> "QuasiPolynomial":
        return QuasiPolynomial(-self.values, self.period, self.degree)

    def __sub__(self, other: Any) -> "QuasiPolynomial":
        return self._with(other, np.subtract)

    def __rsub__(self, other: Any) -> "QuasiPolynomial":
        return -self + other

    def __mul__(self, other: Any) -> "QuasiPolynomial":
        other = _function(other)
        degree = self.degree + other.degree
        if degree > _DEGREE:
            raise Undetermined
        return self._with(other, np.multiply, degree)

    __rmul__ = __mul__

    def __pow__(self, power: int) -> "QuasiPolynomial":
        return functools.reduce(lambda a, b: a * b, [self] * power, _function(1))

    def larger(self, other: Any) -> "QuasiPolynomial":
        """The maximum."""
        start = (self - other).settled().start
        return self.spelled(start, self.period, self.degree)._with(other, np.maximum)

    def smaller(self, other: Any) -> "QuasiPolynomial":
        """The minimum."""
        return -(-self).larger(-_function(other))

    def floored(self, divisor: Any) -> "QuasiPolynomial":
        """The quotient by a positive number, rounded down."""
        number = _function(divisor)
        if number.degree or number.period > 1 or (number.values != number.values[0]).any() or number.values[0] < 1:
            raise Undetermined
        by = int(number.values[0])
        # After this many periods, each polynomial of the dividend has grown by a multiple of the divisor.
        if self.degree > 1:
            more = by * math.factorial(self.degree)
        else:
            more = by // math.gcd(by, *map(int, self.differences()[1:].flat))
        longer = self.spelled(self.start, self.period * more, self.degree)
        return QuasiPolynomial(longer.values // by, longer.period, longer.degree)._reduced()

    def remainder(self, divisor: Any) -> "QuasiPolynomial":
        """The remainder of that division."""
        return self - self.floored(divisor) * divisor


def _function(value: Any) -> QuasiPolynomial:
    if isinstance(value, QuasiPolynomial):
        return value
    if abs(value) > _LARGEST:
        raise Undetermined
    return QuasiPolynomial(np.array([value]))


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": lambda a, b: _function(a).floored(b),
    "mod": lambda a, b: _function(a).remainder(b),
    "max": lambda a, b: _function(a).larger(b),
    "min": lambda a, b: _function(a).smaller(b),
}


@functools.lru_cache(256)
def _of_text(text: str) -> QuasiPolynomial | None:
    names = set()

    def symbol(name: str) -> QuasiPolynomial:
        names.add(name)
        if len(names) > 1:
            raise Undetermined
        return QuasiPolynomial(np.array([0, 1]), 1, 1)

    try:
        return _function(size_of_text(text, symbol, _FUNCTIONS))
    except Undetermined:
        return None


def quasi_polynomial(size: Dim) -> QuasiPolynomial:
    """A symbolic size as a function of its symbol. Raises Undetermined unless it has exactly one symbol."""
    polynomial = _of_text(str(size))
    if polynomial is None:
        raise Undetermined
    return polynomial


@dataclass(frozen=True, eq=False)
class Numbers:
    """A set of natural numbers. fits: for each of 0, 1, 2, …, whether it is in the set; the last period repeats."""

    fits: np.ndarray
    period: int

    @classmethod
    def where(cls, size: Dim, fact: Callable[[np.ndarray], np.ndarray]) -> "Numbers":
        """The numbers for which a comparison of the size with 0 holds. Raises Undetermined."""
        polynomial = quasi_polynomial(size).settled()
        return cls(fact(polynomial.values), polynomial.period)

    def __and__(self, other: "Numbers") -> "Numbers":
        """The numbers in both."""
        period = math.lcm(self.period, other.period)
        count = max(len(self.fits) - self.period, len(other.fits) - other.period) + period
        if count > _MOST:
            raise Undetermined
        return Numbers(self.first(count) & other.first(count), period)

    def first(self, count: int) -> np.ndarray:
        """For each of the first numbers, True if it is in the set."""
        if count > _MOST:
            raise Undetermined
        numbers, repeats_from = np.arange(count), len(self.fits) - self.period
        return self.fits[
            np.where(numbers < repeats_from, numbers, repeats_from + (numbers - repeats_from) % self.period)
        ]

    @property
    def lasting(self) -> np.ndarray:
        """For each remainder by the period, True if all larger numbers with that remainder are in the set."""
        return np.roll(self.fits[-self.period :], (len(self.fits) - self.period) % self.period)

    @property
    def finite(self) -> bool:
        """True if the set has a largest number."""
        return not self.lasting.any()

    @property
    def hull(self) -> tuple[int, float]:
        """The smallest and the largest number, which may be infinity; (1, 0) for the empty set."""
        members = np.flatnonzero(self.fits[1:]) + 1
        if self.finite:
            return (int(members[0]), int(members[-1])) if members.size else (1, 0)
        if members.size:
            return int(members[0]), math.inf
        return len(self.fits), math.inf

    @property
    def progression(self) -> tuple[int, int] | None:
        """The smallest k, and an r (0 if possible), so that all larger numbers n with n % k == r are in the set."""
        lasting = self.lasting
        for k in range(1, self.period + 1):
            if self.period % k == 0:
                residues = lasting.reshape(-1, k).all(0)
                if residues.any():
                    return k, int(np.flatnonzero(residues)[0])
        return None


def bounds(size: Dim, low: int, high: float) -> tuple[float, float]:
    """The minimum and the maximum of a size while its symbol goes from `low` to `high`. Raises Undetermined."""
    polynomial = quasi_polynomial(size).settled()
    count = max(len(polynomial.values), low + (polynomial.degree + 1) * polynomial.period)
    values, steps = polynomial.first(int(min(high + 1, count)))[low:], polynomial.differences()[1:]
    if high < math.inf:
        if high >= count:  # from there on each polynomial is monotonic
            last = polynomial.later(np.arange(max(count, int(high) + 1 - polynomial.period), int(high) + 1))
            values = np.concatenate([values, last])
        return int(values.min()), int(values.max())
    return (
        -math.inf if (steps < 0).any() else int(values.min()),
        math.inf if (steps > 0).any() else int(values.max()),
    )
