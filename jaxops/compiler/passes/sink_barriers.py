"""Where a value that is `computed_once` is kept: behind the elementwise operations that make one value of it.

An operator can only keep its own result. What follows a depthwise convolution, a bias and an activation, would then be
a loop of its own over what the sum wrote.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from jaxops.compiler.ir import Known, Operation, Program
from jaxops.compiler.primitives import ELEMENTWISE

_MARK = "computed_once"


def kept_late(program: Program) -> Program:
    """The same program, each mark as late as it may stand."""
    operations, types = list(program.operations), list(program.types)
    if all(operation.name != _MARK for operation in operations):
        return program
    readers: dict[int, list[int]] = {}
    for place, operation in enumerate(operations):
        for value in {v for v in operation.operands if not isinstance(v, Known)}:
            readers.setdefault(value, []).append(place)
    outputs = {v for v in program.outputs if not isinstance(v, Known)}
    unmarked: dict[int, int] = {}  # the result of a mark that moved → what it marked
    marks: dict[int, Operation] = {}  # place → the mark that stands behind it
    for place, operation in enumerate(operations):
        at = _last_place(operations, types, readers, outputs, place) if operation.name == _MARK else None
        if at is not None and at not in marks:
            (marked,), (result,) = operation.operands, operation.results
            assert isinstance(marked, int)
            unmarked[result] = marked
            marks[at] = operation
    found = []
    for place, operation in enumerate(operations):
        if operation.name == _MARK and operation.results[0] in unmarked:
            continue
        operands = tuple(v if isinstance(v, Known) else _unmarked(v, unmarked) for v in operation.operands)
        results = operation.results
        if place in marks:
            results = (len(types),)
            types.append(types[operation.results[0]])
        found.append(Operation(operation.equation, operands, results, operation.scope))
        if place in marks:
            found.append(Operation(marks[place].equation, results, operation.results, operation.scope))
    return Program(tuple(found), tuple(types), program.inputs, program.outputs)


def _unmarked(value: int, unmarked: Mapping[int, int]) -> int:
    while value in unmarked:
        value = unmarked[value]
    return value


def _last_place(
    operations: Sequence[Operation],
    types: Sequence[Any],
    readers: Mapping[int, Sequence[int]],
    outputs: set[int],
    place: int,
) -> int | None:
    """The last operation that all which is made of a mark's result goes through; None where there is none.

    waiting: what is made of it so far → the operations that have yet to read it. While only one value waits, the mark
    may stand there.
    """
    (value,) = operations[place].results
    marked = types[value]
    waiting, found = {value: set(readers.get(value, ()))}, None
    while waiting and outputs.isdisjoint(waiting) and all(waiting.values()):
        place = min(map(min, waiting.values()))
        operation = operations[place]
        if operation.name not in ELEMENTWISE - {_MARK} or types[operation.results[0]].shape != marked.shape:
            break
        for v in waiting.keys() & set(operation.operands):
            waiting[v].discard(place)
        waiting = {v: places for v, places in waiting.items() if places}
        (value,) = operation.results
        if not waiting and types[value].dtype == marked.dtype:
            found = place
        waiting[value] = set(readers.get(value, ()))
    return found
