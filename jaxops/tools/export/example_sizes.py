"""Small numbers with which sizes fit together, for the hint of an error."""

from collections.abc import Sequence

import numpy as np

from jaxops.symbolic import size_of_text
from jaxops.tools.export.quasi_polynomials import OF_ARRAYS

# How large the numbers are, for so many symbols.
_GRID = {2: 1024, 3: 100, 4: 30}


def some_zero(text: str, symbols: Sequence[str]) -> dict[str, int]:
    """Numbers for which a size of two to four symbols is 0: as near to each other as can be, and small.

    Empty if there are none, or for another number of symbols.
    """
    count = len(symbols)
    if count not in _GRID:
        return {}
    axes = np.meshgrid(*[np.arange(1, _GRID[count] + 1)] * count, indexing="ij", sparse=True)
    with np.errstate(divide="ignore"):  # a size that small numbers do not have
        values = size_of_text(text, dict(zip(symbols, axes, strict=True)).__getitem__, OF_ARRAYS)
    fits = np.broadcast_to(values == 0, [_GRID[count]] * count)
    for axis in range(count):  # the least of those that windows take for one
        fits = fits & ~np.insert(np.delete(fits, -1, axis), 0, False, axis)
    solutions = np.argwhere(fits) + 1
    if not len(solutions):
        return {}
    best = min(range(len(solutions)), key=lambda i: (np.ptp(solutions[i]), solutions[i].sum()))
    return dict(zip(symbols, map(int, solutions[best]), strict=True))
