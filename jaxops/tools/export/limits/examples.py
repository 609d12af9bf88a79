"""Finds small numbers for which an equation of sizes holds, for the hint of an error."""

from collections.abc import Sequence

import numpy as np

from jaxops.static import Dim
from jaxops.symbolic import OF_ARRAYS, computed

# Number of symbols → the largest number that is tried.
_GRID = {2: 1024, 3: 100, 4: 30}


def some_zero(size: Dim, symbols: Sequence[str]) -> dict[str, int]:
    """Numbers for which a size of two to four symbols is 0: small ones that are close to each other.

    Empty if there are none, or for another number of symbols.
    """
    count = len(symbols)
    if count not in _GRID:
        return {}
    axes = np.meshgrid(*[np.arange(1, _GRID[count] + 1)] * count, indexing="ij", sparse=True)
    with np.errstate(divide="ignore"):  # a size that divides by 0 for small numbers
        values = computed(size, dict(zip(symbols, axes, strict=True)).__getitem__, OF_ARRAYS)
    fits = np.broadcast_to(values == 0, [_GRID[count]] * count)
    for axis in range(count):  # the smallest number for which windows have the same count
        fits = fits & ~np.insert(np.delete(fits, -1, axis), 0, False, axis)
    solutions = np.argwhere(fits) + 1
    if not len(solutions):
        return {}
    best = min(range(len(solutions)), key=lambda i: (np.ptp(solutions[i]), solutions[i].sum()))
    return dict(zip(symbols, map(int, solutions[best]), strict=True))
