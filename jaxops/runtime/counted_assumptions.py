"""Lets a node that raised an error about numbers of true elements run again, on what the model implies about them."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxops.compiler.padded.counted import as_long_as
from jaxops.dtypes import as_traced
from jaxops.errors import SizeError
from jaxops.runtime.counted_symbols import CountedSymbols
from jaxops.static import is_symbolic


class Assumptions:
    """Lets a node run again that raised a SizeError about numbers of true elements; a `ConstraintSearch`.

    A size that must equal another one does so in every call that the model allows: rows are then taken for the other
    size. A size that broadcasts to another one is 1 or equal to it, which says nothing about other nodes. A value that
    was computed from sizes, such as `n > 0`, becomes a traced one.
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
        # A size that is no array's, such as one that Expand gets, does not broadcast: then the two are equal.
        local = error.broadcasts and str(sizes[-1]) not in self._broadcast
        equal = self._broadcast if local else self._sizes.equal
        if error.problem.endswith("must be equal") and len(sizes) == 2 and str(sizes[1]) not in equal:
            equal[str(sizes[1])] = sizes[0]
            self._pending = "equal"
        else:
            self._pending = "" if "traced" in self._tried else "traced"
        self._tried.add(self._pending)
        return bool(self._pending)

    def refresh(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As of `ConstraintSearch`."""
        inputs = inputs if self._outer is None else self._outer.refresh(inputs)
        if not self._pending:
            self._tried.clear()
            self._broadcast.clear()
        if self._pending == "traced":
            inputs = jax.tree.map(lambda x: as_traced(x) if is_symbolic(x) else x, list(inputs))
        self._pending = ""
        return jax.tree.map(self._resized, list(inputs)) if self._sizes.equal or self._broadcast else inputs

    def _resized(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return self._sizes.with_equal(x) if is_symbolic(x) else x
        for axis, size in enumerate(x.shape if isinstance(x, jax.Array) else ()):
            if not is_symbolic(size):
                continue
            if (other := self._sizes.equal.get(str(size))) is not None:
                x, size = as_long_as(x, axis, size, other), other
            if (other := self._broadcast.get(str(size))) is not None:
                x = as_long_as(x, axis, size, other, broadcasts=True)
        return x
