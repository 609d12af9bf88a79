"""Assumptions about the sizes of a model, such as `sequence <= 32` for a table of 32 rows.

They are learned while shapes are computed: from an axis of `min(sequence, 32)` that meets one of `sequence`, or from
two sizes that must be equal. The package checks them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from jax.export import SymbolicScope

from jaxops.errors import SizeError
from jaxops.graph.interpreter import open_question
from jaxops.static import Undecided
from jaxops.symbolic import arguments_of

# With more assumptions than this, the sizes of the model are taken for unknown.
_MOST = 12


class Assumed(Exception):
    """Raised when an assumption was added, so that the shapes must be computed again."""


class Assumptions:
    """The assumptions so far. texts: one for each. scope: of the symbols, with these constraints.

    A package refuses sizes beyond them, so there are only those without which something is not computed here.
    """

    def __init__(self, declared: Mapping[str, Sequence[Any]]) -> None:
        """declared: input → its sizes, numbers and symbols."""
        self.texts: list[str] = []
        self.scope = SymbolicScope()
        self._declared = declared
        self._refused: set[str] = set()
        self._wanted: dict[str, None] = {}  # assumptions that may help if something cannot be computed
        self._suspended = False

    @contextmanager
    def suspended(self, suspended: bool) -> Iterator[None]:
        """Learns nothing inside `with`, if asked to."""
        before, self._suspended = self._suspended, self._suspended or suspended
        yield
        self._suspended = before

    def learn(self, outputs: Any) -> None:
        """Learns from the results of a call."""
        for output in outputs if isinstance(outputs, tuple) else (outputs,):
            for dim in getattr(output, "shape", ()):
                match arguments_of("min", dim):
                    case (symbol, int(most)) if str(symbol).isidentifier():
                        self._wanted[f"{symbol} <= {most}"] = None

    def failed(self, error: Exception, operands: int = 0) -> None:
        """Raises Assumed if the error of a call asks for a limit of its sizes, such as m >= 2, or one may help.

        operands: their number. Two of them must fit each other; of more, one may be padded to the size of another.
        """
        if needs := _needs(error):
            self._assume(needs)
        if operands == 2 and isinstance(error, SizeError) and " == " in error.needs:
            one, _, other = error.needs.partition(" == ")
            self._meeting(one, other, error.broadcasts)
        self.assume_wanted()

    def wanted(self, error: Exception) -> None:
        """Notes the limit that an error asks for, of a call whose result is not needed here."""
        if needs := _needs(error):
            self._wanted[needs] = None

    def assume_wanted(self) -> None:
        """Raises Assumed if there is an assumption that may help."""
        for text in list(self._wanted):
            self._assume(text)

    def _meeting(self, one: str, other: str, broadcasts: bool) -> None:
        """Assumes that two sizes are equal, or that one of them is 1 if it then broadcasts to the other one."""
        for symbol in self._different(one, other) if broadcasts else ():
            self._assume(f"{symbol} == 1")
        for symbol, value in ((one, other), (other, one)):
            if symbol.isidentifier() and not re.search(rf"\b{symbol}\b", value):
                self._assume(f"{symbol} == {value}")

    def _different(self, *symbols: str) -> list[str]:
        """Two symbols, the one of the first axes before the other one, if inputs have them on different axes only."""
        axes = {
            symbol: {k for sizes in self._declared.values() for k, size in enumerate(sizes) if size == symbol}
            for symbol in symbols
        }
        one, other = (axes[symbol] for symbol in symbols)
        return sorted(symbols, key=lambda s: min(axes[s])) if one and other and one.isdisjoint(other) else []

    def _assume(self, text: str) -> None:
        if self._suspended or text in self.texts or text in self._refused or len(self.texts) >= _MOST:
            return
        try:
            self.scope = SymbolicScope([*self.texts, text])
        except ValueError:  # it contradicts earlier ones
            self._refused.add(text)
            self.scope = SymbolicScope(self.texts)
            return
        self.texts.append(text)
        self._wanted.clear()
        raise Assumed


def _needs(error: Exception) -> str:
    """The limit of one size that an error asks for; empty if it asks for none."""
    if isinstance(error, Undecided):
        error = open_question("", error, ())
    needs = error.needs if isinstance(error, SizeError) else ""
    return needs if re.fullmatch(r"[A-Za-z_]\w* (>=|<=|==) \d+", needs) else ""
