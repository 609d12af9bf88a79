"""The sizes that an exported program serves: limits that are learned while the model is traced."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import jax
import numpy as np

from jaxops.errors import SizeError, symbols_in
from jaxops.jax_internals import evaluated, terms
from jaxops.ops.common.elementwise import on_sizes
from jaxops.static import Dim, is_symbolic, static_array, symbolic_shape
from jaxops.symbolic import sides
from jaxops.tools.export.limits.examples import some_zero
from jaxops.tools.export.limits.quasi_polynomials import Undetermined
from jaxops.tools.export.limits.ranges import Range, line
from jaxops.tools.export.limits.solver import (
    MOST,
    Limit,
    difference_of,
    fresh_scope,
    limits_for,
    parsed,
    solutions,
    two_uses,
    with_meanings,
)

# The largest number of branches for which both answers are tried.
_MOST_TURNS = 4


@dataclass
class Limits:
    """The sizes that the program serves: those that the caller asks for and the model can run with.

    asked_for: the caller's constraints. axes: symbol → the axis of the inputs that have it. batches: symbol → the size
    of the batch of the inputs that have it. learned: the limits that
    the model needs, in order; in each of them, symbols have the meanings that the limits before it gave them. in_trace:
    whether a limit was learned since the last call of `sizes`. The current trace then goes on with limited sizes, to
    find further limits, and the next trace has all limits from its start.
    """

    asked_for: Sequence[str] = ()
    axes: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, str] = field(default_factory=dict)
    learned: list[Limit] = field(default_factory=list)
    in_trace: bool = False
    products: bool = True  # whether a limit may be that a product of symbols is a multiple of a number
    turned: dict[str, str] = field(default_factory=dict)  # requirement of a branch → its opposite, which is assumed
    _branches: dict[str, str] = field(default_factory=dict)  # the same, for requirements learned at branches
    _tried: set[tuple[str, Limit]] = field(default_factory=set)
    _question: str = ""
    _constraints: list[str] = field(default_factory=list)
    _meanings: dict[str, Dim] = field(default_factory=dict)  # the sizes that the symbols of the inputs stand for
    _scopes: list[tuple[Any, dict[str, Dim]]] = field(default_factory=list)  # of this trace, with symbols' meanings
    _newest: dict[tuple[int, str], Any] = field(default_factory=dict)  # a size of a scope → its form now

    @property
    def constraints(self) -> Sequence[str]:
        """The constraints on the symbols that are in `sizes`."""
        return tuple(self._constraints)

    def sizes(self, meanings: Mapping[str, str]) -> dict[str, Any]:
        """Symbolic sizes that share the limits, for a new trace. meanings: name of a size → its text."""
        if not self._scopes:
            self._begin()
        self.in_trace, self._question = False, ""
        self._scopes = [(self._scopes[-1][0], {})]
        return {
            name: with_meanings(parsed(text), self._meanings, self._scopes[-1][0]) for name, text in meanings.items()
        }

    def learn(self, error: SizeError) -> bool:
        """Adds the requirement of the model to the limits; False if nothing new helps."""
        needs = self.turned.get(error.needs, error.needs)
        limits = limits_for(needs, self.axes, _ranges(self._constraints), self.products) if needs else ()
        for limit in chain(self._of_batch(error), limits):
            if (needs, limit) not in self._tried:
                self._tried.add((needs, limit))
                if self._takes(limit):
                    self.in_trace = True
                    if error.otherwise or limit.meaning == "1":
                        self._branches[error.needs] = error.otherwise or error.needs
                    return True
        return False

    def _of_batch(self, error: SizeError) -> Iterator[Limit]:
        """Yields the limit to a batch of 1 where the batch is broadcast against another axis of the same input.

        A file that gives the two axes two names does not mean that they are equal. If the model fails for a batch of 1,
        they are equal after all.
        """
        names = symbols_in(error.needs)
        for symbol, batch in self.batches.items() if error.broadcasts and error.needs not in self.turned else ():
            if error.needs in (f"{symbol} == {batch}", f"{batch} == {symbol}"):
                yield Limit((), batch, "1", frozenset(names))

    def example(self, error: SizeError) -> dict[str, int]:
        """Small numbers for symbols of the inputs with which an equation holds that has two symbols or more, or two
        uses of one, if there are any.
        """
        if " == " not in error.needs:
            return {}
        numbers = two_uses(error.needs) or some_zero(difference_of(error.needs)[0], symbols_in(error.needs))
        sizes = self._meanings | {name: parsed(name) for name in numbers if name not in self._meanings}
        return {
            name: evaluated(size, numbers)
            for name, size in sizes.items()
            if symbols_in(size) and set(symbols_in(size)) <= numbers.keys()
        }

    def turns(self) -> bool:
        """Backtracks: starts again with the other answer at the last branch where it is untried; False if none is.

        If a branch asks whether a size is 1, the program is first tried for other sizes, and if these fail, for 1.
        """
        asked = [needs for needs in self._branches if needs not in self.turned]
        if not asked or len(self.turned) == _MOST_TURNS:
            return False
        self.turned[asked[-1]] = self._branches[asked[-1]]
        self._start_again()
        return True

    def splits_products(self) -> bool:
        """Starts again with multiples of single symbols in place of those of products; False if it has no such limit.

        JAX knows more about `4*b` than about a b of which `b*k` is a multiple of 4.
        """
        if not any(limit.said for limit in self.learned):
            return False
        self.products = False
        self._start_again()
        return True

    def _start_again(self) -> None:
        self.learned, self._branches, self._tried = [], {}, set()
        self._begin()

    @property
    def asked(self) -> list[str]:
        """The symbols that decide which branch runs."""
        return symbols_in(*self._branches)

    def assume(self, error: SizeError) -> bool:
        """Adds a limit, and restricts the sizes of this trace, so that it can find further limits; False if that is
        impossible.
        """
        before = len(self._scopes)
        if error.needs == self._question or not self.learn(error):
            return False
        self._question = error.needs
        return len(self._scopes) > before

    def refresh(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Operands with their sizes under the limits that this trace has learned; their values do not matter in it."""
        return jax.tree.map(self._renewed, list(inputs)) if len(self._scopes) > 1 else inputs

    def _renewed(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and is_symbolic(x):
            return static_array(on_sizes(self._now, x))
        if not isinstance(x, jax.Array) or not any(map(is_symbolic, x.shape)):
            return x
        sizes = tuple(map(self._now, x.shape))
        return x if sizes == x.shape else jax.lax.full(sizes, 0, x.dtype)

    def _now(self, size: Any) -> Any:
        """A size in its form under all limits."""
        newest = self._scopes[-1][0]
        if not is_symbolic(size) or size.scope is newest:
            return size
        key = id(size.scope), str(size)
        if key not in self._newest:
            meanings = next(meanings for scope, meanings in self._scopes if scope is size.scope)
            self._newest[key] = with_meanings(size, meanings, newest)
        return self._newest[key]

    def _begin(self) -> None:
        """Applies the limits that were asked for or learned. Raises ValueError for one that cannot be read, or that
        cannot be met."""
        self._meanings, self._constraints, self._scopes = {}, [], []
        self._apply(Limit(tuple(text for text in self.asked_for if not _definition(text))))
        for symbol, meaning in filter(None, map(_definition, self.asked_for)):
            meaning, previous = with_meanings(meaning, self._meanings), self._meanings.get(symbol)
            self._apply(Limit((f"{previous} == {meaning}",)) if previous else Limit((), symbol, str(meaning)))
        for limit in self.learned:
            self._apply(limit)
        self._scopes = self._scopes[-1:]

    def _takes(self, limit: Limit) -> bool:
        """Learns a limit; False if it cannot be met, or requires multiples of too large a number."""
        try:
            self._apply(limit)
        except (ValueError, NotImplementedError):  # JAX raises these for constraints
            return False
        self.learned.append(limit)
        if limit.symbol:
            self._tried.clear()  # the same text has another meaning now
            if not is_symbolic(self._meanings[limit.symbol]):
                self._reconsider(limit.symbol)
        return True

    def _reconsider(self, symbol: str) -> None:
        """Forgets the limits of other sizes that were learned before this size was known to be a number."""
        forgotten, kept_limits = {symbol}, []
        for limit in self.learned:
            about = {limit.symbol} if limit.symbol else set(symbols_in(*limit.constraints))
            if forgotten.isdisjoint(limit.asked | about):
                kept_limits.append(limit)
            else:
                forgotten |= about
        if forgotten != {symbol}:
            self.learned = [Limit((), symbol, str(self._meanings[symbol])), *kept_limits]
            self._begin()

    def _apply(self, limit: Limit) -> None:
        """Applies a limit. Raises ValueError or NotImplementedError, without changes, if it cannot be met."""
        new = {limit.symbol: parsed(limit.meaning)} if limit.symbol else {}
        constraints = [*(_constraint_with(text, new) for text in self._constraints), *limit.constraints]
        ranges = _ranges(constraints)
        if any(bounds.low > bounds.high for bounds in ranges.values()):
            raise ValueError(f"no number fits {limit}")
        meanings = _composed(self._meanings, new)
        if any(term.number > MOST for term in terms(meanings.get(limit.symbol, 0)) if str(term.size) == limit.symbol):
            raise ValueError(f"multiples of a large number: {limit}")
        scope = fresh_scope(constraints, ranges)
        _ = symbolic_shape("size", scope=scope)[0] >= 1  # JAX raises an error now if they cannot be met
        self._constraints, self._meanings, self._newest = constraints, meanings, {}
        self._scopes = [*((old, _composed(texts, new)) for old, texts in self._scopes), (scope, {})]


def _definition(text: str) -> tuple[str, Dim] | None:
    """Splits an equation that defines a symbol: (t, 2*s) for `t == 2*s`; None for any other text."""
    left, sign, right = sides(text)
    plain = sign == "==" and left.isidentifier() and left not in symbols_in(right)
    return (left, parsed(right)) if plain else None


def _composed(meanings: Mapping[str, Dim], new: Mapping[str, Dim]) -> dict[str, Dim]:
    """The meanings of symbols after some symbols in them got new meanings."""
    return {**new, **{name: with_meanings(size, new) for name, size in meanings.items()}}


def _constraint_with(text: str, new: Mapping[str, Dim]) -> str:
    """A constraint after some symbols in it got new meanings."""
    left, sign, right = sides(text)
    return f"{with_meanings(parsed(left), new)} {sign} {with_meanings(parsed(right), new)}" if new else text


def _ranges(constraints: Sequence[str]) -> dict[str, Range]:
    """The range of each symbol."""
    ranges: dict[str, Range] = {}
    for text in constraints:
        difference, equation = difference_of(text)
        names = symbols_in(difference)
        if len(names) == 1 and is_symbolic(difference):
            try:
                low, high = solutions(difference, equation).hull
            except Undetermined:  # such as one with a factor of a billion
                low, high = line(difference, names[0], equation)
            previous = ranges.get(names[0], Range())
            ranges[names[0]] = Range(max(low, previous.low), min(high, previous.high))
    return ranges
