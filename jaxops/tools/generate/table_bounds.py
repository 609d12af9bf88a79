"""Tables that a program reads beyond their end, such as those of positions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.primitives import called_jaxpr


class Beyond(NamedTuple):
    """rows: how many the table has. row: the last one that is read. where: the module."""

    rows: int
    row: int
    where: str


def first_beyond(closed: Any, known: Sequence[Any]) -> Beyond | None:
    """The first table that a closed jaxpr reads beyond its end, at places that follow from the first of its inputs.

    known: those inputs. The others are unknown, and the tables and places that depend on them.
    """
    found: list[Beyond] = []
    with jax.ensure_compile_time_eval():
        _walk(closed.jaxpr, [*closed.consts, *known, *[None] * (len(closed.jaxpr.invars) - len(known))], found)
    return found[0] if found else None


def _walk(jaxpr: Any, given: Sequence[Any], found: list[Beyond]) -> list[Any]:
    """What is known of the results; given: constants and inputs, None for what is unknown."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

    def read(var: Any) -> Any:
        return np.asarray(var.val, var.aval.dtype) if hasattr(var, "val") else values[var]

    for eqn in jaxpr.eqns:
        operands, name = [read(v) for v in eqn.invars], eqn.primitive.name
        if (inner := called_jaxpr(eqn)) is not None:
            made = _walk(getattr(inner, "jaxpr", inner), [*getattr(inner, "consts", ()), *operands], found)
        elif any(x is None for x in operands):
            made = [None] * len(eqn.outvars)
            if name == "gather" and operands[1] is not None:
                found += _checked(eqn, operands[1])
        else:
            result = eqn.primitive.bind(*operands, **eqn.params)
            made = result if eqn.primitive.multiple_results else [result]
        values.update(zip(eqn.outvars, made, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _checked(eqn: Any, places: Any) -> list[Beyond]:
    sizes, where = eqn.invars[0].aval.shape, str(eqn.source_info.name_stack)
    found = []
    for k, axis in enumerate(eqn.params["dimension_numbers"].start_index_map):
        column = np.asarray(places)[..., k]
        last = sizes[axis] - eqn.params["slice_sizes"][axis]
        if column.size and column.max() > last:
            found.append(Beyond(sizes[axis], int(column.max()), where))
    return found
