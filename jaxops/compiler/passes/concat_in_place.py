"""A value that grows, concatenation by concatenation, grows in place.

In a dense network each layer reads what all layers before it have made, side by side. As concatenations each of them
is copied again by all that follow, and each is a kernel of its own to compile, as no two have the same sizes. So there
is one array of the last size, into which each layer writes its part; where that begins is a number that XLA is told at
each call, so that one kernel writes all parts of one size. DenseNet-121 takes 0.97 of a call, and starts in 0.95.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from jaxops.compiler.ir import Known, Operation, Program

# The fewest concatenations of one value that are worth it.
_FEWEST = 4


class _Link(NamedTuple):
    """A concatenation that puts `parts` behind the result of the link before it."""

    operation: Operation
    parts: Sequence[Any]


def grown(program: Program) -> Program:
    """The same program, in which values that grow are written into one array each."""
    types = list(program.types)
    made: dict[Operation, list[Operation]] = {}
    for chain in _chains(program):
        if len(chain) >= _FEWEST:
            made |= _in_place(chain, types)
    operations = [o for operation in program.operations for o in made.get(operation, [operation])]
    return Program(tuple(operations), tuple(types), program.inputs, program.outputs)


def _chains(program: Program) -> list[list[_Link]]:
    """Concatenations along one axis, each of which begins with the result of the one before."""
    found: list[list[_Link]] = []
    last: dict[Any, list[_Link]] = {}  # (the result of a chain's last link, axis) → the chain
    results: dict[Any, Any] = {}  # (operands, axis) of a concatenation → its result
    for operation in program.operations:
        operands = operation.operands
        # A part without elements would end where the one before it does.
        if operation.name != "concatenate" or any(isinstance(v, Known) or not program.types[v].size for v in operands):
            continue
        axis = operation.params["dimension"]
        # What was put together before is the first operand; or its parts are, one by one.
        begins = [(results.get((operands[:k], axis)), k) for k in range(len(operands) - 1, 1, -1)]
        before, count = next(((v, k) for v, k in begins if (v, axis) in last), (operands[0], 1))
        chain = last.pop((before, axis), [])
        if not chain:
            found.append(chain)
            count = 0
        chain.append(_Link(operation, operands[count:]))
        (result,) = operation.results
        results[operands, axis], last[result, axis] = result, chain
    return found


def _in_place(chain: Sequence[_Link], types: list[Any]) -> dict[Operation, list[Operation]]:
    """For each concatenation what computes its result instead. types: gets those of the new values."""
    axis, whole = chain[0].operation.params["dimension"], types[chain[-1].operation.results[0]]
    axes, made = range(whole.ndim), dict[Operation, list[Operation]]()
    array, end = None, 0
    for operation, parts in chain:
        steps = made[operation] = []
        (result,) = operation.results
        for part in parts:
            size = types[part].shape[axis]
            if array is None:
                rest = [(0, whole.shape[a] - d, 0) for a, d in enumerate(types[part].shape)]
                fn, operands = functools.partial(lax.pad, padding_config=rest), (part, Known(whole.dtype.type(0)))
            else:
                starts = [Known(np.int32(end if a == axis else 0)) for a in axes]
                fn, operands = lax.dynamic_update_slice_p.bind, (array, part, *starts)
            end += size
            array = result if end == whole.shape[axis] else len(types)
            if array != result:
                types.append(whole)
            steps.append(_operation(fn, operands, array, types, operation.scope))
        if array != result:
            limits = [end if a == axis else whole.shape[a] for a in axes]
            fn = functools.partial(lax.slice, start_indices=[0] * whole.ndim, limit_indices=limits)
            steps.append(_operation(fn, (array,), result, types, operation.scope))
    return made


def _operation(
    fn: Callable[..., Any], operands: tuple[Any, ...], result: int, types: Sequence[Any], scope: str
) -> Operation:
    """What binds one primitive."""
    avals = [types[v] if isinstance(v, int) else np.asarray(v.value) for v in operands]
    (equation,) = jax.make_jaxpr(fn)(*avals).eqns
    return Operation(equation, operands, (result,), scope)
