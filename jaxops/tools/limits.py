"""For which sizes an exported program is: the limits that a model has, found while it is traced."""

import functools
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.export import SymbolicScope

from jaxops.errors import SizeError, symbols_in
from jaxops.ops.elementwise import on_sizes
from jaxops.shapes.arithmetic import FUNCTIONS
from jaxops.static import is_symbolic, settled, symbolic_shape
from jaxops.symbolic import bounded_by, size_of_text
from jaxops.tools.bounds import bounds
from jaxops.tools.bounds_of_sizes import Range, bounds_known, line
from jaxops.tools.examples_of_sizes import some_zero
from jaxops.tools.quasi_polynomials import Numbers, Undetermined
from jaxops.tools.terms import reduced, summed, terms

# The largest number whose multiples a size may have to be.
_MOST = 1024
# So many branches may be taken for a size of 1.
_MOST_TURNS = 4
# What the other sizes are, where numbers are sought that one of them may be.
_OTHERS = (101, 103, 107, 109, 113, 127, 131, 137)
_DIVISOR = re.compile(r", (\d+)\)")
_SIGN = re.compile(r"\s*(<=|>=|==)\s*")


@dataclass(frozen=True)
class Limit:
    """Constraints such as `s <= 512`; or a symbol and what it stands for: `32*h`, `1`, `past + s`.

    asked: the symbols of the question that it answers.
    """

    constraints: tuple[str, ...] = ()
    symbol: str = ""
    meaning: str = ""
    asked: frozenset[str] = frozenset()


@dataclass
class Limits:
    """For which sizes the program is: those asked for, and those without which the model cannot run.

    given: constraints that were asked for. axes: symbol → the axis of the inputs that have it. learned: what the model
    needs, in the order in which it was found; a symbol means in each what it stands for after those before. in_trace:
    whether some of it was learned since the last call of `sizes`. A trace goes on with sizes that are limited in place,
    for the sake of what else it finds, and the next trace has all limits from the start.
    """

    given: Sequence[str] = ()
    axes: Mapping[str, int] = field(default_factory=dict)
    learned: list[Limit] = field(default_factory=list)
    in_trace: bool = False
    turned: dict[str, str] = field(default_factory=dict)  # what a branch needs → what holds instead
    _branches: dict[str, str] = field(default_factory=dict)  # likewise, what was learned of branches
    _tried: set[tuple[str, Limit]] = field(default_factory=set)
    _question: str = ""
    _constraints: list[str] = field(default_factory=list)
    _meanings: dict[str, str] = field(default_factory=dict)  # what the symbols of the inputs stand for
    _scopes: list[tuple[Any, dict[str, str]]] = field(default_factory=list)  # of this trace, with that of their symbols
    _newest: dict[tuple[int, str], Any] = field(default_factory=dict)  # a size of a scope → what it is now

    @property
    def constraints(self) -> Sequence[str]:
        """What must hold of the symbols that are in `sizes`."""
        return tuple(self._constraints)

    def sizes(self, meanings: Mapping[str, str]) -> dict[str, Any]:
        """Symbolic sizes that share the limits, for a new trace. meanings: name of a size → its text."""
        if not self._scopes:
            self._begin()
        self.in_trace, self._question = False, ""
        self._scopes = [(self._scopes[-1][0], {})]
        plain = _scope()
        texts = {name: str(symbolic_shape(text, scope=plain)[0]) for name, text in meanings.items()}
        return {name: _size(text, self._scopes[-1][0], self._meanings) for name, text in texts.items()}

    def learn(self, error: SizeError) -> bool:
        """Takes over what the model needs; False if nothing new helps."""
        needs = self.turned.get(error.needs, error.needs)
        for limit in _limits(needs, self.axes, _ranges(self._constraints)) if needs else ():
            if (needs, limit) not in self._tried:
                self._tried.add((needs, limit))
                if self._takes(limit):
                    self.in_trace = True
                    if error.otherwise:
                        self._branches[error.needs] = error.otherwise
                    return True
        return False

    def example(self, error: SizeError) -> dict[str, int]:
        """Numbers for symbols of the inputs with which an equation of several holds, if there are small ones."""
        if " == " not in error.needs:
            return {}
        found = some_zero(str(_difference(error.needs)[0]), symbols_in(error.needs))
        texts = {name: self._meanings.get(name, name) for name in (*self._meanings, *found)}
        return {
            name: size_of_text(text, found.__getitem__, FUNCTIONS)
            for name, text in texts.items()
            if symbols_in(text) and set(symbols_in(text)) <= found.keys()
        }

    def turns(self) -> bool:
        """Begins again with the other answer for the last branch that has only had one; False if there is none.

        A program is for sizes other than 1 where a branch asks whether one is 1, but not where these fail later.
        """
        asked = [needs for needs in self._branches if needs not in self.turned]
        if not asked or len(self.turned) == _MOST_TURNS:
            return False
        self.turned[asked[-1]] = self._branches[asked[-1]]
        self.learned, self._branches, self._tried = [], {}, set()
        self._begin()
        return True

    @property
    def asked(self) -> list[str]:
        """The symbols that decide which branch runs."""
        return symbols_in(*self._branches)

    def goes_on(self, error: SizeError) -> bool:
        """Learns, and limits the sizes of this trace, so that it finds more; False where that did or does not help."""
        before = len(self._scopes)
        if error.needs == self._question or not self.learn(error):
            return False
        self._question = error.needs
        return len(self._scopes) > before

    def renewed(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Operands whose sizes follow from what this trace has learned. Their values do not count in it."""
        return jax.tree.map(self._renewed, list(inputs)) if len(self._scopes) > 1 else inputs

    def _renewed(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and is_symbolic(x):
            return settled(on_sizes(self._now, x))
        if not isinstance(x, jax.Array) or not any(map(is_symbolic, x.shape)):
            return x
        sizes = tuple(map(self._now, x.shape))
        return x if sizes == x.shape else jax.lax.full(sizes, 0, x.dtype)

    def _now(self, size: Any) -> Any:
        """A size in the form that it has under all limits."""
        newest = self._scopes[-1][0]
        if not is_symbolic(size) or size.scope is newest:
            return size
        key = id(size.scope), str(size)
        if key not in self._newest:
            meanings = next(meanings for scope, meanings in self._scopes if scope is size.scope)
            self._newest[key] = _size(key[1], newest, meanings)
        return self._newest[key]

    def _begin(self) -> None:
        """Takes what was asked for, and what was learned. ValueError: it is no constraint, or cannot be met."""
        self._meanings, self._constraints, self._scopes = {}, [], []
        self._apply(Limit(tuple(text for text in self.given if not _definition(text))))
        for symbol, meaning in filter(None, map(_definition, self.given)):
            meaning = str(_size(meaning, _scope(), self._meanings))
            known = self._meanings.get(symbol)
            self._apply(Limit((f"{known} == {meaning}",)) if known else Limit((), symbol, meaning))
        for limit in self.learned:
            self._apply(limit)
        self._scopes = self._scopes[-1:]

    def _takes(self, limit: Limit) -> bool:
        """Learns a limit; False where it cannot be met, or asks for multiples of too large a number."""
        try:
            self._apply(limit)
        except (ValueError, NotImplementedError):  # what JAX says of constraints
            return False
        self.learned.append(limit)
        if limit.symbol:
            self._tried.clear()  # a question of the same text is another one now
            if self._meanings[limit.symbol].isdigit():
                self._reconsider(limit.symbol)
        return True

    def _reconsider(self, symbol: str) -> None:
        """Forgets what was learned of other sizes when it was open that this one is a number."""
        forgotten, kept = {symbol}, []
        for limit in self.learned:
            about = {limit.symbol} if limit.symbol else set(symbols_in(*limit.constraints))
            if forgotten.isdisjoint(limit.asked | about):
                kept.append(limit)
            else:
                forgotten |= about
        if forgotten != {symbol}:
            self.learned = [Limit((), symbol, self._meanings[symbol]), *kept]
            self._begin()

    def _apply(self, limit: Limit) -> None:
        """Puts a limit into force. ValueError, NotImplementedError: it cannot be met; then nothing is changed."""
        new = {limit.symbol: limit.meaning} if limit.symbol else {}
        constraints = [*(_constraint_with(text, new) for text in self._constraints), *limit.constraints]
        ranges = _ranges(constraints)
        if any(found.low > found.high for found in ranges.values()):
            raise ValueError(f"no number fits {limit}")
        meanings = _composed(self._meanings, new)
        if any(int(k) > _MOST for k in re.findall(rf"(\d+)\*{limit.symbol}\b", meanings.get(limit.symbol, ""))):
            raise ValueError(f"multiples of a large number: {limit}")
        scope = _scope(constraints, ranges)
        _ = symbolic_shape("size", scope=scope)[0] >= 1  # with the first comparison JAX says whether they can be met
        self._constraints, self._meanings, self._newest = constraints, meanings, {}
        self._scopes = [*((old, _composed(known, new)) for old, known in self._scopes), (scope, {})]


def _scope(constraints: Sequence[str] = (), ranges: Mapping[str, Range] | None = None) -> Any:
    """What symbolic sizes share. ranges: what the constraints say of single symbols."""
    # Equations come first: JAX fails over a limit of what it then learns to be something else.
    scope = SymbolicScope(sorted(constraints, key=lambda text: "==" not in text))
    bounded_by(scope, functools.partial(bounds_known, ranges or {}))
    return scope


def _size(text: str, scope: Any, meanings: Mapping[str, str] | None = None) -> Any:
    """The size that a text means. meanings: of symbols in it that stand for other sizes."""
    meanings = meanings or {}

    def value(name: str) -> Any:
        return _size(meanings[name], scope) if name in meanings else symbolic_shape(name, scope=scope)[0]

    return size_of_text(text, value, FUNCTIONS)


def _sides(text: str) -> tuple[str, str, str]:
    left, sign, right = _SIGN.split(text, 1)
    return left, sign, right


def _definition(text: str) -> tuple[str, str] | None:
    """(t, 2*s) for `t == 2*s`."""
    if not _SIGN.search(text):
        return None
    left, sign, right = _sides(text)
    plain = sign == "==" and left.isidentifier() and left not in symbols_in(right)
    return (left, str(symbolic_shape(right)[0])) if plain else None


def _composed(meanings: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """What symbols stand for after some of those in their meanings stand for something new."""
    plain = _scope()
    return {**new, **{name: str(_size(text, plain, new)) for name, text in meanings.items()}}


def _constraint_with(text: str, new: Mapping[str, str]) -> str:
    """A constraint after some symbols in it stand for something new."""
    if not new:
        return text
    plain = _scope()
    left, sign, right = (
        str(symbolic_shape(part, scope=plain)[0]) if k != 1 else part for k, part in enumerate(_sides(text))
    )
    return f"{_size(left, plain, new)} {sign} {_size(right, plain, new)}"


def _ranges(constraints: Sequence[str]) -> dict[str, Range]:
    """Between which numbers each symbol is."""
    found: dict[str, Range] = {}
    for text in constraints:
        difference, equation = _difference(text)
        names = symbols_in(difference)
        if len(names) == 1 and is_symbolic(difference):
            try:
                low, high = _solutions(difference, equation).hull
            except Undetermined:  # such as of a billion
                low, high = line(difference, names[0], equation)
            known = found.get(names[0], Range())
            found[names[0]] = Range(max(low, known.low), min(high, known.high))
    return found


def _difference(needs: str) -> tuple[Any, bool]:
    """What must be 0 for an equation, or not negative for a comparison; and whether it is an equation."""
    left, sign, right = _sides(needs)
    scope = _scope()
    a, b = (symbolic_shape(side, scope=scope)[0] for side in (left, right))
    if sign == "==":
        return reduced(a - b), True
    a, b = (b, a) if sign == "<=" else (a, b)
    return (reduced(a) - 1 if isinstance(b, int) and b == 1 else reduced(a - b)), False


def _solutions(difference: Any, equation: bool) -> Numbers:
    return Numbers.where(difference, (lambda values: values == 0) if equation else (lambda values: values >= 0))


def _limits(needs: str, axes: Mapping[str, int], ranges: Mapping[str, Range]) -> Iterator[Limit]:
    """Limits under which it holds, the simplest first.

    axes: of the inputs, where they have a symbol; one size that has two names is on one axis. ranges: of the symbols.
    """
    difference, equation = _difference(needs)
    symbols = symbols_in(difference)
    if not is_symbolic(difference):
        return
    if len(symbols) == 1:
        found = _of_one(difference, equation, symbols[0], ranges.get(symbols[0], Range()))
    else:
        found = itertools.chain(
            [Limit(tuple(bounds(needs)))],
            _of_several(difference, symbols, axes) if equation else [Limit((needs,))],
        )
    for limit in found:
        if limit != Limit():
            yield replace(limit, asked=frozenset(symbols_in(needs)))


def _of_one(difference: Any, equation: bool, symbol: str, known: Range) -> Iterator[Limit]:
    """Limits of one symbol; they follow from all numbers for which it holds. known: those that it may be."""
    sum_of = terms(difference)
    sizes = [term for term in sum_of if not term[1].isdigit()]
    # JAX takes the number for a quotient that is one for several sizes.
    also = (f"{sizes[0][1]} == {_others(sum_of, sizes[0])}",) if equation and len(sizes) == 1 else ()
    try:
        for limit in _within(_solutions(difference, equation), symbol, known):
            yield replace(limit, constraints=(*also, *limit.constraints)) if limit.constraints else limit
    except Undetermined:
        yield Limit((f"{difference} {'==' if equation else '>='} 0",))


def _within(numbers: Numbers, symbol: str, known: Range) -> Iterator[Limit]:
    """Limits under which a symbol is one of the numbers. known: those that it may be."""
    low, high, endless = int(known.low), known.high, known.high == math.inf
    fits = numbers.first(max(len(numbers.fits), low + numbers.period) if endless else int(high) + 1)[low:]
    gaps, members = np.flatnonzero(~fits) + low, np.flatnonzero(fits) + low
    if not gaps.size or not members.size:
        return
    if endless and numbers.lasting.all():
        yield Limit((f"{symbol} >= {gaps[-1] + 1}",))
    elif (endless and not numbers.finite) or members[-1] - members[0] >= members.size:
        if numbers.progression:
            factor, rest = numbers.progression
            yield Limit((), symbol, f"{factor}*{symbol}" + (f" - {factor - rest}" if rest else ""))
    elif members.size == 1:
        yield Limit((), symbol, str(members[0]))
    else:
        least = (f"{symbol} >= {members[0]}",) if members[0] > low else ()
        most = (f"{symbol} <= {members[-1]}",) if members[-1] < high else ()
        yield Limit((*least, *most))


def _of_several(difference: Any, symbols: Sequence[str], axes: Mapping[str, int]) -> Iterator[Limit]:
    """Limits under which a size of several symbols is 0."""
    text = str(difference)
    for a, b in itertools.combinations([s for s in symbols if s in axes], 2):
        if axes[a] == axes[b] and _is_zero(_size(text, _scope(), {a: b})):
            yield Limit((), a, b)
    sum_of = terms(text)
    alone = [t for t in sum_of if t[1].isidentifier() and sum(t[1] in symbols_in(o) for _, o in sum_of) == 1]
    # Best one that is a sum of others, as it cannot be negative then.
    for term in sorted(alone, key=lambda t: sum(o[0] == t[0] for o in sum_of)):
        yield Limit((), term[1], str(_others(sum_of, term)))
    # For any other sizes, or for those that are multiples of all that divides them.
    divisors = math.prod(map(int, _DIVISOR.findall(text)))
    steps = min(divisors, _MOST)
    for others in (
        [_OTHERS, _OTHERS[::-1]],
        [[steps] * len(symbols), [2 * steps] * len(symbols), [3 * steps] * len(symbols)],
    ):
        for symbol in symbols:
            numbers = [_numbers_of(text, symbol, symbols, sizes) for sizes in others]
            if all(numbers):
                common = functools.reduce(lambda a, b: a & b, filter(None, numbers))
                yield from () if common.finite else _within(common, symbol, Range())
    longest = max(sum_of, key=lambda term: len(term[1]))
    others = _others(sum_of, longest)
    if is_symbolic(others):  # JAX takes no number for a term
        yield Limit((f"{longest[1]} == {others}",))


def _others(sum_of: Sequence[tuple[bool, str]], term: tuple[bool, str]) -> Any:
    """What a term is where the sum is 0."""
    return summed([(negative == term[0], other) for negative, other in sum_of if other != term[1]])


def _numbers_of(text: str, symbol: str, symbols: Sequence[str], others: Sequence[int]) -> Numbers | None:
    """For which numbers of one symbol a size is 0, while the others have these sizes; None if that is not known."""
    sizes = {name: str(size) for name, size in zip([s for s in symbols if s != symbol], others, strict=False)}
    left = _size(text, _scope(), sizes)
    try:
        return _solutions(left, True) if is_symbolic(left) else None
    except Undetermined:
        return None


def _is_zero(size: Any) -> bool:
    """Whether a size is 0 for every number."""
    if not is_symbolic(size):
        return size == 0
    try:
        found = _solutions(size, True) if len(symbols_in(size)) == 1 else None
    except Undetermined:
        return False
    return found is not None and bool(found.fits[1:].all() and found.lasting.all())
