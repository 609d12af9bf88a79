"""Splits a program into operations that depend on the weights alone and are worth computing once, and the rest."""

import math
from typing import Annotated, Any, NamedTuple

from jaxops.compiler.ir import Program, needed
from jaxops.compiler.numpy_interpreter import CONSTANT
from jaxops.compiler.passes.lift_tables import TABLE
from jaxops.compiler.primitives import IN_ORDER
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# The largest size of a prepared value, as a multiple of the size of the parameters that it is computed from; and of all
# prepared values, as a multiple of the size of all parameters. What is beyond it counts as grown.
_MOST_BYTES = 1.5
# A smaller value is prepared anyway, such as a table of relative positions that is computed from a few numbers.
_SMALL: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 1 << 20
# Dequantized 4-bit weights are eight times as large. All values that grow beyond `_MOST_BYTES` together may take this
# part of `Target.max_bytes`. Calls are then much faster, and the memory is what each call would need anyway.
_GROWN = 1 / 4
# Operations that cost nothing, or that XLA fuses into their reader.
_FREE = IN_ORDER | {"optimization_barrier", "stored"}
# A slice of at most this many bytes is cheaper in each call than as a prepared value, which is one more argument of
# each call: ConvNeXt's depthwise filters have 49 rows each, which were 882 values.
_ROW: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 1 << 14


class Split(NamedTuple):
    """A program in two parts.

    prepare: computes the prepared values from all weights. run: computes the outputs from the prepared values, the
    weights that it still reads, and the inputs. read: the positions of the weights that `run` reads.
    """

    prepare: Program
    run: Program
    read: tuple[int, ...]


def split_weight_only(program: Program, weights: int, target: Target) -> Split:
    """Splits a program. weights: the number of its weights, which are its first inputs."""
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
    """Decides which values are worth preparing, among those that depend on weights and constants only."""

    def __init__(self, program: Program, weights: int, max_bytes: int) -> None:
        self._types = program.types
        self._roots: dict[Any, frozenset[int]] = {v: frozenset([v]) for v in program.inputs[:weights]}
        self._costly: set[int] = set()
        self._constants: set[int] = set()
        self._room = _GROWN * max_bytes
        self._usual = _MOST_BYTES * sum(map(self._bytes, self._roots)) + _SMALL

    def is_weight_only(self, operation: Any) -> bool:
        """Returns True if an operation depends on weights and constants only; if so, records this for its results."""
        operands = [v for v in operation.operands if isinstance(v, int)]
        if operation.effects or not all(v in self._roots for v in operands):
            return False
        if operation.name == CONSTANT:
            self._constants.update(operation.results)
            self._usual += _MOST_BYTES * sum(map(self._bytes, operation.results))
            self._roots.update((v, frozenset([v])) for v in operation.results)
            self._costly.update(operation.results)
            return True
        roots = frozenset[int]().union(*(self._roots[v] for v in operands))
        self._roots.update(dict.fromkeys(operation.results, roots))
        if operation.name not in _FREE and not self._gives_rows(operation):
            self._costly.update(operation.results)
        return True

    def _gives_rows(self, operation: Any) -> bool:
        """Returns True if an operation slices rows, which readers read in place; a product copies any other slice."""
        return operation.name in ("slice", "split") and all(map(self._is_row, operation.results))

    def _is_row(self, value: int) -> bool:
        shape = self._types[value].shape
        return math.prod(shape) == max(shape, default=1) and self._bytes(value) <= _ROW

    def is_worth_it(self, value: int) -> bool:
        """Returns True if a value is prepared. A large one uses up a part of the room for large values."""
        roots, size = self._roots[value], self._bytes(value)
        if not roots or value not in self._costly:
            return False
        if roots <= self._constants and sum(map(self._bytes, roots)) < TABLE:
            # A larger array made of these is not prepared: XLA fuses it into its readers, which then read one number.
            return value in self._constants or math.prod(self._types[value].shape) == 1
        # One weight may be read in many forms, each of its size.
        if size <= max(_SMALL, _MOST_BYTES * sum(map(self._bytes, roots))) and size <= self._usual:
            self._usual -= size
            return True
        if size > self._room:
            return False
        self._room -= size
        return True

    def _bytes(self, value: int) -> int:
        type = self._types[value]
        return math.prod(type.shape) * type.dtype.itemsize
