"""Attention in parts, where the scores of all heads are too large for a processor's caches.

Between two products of batches, q·kᵀ and weights·v, every head, and every query, is computed by itself. A loop needs
memory for the scores of one part: they stay in the caches, and no call asks the system for new pages. Milliseconds on
two cores, at once → in parts: 8 heads of 1,024 queries 32 → 17, of 1,500 69 → 42; 4 heads of 4,096 233 → 152.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxops.compiler.ir import Known, Operation, evaluate
from jaxops.compiler.passes import lazy_moves, sink_transposes
from jaxops.compiler.primitives import ELEMENTWISE
from jaxops.static import Sizes

# Bytes. Scores of 15 MB take as long in parts as at once, those of 33 MB half as long. Parts of a quarter of the last
# cache are best: 4 heads of 4,096 take 183 ms in parts of 16 MiB, 152 of 8 and 169 of 4.
_LARGE, _PART = 1 << 24, 1 << 23

_Params = Mapping[str, Any]
_At = Sequence[Any]  # for each operand the axis along which it is cut already; None for one from outside


class _Kept(NamedTuple):
    """A result of a loop, and the axis that it puts together."""

    shape: Sizes
    dtype: Any
    axis: int


@dataclass(frozen=True, eq=False)
class Loop:
    """Operations that run for `step` entries of an axis at a time.

    operands: what they read from outside. names: what they call each of it, (operand, the axis along which it is cut);
    None where each part reads all of it. results: the values that others need. size: of the axis.
    """

    operations: tuple["Operation | Loop", ...]
    operands: tuple[Any, ...]
    names: tuple[tuple[Any, int | None], ...]
    results: tuple[int, ...]
    kept: tuple[_Kept, ...]
    size: int
    step: int
    scope: str

    def bind(self, operands: Sequence[Any]) -> Sequence[Any]:
        """The results for these operands."""

        def part(k: Any, wholes: Sequence[Any]) -> list[Any]:
            # JAX moves a part that would reach over the end back: the last two may compute some entries twice.
            at = k * self.step
            values = {name: _cut(x, name[1], at, self.step) for name, x in zip(self.names, operands, strict=True)}
            found = map(lazy_moves.settled, evaluate(self.operations, values, self.results, bind))
            return [
                lax.dynamic_update_slice_in_dim(whole, y, at, kept.axis)
                for whole, y, kept in zip(wholes, found, self.kept, strict=True)
            ]

        wholes = [lax.full(kept.shape, 0, kept.dtype) for kept in self.kept]
        return lax.fori_loop(0, math.ceil(self.size / self.step), part, wholes)


def bind(operation: Operation | Loop, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of an operation or a loop, in any layout, as its operands may be."""
    return operation.bind(operands) if isinstance(operation, Loop) else sink_transposes.bind(operation, operands)


def _cut(x: Any, axis: int | None, at: Any, step: int) -> Any:
    if axis is None:
        return x
    if not isinstance(x, lazy_moves.Spread):
        return lax.dynamic_slice_in_dim(lazy_moves.settled(x), at, step, axis)
    array = x.array
    if axis in x.axes and array.shape[x.axes.index(axis)] > 1:
        array = lax.dynamic_slice_in_dim(array, at, step, x.axes.index(axis))
    return lazy_moves.Spread(array, _with(x.shape, axis, step), x.axes)


def _with(shape: Sizes, axis: int, size: int) -> Sizes:
    return (*shape[:axis], size, *shape[axis + 1 :])


def looped(
    operations: Sequence[Operation], shapes: Mapping[Any, Sizes], outputs: Iterable[Any], most: int = _LARGE
) -> list[Operation | Loop]:
    """The operations; a product of batches of more than `most` bytes, and all from it to the next one, as a loop."""
    users: dict[Any, list[Any]] = {output: [None] for output in outputs}
    for operation in operations:
        for operand in operation.operands:
            users.setdefault(operand, []).append(operation)
    makers = {v: operation for operation in operations for v in operation.results}
    found: dict[Operation, Loop | None] = {}
    for k, operation in enumerate(operations):
        if operation not in found and _bytes(operation, shapes) > most:
            regions = (_Region(operations[k:], shapes, axis, makers) for axis in _axes(operation, shapes))
            region = next((region for region in regions if region.pays(users)), None)
            if region is not None:
                found |= dict.fromkeys(region.operations) | {region.operations[-1]: region.loop(users)}
    every = (found.get(operation, operation) for operation in operations)
    return [operation for operation in every if operation is not None]


def _bytes(operation: Operation, shapes: Mapping[Any, Sizes]) -> int:
    """Those of a product of batches; 0 for any other operation."""
    if operation.name != "dot_general" or not operation.params["dimension_numbers"][1][0]:
        return 0
    return math.prod(shapes[operation.results[0]]) * operation.equation.outvars[0].aval.dtype.itemsize


def _axes(operation: Operation, shapes: Mapping[Any, Sizes]) -> Iterator[int]:
    """The axes of a product of batches over which a loop may run: the largest of the batches, or one of the rest."""
    sizes, batches = shapes[operation.results[0]], len(operation.params["dimension_numbers"][1][0])
    largest = max(range(batches), key=sizes.__getitem__)
    yield from (axis for axis in (largest, *range(batches, len(sizes))) if sizes[axis] > 1)


class _Entry(NamedTuple):
    """How an operation computes one entry of an axis by itself.

    axis: that of the result. cuts: for each operand the axis along which it is cut, None where it is needed whole.
    sizes: the name of the parameter that has the sizes of the result.
    """

    axis: int
    cuts: list[int | None]
    sizes: str = ""


class _Region:
    """From a product to the next one: what needs only the same entry of an axis of it.

    operations: those of the program, up to one that needs more, if there is one.
    """

    def __init__(
        self, operations: Sequence[Operation], shapes: Mapping[Any, Sizes], axis: int, makers: Mapping[Any, Operation]
    ) -> None:
        """makers: value → the operation that makes it."""
        first = operations[0]
        self._of_program = shapes
        self._size = shapes[first.results[0]][axis]
        self._step = math.ceil(self._size / math.ceil(_bytes(first, shapes) / _PART))
        self._along: dict[Any, int] = {}
        self._shapes: dict[Any, Sizes] = {}
        self._inner: list[Operation] = []
        self._names: dict[tuple[Any, int | None], Any] = {}
        self.operations: list[Operation] = []
        for operation in operations:
            at = [self._along.get(operand) for operand in operation.operands]
            if operation is not first and all(a is None for a in at):
                continue
            rule = _RULES.get(operation.name)
            inner = _before_transposes(operation, makers) if operation is first else operation
            sizes = [np.shape(v.value) if isinstance(v, Known) else shapes[v] for v in inner.operands]
            numbers = inner.params
            entry = _entries(numbers, sizes)[axis] if operation is first else rule and rule(numbers, sizes, at)
            if entry is None:
                return
            self._add(inner, entry, at, sizes, shapes[operation.results[0]])
            self.operations.append(operation)
            if operation is not first and operation.name == "dot_general":
                return

    def _add(self, operation: Operation, entry: _Entry, at: _At, sizes: Any, shape: Sizes) -> None:
        operands: list[Any] = list(operation.operands)
        for k, (operand, cut) in enumerate(zip(operation.operands, entry.cuts, strict=True)):
            if at[k] is None and (sizes[k] or not isinstance(operand, Known)):
                operands[k] = name = (operand, cut)
                self._names[name] = operand
                self._shapes[name] = sizes[k] if cut is None else _with(sizes[k], cut, self._step)
        (result,) = operation.results
        self._along[result], self._shapes[result] = entry.axis, _with(shape, entry.axis, self._step)
        equation = operation.equation
        if entry.sizes:
            equation = equation.replace(params={**equation.params, entry.sizes: self._shapes[result]})
        self._inner.append(dataclasses.replace(operation, equation=equation, operands=tuple(operands)))

    def pays(self, users: Mapping[Any, Sequence[Any]]) -> bool:
        """Whether it ends with another product, and nothing else needs a value as large as the first one's."""
        first, last = self.operations[0], self.operations[-1]
        if last is first or last.name != "dot_general":
            return False
        large = math.prod(self._of_program[first.results[0]])
        return all(v in last.results or math.prod(self._of_program[v]) < large for v in self._results(users))

    def _results(self, users: Mapping[Any, Sequence[Any]]) -> list[Any]:
        inside = set(self.operations)
        return [v for o in self.operations for v in o.results if not inside.issuperset(users[v])]

    def loop(self, users: Mapping[Any, Sequence[Any]]) -> Loop:
        """It as a loop; where one entry is too large, with another loop inside."""
        results = tuple(self._results(users))
        types = {v: x.aval.dtype for o in self.operations for v, x in zip(o.results, o.equation.outvars, strict=True)}
        return Loop(
            tuple(looped(self._inner, self._shapes, results, _PART)),
            tuple(self._names.values()),
            tuple(self._names),
            results,
            tuple(_Kept(self._of_program[v], types[v], self._along[v]) for v in results),
            self._size,
            self._step,
            self.operations[0].scope,
        )


def _before_transposes(product: Operation, makers: Mapping[Any, Operation]) -> Operation:
    """A product of transposed values as one of these values themselves.

    XLA sees no transpose through the start of a loop: it would copy the keys of attention, and for those of 1,500
    places compile that for 0.3 s.
    """
    over, batch = product.params["dimension_numbers"]
    operands, dimensions = list(product.operands), [list(map(tuple, over)), list(map(tuple, batch))]
    for k, operand in enumerate(operands):
        maker = makers.get(operand)
        if maker is None or maker.name != "transpose":
            continue
        perm = maker.params["permutation"]
        free = [axis for a, axis in enumerate(perm) if a not in (*over[k], *batch[k])]
        if free == sorted(free):  # they keep their order in the result
            operands[k] = maker.operands[0]
            for axes in dimensions:
                axes[k] = tuple(perm[a] for a in axes[k])
    numbers = tuple(map(tuple, dimensions))
    equation = product.equation.replace(params={**product.params, "dimension_numbers": numbers})
    return dataclasses.replace(product, equation=equation, operands=tuple(operands))


def _entries(params: _Params, sizes: Sequence[Sizes]) -> list[_Entry]:
    """A product by each axis of its result."""
    over, batch = params["dimension_numbers"]
    free = [[a for a in range(len(sizes[k])) if a not in (*over[k], *batch[k])] for k in (0, 1)]
    cuts = [*zip(*batch, strict=True), *((a, None) for a in free[0]), *((None, a) for a in free[1])]
    return [_Entry(axis, list(pair)) for axis, pair in enumerate(cuts)]


def _product(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry | None:
    """A product of one cut operand with another from outside."""
    k = 0 if at[1] is None else 1
    return next((e for e in _entries(params, sizes) if e.cuts[k] == at[k] and at[1 - k] is None), None)


def _elementwise(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry | None:
    (axis, *others) = {a for a in at if a is not None}
    rank = max(map(len, sizes))
    if others or any(len(size) not in (0, rank) for size in sizes):
        return None
    return _Entry(axis, [axis if size and size[axis] > 1 else None for size in sizes])


def _barrier(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry | None:
    return _elementwise(params, sizes, at) if len(sizes) == 1 else None


def _broadcast(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry:
    return _Entry(params["broadcast_dimensions"][at[0]], [at[0]], "shape")


def _reduction(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry | None:
    return _without(params["axes"], at[0])


def _squeeze(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry | None:
    return _without(params["dimensions"], at[0])


def _without(axes: Sequence[int], axis: Any) -> _Entry | None:
    return None if axis in axes else _Entry(axis - sum(a < axis for a in axes), [axis])


def _transpose(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry:
    return _Entry(params["permutation"].index(at[0]), list(at))


def _reshape(params: _Params, sizes: Sequence[Sizes], at: _At) -> _Entry | None:
    """A reshape that keeps the axis: as many elements before it, and as many of it."""
    (before,), (axis,), after = sizes, at, params["new_sizes"]
    lead = math.prod(before[:axis])
    kept = [a for a, d in enumerate(after) if (math.prod(after[:a]), d) == (lead, before[axis])]
    return _Entry(kept[0], [axis], "new_sizes") if kept else None


_RULES: dict[str, Callable[..., _Entry | None]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_and", "reduce_or"), _reduction),
    "broadcast_in_dim": _broadcast,
    "optimization_barrier": _barrier,
    "dot_general": _product,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
