"""Finds limits of symbols, such as `s <= 512`, under which a requirement on sizes holds; the simplest come first."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

import numpy as np
from jax.export import SymbolicScope

from jaxops.errors import symbols_in
from jaxops.jax_internals import Factor, Term, bounded_by, terms
from jaxops.shapes.arithmetic import FUNCTIONS
from jaxops.static import Dim, Undecided, is_symbolic, symbolic_shape
from jaxops.symbolic import computed, operations, recomputed, sides
from jaxops.tools.export.limits.factors import reduced
from jaxops.tools.export.limits.quasi_polynomials import Numbers, Undetermined
from jaxops.tools.export.limits.ranges import Range, bounds_known

# The largest k for which a limit may require a multiple of k.
MOST = 1024
# While one symbol is tried, all other symbols have one of these numbers.
_OTHERS = (101, 103, 107, 109, 113, 127, 131, 137)
# An equation is also applied to products with up to this many other symbols.
_MOST_OTHERS = 3
# Minima and maxima in one requirement; each has two operands.
_MOST_CHOICES = 4


@dataclass(frozen=True)
class Limit:
    """A limit: constraints such as `s <= 512`, or a symbol and its meaning, such as `32*h`, `1` or `past + s`.

    asked: the symbols of the requirement that led to this limit. said: a limit of a product, in words.
    """

    constraints: tuple[str, ...] = ()
    symbol: str = ""
    meaning: str = ""
    asked: frozenset[str] = frozenset()
    said: str = ""


def fresh_scope(constraints: Sequence[str] = (), ranges: Mapping[str, Range] | None = None) -> Any:
    """A new scope for symbolic sizes. ranges: of single symbols, according to the constraints."""
    # Equations come first: JAX fails at a limit of a symbol that a later equation replaces.
    scope = SymbolicScope(sorted(constraints, key=lambda text: "==" not in text))
    bounded_by(scope, functools.partial(bounds_known, ranges or {}))
    return scope


def parsed(text: str) -> Dim:
    """The size with this text, in a scope of its own."""
    return symbolic_shape(text, scope=fresh_scope())[0]


def with_meanings(size: Dim, meanings: Mapping[str, Dim], scope: Any = None) -> Dim:
    """A size of any scope in another scope, a new one by default. meanings: symbol → the size that replaces it."""
    scope = scope or fresh_scope()

    def value(name: str) -> Dim:
        return with_meanings(meanings[name], {}, scope) if name in meanings else symbolic_shape(name, scope=scope)[0]

    return computed(size, value, FUNCTIONS)


def difference_of(needs: str) -> tuple[Any, bool]:
    """The difference that must be 0 for an equation, or not negative for a comparison; True for an equation."""
    left, sign, right = sides(needs)
    a, b = symbolic_shape(f"{left}, {right}", scope=fresh_scope())
    if sign == "==":
        return reduced(a - b), True
    a, b = (b, a) if sign == "<=" else (a, b)
    return (reduced(a) - 1 if isinstance(b, int) and b == 1 else reduced(a - b)), False


def solutions(difference: Any, equation: bool) -> Numbers:
    return Numbers.where(difference, (lambda values: values == 0) if equation else (lambda values: values >= 0))


def limits_for(
    needs: str, axes: Mapping[str, int], ranges: Mapping[str, Range], products: bool = False
) -> Iterator[Limit]:
    """Yields limits under which a requirement holds, the simplest first.

    axes: symbol → the axis of the inputs that have it; symbols on the same axis may be one size. ranges: of the
    symbols. products: whether the first limit may say that a product of symbols is a multiple of a number.
    """
    difference, equation = difference_of(needs)
    symbols = symbols_in(difference)
    if not is_symbolic(difference) or two_uses(needs):
        return
    if len(symbols) == 1:
        candidates = _of_one(difference, equation, symbols[0], ranges.get(symbols[0], Range()))
    else:
        # JAX's own bounds: with exact ones, a limit would be found where the requirement itself serves more sizes.
        plain = with_meanings(difference, {}, SymbolicScope())
        chosen = () if "<=" in needs else _of_operands(plain, equation)
        several = _of_several(difference, symbols, axes) if equation else [Limit((needs,))]
        product_limit = _of_product(needs, difference) if products and equation else Limit()
        candidates = chain([product_limit, Limit(chosen or ())], several)
    for limit in candidates:
        if limit != Limit():
            yield replace(limit, asked=frozenset(symbols_in(needs)))


def _of_operands(difference: Dim, equation: bool, chosen: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """The limits under which each minimum and maximum is one of its operands, and a difference is 0 (or not negative):
    h <= 8 and w <= 9 for `min(h, 8)*min(w, 9) - h*w`.

    None if no choice among the operands helps. chosen: the limits so far.
    """
    choices = {str(f.size): f for f in operations(difference) if f.name in ("min", "max")}
    if not choices:
        return chosen if (_is_zero if equation else _is_not_negative)(difference) else None
    if len(choices) + len(chosen) > _MOST_CHOICES:
        return None
    choice = next(iter(choices.values()))
    for value, other in (choice.operands, choice.operands[::-1]):
        left, right = (other, value) if isinstance(value, int) else (value, other)  # JAX rejects a limit of a number
        limit = f"{left} {'<=' if (choice.name == 'min') == (left is value) else '>='} {right}"
        limits = next(limits_for(limit, {}, {}), Limit()).constraints or (limit,)
        limits = _of_operands(_with(difference, choice, value), equation, (*chosen, *limits))
        if limits is not None:
            return limits
    return None


def _with(size: Dim, choice: Factor, value: Dim) -> Dim:
    """A size with `value` in place of one of its minima or maxima."""

    def chosen(a: Dim, b: Dim) -> Dim:
        return value if [str(a), str(b)] == [*map(str, choice.operands)] else FUNCTIONS[choice.name](a, b)

    return recomputed(size, {**FUNCTIONS, choice.name: chosen})


def two_uses(needs: str) -> dict[str, int]:
    """The smallest value of a symbol for which an equation holds that compares two uses of the symbol: L = 1 for
    `floordiv(L + 383, 384) == L`. The file then gives one name to two sizes.

    Empty if a number of the file is one of the two sides, if the equation holds for any number of values, and for
    several symbols.
    """
    if " == " not in needs or "min(" in needs or "max(" in needs:
        return {}
    difference, _ = difference_of(needs)
    names = symbols_in(difference) if is_symbolic(difference) else []
    if len(names) != 1:
        return {}
    left, _, right = sides(needs)
    factors = {name: 1 for name in symbols_in(needs) if name not in names}  # of both sides, such as a batch
    if not all(is_symbolic(with_meanings(parsed(side), factors)) for side in (left, right)):
        return {}
    try:
        numbers = solutions(difference, True)
    except Undetermined:
        return {}
    return {names[0]: int(numbers.hull[0])} if numbers.finite and numbers.fits[1:].any() else {}


def _of_one(difference: Any, equation: bool, symbol: str, possible: Range) -> Iterator[Limit]:
    """Yields limits of one symbol, from all numbers for which the requirement holds. possible: the symbol's range."""
    sizes = [term for term in terms(difference) if term.factors]
    # If the term is a quotient, which is the same number for several sizes, JAX can replace it by the number.
    also = (f"{_unsigned(sizes[0])} == {_solved_for(difference, sizes[0])}",) if equation and len(sizes) == 1 else ()
    try:
        for limit in _within(solutions(difference, equation), symbol, possible):
            yield replace(limit, constraints=(*also, *limit.constraints)) if limit.constraints else limit
    except Undetermined:
        yield from _multiples(difference, [symbol]) if equation else ()
        yield Limit((f"{difference} {'==' if equation else '>='} 0",))


def _within(numbers: Numbers, symbol: str, possible: Range) -> Iterator[Limit]:
    """Yields limits under which a symbol is one of the numbers. possible: the symbol's range."""
    low, high, endless = int(possible.low), possible.high, possible.high == math.inf
    fits = numbers.first(max(len(numbers.fits), low + numbers.period) if endless else int(high) + 1)[low:]
    gaps, members = np.flatnonzero(~fits) + low, np.flatnonzero(fits) + low
    if not gaps.size or not members.size:
        return
    if endless and numbers.lasting.all():
        yield Limit((f"{symbol} >= {gaps[-1] + 1}",))
    elif (endless and not numbers.finite) or members[-1] - members[0] >= members.size:
        if numbers.progression:
            factor, residue = numbers.progression
            yield Limit((), symbol, f"{factor}*{symbol}" + (f" - {factor - residue}" if residue else ""))
    elif members.size == 1:
        yield Limit((), symbol, str(members[0]))
    else:
        least = (f"{symbol} >= {members[0]}",) if members[0] > low else ()
        most = (f"{symbol} <= {members[-1]}",) if members[-1] < high else ()
        yield Limit((*least, *most))


def _of_several(difference: Any, symbols: Sequence[str], axes: Mapping[str, int]) -> Iterator[Limit]:
    """Yields limits under which a size of several symbols is 0."""
    for a, b in combinations([s for s in symbols if s in axes], 2):
        if axes[a] == axes[b] and _is_zero(with_meanings(difference, {a: parsed(b)})):
            yield Limit((), a, b)
    sum_of = terms(difference)
    names = [symbols_in(term.size) for term in sum_of]
    alone = [t for t in sum_of if abs(t.number) == 1 and str(t.size).isidentifier()]
    alone = [t for t in alone if sum(str(t.size) in of_term for of_term in names) == 1]
    # A symbol that is a sum of other terms comes first, since a sum cannot be negative.
    for term in sorted(alone, key=lambda t: sum((o.number < 0) == (t.number < 0) for o in sum_of)):
        yield Limit((), str(term.size), str(_solved_for(difference, term)))
    # The numbers of one symbol that are right for all tried values of the other symbols; then for multiples of the
    # divisors.
    steps = min(math.prod(_divisors(difference)), MOST)
    for other_sizes in (
        [_OTHERS, _OTHERS[::-1]],
        [[steps] * len(symbols), [2 * steps] * len(symbols), [3 * steps] * len(symbols)],
    ):
        for symbol in symbols:
            numbers = [_numbers_of(difference, symbol, symbols, sizes) for sizes in other_sizes]
            try:
                common = functools.reduce(lambda a, b: a & b, filter(None, numbers)) if all(numbers) else None
            except Undetermined:
                continue
            yield from () if common is None or common.finite else _within(common, symbol, Range())
    yield from _multiples(difference, symbols)
    longest = max(sum_of, key=lambda term: len(str(_unsigned(term))))
    value = _solved_for(difference, longest)
    # JAX replaces a complete term by the number. If it is a part of a larger term, JAX's division may not terminate, so
    # there is an equation for each product with other symbols.
    others = [f"{name}*" for name in axes if name not in symbols] if isinstance(value, int) else []
    if is_symbolic(value) or (value >= 1 and len(others) <= _MOST_OTHERS):
        factors = [*map("".join, chain.from_iterable(combinations(others, k) for k in range(len(others) + 1)))]
        yield Limit(tuple(f"{factor}{_unsigned(longest)} == {factor}{value}" for factor in factors))


def _of_product(needs: str, difference: Dim) -> Limit:
    """The limit that a product of symbols is a multiple of a number, if that is what a requirement means:
    `mod(b*k, 4) == 0` for `4*floordiv(b*k, 4) == b*k`, where multiples of 4 as b would serve less. An empty limit for
    any other requirement.
    """
    sum_of = sorted(terms(difference), key=lambda term: -term.number)
    if len(sum_of) != 2:
        return Limit()
    (number, quotient, _), (times, symbols, product) = sum_of
    is_product = sum(f.power for f in symbols) > 1 and not any(f.operands for f in symbols)
    if not is_product or [(f.name, f.power) for f in quotient] != [("floordiv", 1)]:
        return Limit()
    whole, divisor = quotient[0].operands
    if number <= 1 or whole * number != -times * divisor * product:
        return Limit()
    also = () if (divisor, times) == (number, -1) else (needs,)
    return Limit((f"mod({product}, {number}) == 0", *also), said=f"{product} must be a multiple of {number}")


def _divisors(size: Dim) -> list[int]:
    """The numbers by which a size divides, and those that bound it."""
    return [operands[1] for _, operands, *_ in operations(size) if isinstance(operands[1], int)]


def _multiples(size: Dim, symbols: Sequence[str]) -> Iterator[Limit]:
    """Yields limits under which a size is 0: one or two symbols must be multiples of divisors in it."""
    divisors = sorted({k for k in _divisors(size) if 1 < k <= MOST})
    for count in (1, 2):
        for names in combinations(symbols, count):
            for steps in product(divisors, repeat=count):
                meanings = {name: k * parsed(name) for name, k in zip(names, steps, strict=True)}
                if _is_zero(with_meanings(size, meanings)):
                    yield Limit((), names[0], str(meanings[names[0]]))


def _unsigned(term: Term) -> Dim:
    return abs(term.number) * term.size


def _solved_for(difference: Dim, term: Term) -> Dim:
    """The value of a term, without its sign, for which the sum is 0."""
    return _unsigned(term) - difference if term.number > 0 else difference + _unsigned(term)


def _numbers_of(size: Dim, symbol: str, symbols: Sequence[str], other_sizes: Sequence[int]) -> Numbers | None:
    """The numbers of one symbol for which a size is 0, given the other symbols; None if undetermined."""
    sizes = dict(zip([s for s in symbols if s != symbol], other_sizes, strict=False))
    left = with_meanings(size, sizes)
    try:
        return solutions(left, True) if is_symbolic(left) else None
    except Undetermined:
        return None


def _is_zero(size: Any) -> bool:
    """Returns True if a size is 0 for every number."""
    if not is_symbolic(size):
        return size == 0
    try:
        zeros = solutions(size, True) if len(symbols_in(size)) == 1 else None
    except Undetermined:
        return False
    return zeros is not None and bool(zeros.fits[1:].all() and zeros.lasting.all())


def _is_not_negative(size: Dim) -> bool:
    """Returns True if a size is at least 0 for every number, as far as JAX sees it."""
    try:
        return bool(size >= 0)
    except Undecided:
        return False
