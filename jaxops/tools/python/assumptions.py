"""Conditions on the sizes of a model for it to run: `sequence <= 32` for a table of 32 rows.

Found while its shapes are worked out: an axis that is cut to `min(sequence, 32)`, two sizes that meet and differ.
"""

import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.export import SymbolicScope

from jaxops.errors import SizeError
from jaxops.graph.interpreter import open_question
from jaxops.static import Undecided

# More of them say that the sizes of the model are not understood.
_MOST = 12


class Assumed(Exception):
    """The shapes have to be worked out again, with one more assumption."""


class Assumptions:
    """texts: the assumptions; scope: the symbols under them."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.scope = SymbolicScope()
        self._refused: set[str] = set()

    def learn(self, operands: Sequence[Any], outputs: Any) -> None:
        """Raises Assumed if a call shows another assumption. operands: their shapes; outputs: None if it failed."""
        if outputs is None:
            shapes = [x.shape for x in operands if isinstance(x, jax.ShapeDtypeStruct)]
            if len(shapes) == len(operands) == 2:
                self._meeting(*shapes)
            return
        for output in outputs if isinstance(outputs, tuple) else (outputs,):
            for dim in getattr(output, "shape", ()):
                if match := re.fullmatch(r"min\((\w+), (\d+)\)", str(dim)):
                    self._assume(f"{match[1]} <= {match[2]}")

    def failed(self, error: Exception) -> None:
        """Raises Assumed where a call failed for want of a limit that its sizes must have, such as m >= 2."""
        if isinstance(error, Undecided):
            error = open_question("", str(error).partition("\n")[0], ())
        if isinstance(error, SizeError) and re.fullmatch(r"[A-Za-z_]\w* (>=|<=|==) \d+", error.needs):
            self._assume(error.needs)

    def _meeting(self, one: Sequence[Any], other: Sequence[Any]) -> None:
        """Two operands that do not broadcast: sizes that meet are equal."""
        for a, b in zip(reversed(one), reversed(other), strict=False):
            if isinstance(a, int) or isinstance(b, int) or str(a) == str(b):
                continue
            for symbol, value in ((str(a), str(b)), (str(b), str(a))):
                if symbol.isidentifier() and not re.search(rf"\b{symbol}\b", value):
                    self._assume(f"{symbol} == {value}")

    def _assume(self, text: str) -> None:
        if text in self.texts or text in self._refused or len(self.texts) >= _MOST:
            return
        try:
            self.scope = SymbolicScope([*self.texts, text])
        except ValueError:  # it contradicts earlier ones
            self._refused.add(text)
            self.scope = SymbolicScope(self.texts)
            return
        self.texts.append(text)
        raise Assumed
