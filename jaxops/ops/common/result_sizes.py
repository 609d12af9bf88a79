"""Checks of the sizes of results: they fit in memory, and are those that were resolved, in the same symbolic form."""

from collections.abc import Mapping, Sequence
from typing import Any

import chex
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import canonical
from jaxops.errors import OutOfRangeError, UnboundedError, message, shape_text
from jaxops.memory import bounded
from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Sizes, Tracer


def bounded_like(sizes: Sequence[Any], x: Any, dtype: Any = None, subject: str = "") -> None:
    """Raises TooLargeError if a result of these sizes, computed from `x`, takes too many bytes.

    dtype: of the result; None for that of x. subject: as in `bounded`.
    """
    itemsize = np.dtype(x.dtype if dtype is None else dtype).itemsize
    bounded(sizes, itemsize, subject, computed=None if isinstance(x, Tracer) else True)


def check_counts(operand: str, value: Any) -> None:
    """Raises OutOfRangeError for a number that a program cannot count to: beyond 32 bits while x64 is off."""
    kind = canonical(np.int64)
    if isinstance(value, int) and value > np.iinfo(kind).max:
        raise OutOfRangeError(
            f"`{operand}` is {value}, but a program counts in {kind.name}, up to {np.iinfo(kind).max}"
            + ("" if kind == np.int64 else "; turn x64 on with jax.config.update('jax_enable_x64', True)")
        )


def unbounded(problem: str, result: str, **operands: Any) -> UnboundedError:
    """The error about a size that depends on traced operands. result: of a `size` of n, such as "n rows"."""
    return UnboundedError(message(problem, **operands), result)


def rows_that_begin(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    """Returns the number of true rows in a table of indices that is padded with -1, for `DataSize`."""
    return jnp.count_nonzero(results[0][:, 0] >= 0)


def rows_that_are_counted(inputs: Sequence[Any], attributes: Mapping[str, Any], results: Sequence[Any]) -> Any:
    """Returns the number of true rows where the third result has the number for each image, for `DataSize`."""
    return results[2].sum()


def assert_sizes(y: Any, sizes: Sizes, dtype: Any = None) -> Any:
    """Asserts that a traced result has the sizes and the type that were resolved, and returns the result.

    A symbolic size may be written in several forms, such as `2*b - b` and `b`. The result gets the form in `sizes`,
    since JAX joins arrays of one form only. A static result is returned unchanged. dtype: None if the function that
    made the result decides its type.

    Raises AssertionError if sizes or types differ: that is a mistake of the operator, not of its caller. Raises
    SizeError if the value of a symbolic size decides whether they differ.
    """
    if isinstance(y, np.ndarray):
        return y
    if y.shape != sizes or any(a is not b and str(a) != str(b) for a, b in zip(y.shape, sizes, strict=True)):
        problem = f"the result has the sizes {shape_text(y.shape)}, expected {shape_text(sizes)}"
        if all_agree(problem, y.shape, sizes):
            y = lax.slice(y, (0,) * y.ndim, sizes)
    chex.assert_shape(y, sizes)
    if dtype is not None:
        chex.assert_type(y, canonical(dtype))
    return y
