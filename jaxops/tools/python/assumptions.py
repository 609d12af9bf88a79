"""Assumptions about the sizes of a model, such as `sequence <= 32` for a table of 32 rows.

They are learned while shapes are computed: from an axis that is cut to `min(sequence, 32)`, or from two sizes that must
be equal.
"""

import re
from collections.abc import Sequence
from typing import Any

import jax
from jax.export import SymbolicScope

from jaxops.errors import SizeError
from jaxops.graph.interpreter import open_question
from jaxops.static import Undecided

# With more assumptions than this, the sizes of the model are taken for unknown.
_MOST = 12


class Assumed(Exception):
    """Raised when an assumption was added, so that the shapes must be computed again."""


class Assumptions:
    """The assumptions so far. texts: one for each. scope: of the symbols, with these constraints."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.scope = SymbolicScope()
        self._refused: set[str] = set()

    def learn(self, operands: Sequence[Any], outputs: Any) -> None:
        """Raises Assumed if a call needs another assumption. operands: shapes. outputs: None if the call failed."""
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
        """Raises Assumed if the error of a call asks for a limit of its sizes, such as m >= 2."""
        if isinstance(error, Undecided):
            error = open_question("", str(error).partition("\n")[0], ())
        if isinstance(error, SizeError) and re.fullmatch(r"[A-Za-z_]\w* (>=|<=|==) \d+", error.needs):
            self._assume(error.needs)

    def _meeting(self, one: Sequence[Any], other: Sequence[Any]) -> None:
        """Assumes that sizes are equal which would not broadcast otherwise."""
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
