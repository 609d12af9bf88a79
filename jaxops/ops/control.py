"""The choice between two Python callables, and what the loops share. What a callable captures needs no plumbing."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, widened
from jaxops.errors import DTypeError, ShapeError, SignatureError, describe
from jaxops.static import Array, Tracer, array

Branch = Callable[[], Sequence[Any]]


def if_(cond: Any, then_branch: Branch, else_branch: Branch) -> tuple[Any, ...]:
    """The outputs of one of two branches.

    cond: one boolean. While it is known, only its branch is traced, and the outputs may be anything. Traced, both
    branches are compiled (`lax.cond`), and their outputs become JAX arrays, which must agree.
    then_branch, else_branch: functions of no arguments that return a sequence of outputs.
    Raises ShapeError, DTypeError or SignatureError when the branches differ under a traced `cond`.
    Source: ONNX If, opsets 1–25.

    >>> if_(jnp.array(2) > 1, lambda: [np.ones(2)], lambda: [np.zeros(2)])
    (array([1., 1.]),)
    """
    chosen = condition("if_", "`cond`", cond)
    if isinstance(chosen, bool):
        return tuple((then_branch if chosen else else_branch)())
    seen: dict[str, list[Any]] = {}

    def traced(name: str, branch: Branch) -> Callable[[], tuple[Any, ...]]:
        def run() -> tuple[Any, ...]:
            seen[name] = [carried(value) for value in branch()]
            if len(seen) == 2:
                _check_branches(**seen)
            return tuple(seen[name])

        return run

    return lax.cond(chosen, traced("then_branch", then_branch), traced("else_branch", else_branch))


def _check_branches(then_branch: list[Any], else_branch: list[Any]) -> None:
    if len(then_branch) != len(else_branch):
        raise SignatureError(f"if_: then_branch has {len(then_branch)} outputs, else_branch {len(else_branch)}")
    for position, (one, other) in enumerate(zip(then_branch, else_branch, strict=True)):
        kind = difference(one, other)
        if kind:
            raise kind(
                f"if_: under a traced `cond` both branches must give alike outputs, but output {position} is\n"
                f"  then_branch  {text(one)}\n"
                f"  else_branch  {text(other)}\n"
                f"  hint    pad them to one shape, or let `cond` be known: then only its branch is traced"
            )


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


def text(value: Any) -> str:
    """A value in a message."""
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
            raise kind(f"{op}: state {k} must keep its type and shape, but goes from {text(one)} to {text(other)}")
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
                f"but goes from {text(found[0])} to {text(row)}"
            )
    return np.stack(found) if isinstance(found[0], np.ndarray) else widened(jnp.stack, tuple(found))
