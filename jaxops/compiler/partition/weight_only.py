"""Splits a program into what depends on the weights alone and is worth computing once, and the rest."""

import math
from typing import Any, NamedTuple

from jaxops.compiler.ir import Program, needed
from jaxops.compiler.numpy_interpreter import CONSTANT
from jaxops.compiler.passes.lift_tables import TABLE
from jaxops.compiler.primitives import IN_ORDER
from jaxops.kernels.target import Target

# The most that a prepared value may hold, for each byte of the parameters that it is made of.
_MOST_BYTES = 1.5
# A smaller value is prepared anyway: a table of relative positions, made of a few numbers.
_SMALL = 1 << 20
# Dequantized weights of four bits hold eight times as much. All that grows so may take this part of what a result may
# take. Llama of 110 M with 4-bit weights: 0.4 of the time, and the memory that each call would take anew.
_GROWN = 1 / 4
# Operations that cost nothing, or are part of the one that reads them.
_FREE = IN_ORDER | {"optimization_barrier", "stored"}
# A row of no more bytes costs less where it lies than as a value of its own, which each call would hand over: of
# ConvNeXt's depthwise filters, 49 rows each, there were 882.
_ROW = 1 << 14


class Split(NamedTuple):
    """A program in two parts.

    prepare: from all weights to the prepared values. run: from these, the weights that it still reads, and the inputs
    to the outputs. read: the positions of these weights.
    """

    prepare: Program
    run: Program
    read: tuple[int, ...]


def split_weight_only(program: Program, weights: int, target: Target) -> Split:
    """Splits a program. weights: how many of its inputs, the first ones, are weights."""
    program = program.needed()
    costs = _Costs(program, weights, target.max_bytes)
    weight_only = [operation for operation in program.operations if costs.is_weight_only(operation)]
    live: set[Any] = {v for v in program.outputs if isinstance(v, int)}
    left, prepared, each_call = set(weight_only), set[int](), []
    for operation in reversed(program.operations):
        if operation in left:
            read = live.intersection(operation.results)
            if all(map(costs.is_worth_it, read)):
                prepared |= read
                continue
        each_call.append(operation)
        live.update(v for v in operation.operands if isinstance(v, int))
    outputs, arguments = tuple(sorted(prepared)), program.inputs[weights:]
    parameters = program.inputs[:weights]
    read = tuple(k for k, v in enumerate(parameters) if v in live)
    prepare = program.replace(operations=needed(weight_only, outputs), inputs=parameters, outputs=outputs)
    inputs = (*outputs, *(parameters[k] for k in read), *arguments)
    return Split(prepare, program.replace(operations=each_call[::-1], inputs=inputs), read)


class _Costs:
    """Decides which values are worth preparing. Follows the values that need weights and constants only."""

    def __init__(self, program: Program, weights: int, max_bytes: int) -> None:
        self._types = program.types
        self._roots: dict[Any, frozenset[int]] = {v: frozenset([v]) for v in program.inputs[:weights]}
        self._costly: set[int] = set()
        self._constants: set[int] = set()
        self._room = _GROWN * max_bytes

    def is_weight_only(self, operation: Any) -> bool:
        """Tells whether an operation needs weights and constants only; notes what follows for its results."""
        operands = [v for v in operation.operands if isinstance(v, int)]
        if operation.effects or not all(v in self._roots for v in operands):
            return False
        if operation.name == CONSTANT:
            self._constants.update(operation.results)
            self._roots.update((v, frozenset([v])) for v in operation.results)
            self._costly.update(operation.results)
            return True
        roots = frozenset[int]().union(*(self._roots[v] for v in operands))
        self._roots.update(dict.fromkeys(operation.results, roots))
        if operation.name not in _FREE and not self._gives_rows(operation):
            self._costly.update(operation.results)
        return True

    def _gives_rows(self, operation: Any) -> bool:
        """Tells whether its readers read the results in place, which a product does not do with a part of a matrix."""
        return operation.name in ("slice", "split") and all(map(self._is_row, operation.results))

    def _is_row(self, value: int) -> bool:
        shape = self._types[value].shape
        return math.prod(shape) == max(shape, default=1) and self._bytes(value) <= _ROW

    def is_worth_it(self, value: int) -> bool:
        """Tells whether a value is prepared; takes its bytes from the room for large ones."""
        roots, size = self._roots[value], self._bytes(value)
        if not roots or value not in self._costly:
            return False
        if roots <= self._constants and sum(map(self._bytes, roots)) < TABLE:
            # In another array of them, XLA reads one number in each place.
            return value in self._constants or math.prod(self._types[value].shape) == 1
        if size > max(_SMALL, _MOST_BYTES * sum(map(self._bytes, roots))):
            if size > self._room:
                return False
            self._room -= size
        return True

    def _bytes(self, value: int) -> int:
        type = self._types[value]
        return math.prod(type.shape) * type.dtype.itemsize
