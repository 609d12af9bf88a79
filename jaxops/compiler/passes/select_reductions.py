"""Maxima and minima in the form that is fastest on a CPU.

XLA:CPU computes the maximum of a row element by element, but the elementwise maximum of several slices with vector
instructions. So a row is cut into slices, which are combined first. If all axes are reduced, rows are combined first,
which is faster than to cut the array as one row.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from jax import lax

from jaxops.compiler.ir import Emit, Operation
from jaxops.kernels.tuned import Tuned

# For each reduction: its function of two arrays, and its function of one array and axes.
_PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reduce_max": (lax.max, lax.reduce_max),
    "reduce_min": (lax.min, lax.reduce_min),
}
# A shorter row stays as it is. Each step combines so many slices, which leaves an eighth of the elements. The last step
# reduces at most `_LONGEST` elements; XLA would cut longer rows into windows again.
_SHORTEST: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 64
_SLICES = 8
_LONGEST: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 256
# With fewer rows nothing is gained, and fewer adjacent numbers do not fill a vector.
_FEWEST_ROWS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 32
_VECTOR = 8


def select_reductions(
    emit: Emit, operation: Operation, operands: Sequence[Any], params: Mapping[str, Any] | None = None, /
) -> Sequence[Any]:
    """Computes the results of an operation on arrays; a maximum or minimum in the fastest form for its sizes."""
    if operation.name not in _PAIRS:
        return emit(operation, operands, params)
    params = operation.params if params is None else params
    (x,), axes = operands, tuple(sorted(params["axes"]))
    pair, reduce = _PAIRS[operation.name]
    y = by_slices(pair, reduce, x, axes)
    y = between_rows(pair, x, axes) if y is None else y
    return emit(operation, operands, {**params, "axes": axes}) if y is None else [y]


def by_slices(pair: Callable[..., Any], reduce: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the maximum or minimum along the last axes, NaN if an element is NaN; None if XLA's is as fast."""
    first = x.ndim - len(axes)
    size = math.prod(x.shape[first:])
    if axes != tuple(range(first, x.ndim)) or size < _SHORTEST:
        return None
    if len(axes) > 1 and x.shape[-1] >= _SHORTEST:
        # Rows are combined first: XLA then fuses the operation that computes them, such as a normalization with a scale
        # for each column, into the loop.
        x = lax.reshape(x, (*x.shape[:first], size // x.shape[-1], x.shape[-1]))
        while x.shape[first] > 1:
            x = _between_slices(pair, x, first)
    x = lax.reshape(x, (*x.shape[:first], math.prod(x.shape[first:])))
    while True:
        x = _between_slices(pair, x, first)
        if x.shape[first] <= _LONGEST:
            return reduce(x, (first,))


def between_rows(pair: Callable[..., Any], x: Any, axes: tuple[int, ...]) -> Any:
    """Returns the maximum or minimum over axes before the last ones, combining slices of rows until one row is left;
    None if XLA's is as fast."""
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
    """Combines the slices of an axis. The last two slices may overlap: counting an element twice changes no maximum."""
    count = x.shape[axis]
    size = -(-count // _SLICES)
    starts = (min(start, count - size) for start in range(0, count, size))
    return functools.reduce(pair, [lax.slice_in_dim(x, k, k + size, axis=axis) for k in starts])
