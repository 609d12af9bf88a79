"""Results in the sizes that were resolved: whether they may be made, and the form of symbolic ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from jaxops.dtypes import canonical
from jaxops.errors import OutOfRangeError
from jaxops.memory import bounded
from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Sizes, Tracer


def bounded_like(op: str, sizes: Sequence[Any], x: Any, dtype: Any = None) -> None:
    """Raises TooLargeError where a result of these sizes may not be computed from `x`. dtype: None for that of x."""
    itemsize = np.dtype(x.dtype if dtype is None else dtype).itemsize
    bounded(op, sizes, itemsize, computed=None if isinstance(x, Tracer) else True)


def check_counts(op: str, operand: str, value: Any) -> None:
    """Raises OutOfRangeError for a number that a program cannot count to: beyond 32 bits while x64 is off."""
    kind = canonical(np.int64)
    if isinstance(value, int) and value > np.iinfo(kind).max:
        raise OutOfRangeError(
            f"{op}: `{operand}` is {value}, but a program counts in {kind.name}, up to {np.iinfo(kind).max}"
            + ("" if kind == np.int64 else "; turn x64 on with jax.config.update('jax_enable_x64', True)")
        )


def with_sizes(op: str, y: Any, expected: Sizes) -> Any:
    """The result with these sizes, to which its own must be equal, in their form: JAX joins arrays of one form only.

    Raises SizeError where it depends on the value of a symbolic size whether they are equal.
    """
    if y.shape == expected and all(a is b or str(a) == str(b) for a, b in zip(y.shape, expected, strict=True)):
        return y
    problem = f"{op}: the result has the sizes {y.shape}, expected {expected}"
    assert all_agree(problem, y.shape, expected), problem
    return lax.slice(y, (0,) * y.ndim, expected)
