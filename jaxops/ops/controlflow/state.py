"""Functions that branches and loops share, on conditions and on values that enter and leave a body."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import TYPES_OF_SIZES, as_traced, is_string, widened
from jaxops.errors import DTypeError, ShapeError, describe
from jaxops.lazy_sequences import GrowingSequence, SplitSequence
from jaxops.static import Array, Tracer, array, is_symbolic


def condition(operand: str, value: Any) -> bool | jax.Array:
    """One boolean: a Python bool if it is known, else a traced scalar."""
    values = array(value)
    if values.dtype != bool or values.size != 1:
        kind = DTypeError if values.dtype != bool else ShapeError
        raise kind(f"{operand} must be one boolean, but is {describe(values)}")
    if isinstance(values, Tracer):
        return lax.reshape(values, ()) if values.ndim else values
    return bool(np.asarray(values).reshape(()))


def value_of(value: Any) -> Any:
    """A value that enters or leaves a body: an array, a sequence of arrays, or None."""
    if isinstance(value, list | tuple):
        return [array(item) for item in value]
    return value if value is None or isinstance(value, SplitSequence | GrowingSequence) else array(value)


def has_strings(values: Any) -> bool:
    """Returns True if some array holds strings. JAX has no strings, so its loops cannot carry or stack them."""
    return any(isinstance(leaf, np.ndarray) and is_string(leaf) for leaf in jax.tree.leaves(values))


def carried(value: Any, dtype: Any = None) -> Any:
    """A value for `lax.cond`, `lax.scan` and `lax.while_loop`: its arrays become JAX arrays.

    dtype: of symbolic sizes, which have no type of their own; None for int64.
    """
    if isinstance(value, GrowingSequence):
        raise value.problem("a branch or an inner loop cannot carry this sequence")
    of_sizes = dtype if dtype in TYPES_OF_SIZES else None
    return jax.tree.map(lambda x: as_traced(x, of_sizes if is_symbolic(x) else None), value_of(value))


def value_text(value: Any) -> str:
    """A value that enters or leaves a body, the way messages show it."""
    return "nothing" if value is None else describe(value)


def difference(a: Any, b: Any) -> type[DTypeError] | type[ShapeError] | None:
    """The error to raise if two values differ in type or shape; None if they agree."""
    if jax.tree.structure(a) != jax.tree.structure(b):
        return ShapeError
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    if any(x.dtype != y.dtype for x, y in pairs):
        return DTypeError
    return ShapeError if any(x.shape != y.shape for x, y in pairs) else None


def same_state(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """The state after an iteration, as JAX arrays; raises if its types or shapes differ from the state before."""
    new_state = [carried(new, getattr(old, "dtype", None)) for old, new in zip_longest(before, after)]
    for k, (old, new) in enumerate(zip(before, new_state, strict=True)):
        kind = difference(old, new)
        if kind:
            raise kind(f"state {k} must keep its type and shape, but goes from {value_text(old)} to {value_text(new)}")
    return new_state


def rows_of(outputs: Sequence[Sequence[Any]]) -> list[Array]:
    """Each scan output stacked along a new first axis. outputs: the scan outputs of each iteration, of at least one."""
    return [_stack(k, [array(row) for row in column]) for k, column in enumerate(zip(*outputs, strict=True))]


def _stack(position: int, rows: list[Array]) -> Array:
    if all(isinstance(row, np.ndarray) for row in rows):
        arrays: list[Any] = rows
    else:
        arrays = [as_traced(row) for row in rows]
    for row in arrays[1:]:
        kind = difference(arrays[0], row)
        if kind:
            raise kind(
                f"scan output {position} must keep its type and shape, "
                f"but goes from {value_text(arrays[0])} to {value_text(row)}"
            )
    return np.stack(arrays) if isinstance(arrays[0], np.ndarray) else widened(jnp.stack, tuple(arrays))
