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


def first_beyond(closed: Any, inputs: Sequence[Any]) -> Beyond | None:
    """The first table that a closed jaxpr reads beyond its end, at positions that follow from the first of its inputs.

    inputs: those first inputs. The later ones are unknown, and so are tables and positions that depend on them.
    """
    reads: list[Beyond] = []
    with jax.ensure_compile_time_eval():
        _walk(closed.jaxpr, [*closed.consts, *inputs, *[None] * (len(closed.jaxpr.invars) - len(inputs))], reads)
    return reads[0] if reads else None


def _walk(jaxpr: Any, inputs: Sequence[Any], reads: list[Beyond]) -> list[Any]:
    """The known values of the results; inputs: constants and inputs, None for unknown ones."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], inputs, strict=True))

    def read(var: Any) -> Any:
        return np.asarray(var.val, var.aval.dtype) if hasattr(var, "val") else values[var]

    for eqn in jaxpr.eqns:
        operands, name = [read(v) for v in eqn.invars], eqn.primitive.name
        if (inner := called_jaxpr(eqn)) is not None:
            results = _walk(getattr(inner, "jaxpr", inner), [*getattr(inner, "consts", ()), *operands], reads)
        elif any(x is None for x in operands):
            results = [None] * len(eqn.outvars)
            if name == "gather" and operands[1] is not None:
                reads += _checked(eqn, operands[1])
        else:
            result = eqn.primitive.bind(*operands, **eqn.params)
            results = result if eqn.primitive.multiple_results else [result]
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _checked(eqn: Any, positions: Any) -> list[Beyond]:
    sizes, where = eqn.invars[0].aval.shape, str(eqn.source_info.name_stack)
    reads = []
    for k, axis in enumerate(eqn.params["dimension_numbers"].start_index_map):
        column = np.asarray(positions)[..., k]
        last = sizes[axis] - eqn.params["slice_sizes"][axis]
        if column.size and column.max() > last:
            reads.append(Beyond(sizes[axis], int(column.max()), where))
    return reads
