"""One program for many sizes: a graph as a `jax.export.Exported`."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.export import Exported, SymbolicScope, symbolic_shape

from jaxops.dtypes import canonical
from jaxops.errors import ArgumentError, JaxopsError, SizeError, StaticError, UnsupportedError
from jaxops.graph import sizes as names_of
from jaxops.graph.nodes import Tensor, Value
from jaxops.graph.trace import LEARNER
from jaxops.ops.elementwise import on_sizes
from jaxops.static import LIMITING, evaluated, is_symbolic, limit_in_place, settled
from jaxops.tools.bounds import bounds

# Up to this size an equation is tried, to see whether it holds for multiples of a number, or from a number on; the
# other sizes in it have many divisors meanwhile.
_TRIED, _DIVISIBLE = 256, 48
# The largest number whose multiples a size may have to be.
_MOST = 1024
_NAME = re.compile(r"[A-Za-z_]\w*")
_NAME_TO_POWER = re.compile(r"[A-Za-z_]\w*(?:\^\d+)?")
_COEFFICIENT = re.compile(r"(\d+)(?=\*|$)")
_OPERATIONS = ("floordiv", "mod", "max", "min", "non_negative")
_COMPARISON = re.compile(r"(<=|>=|==|<|>)")


def export(
    call: Callable[..., Sequence[Any]],
    inputs: Sequence[Value],
    params: Mapping[str, Tensor],
    sizes: Mapping[str, int | str] | None,
    platforms: Sequence[str] | None,
) -> Exported:
    """The program of `call(params, *inputs)`, for every size that the inputs declare by name.

    sizes, platforms, errors: see `Model.export`.
    """
    sizes = sizes or {}
    inputs = names_of.named([v for v in inputs if v.kind != "optional"])
    for value in inputs:
        _check(value)
    names_of.known(inputs, sizes)
    meanings = names_of.symbols(inputs)
    given: list[str] = []
    for name, wanted in sizes.items():
        meanings[name], constraints = _read(name, wanted)
        given += constraints

    def program(params: Any, *given: Any) -> Any:
        outputs = tuple(call(params, *given))
        if limits.found:
            raise _Assumed
        return outputs[0] if len(outputs) == 1 else outputs

    weights = {name: jax.ShapeDtypeStruct(t.shape, canonical(t.dtype)) for name, t in params.items()}
    axes = {meanings[d]: axis for v in inputs for axis, d in enumerate(v.shape or ()) if d in meanings}
    limits, limiting = Limits(given, axes=axes), True
    while True:
        specs = _specs(inputs, meanings, limits)
        tokens = LEARNER.set(limits), LIMITING.set(limiting)
        try:
            return jax.export.export(jax.jit(program), platforms=platforms)(weights, *specs)
        except _Assumed:
            pass
        except SizeError as error:
            if not limits.found and not limits.learn(error):
                if limiting:
                    limits, limiting = Limits(given, axes=axes), False
                    continue
                error.names = {text: name for name, text in meanings.items()}
                raise
        except JaxopsError as error:
            if limits.found:
                continue
            symbolic = [name for name, text in meanings.items() if not text.isdigit()]
            if symbolic:
                example = f"sizes={ {symbolic[0]: 128} }"
                error.add_note(
                    f"in an export; if it follows from the symbolic {', '.join(symbolic)}, fix one: {example}"
                )
            raise
        finally:
            LEARNER.reset(tokens[0])
            LIMITING.reset(tokens[1])


class _Assumed(Exception):
    """A trace ended well under limits that the sizes in it did not have from the start."""


@dataclass
class Limits:
    """For which sizes the program is: those asked for, and those without which the model cannot run.

    axes: symbol → the axis of the inputs that have it. needed: constraints such as `s <= 512`, for a table of 512
    positions. factors: symbol → the number whose multiples its size must be, as 32 for the image of a network that
    halves it five times. JAX proves more about `32*h` than about an `h` under a constraint. found: what a trace has
    learned: (constraint, 0), or (symbol, factor). It goes on with sizes that are limited in place, for the sake of
    what else it finds, and the next trace has them all.
    """

    given: list[str]
    needed: list[str] = field(default_factory=list)
    factors: dict[str, int] = field(default_factory=dict)
    tried: list[tuple[str, int]] = field(default_factory=list)
    found: list[tuple[str, int]] = field(default_factory=list)
    axes: Mapping[str, int] = field(default_factory=dict)
    _scope: Any = None
    _assumed: str = ""
    _newest: dict[str, Any] = field(default_factory=dict)  # text of a size → what it is now

    @property
    def constraints(self) -> list[str]:
        # Equations first: JAX fails over a limit of what it then learns to be a number.
        texts = [self.multiplied(text) for text in self.given] + self.needed
        return sorted(texts, key=lambda text: "==" not in text)

    def multiplied(self, text: str) -> str:
        """The text with `32*h` for `h`."""

        def product(match: re.Match[str]) -> str:
            name, _, power = match[0].partition("^")
            return "*".join([f"{self.factors[name]}*{name}"] * int(power or 1)) if name in self.factors else name

        return _NAME_TO_POWER.sub(product, text)

    def sizes(self, meanings: Mapping[str, str]) -> dict[str, Any]:
        """Symbolic sizes that share the constraints. meanings: name of a size → its text."""
        self._adopt()
        self._scope = scope = SymbolicScope(self.constraints)
        return {name: symbolic_shape(self.multiplied(text), scope=scope)[0] for name, text in meanings.items()}

    def learn(self, error: SizeError) -> bool:
        """Takes over what the model needs; False if nothing new helps."""
        if not error.needs:
            return False
        for limit in _limits(error, self.axes):
            symbol, factor = limit
            if limit in self.tried or factor * self.factors.get(symbol, 1) > _MOST:
                continue
            self.tried.append(limit)
            self.found.append(limit)
            return True
        return False

    def _adopt(self) -> None:
        """Takes what was found into the sizes of the next trace."""
        more: dict[str, int] = {}
        for symbol, factor in self.found:
            if factor:
                more[symbol] = math.lcm(more.get(symbol, 1), factor)
        self.needed += [text for text, factor in self.found if not factor]
        if more:
            # What was needed of h is about 2*h now; if it still is, the next trace says so.
            self.factors.update({symbol: self.factors.get(symbol, 1) * factor for symbol, factor in more.items()})
            self.needed = [text for text in self.needed if more.keys().isdisjoint(_NAME.findall(text))]
            self.tried = []
        self.found, self._assumed, self._newest = [], "", {}

    def goes_on(self, error: SizeError) -> bool:
        """Learns, and limits the sizes of this trace, so that it finds more; False where that did or does not help."""
        if error.needs == self._assumed or not self.learn(error):
            return False
        if self.found[-1][0].partition(" == ")[2].isidentifier():
            return False  # two names of one size: all that has been made of them is simpler anew
        constraint = _constraint(error.needs)
        size, sign, _ = constraint.partition(" == ")
        limited = " ".join([*self.constraints, *(text for text, _ in self.found[:-1])])
        if sign and not set(_NAME.findall(size)).isdisjoint(_NAME.findall(limited)):
            return False  # JAX replaces the size, but not in limits that it has already, and recurs forever over those
        try:
            limit_in_place(self._scope, constraint)
        except (ValueError, NotImplementedError):
            return False
        self._assumed, self._newest = error.needs, {}
        return True

    def renewed(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Operands whose sizes follow from what this trace has learned. Their values do not count in it."""
        return [self._renewed(x) for x in inputs] if self.found else inputs

    def _renewed(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and is_symbolic(x):
            return settled(on_sizes(self._now, x))
        if not isinstance(x, jax.Array) or not any(map(is_symbolic, x.shape)):
            return x
        sizes = tuple(map(self._now, x.shape))
        return x if sizes == x.shape else jax.lax.slice(x, [0] * x.ndim, sizes)

    def _now(self, size: Any) -> Any:
        """A size in the form that it has under all limits."""
        if not is_symbolic(size):
            return size
        text = str(size)
        if text not in self._newest:
            (self._newest[text],) = symbolic_shape(text, scope=self._scope)
        return self._newest[text]


def _limits(error: SizeError, axes: Mapping[str, int]) -> list[tuple[str, int]]:
    """Limits under which an equation holds, the simplest first: (constraint, 0), or (symbol, factor).

    axes: of the inputs, where they have a symbol; one size that has two names is on one axis.
    """
    found = [(limit, 0) for limit in bounds(error.needs)]
    if " == " in error.needs:
        left, right = symbolic_shape(error.needs.replace(" == ", ", "))
        symbols = [] if isinstance(left - right, int) else error.symbols
        odd = {symbol: 2 * k + 7 for k, symbol in enumerate(symbols)}
        for a, b in itertools.combinations([s for s in symbols if s in axes], 2):
            same = axes[a] == axes[b] and all(_number(left - right, {**odd, a: n, b: n}) == 0 for n in range(1, 33))
            if same:
                found.append((f"{a} == {b}", 0))
        others = dict.fromkeys(symbols, _DIVISIBLE)
        for symbol in symbols:
            fits = [n == 0 or _number(left - right, {**others, symbol: n}) == 0 for n in range(_TRIED + 1)]
            only = [n for n, fit in enumerate(fits) if fit and n]
            if len(only) == 1 and len(symbols) == 1:
                found.append((f"{symbol} == {only[0]}", 0))
            last = max((n for n, fit in enumerate(fits) if not fit), default=0)
            if 0 < last < _TRIED // 4:
                found.append((f"{symbol} >= {last + 1}", 0))
            factor = next(k for k in range(1, _TRIED + 2) if all(fits[k::k]))
            if 1 < factor <= _TRIED // 4 and last >= _TRIED // 4:
                found.append((symbol, factor))
    return [*found, (_constraint(error.needs), 0)]


def _number(size: Any, values: Mapping[str, int]) -> float:
    """A size for these values; NaN where it divides by 0."""
    try:
        with np.errstate(over="ignore"):  # in int32 equal sides stay equal
            return evaluated(size, values)
    except ZeroDivisionError:
        return math.nan


def _constraint(needs: str) -> str:
    """What is needed in the form in which JAX wants it: an equation with one term on its left side."""
    if " == " not in needs:
        return needs
    left, right = symbolic_shape(needs.replace(" == ", ", "))
    # A size of its own is replaced by the others, else the longest term by shorter ones, as JAX meets that one again.
    terms = _terms(_reduced(left - right))
    alone = [t for t in terms if _NAME.fullmatch(t[1]) and sum(t[1] in o for _, o in terms) == 1]
    if not alone:
        terms = _terms(left - right)
    chosen = alone[0] if alone else max(terms, key=lambda term: len(term[1]))
    others = [(negative == chosen[0], term) for negative, term in terms if term is not chosen[1]]
    return f"{chosen[1]} == " + ("".join(f" {'-' if negative else '+'} {term}" for negative, term in others) or "0")


def _terms(size: Any) -> list[tuple[bool, str]]:
    """The terms of a symbolic size: (whether it is subtracted, its text)."""
    text, terms, start, depth = str(size), [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and i > start and text[i : i + 3] in (" + ", " - "):
            terms.append(text[start:i])
            start = i + 1
    return [(term[:1] == "-", term.lstrip("+- ")) for term in (*terms, text[start:])]


def _reduced(difference: Any) -> Any:
    """A difference that must be 0, without the factors that all its terms have: sizes are at least 1."""
    if not is_symbolic(difference):
        return difference
    numbers = [int(found[1]) if (found := _COEFFICIENT.match(term)) else 1 for _, term in _terms(difference)]
    names = dict.fromkeys(_NAME.findall(str(difference)))
    symbols = [symbolic_shape(name, scope=difference.scope)[0] for name in names if name not in _OPERATIONS]
    for divisor in (math.gcd(*numbers), *symbols):
        while divisor != 1 and is_symbolic(difference):
            whole = difference // divisor
            if str(whole).count("floordiv") > str(difference).count("floordiv"):
                break
            difference = whole
            divisor = divisor if is_symbolic(divisor) else 1
    return difference


def _check(value: Value) -> None:
    if value.static:
        raise StaticError(
            f"export: input '{value.name}' must be known while tracing, so it cannot be an argument of the program\n"
            f"  needed  {value.static}\n"
            f"  hint    export jax.jit(lambda params, x: model.apply(params, x, {_python_name(value.name)}=…)) with "
            f"jax.export.export, which gives it a value"
        )
    if value.kind != "tensor" or value.shape is None or value.dtype is None:
        raise UnsupportedError(
            f"export: the model declares {value}; every input must be a tensor whose type and number of axes the "
            f"model says, or use jax.export.export(jax.jit(model.apply)) with shapes of your own"
        )


def _python_name(name: str) -> str:
    return name if name.isidentifier() else "**{" + repr(name) + ": …}"


def _read(name: str, wanted: int | str) -> tuple[str, list[str]]:
    """`"s <= 512, s >= 2"` as the size `s` and its constraints."""
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return str(wanted), []
    if not isinstance(wanted, str) or not wanted.strip():
        raise ArgumentError(
            f"sizes: '{name}' is {wanted!r}; give a number, a name such as 'b', or one with a limit such as 's <= 512'"
        )
    size, constraints = "", []
    # A comma inside parentheses separates the arguments of max(…) and the like.
    for part in re.split(r",(?![^(]*\))", wanted):
        left, *rest = (item.strip() for item in _COMPARISON.split(part))
        size = size or left
        if not rest:
            continue
        if len(rest) != 2:
            raise ArgumentError(f"sizes: '{name}' is {wanted!r}; write one comparison at a time: 's >= 2, s <= 512'")
        sign, right = rest
        strict = {"<": ("<=", " - 1"), ">": (">=", " + 1")}
        sign, more = strict.get(sign, (sign, ""))
        constraints.append(f"{left} {sign} {right}{more}")
    return size, constraints


def _specs(inputs: Sequence[Value], meanings: Mapping[str, str], limits: Limits) -> list[Any]:
    """A shape and type for each input, of symbols that share their constraints."""
    try:
        values = limits.sizes(meanings)
    except ValueError as error:
        what = {name: text for name, text in meanings.items() if name != text}
        problem = str(error).splitlines()[0]
        raise ArgumentError(
            f"sizes: {what} with the constraints {limits.constraints} are no symbolic sizes: {problem}"
        ) from error

    def spec(value: Value) -> jax.ShapeDtypeStruct:
        sizes = [
            d if isinstance(d, int) else names_of.expression(d, values) for d in value.shape or () if d is not None
        ]
        return jax.ShapeDtypeStruct(sizes, canonical(value.dtype))

    return list(map(spec, inputs))
