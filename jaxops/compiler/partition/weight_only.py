"""Which part of a program depends on the parameters alone and is worth computing once, and what is left."""

import math
from collections.abc import Mapping

from jaxops.compiler.ir import Known, Operation, Program, needed
from jaxops.compiler.numpy_interpreter import NUMBER
from jaxops.memory import LIMIT

# The most that a prepared value may hold, for each byte of the parameters that it is made of.
_MOST_BYTES = 1.5
# What is no larger than this is kept anyway: a table of relative positions, made of a few numbers.
_SMALL = 1 << 20
# Dequantized weights of four bits hold eight times as much. All that grows so may take this part of what a result may
# take. Llama of 110 M with 4-bit weights: 0.4 of the time, and the memory that each call would take anew.
_GROWN = 1 / 4
# What costs nothing, or is part of the operation that reads it.
_FREE = {"reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "stop_gradient", "optimization_barrier"}
# A row of no more bytes costs less where it lies than as a value of its own, which each call would hand over: of
# ConvNeXt's depthwise filters, 49 rows each, there were 882.
_ROW = 1 << 14


class Division:
    """A program in two parts: what is prepared, and the rest.

    known: the operations that need nothing but parameters and constants. prepared: the values to keep. rest: the
    operations of each call. read: the parameters that they read.
    """

    def __init__(self, program: Program, weights: Mapping[int, str]) -> None:
        live = needed(program.operations, program.outputs)
        self._types = program.types
        self._roots: dict[int, frozenset[int]] = {v: frozenset([v]) for v in weights}
        self._costly: set[int] = set()
        self._numbers: set[int] = set()
        self._room = _GROWN * LIMIT.get()
        self.known = [operation for operation in live if self._is_known(operation)]
        wanted = {v for v in program.outputs if not isinstance(v, Known)}
        known, prepared, rest = set(self.known), set(), []
        for operation in reversed(live):
            if operation in known:
                kept = wanted.intersection(operation.results)
                if all(map(self._is_worth_it, kept)):
                    prepared |= kept
                    continue
            rest.append(operation)
            wanted.update(v for v in operation.operands if not isinstance(v, Known))
        self.prepared = sorted(prepared)
        self.rest = rest[::-1]
        self.read = sorted(wanted.intersection(weights))

    def _is_known(self, operation: Operation) -> bool:
        """Whether an operation needs parameters and constants only; if so, what follows for its results."""
        operands = [v for v in operation.operands if not isinstance(v, Known)]
        if operation.effects or not all(v in self._roots for v in operands):
            return False
        if operation.name == NUMBER:
            self._numbers.update(operation.results)
            self._roots.update((v, frozenset([v])) for v in operation.results)
            self._costly.update(operation.results)
            return True
        roots = frozenset[int]().union(*(self._roots[v] for v in operands))
        self._roots.update(dict.fromkeys(operation.results, roots))
        if operation.name not in _FREE and not self._gives_rows(operation):
            self._costly.update(operation.results)
        return True

    def _gives_rows(self, operation: Operation) -> bool:
        """Whether what reads the results reads them in place, which a product does not do with a part of a matrix."""
        return operation.name in ("slice", "split") and all(map(self._is_row, operation.results))

    def _is_row(self, value: int) -> bool:
        shape = self._types[value].shape
        return math.prod(shape) == max(shape, default=1) and self._bytes(value) <= _ROW

    def _is_worth_it(self, value: int) -> bool:
        roots, size = self._roots[value], self._bytes(value)
        if not roots or value not in self._costly:
            return False
        if roots <= self._numbers:
            # In another array of them, XLA reads one number in each place.
            return value in self._numbers or math.prod(self._types[value].shape) == 1
        if size > max(_SMALL, _MOST_BYTES * sum(map(self._bytes, roots))):
            if size > self._room:
                return False
            self._room -= size
        return True

    def _bytes(self, value: int) -> int:
        found = self._types[value]
        return math.prod(found.shape) * found.dtype.itemsize
