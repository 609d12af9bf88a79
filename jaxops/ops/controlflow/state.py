"""What choices and loops share: conditions, and values that go in and out of a body."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, widened
from jaxops.errors import DTypeError, ShapeError, describe
from jaxops.static import Array, Tracer, array


def condition(op: str, operand: str, value: Any) -> bool | jax.Array:
    """One boolean: as a Python one while it is known, else as a traced scalar."""
    values = array(value)
    if values.dtype != bool or values.size != 1:
        kind = DTypeError if values.dtype != bool else ShapeError
        raise kind(f"{op}: {operand} must be one boolean, but is {describe(values)}")
    if isinstance(values, Tracer):
        return lax.reshape(values, ()) if values.ndim else values
    return bool(np.asarray(values).reshape(()))


def value_of(value: Any) -> Any:
    """What goes in and out of a body: arrays, sequences of arrays, None."""
    if isinstance(value, list | tuple):
        return [array(item) for item in value]
    return None if value is None else array(value)


def carried(value: Any) -> Any:
    """A value as `lax.cond`, `lax.scan` and `lax.while_loop` take it: its arrays as JAX arrays."""
    return jax.tree.map(as_traced, value_of(value))


def value_text(value: Any) -> str:
    """A value that enters or leaves a body, the way messages show it."""
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "nothing" if value is None else describe(value)


def difference(one: Any, other: Any) -> type[DTypeError] | type[ShapeError] | None:
    """The error to raise when two values must agree in type and shape, and do not."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return ShapeError
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    if any(a.dtype != b.dtype for a, b in pairs):
        return DTypeError
    return ShapeError if any(a.shape != b.shape for a, b in pairs) else None


def same_state(op: str, before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """The state after an iteration as JAX arrays; raises when it is not like the state before."""
    found = [carried(value) for value in after]
    for k, (one, other) in enumerate(zip(before, found, strict=True)):
        kind = difference(one, other)
        if kind:
            raise kind(
                f"{op}: state {k} must keep its type and shape, but goes from {value_text(one)} to {value_text(other)}"
            )
    return found


def rows_of(op: str, outputs: Sequence[Sequence[Any]]) -> list[Array]:
    """Each scan output stacked along a new first axis; `outputs` are those of the iterations, at least one."""
    return [_stack(op, k, [array(row) for row in column]) for k, column in enumerate(zip(*outputs, strict=True))]


def _stack(op: str, position: int, rows: list[Array]) -> Array:
    if all(isinstance(row, np.ndarray) for row in rows):
        found: list[Any] = rows
    else:
        found = [as_traced(row) for row in rows]
    for row in found[1:]:
        kind = difference(found[0], row)
        if kind:
            raise kind(
                f"{op}: scan output {position} must keep its type and shape, "
                f"but goes from {value_text(found[0])} to {value_text(row)}"
            )
    return np.stack(found) if isinstance(found[0], np.ndarray) else widened(jnp.stack, tuple(found))
