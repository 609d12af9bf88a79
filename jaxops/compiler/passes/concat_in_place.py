"""A value that grows by repeated concatenation grows in place.

In a dense network each layer reads the concatenated results of all layers before it. Each concatenation copies all
earlier results again, and is one more kernel to compile, since no two have the same sizes. So this pass makes one array
of the final size, into which each layer writes its part. The position of a part is an argument, so that one kernel
writes all parts of one size.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxops.compiler.ir import Constant, Operation, Program, operation_of
from jaxops.kernels.target import Target

# A value with fewer concatenations is left as it is.
_FEWEST = 4


class _Step(NamedTuple):
    """A concatenation that appends `parts` to the result of the previous step."""

    operation: Operation
    parts: Sequence[Any]


def concat_in_place(program: Program, target: Target) -> Program:
    """Writes each value that grows by concatenations into one array."""
    types = list(program.types)
    replaced: dict[Operation, list[Operation]] = {}
    for steps in _growing(program):
        if len(steps) >= _FEWEST:
            replaced |= _in_place(steps, types)
    operations = [o for operation in program.operations for o in replaced.get(operation, [operation])]
    return program.replace(operations=operations, types=types)


def _growing(program: Program) -> list[list[_Step]]:
    """Returns chains of concatenations along one axis; in a chain, each one begins with the result of the previous."""
    every: list[list[_Step]] = []
    last: dict[Any, list[_Step]] = {}  # (the result of the last step, axis) → the steps
    results: dict[Any, Any] = {}  # (operands, axis) of a concatenation → its result
    for operation in program.operations:
        operands = operation.operands
        # A concatenation with an empty part is left out: two steps could end at the same position.
        if operation.name != "concatenate" or any(
            isinstance(v, Constant) or not program.types[v].size for v in operands
        ):
            continue
        axis = operation.params["dimension"]
        # The first operand is the result of an earlier concatenation; or the first operands are all its parts.
        begins = [(results.get((operands[:k], axis)), k) for k in range(len(operands) - 1, 1, -1)]
        before, count = next(((v, k) for v, k in begins if (v, axis) in last), (operands[0], 1))
        steps = last.pop((before, axis), [])
        if not steps:
            every.append(steps)
            count = 0
        steps.append(_Step(operation, operands[count:]))
        (result,) = operation.results
        results[operands, axis], last[result, axis] = result, steps
    return every


def _in_place(steps: Sequence[_Step], types: list[Any]) -> dict[Operation, list[Operation]]:
    """Returns, for each concatenation, the operations that replace it. Appends the types of new values to `types`."""
    axis, largest = steps[0].operation.params["dimension"], types[steps[-1].operation.results[0]]
    axes, replaced = range(largest.ndim), dict[Operation, list[Operation]]()
    array, end = None, 0
    for operation, parts in steps:
        updates = replaced[operation] = []
        (result,) = operation.results
        for part in parts:
            size = types[part].shape[axis]
            if array is None:
                padding = [(0, largest.shape[a] - d, 0) for a, d in enumerate(types[part].shape)]
                fn, operands = functools.partial(lax.pad, padding_config=padding), (part, _zero(largest))
            else:
                starts = [Constant(np.int32(end if a == axis else 0)) for a in axes]
                fn, operands = lax.dynamic_update_slice_p.bind, (array, part, *starts)
            end += size
            array = result if end == largest.shape[axis] else len(types)
            if array != result:
                types.append(largest)
            updates.append(operation_of(fn, operands, (array,), types, operation.scope))
        if array != result:
            assert array is not None
            limits = [end if a == axis else largest.shape[a] for a in axes]
            fn = functools.partial(lax.slice, start_indices=[0] * largest.ndim, limit_indices=limits)
            updates.append(operation_of(fn, (array,), (result,), types, operation.scope))
    return replaced


def _zero(type: Any) -> Constant:
    return Constant(type.dtype.type(0))
