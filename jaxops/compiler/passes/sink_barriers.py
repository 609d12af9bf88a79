"""Each barrier `computed_once` stands behind the elementwise operations that make one value of its result.

An operator can only keep its own result. What follows a depthwise convolution, a bias and an activation, would then be
a loop of its own over what the sum wrote.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxops.compiler.ir import Operation, Program
from jaxops.compiler.primitives import ELEMENTWISE
from jaxops.kernels.target import Target
from jaxops.kernels.xla_workarounds import computed_once

_BARRIER = computed_once.name


def sink_barriers(program: Program, target: Target) -> Program:
    """Moves each barrier as late as it may stand."""
    operations, types = program.operations, list(program.types)
    if all(operation.name != _BARRIER for operation in operations):
        return program
    replaced: dict[int, int] = {}  # the result of a barrier that moves → its operand
    barriers: dict[int, Operation] = {}  # position → the barrier that moves behind the operation there
    for position, operation in enumerate(operations):
        last = _last_position(program, position) if operation.name == _BARRIER else None
        if last is not None and last not in barriers:
            replaced[operation.results[0]] = operation.operands[0]
            barriers[last] = operation
    moved = []
    for position, operation in enumerate(operations):
        if operation.name == _BARRIER and operation.results[0] in replaced:
            continue
        operands = tuple(_through(v, replaced) for v in operation.operands)
        results = operation.results
        if position in barriers:
            results = (len(types),)
            types.append(types[operation.results[0]])
        moved.append(dataclasses.replace(operation, operands=operands, results=results))
        if position in barriers:
            moved.append(dataclasses.replace(barriers[position], operands=results, results=operation.results))
    return program.replace(operations=moved, types=types)


def _through(value: Any, replaced: Mapping[Any, int]) -> Any:
    while value in replaced:
        value = replaced[value]
    return value


def _last_position(program: Program, position: int) -> int | None:
    """Returns the position of the last operation that everything computed from a barrier's result goes through; None
    where no such operation exists.

    waiting: a value computed from it so far → the operations that have yet to read that. While only one value waits,
    the barrier may stand there.
    """
    operations, types = program.operations, program.types
    (value,) = operations[position].results
    before = types[value]
    waiting, last = {value: set(program.readers.get(value, ()))}, None
    while waiting and all(waiting.values()):
        position = min(map(min, waiting.values()))
        if position == len(operations):  # an output of the program
            break
        operation = operations[position]
        if operation.name not in ELEMENTWISE - {_BARRIER} or types[operation.results[0]].shape != before.shape:
            break
        for v in waiting.keys() & set(operation.operands):
            waiting[v].discard(position)
        waiting = {v: positions for v, positions in waiting.items() if positions}
        (value,) = operation.results
        if not waiting and types[value].dtype == before.dtype:
            last = position
        waiting[value] = set(program.readers.get(value, ()))
    return last
