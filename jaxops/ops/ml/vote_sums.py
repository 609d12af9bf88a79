"""Sums of the votes of trees, which do not depend on the order of the trees.

In floats, 38 votes of 0.01 for one class and 38 for another give sums that differ in the last digit, where other votes
lie between them; then the label of a tie is chance. As integers they are equal, and the first class is chosen, as by
scikit-learn, whose sums are float64: of 4,000 rows and 100 to 200 trees up to 17 had another label, by onnxruntime 18.
"""

import jax
import jax.numpy as jnp
import numpy as np


def vote_sum(weights: np.ndarray, leaf: jax.Array) -> jax.Array:
    """The sums of the weights of each row's leaves, rounded once: (rows, targets).

    weights: (leaves, targets), float32 or float64. leaf: (rows, trees), places in it.
    """
    integer_parts = _as_integers(weights, leaf.shape[1])
    if integer_parts is None:
        return jnp.sum(at(weights, leaf), 1)
    # One after the other: both at once would need the memory of both.
    (first, unit), *more = [(jnp.sum(at(numbers, leaf), 1, numbers.dtype), unit) for numbers, unit in integer_parts]
    # Most of the first sum is one float, which leaves few digits of it over. The smallest numbers are added first.
    high = first.astype(weights.dtype)
    y = (first - high.astype(first.dtype)).astype(weights.dtype) * unit
    for sums, smaller in more:
        y = y + sums.astype(weights.dtype) * smaller
    return high * unit + y


def at(table: np.ndarray, rows: jax.Array) -> jax.Array:
    """Rows of a table at places that are in it."""
    return jnp.asarray(table).at[rows].get(mode="promise_in_bounds")


def _as_integers(weights: np.ndarray, count: int) -> list[tuple[np.ndarray, np.floating]] | None:
    """Weights as Σ numbers · unit, of which `count` can be added up: numbers and their unit, the largest first.

    Two at most, which keep twice as many digits as a float has. None where no integers stand for the weights: for
    infinities, NaN, and numbers at the ends of the range of floats.
    """
    integer_type = np.dtype(f"int{weights.itemsize * 8}")
    # One bit for the sign, and one because rounding may increase the greatest sum.
    bits = weights.itemsize * 8 - 2
    limits = np.finfo(weights.dtype)
    remainder, parts = weights.astype(np.float64), []
    while len(parts) < 2 and (not parts or remainder.any()):
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(remainder).max(initial=0) * count
        if not np.isfinite(total):
            return None
        unit = 2.0 ** (np.frexp(total)[1] - bits) if total else 1.0
        if not limits.tiny <= unit <= limits.max:
            break
        numbers = np.rint(remainder / unit)
        parts.append((numbers.astype(integer_type), weights.dtype.type(unit)))
        remainder = remainder - numbers * unit
    return parts or None
