"""Runs a program with independent rows in blocks of rows, only as many as the true rows fill.

So a bucket of 1024 rows takes as long for ten rows as for 64.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxops.compiler.padded.interpreter import run_padded
from jaxops.compiler.padded.values import Capacity, Padded
from jaxops.compiler.primitives import PRODUCTS, called_jaxpr, jaxprs, symbolic_axes
from jaxops.compiler.row_independence import serves_surplus_rows
from jaxops.static import is_symbolic

# The rows of a block.
_BLOCK = 64


def may_run_in_blocks(closed: Any, capacity: Capacity) -> bool:
    """Returns True if each row of all results depends on the same row of the inputs alone.

    Rows are the first axis, of the only symbolic size. False for a program with matrix products, as a CPU would pack
    their weights for each block, and for one that reads the number of a row.
    """
    if len(capacity.largest) != 1:
        return False
    ((symbol, most),) = capacity.largest.items()
    symbolic = [x.shape for x in closed.in_avals if symbolic_axes(x.shape)]
    return (
        most > _BLOCK
        and all(symbolic_axes(shape) == {0} and str(shape[0]) == symbol for shape in symbolic)
        and all(symbolic_axes(y.shape) == {0} and str(y.shape[0]) == symbol for y in closed.out_avals)
        and serves_surplus_rows(closed.jaxpr)
        and not any(eqn.primitive.name in PRODUCTS or _reads_row_numbers(eqn) for eqn in _equations(closed.jaxpr))
    )


def run_in_blocks(closed: Any, inputs: Sequence[Any], capacity: Capacity) -> list[Padded]:
    """Returns the results of a closed jaxpr, as `run_padded` does."""
    ((symbol, most),) = capacity.largest.items()
    block = Capacity(capacity.sizes, {symbol: _BLOCK}, {})

    def step(number: Any, results: list[Any]) -> list[Any]:
        first = number * _BLOCK  # slices clamp it: the last block begins earlier
        rows = [
            lax.dynamic_slice_in_dim(x, first, _BLOCK) if symbolic_axes(type.shape) else x
            for x, type in zip(inputs, closed.in_avals, strict=True)
        ]
        parts = run_padded(closed, rows, block)
        return [
            lax.dynamic_update_slice_in_dim(y, part.array, first, 0) for y, part in zip(results, parts, strict=True)
        ]

    start = [jnp.zeros((most, *y.shape[1:]), y.dtype) for y in closed.out_avals]
    count = (capacity.count(closed.out_avals[0].shape[0]) + (_BLOCK - 1)) // _BLOCK
    return list(map(Padded, lax.fori_loop(0, count, step, start)))


def _reads_row_numbers(eqn: Any) -> bool:
    return eqn.primitive.name == "iota" and is_symbolic(eqn.params["shape"][eqn.params["dimension"]])


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the equations of a program, and of all programs in them."""
    for eqn in jaxpr.eqns:
        yield eqn
        inner = called_jaxpr(eqn)
        for program in jaxprs(eqn) if inner is None else [inner]:
            yield from _equations(getattr(program, "jaxpr", program))
