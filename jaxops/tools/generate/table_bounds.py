"""Finds tables that a program reads beyond their end, such as tables of positions."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.compiler.ir import interpret
from jaxops.compiler.primitives import called_jaxpr
from jaxops.errors import BoundsError, JaxopsError, ShapeError
from jaxops.static import Undecided

# Computes an array when a table is read; computing all arrays would take much of the time of a trace.
_Value = Callable[[], Any]


class Beyond(NamedTuple):
    """A read beyond the end. rows: the number of rows in the table. row: the last row read. where: the module."""

    rows: int
    row: int
    where: str


def first_beyond(closed: Any, inputs: Sequence[Any]) -> Beyond | None:
    """Returns the first table that a closed jaxpr reads beyond its end; None if there is none.

    inputs: the values of its first inputs. Tables and positions that depend on later inputs are not checked.
    """
    tables: list[tuple[int, str]] = []

    def last_rows(inputs: Sequence[Any]) -> list[jax.Array]:
        """Returns the last row of each read; `tables` gets the number of rows and the module."""
        rows: list[jax.Array] = []

        def compute(eqn: Any, operands: Sequence[_Value | None]) -> Sequence[_Value | None]:
            if (inner := called_jaxpr(eqn)) is not None:
                return interpret(inner, operands, compute, _constant)
            values = [x for x in operands if x is not None]
            if len(values) == len(operands):
                results = functools.cache(lambda: _results(eqn, values))
                return [lambda k=k: results()[k] for k in range(len(eqn.outvars))]
            if eqn.primitive.name == "gather" and (positions := operands[1]) is not None:
                for size, row in _last_rows(eqn, positions()):
                    tables.append((size, str(eqn.source_info.name_stack)))
                    rows.append(row)
            return [None] * len(eqn.outvars)

        unknown = len(closed.in_avals) - len(inputs)
        interpret(closed, [*(_constant(x) for x in inputs), *[None] * unknown], compute, _constant)
        return rows

    with jax.ensure_compile_time_eval():
        rows = jax.jit(last_rows)(list(inputs))  # one program: dozens take longer to compile
    read = (Beyond(size, int(row), where) for (size, where), row in zip(tables, rows, strict=True))
    return next((one for one in read if one.row >= one.rows), None)


def _constant(value: Any, type: Any = None) -> _Value:
    return lambda: value if isinstance(value, jax.Array) else np.asarray(value, None if type is None else type.dtype)


def _results(eqn: Any, operands: Sequence[_Value]) -> Sequence[Any]:
    results = eqn.primitive.bind(*(x() for x in operands), **eqn.params)
    return results if eqn.primitive.multiple_results else [results]


def _last_rows(eqn: Any, positions: Any) -> Iterator[tuple[int, jax.Array]]:
    """Yields for each axis that is read at `positions` its size and the last row read."""
    for k, axis in enumerate(eqn.params["dimension_numbers"].start_index_map):
        column = jnp.asarray(positions)[..., k]
        if column.size:
            yield eqn.invars[0].aval.shape[axis], column.max() + eqn.params["slice_sizes"][axis] - 1


def reaches(program: Callable[..., Any], filled: Any, types: Sequence[Any], length: int) -> bool:
    """Returns True if it is known that the last of `length` tokens is in each table, such as that of the positions.

    program: gives the jaxpr of the last step for the inputs that a decoder fills, and for the types of the others.
    Raises ShapeError if it is not in one.
    """
    try:
        out_of_bounds = first_beyond(program(filled, *types), jax.tree.leaves(filled))
    except BoundsError as error:  # the positions are computed from sizes
        raise ShapeError(
            f"decoder: {length} tokens are more than a table of the model has: {error}\n"
            "  hint    decoder(model, length=…) with at most that size"
        ) from error
    except (JaxopsError, Undecided):  # the trace with a symbol raises it, too, with the place
        return False
    if out_of_bounds is not None:
        most = length - (out_of_bounds.row - out_of_bounds.rows + 1)
        raise ShapeError(
            f"decoder: the last of {length} tokens reads row {out_of_bounds.row} of a table of {out_of_bounds.rows} "
            f"rows, in {out_of_bounds.where or 'the model'}\n  hint    decoder(model, length={most}), or fewer"
        )
    return True
