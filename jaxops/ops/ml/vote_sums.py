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
    found = _as_integers(weights, leaf.shape[1])
    if found is None:
        return jnp.sum(at(weights, leaf), 1)
    numbers, units = found
    sums = jnp.split(jnp.sum(at(numbers, leaf), 1, numbers.dtype), len(units), 1)
    # Most of the first sum is one float, which leaves few digits of it over. The smallest numbers are added first.
    high = sums[0].astype(weights.dtype)
    y = (sums[0] - high.astype(numbers.dtype)).astype(weights.dtype) * units[0]
    for whole, unit in zip(sums[1:], units[1:], strict=True):
        y = y + whole.astype(weights.dtype) * unit
    return high * units[0] + y


def at(table: np.ndarray, places: jax.Array) -> jax.Array:
    """Rows of a table at places that are in it."""
    return jnp.asarray(table).at[places].get(mode="promise_in_bounds")


def _as_integers(weights: np.ndarray, count: int) -> tuple[np.ndarray, list[np.floating]] | None:
    """Weights as Σ numbers · unit, of which `count` can be added up: numbers side by side, and their units.

    Two at most, which keep twice as many digits as a float has. None where no integers stand for the weights: for
    infinities, NaN, and numbers at the ends of the range of floats.
    """
    whole = np.dtype(f"int{weights.itemsize * 8}")
    # One bit for the sign, and one for what rounding adds to the greatest sum.
    bits = weights.itemsize * 8 - 2
    limits = np.finfo(weights.dtype)
    rest, parts, units = weights.astype(np.float64), [], []
    while len(parts) < 2 and (not parts or rest.any()):
        with np.errstate(over="ignore", invalid="ignore"):
            total = np.abs(rest).max(initial=0) * count
        if not np.isfinite(total):
            return None
        unit = 2.0 ** (np.frexp(total)[1] - bits) if total else 1.0
        if not limits.tiny <= unit <= limits.max:
            break
        parts.append(np.rint(rest / unit))
        units.append(weights.dtype.type(unit))
        rest = rest - parts[-1] * unit
    return (np.concatenate(parts, 1).astype(whole), units) if parts else None
