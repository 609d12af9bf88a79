"""Elementwise operations that are the same for all parts of a concatenation run after it, once.

Branches of a network often end in the same way: a convolution, a bias or a normalization, an activation; then all
branches are concatenated. XLA does not fuse a concatenation of channels with the operations before it, so each branch
would have a loop to compile and to start. Inception v2 runs 84 operations instead of 109.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax import lax

from jaxops.compiler.fingerprint import fingerprint
from jaxops.compiler.ir import Constant, Operation, Program
from jaxops.compiler.primitives import ELEMENTWISE
from jaxops.kernels.target import Target

# Operations into which XLA does not fuse an elementwise one. After any other, the moved operations would need one more
# loop.
_PRODUCTS = {"conv_general_dilated", "dot_general"}
# One value of each part: the results of corresponding operations.
_Row = tuple[Any, ...]
# The least size of a group in bytes: one vector of AVX-512.
_FEWEST_BYTES = 64


@dataclass(frozen=True, eq=False)
class _InGroups(Operation):
    """A concatenation that XLA fuses into the loop after it.

    XLA copies parts that are concatenated along the last axis, and reads the copy again. It does not copy them along
    another axis. So the last axis of two parts is split into groups, of a size that divides both, and the groups are
    concatenated along the axis before the last one. With more parts the loop takes longer to compile than it saves, as
    in Inception v2.
    """

    def emit(self, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
        """Concatenates; two parts along the last axis in groups of elements."""
        axis = (params or self.params)["dimension"]
        size, last = math.gcd(*(x.shape[axis] for x in operands)), operands[0].ndim - 1
        if axis != last or len(operands) > 2 or size * operands[0].dtype.itemsize < _FEWEST_BYTES:
            return super().emit(operands, params)
        groups = [lax.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size)) for x in operands]
        return [lax.collapse(lax.concatenate(groups, last), last)]


def defer_elementwise(program: Program, target: Target) -> Program:
    """Moves concatenations before the elementwise operations that are the same for all parts."""
    types, operations = list(program.types), []
    for position, operation in enumerate(program.operations):
        if operation.name == "concatenate" and len(operation.operands) > 1:
            operations += _Parts(program, types, position).moved() or [operation]
        else:
            operations.append(operation)
    return program.replace(operations=operations, types=types)


@dataclass
class _Parts:
    """The parts of one concatenation, the operation at `position`. types: of all values; new values are appended.

    rows: row that moves after the concatenation → its new value. spread: row of broadcast vectors or numbers that such
    an operation reads → its new value.
    """

    program: Program
    types: list[Any]
    position: int
    rows: dict[_Row, int] = field(default_factory=dict)
    spread: dict[_Row, int] = field(default_factory=dict)

    def moved(self) -> list[Operation] | None:
        """Returns the operations that replace the concatenation; None if it stays."""
        concatenation = self.program.operations[self.position]
        rows, data, free = [concatenation.operands], set[_Row](), {self.position}
        walked: list[_Row] = []
        # The last row of the program is next, so that a row is visited after all operations that read it.
        while rows:
            row = max(rows, key=lambda row: self.program.producers.get(row[0], -1))
            rows.remove(row)
            operands = self._operands(row, free)
            if operands is None:
                data.add(row)
                continue
            walked.append(row)
            free.update(self.program.producers[v] for v in row if isinstance(v, int))
            rows += [row for row in operands if row not in (*rows, *data) and not self._is_spread(row)]
        if not walked or len(data) != 1:
            return None
        (row,) = data
        if not all(map(self._is_product, row)):
            return None
        result = self.rows[row] = self._value(row[0], concatenation.results[0])
        moved: list[Operation] = [_InGroups(concatenation.equation, row, (result,), concatenation.scope)]
        for row in reversed(walked):
            moved += self._behind(row, concatenation)
        return moved

    def _operands(self, row: _Row, free: set[int]) -> list[_Row] | None:
        """Returns one row for each operand of the operations that compute `row`; None if these operations cannot
        move. free: positions of the operations that may read the row."""
        if any(self.program.producer(v) is None or not free.issuperset(self.program.readers[v]) for v in row):
            return None
        producers = [self.program.producer(v) for v in row]
        first = producers[0]
        if first.name not in ELEMENTWISE or len(set(row)) < len(row) or len({_kind(o) for o in producers}) > 1:
            return None
        rows = list(zip(*(o.operands for o in producers), strict=True))
        for operands in rows:
            if not self._is_spread(operands) and any(
                not isinstance(v, int) or self.types[v].shape != self.types[result].shape
                for v, result in zip(operands, row, strict=True)
            ):
                return None
        return rows

    def _is_product(self, value: Any) -> bool:
        """Returns True if a value is the result of a product or a convolution, perhaps transposed or reshaped."""
        producer = self.program.producer(value)
        while producer is not None and producer.name in ("transpose", "reshape"):
            producer = self.program.producer(producer.operands[0])
        return producer is not None and producer.name in _PRODUCTS

    def _is_spread(self, row: _Row) -> bool:
        """Returns True if a row consists of the same number, or of vectors along the axis of the concatenation."""
        if all(isinstance(v, Constant) for v in row):
            return len({fingerprint(v.value, repr) for v in row}) == 1 and getattr(row[0].value, "ndim", 0) == 0
        producers = [self.program.producer(v) for v in row]
        if any(producer is None or producer.name != "broadcast_in_dim" for producer in producers):
            return False
        sources = [producer.operands[0] for producer in producers]
        if isinstance(sources[0], Constant):
            return self._is_spread(tuple(sources))
        axis = self.program.operations[self.position].params["dimension"]
        along = {producer.params["broadcast_dimensions"] for producer in producers}
        if len(along) > 1 or axis not in (axes := along.pop()):
            return False

        def sizes(v: Any) -> list[int]:
            return [size for a, size in zip(axes, self.types[v].shape, strict=True) if a == axis or size != 1]

        return all(
            isinstance(v, int) and sizes(v) == [self.types[part].shape[axis]]
            for v, part in zip(sources, row, strict=True)
        )

    def _behind(self, row: _Row, concatenation: Operation) -> list[Operation]:
        """Returns the operations that compute a row after the concatenation."""
        added, operands = [], []
        first = self.program.producer(row[0])
        for read in zip(*(self.program.producer(v).operands for v in row), strict=True):
            if read in self.rows or isinstance(read[0], Constant):
                operands.append(self.rows.get(read, read[0]))
                continue
            if read not in self.spread:
                added += self._spread_over(read, concatenation)
            operands.append(self.spread[read])
        last = row == concatenation.operands
        self.rows[row] = concatenation.results[0] if last else self._value(row[0], concatenation.results[0])
        return [*added, Operation(first.equation, tuple(operands), (self.rows[row],), first.scope)]

    def _spread_over(self, row: _Row, concatenation: Operation) -> list[Operation]:
        """Returns the operations that broadcast the number, or the concatenated vectors, to the sizes of the result."""
        shape, along = self.types[concatenation.results[0]].shape, concatenation.params["dimension"]
        first, sources = self.program.producer(row[0]), tuple(self.program.producer(v).operands[0] for v in row)
        source, added = sources[0], []
        if not isinstance(source, Constant):
            axis = first.params["broadcast_dimensions"].index(along)
            vectors = concatenation.equation.replace(params={**concatenation.params, "dimension": axis})
            sizes = list(self.types[source].shape)
            sizes[axis] = shape[along]
            self.types.append(self.types[source].update(shape=tuple(sizes)))
            source = len(self.types) - 1
            added.append(Operation(vectors, sources, (source,), concatenation.scope))
        self.spread[row] = self._value(row[0], concatenation.results[0])
        broadcast = first.equation.replace(params={**first.params, "shape": shape})
        return [*added, Operation(broadcast, (source,), (self.spread[row],), first.scope)]

    def _value(self, like: int, concatenated: int) -> int:
        """Adds a value with the dtype of `like` and the sizes of the concatenation; returns its number."""
        self.types.append(self.types[like].update(shape=self.types[concatenated].shape))
        return len(self.types) - 1


def _kind(operation: Operation) -> str:
    return fingerprint((operation.name, sorted(operation.params.items()), operation.dtypes), repr)
