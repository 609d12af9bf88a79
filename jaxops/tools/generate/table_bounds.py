"""Tables that a program reads beyond their end, such as those of positions."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.ir import interpret
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

    def compute(eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
        if (inner := called_jaxpr(eqn)) is not None:
            return interpret(inner, operands, compute, _constant)
        if all(x is not None for x in operands):
            result = eqn.primitive.bind(*operands, **eqn.params)
            return result if eqn.primitive.multiple_results else [result]
        if eqn.primitive.name == "gather" and operands[1] is not None:
            reads.extend(_checked(eqn, operands[1]))
        return [None] * len(eqn.outvars)

    with jax.ensure_compile_time_eval():
        interpret(closed, [*inputs, *[None] * (len(closed.in_avals) - len(inputs))], compute, _constant)
    return reads[0] if reads else None


def _constant(value: Any, type: Any) -> Any:
    return value if isinstance(value, jax.Array) else np.asarray(value, type.dtype)


def _checked(eqn: Any, positions: Any) -> list[Beyond]:
    sizes, where = eqn.invars[0].aval.shape, str(eqn.source_info.name_stack)
    reads = []
    for k, axis in enumerate(eqn.params["dimension_numbers"].start_index_map):
        column = np.asarray(positions)[..., k]
        last = sizes[axis] - eqn.params["slice_sizes"][axis]
        if column.size and column.max() > last:
            reads.append(Beyond(sizes[axis], int(column.max()), where))
    return reads
