"""Lets a node that raised an error about numbers of true elements run again, on what the model implies about them."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxops.compiler.padded.counted import as_long_as
from jaxops.dtypes import as_traced
from jaxops.errors import SizeError, symbols_in
from jaxops.runtime.counted_symbols import CountedSymbols
from jaxops.static import Undecided, is_symbolic


class Assumptions:
    """Lets a node run again that raised a SizeError about numbers of true elements; a `ConstraintSearch`.

    A size that must equal another one does so in every call that the model allows: rows are then taken for the other
    size. Two sizes that broadcast to each other are equal, or one of them is 1, which says nothing about other nodes:
    the result gets a size of its own. A value that was computed from sizes, such as `n > 0`, becomes a traced one.
    """

    def __init__(self, sizes: CountedSymbols, outer: Any) -> None:
        """outer: the search of an export, or None."""
        self._sizes, self._outer = sizes, outer
        self._tried, self._pending = set[str](), ""
        self._broadcast: dict[str, Any] = {}  # of the node that runs again: size → the size that it broadcasts to

    def assume(self, error: SizeError) -> bool:
        """As of `ConstraintSearch`."""
        if not any(symbol in self._sizes.made for symbol in error.symbols):
            return self._outer is not None and self._outer.assume(error)
        # A number, or the symbol that was made first, stays.
        sizes = sorted(error.sizes, key=lambda size: (is_symbolic(size), len(str(size)), str(size)))
        if not error.problem.endswith("must be equal") or len(sizes) != 2:
            self._pending = "" if "traced" in self._tried else "traced"
        elif error.broadcasts and not self._sizes.wider:
            if any(str(size) in self._broadcast for size in sizes):
                self._sizes.wider = dict(self._broadcast)  # no array's size any more, but in a shape that Expand gets
            else:
                self._check_none_is_one(error, sizes)
                result = self._sizes.broadcast(*sizes)
                self._broadcast |= {str(size): result for size in sizes if size != result}
            self._pending = "equal"
        elif str(sizes[1]) not in self._sizes.equal:
            self._sizes.equal[str(sizes[1])] = sizes[0]
            self._pending = "equal"
        else:
            self._pending = "" if "traced" in self._tried else "traced"
        self._tried.add(self._pending)
        return bool(self._pending)

    def _check_none_is_one(self, error: SizeError, sizes: Sequence[Any]) -> None:
        """Raises SizeError for a size of the program around this one that may be 1, which broadcasts to any size."""
        counted = [symbol for symbol in error.symbols if symbol in self._sizes.made]
        node = self._sizes.made[counted[0]].node
        for size in sizes:
            if is_symbolic(size) and not any(symbol in counted for symbol in symbols_in(size)):
                try:
                    _ = size >= 2
                except Undecided as undecided:
                    problem = f"{size} may be 1, which broadcasts to the size of '{node}', which data decide"
                    raise SizeError(problem, size, needs=f"{size} >= 2") from undecided

    def refresh(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As of `ConstraintSearch`."""
        inputs = inputs if self._outer is None else self._outer.refresh(inputs)
        if not self._pending:
            self._tried.clear()
            self._broadcast.clear()
            self._sizes.wider = {}
        if self._pending == "traced":
            inputs = jax.tree.map(lambda x: as_traced(x) if is_symbolic(x) else x, list(inputs))
        self._pending = ""
        return jax.tree.map(self._resized, list(inputs)) if self._sizes.equal or self._broadcast else inputs

    def _resized(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return self._sizes.renamed(x) if is_symbolic(x) else x
        for axis, size in enumerate(x.shape if isinstance(x, jax.Array) else ()):
            if not is_symbolic(size):
                continue
            if (other := self._sizes.equal.get(str(size))) is not None:
                x, size = as_long_as(x, axis, size, other), other
            while (other := self._broadcast.get(str(size))) is not None:
                x, size = as_long_as(x, axis, size, other, broadcasts=True), other
        return x
