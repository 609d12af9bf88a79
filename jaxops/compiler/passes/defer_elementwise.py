"""What each part of a concatenation goes through alike is done behind it, once.

Branches of a network end alike: a convolution, a bias or a normalization, an activation, and then all are put side by
side. XLA makes no loop of a concatenation of channels and what is before it, so that each branch had a loop of its own,
to compile and to start. Inception v2 runs 84 operations for 109 and starts in 0.92 of the time, as does SqueezeNet.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jax import lax

from jaxops.compiler.fingerprint import said
from jaxops.compiler.ir import Known, Operation, Program
from jaxops.compiler.primitives import ELEMENTWISE

_LIKE_PARTS = ELEMENTWISE - {"computed_once"}
# What no elementwise operation is a part of; others would need one more loop.
_PRODUCTS = {"conv_general_dilated", "dot_general"}
# Values of the parts, at the same place of each.
_Row = tuple[Any, ...]
# The fewest bytes of a group: one vector of AVX-512.
_FEWEST_BYTES = 64


@dataclass(frozen=True, eq=False)
class _InGroups(Operation):
    """A concatenation that is a part of the loop behind it.

    Where parts have many elements along the last axis, but not along another one, XLA copies them side by side, and
    reads the copy again. So two parts become groups, of as many elements as divide both, which lie along an axis before
    the last one. With a bias and relu behind, 64+64 channels at 55×55 take 0.4 of the time. With more parts the loop
    takes longer to compile than it saves: Inception v2 starts in 1.04 of the time, and its call takes 1.00.
    """

    def bind(self, operands: Sequence[Any], params: Mapping[str, Any] | None = None) -> Sequence[Any]:
        axis = (params or self.params)["dimension"]
        size, last = math.gcd(*(x.shape[axis] for x in operands)), operands[0].ndim - 1
        if axis != last or len(operands) > 2 or size * operands[0].dtype.itemsize < _FEWEST_BYTES:
            return super().bind(operands, params)
        groups = [lax.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size)) for x in operands]
        return [lax.collapse(lax.concatenate(groups, last), last)]


def concatenated_first(program: Program) -> Program:
    """The same program, with concatenations before the elementwise operations that all their parts go through."""
    operations, types = list(program.operations), list(program.types)
    makers = {v: place for place, operation in enumerate(operations) for v in operation.results}
    users: dict[int, set[int]] = {v: {len(operations)} for v in program.outputs if not isinstance(v, Known)}
    for place, operation in enumerate(operations):
        for v in operation.operands:
            if not isinstance(v, Known):
                users.setdefault(v, set()).add(place)
    found: list[Operation] = []
    for place, operation in enumerate(operations):
        if operation.name == "concatenate" and len(operation.operands) > 1:
            found += _Parts(operations, types, makers, users, place).moved() or [operation]
        else:
            found.append(operation)
    return Program(tuple(found), tuple(types), program.inputs, program.outputs)


@dataclass
class _Parts:
    """One concatenation, the operation at `place`. types: those of all values; gets the new ones.

    rows: what moves behind it → the value that this becomes. spread: a vector for each part, or one number, that an
    operation reads → the array that this becomes, and what makes it.
    """

    operations: Sequence[Operation]
    types: list[Any]
    makers: Mapping[int, int]
    users: Mapping[int, set[int]]
    place: int
    rows: dict[_Row, int] = field(default_factory=dict)
    spread: dict[_Row, int] = field(default_factory=dict)

    def moved(self) -> list[Operation] | None:
        """The operations in place of this one; None where it stays."""
        whole = self.operations[self.place]
        rows, data, free = [whole.operands], set[_Row](), {self.place}
        walked: list[_Row] = []
        # A row is looked at behind all that reads it: its values come in the order of the program.
        while rows:
            row = max(rows, key=lambda row: self.makers.get(row[0], -1) if isinstance(row[0], int) else -1)
            rows.remove(row)
            operands = self._operands(row, free)
            if operands is None:
                data.add(row)
                continue
            walked.append(row)
            free.update(self.makers[v] for v in row if isinstance(v, int))
            rows += [wanted for wanted in operands if wanted not in (*rows, *data) and not self._is_spread(wanted)]
        if not walked or len(data) != 1:
            return None
        (row,) = data
        if not all(map(self._is_product, row)):
            return None
        made: list[Operation] = [_InGroups(whole.equation, row, (self._value(row[0], whole.results[0]),), whole.scope)]
        self.rows[row] = made[0].results[0]
        for row in reversed(walked):
            made += self._made(row, whole)
        return made

    def _operands(self, row: _Row, free: set[int]) -> list[_Row] | None:
        """The operands of what makes a row, a row for each position; None where it cannot move."""
        if not all(isinstance(v, int) and v in self.makers and self.users[v] <= free for v in row):
            return None
        makers = [self.operations[self.makers[v]] for v in row]
        first = makers[0]
        if first.name not in _LIKE_PARTS or len(set(row)) < len(row) or len({_kind(o) for o in makers}) > 1:
            return None
        rows = list(zip(*(o.operands for o in makers), strict=True))
        for wanted in rows:
            if not self._is_spread(wanted) and any(
                not isinstance(v, int) or self.types[v].shape != self.types[result].shape
                for v, result in zip(wanted, row, strict=True)
            ):
                return None
        return rows

    def _is_product(self, value: Any) -> bool:
        """Whether this is what a product or a convolution gives, perhaps in another order."""
        while value in self.makers and (maker := self.operations[self.makers[value]]).name in ("transpose", "reshape"):
            (value,) = maker.operands
        return value in self.makers and self.operations[self.makers[value]].name in _PRODUCTS

    def _is_spread(self, row: _Row) -> bool:
        """Whether the parts read the same number, or each a vector along the axis of the concatenation."""
        if all(isinstance(v, Known) for v in row):
            return len({said(v.value, repr) for v in row}) == 1 and getattr(row[0].value, "ndim", 0) == 0
        makers = [self.operations[self.makers[v]] if v in self.makers else None for v in row]
        if any(maker is None or maker.name != "broadcast_in_dim" for maker in makers):
            return False
        sources = [maker.operands[0] for maker in makers if maker is not None]
        if isinstance(sources[0], Known):
            return self._is_spread(tuple(sources))
        axis = self.operations[self.place].params["dimension"]
        along = {maker.params["broadcast_dimensions"] for maker in makers if maker is not None}
        if len(along) > 1 or axis not in (axes := along.pop()):
            return False

        def sizes(v: Any) -> list[int]:
            return [size for at, size in zip(axes, self.types[v].shape, strict=True) if at == axis or size != 1]

        return all(
            isinstance(v, int) and sizes(v) == [self.types[part].shape[axis]]
            for v, part in zip(sources, row, strict=True)
        )

    def _made(self, row: _Row, whole: Operation) -> list[Operation]:
        """What makes a row behind the concatenation. whole: the concatenation."""
        made, operands = [], []
        first = self.operations[self.makers[row[0]]]
        for wanted in zip(*(self.operations[self.makers[v]].operands for v in row), strict=True):
            if wanted in self.rows or isinstance(wanted[0], Known):
                operands.append(self.rows.get(wanted, wanted[0]))
                continue
            if wanted not in self.spread:
                made += self._spread_over(wanted, whole)
            operands.append(self.spread[wanted])
        last = row == whole.operands
        self.rows[row] = whole.results[0] if last else self._value(row[0], whole.results[0])
        return [*made, Operation(first.equation, tuple(operands), (self.rows[row],), first.scope)]

    def _spread_over(self, row: _Row, whole: Operation) -> list[Operation]:
        """What makes the vectors of all parts, or the number, an array as large as the concatenation."""
        shape = self.types[whole.results[0]].shape
        makers = [self.operations[self.makers[v]] for v in row]
        first, sources, made = makers[0], tuple(maker.operands[0] for maker in makers), []
        source = sources[0]
        if not isinstance(source, Known):
            axis = first.params["broadcast_dimensions"].index(whole.params["dimension"])
            vectors = whole.equation.replace(params={**whole.params, "dimension": axis})
            sizes = list(self.types[source].shape)
            sizes[axis] = shape[whole.params["dimension"]]
            self.types.append(self.types[source].update(shape=tuple(sizes)))
            source = len(self.types) - 1
            made.append(Operation(vectors, sources, (source,), whole.scope))
        self.spread[row] = self._value(row[0], whole.results[0])
        spread = first.equation.replace(params={**first.params, "shape": shape})
        return [*made, Operation(spread, (source,), (self.spread[row],), first.scope)]

    def _value(self, like: int, whole: int) -> int:
        """The number of a new value: of the type of another, but as large as all parts."""
        self.types.append(self.types[like].update(shape=self.types[whole].shape))
        return len(self.types) - 1


def _kind(operation: Operation) -> str:
    return said((operation.name, sorted(operation.params.items()), operation.dtypes), repr)
