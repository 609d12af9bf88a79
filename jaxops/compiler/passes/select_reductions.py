"""Maxima and minima in the form that is fastest on a CPU.

XLA:CPU finds the maximum of a row one element after the other, and that of several slices of a row many at once.
Milliseconds of a maximum on two cores, as it is → here: 8×1500 rows of 1500 21 → 9; all of 64×3072 0.6 → 0.2. Of all
numbers behind a normalization, rows come first: 64×768, normalized and quantized, 0.13 → 0.04, as one row 0.09. That
of rows likewise: 1024 rows of 1024 1.2 → 0.2, 49 of 512 0.08 → 0.01.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import lax

from jaxops.compiler.ir import Emit, Operation

# The maximum and minimum of two arrays, and of one along axes.
_PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reduce_max": (lax.max, lax.reduce_max),
    "reduce_min": (lax.min, lax.reduce_min),
}
# A row of fewer elements is not worth it. Each step leaves an eighth of the elements. More than these at the end XLA
# would cut into windows again: int8 BERT-base 73 → 70 ms, against an end of up to 2,048.
_SHORTEST, _SLICES, _LONGEST = 64, 8, 256
# Fewer rows take as long as they are, and fewer numbers side by side are no vector.
_FEWEST_ROWS, _VECTOR = 32, 8


def select_reductions(
    emit: Emit, operation: Operation, operands: Sequence[Any], params: Mapping[str, Any] | None = None, /
) -> Sequence[Any]:
    """Computes the results of an operation on arrays; a reduction in the form that is fastest for its sizes."""
    if operation.name not in _PAIRS:
        return emit(operation, operands, params)
    params = operation.params if params is None else params
    (x,), axes = operands, tuple(sorted(params["axes"]))
    pair, reduce = _PAIRS[operation.name]
    y = by_slices(pair, reduce, x, axes)
    y = between_rows(pair, x, axes) if y is None else y
    return emit(operation, operands, {**params, "axes": axes}) if y is None else [y]


def by_slices(pair: Callable[..., Any], reduce: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the maximum or minimum along the last axes, NaN where there is one; None where it would be no faster."""
    first = x.ndim - len(axes)
    size = math.prod(x.shape[first:])
    if axes != tuple(range(first, x.ndim)) or size < _SHORTEST:
        return None
    if len(axes) > 1 and x.shape[-1] >= _SHORTEST:
        # Rows first: what makes the data, a normalization say, is a part of the loop, and knows the columns.
        x = lax.reshape(x, (*x.shape[:first], size // x.shape[-1], x.shape[-1]))
        while x.shape[first] > 1:
            x = _between_slices(pair, x, first)
    x = lax.reshape(x, (*x.shape[:first], math.prod(x.shape[first:])))
    while True:
        x = _between_slices(pair, x, first)
        if x.shape[first] <= _LONGEST:
            return reduce(x, (first,))


def between_rows(pair: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the maximum or minimum over axes before the last ones, slice by slice down to one row; None where it
    would be no faster."""
    if not axes:
        return None
    first, last = axes[0], axes[-1] + 1
    rows, columns = math.prod(x.shape[first:last]), math.prod(x.shape[last:])
    if axes != tuple(range(first, last)) or rows < _FEWEST_ROWS or columns < _VECTOR:
        return None
    outside = x.shape[:first] + x.shape[last:]
    x = lax.reshape(x, (*x.shape[:first], rows, columns))
    while x.shape[first] > 1:
        x = _between_slices(pair, x, first)
    return lax.reshape(x, outside)


def _between_slices(pair: Callable[..., Any], x: Any, axis: int) -> Any:
    """Combines the slices of an axis; the last two may overlap, as an element may count twice."""
    count = x.shape[axis]
    size = -(-count // _SLICES)
    starts = (min(start, count - size) for start in range(0, count, size))
    return functools.reduce(pair, [lax.slice_in_dim(x, k, k + size, axis=axis) for k in starts])
