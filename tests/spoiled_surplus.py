"""Garbage in the surplus of every array that the padded interpreter computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.compiler.padded import interpreter
from jaxops.compiler.padded.values import Padded
from jaxops.compiler.primitives import sizes_of, symbolic_axes


def garbage(dtype: Any, other: Any) -> Any:
    """Returns what must not reach a true element: NaN, the largest integer or True; or another such value."""
    if dtype == np.bool_:
        return ~other
    whole = np.issubdtype(dtype, np.integer)
    values = (np.iinfo(dtype).max, np.iinfo(dtype).min) if whole else (np.nan, 1e30)
    return lax.select(other, *(jnp.asarray(value, dtype) for value in values[::-1]))


def spoiled(x: Any, sizes: Any, other: Any, capacity: Any) -> Any:
    """Returns a value with garbage in its surplus. A value that is marked as zeroed, and is not, becomes garbage."""
    axes = [axis for axis in symbolic_axes(sizes) if capacity.knows(sizes[axis])]
    if not axes:
        return x
    shape, dtype = x.array.shape, x.array.dtype
    is_right = lax.full(shape, True)
    for axis in axes:
        is_true = lax.broadcasted_iota(np.int32, shape, axis) < capacity.count(sizes[axis])
        is_right = is_right & is_true
    if x.zeroed:
        is_right = is_right | lax.eq(x.array, lax.full(shape, 0, dtype))
        is_right = lax.broadcast(lax.reduce_and(is_right, tuple(range(len(shape)))), shape)
    return Padded(lax.select(is_right, x.array, lax.broadcast(garbage(dtype, other), shape)), x.zeroed)


@contextmanager
def spoiled_surplus(other: Any) -> Iterator[None]:
    """Overwrites the surplus of every array in programs that are traced inside. other: which garbage."""
    evaluate = interpreter._evaluate

    def compute(eqn: Any, operands: Any, capacity: Any) -> Any:
        results = evaluate(eqn, operands, capacity)
        return [spoiled(x, sizes_of(v), other, capacity) for x, v in zip(results, eqn.outvars, strict=True)]

    interpreter._evaluate = compute
    try:
        yield
    finally:
        interpreter._evaluate = evaluate
