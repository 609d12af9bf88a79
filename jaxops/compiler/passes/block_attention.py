"""Attention runs in blocks, where the scores of all heads are too large for a processor's caches.

Between two products of batches, q·kᵀ and weights·v, every head, and every query, is computed by itself. A loop needs
memory for the scores of one block: they stay in the caches, and no call asks the system for new pages. Milliseconds on
two cores, at once → in blocks: 8 heads of 1,024 queries 32 → 17, of 1,500 69 → 42; 4 heads of 4,096 233 → 152.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jax import lax

from jaxops.compiler.axis_rules import Axis, independent_axes
from jaxops.compiler.ir import Constant, Emit, Operation, Program, evaluate
from jaxops.compiler.passes import lazy_moves
from jaxops.kernels.target import Target
from jaxops.static import Sizes

# Bytes. Scores of 15 MB take as long in blocks as at once, those of 33 MB half as long. Blocks of a quarter of the last
# cache are best: 4 heads of 4,096 take 183 ms in blocks of 16 MiB, 152 of 8 and 169 of 4.
_LARGE, _BLOCK = 1 << 24, 1 << 23

# The parameter with the sizes of the result, or of an operand that has them.
_SIZES = {"broadcast_in_dim": "shape", "dynamic_slice": "slice_sizes", "reshape": "new_sizes", "slice": "limit_indices"}
# These stay outside: convolutions are fast at once, and the sizes that a gather takes are not those of its result.
_NOT_CUT = {"conv_general_dilated", "gather"}


class _Result(NamedTuple):
    """A result of a loop, and the axis along which the blocks lie."""

    shape: Sizes
    dtype: Any
    axis: int


@dataclass(frozen=True, eq=False)
class Loop:
    """Operations that run for `step` entries of an axis at a time.

    operands: what they read from outside. names: what they call each operand, (operand, the axis along which it is
    cut); None where each block reads all of it. results: the values that are read outside. size: of the axis.
    """

    operations: tuple["Operation | Loop", ...]
    operands: tuple[Any, ...]
    names: tuple[tuple[Any, int | None], ...]
    results: tuple[int, ...]
    arrays: tuple[_Result, ...]
    size: int
    step: int
    scope: str
    name = "loop"
    effects = frozenset[Any]()

    @property
    def params(self) -> Mapping[str, Any]:
        """The size of the axis, and of a block."""
        return {"size": self.size, "step": self.step}

    def lower(self, operands: Sequence[Any], emit: Emit) -> Sequence[Any]:
        """Computes the results for these operands, of which some may be lazy."""

        def block(k: Any, arrays: Sequence[Any]) -> list[Any]:
            # JAX moves a block that would reach over the end back: the last two may compute some entries twice.
            start = k * self.step
            values = {name: _cut(x, name[1], start, self.step) for name, x in zip(self.names, operands, strict=True)}
            results = map(lazy_moves.materialize, evaluate(self.operations, values, self.results, emit))
            return [
                lax.dynamic_update_slice_in_dim(array, y, start, result.axis)
                for array, y, result in zip(arrays, results, self.arrays, strict=True)
            ]

        arrays = [lax.full(result.shape, 0, result.dtype) for result in self.arrays]
        return lax.fori_loop(0, math.ceil(self.size / self.step), block, arrays)


def _cut(x: Any, axis: int | None, start: Any, step: int) -> Any:
    if axis is None:
        return x
    if not isinstance(x, lazy_moves.LazyBroadcast):
        return lax.dynamic_slice_in_dim(lazy_moves.materialize(x), start, step, axis)
    array = x.array
    if axis in x.axes and array.shape[x.axes.index(axis)] > 1:
        array = lax.dynamic_slice_in_dim(array, start, step, x.axes.index(axis))
    return lazy_moves.LazyBroadcast(array, _with(x.shape, axis, step), x.axes)


def _with(shape: Sizes, axis: int, size: int) -> Sizes:
    return (*shape[:axis], size, *shape[axis + 1 :])


def block_attention(program: Program, target: Target) -> Program:
    """Makes a loop of each large product of batches and all operations from it to the next product."""
    shapes = {v: getattr(type, "shape", ()) for v, type in enumerate(program.types)}
    return program.replace(operations=_looped(program.operations, shapes, program.outputs, _LARGE))


def _looped(
    operations: Sequence[Operation], shapes: Mapping[Any, Sizes], outputs: Iterable[Any], most: int
) -> list[Operation | Loop]:
    """Returns the operations; a product of batches of more than `most` bytes, and all up to the next one, as a loop."""
    readers: dict[Any, list[Any]] = {output: [None] for output in outputs}
    for operation in operations:
        for operand in operation.operands:
            readers.setdefault(operand, []).append(operation)
    producers = {v: operation for operation in operations for v in operation.results}
    loops: dict[Operation, Loop | None] = {}
    for k, operation in enumerate(operations):
        if operation not in loops and _bytes(operation, shapes) > most:
            regions = (_Region(operations[k:], shapes, axis, producers) for axis in _axes(operation, shapes))
            region = next((region for region in regions if region.pays(readers)), None)
            if region is not None:
                loops |= dict.fromkeys(region.operations) | {region.operations[-1]: region.loop(readers)}
    every = (loops.get(operation, operation) for operation in operations)
    return [operation for operation in every if operation is not None]


def _bytes(operation: Operation, shapes: Mapping[Any, Sizes]) -> int:
    """Counts the bytes of a product of batches; 0 for any other operation."""
    if operation.name != "dot_general" or not operation.params["dimension_numbers"][1][0]:
        return 0
    return math.prod(shapes[operation.results[0]]) * operation.equation.outvars[0].aval.dtype.itemsize


def _axes(operation: Operation, shapes: Mapping[Any, Sizes]) -> Iterator[int]:
    """Yields the axes of a product of batches over which a loop may run: the largest of the batches, or a free one."""
    sizes, batches = shapes[operation.results[0]], len(operation.params["dimension_numbers"][1][0])
    largest = max(range(batches), key=sizes.__getitem__)
    yield from (axis for axis in (largest, *range(batches, len(sizes))) if sizes[axis] > 1)


class _Region:
    """Operations from a product to the next one that need only the same entry of an axis of it.

    operations: those of the program, up to one that needs more, if there is one.
    """

    def __init__(
        self,
        operations: Sequence[Operation],
        shapes: Mapping[Any, Sizes],
        axis: int,
        producers: Mapping[Any, Operation],
    ) -> None:
        """producers: value → the operation that computes it."""
        first = operations[0]
        self._of_program = shapes
        self._size = shapes[first.results[0]][axis]
        self._step = math.ceil(self._size / math.ceil(_bytes(first, shapes) / _BLOCK))
        self._along: dict[Any, int] = {}
        self._shapes: dict[Any, Sizes] = {}
        self._inner: list[Operation] = []
        self._names: dict[tuple[Any, int | None], Any] = {}
        self.operations: list[Operation] = []
        for operation in operations:
            along = [self._along.get(operand) for operand in operation.operands]
            if operation is not first and all(a is None for a in along):
                continue
            inner = _before_transposes(operation, producers) if operation is first else operation
            sizes = [np.shape(v.value) if isinstance(v, Constant) else shapes[v] for v in inner.operands]
            result, *more = (shapes[v] for v in operation.results)
            axes = independent_axes(inner.name, inner.params, sizes, result)
            cuts = [axes[axis]] if operation is first else [cut for cut in axes if _agree(cut.operands, along)]
            if not cuts or more or operation.name in _NOT_CUT:
                return
            self._add(inner, cuts[0], along, sizes, result)
            self.operations.append(operation)
            if operation is not first and operation.name == "dot_general":
                return

    def _add(
        self, operation: Operation, cut: Axis, along: Sequence[int | None], sizes: Sequence[Sizes], shape: Sizes
    ) -> None:
        operands: list[Any] = list(operation.operands)
        for k, (operand, axis) in enumerate(zip(operation.operands, cut.operands, strict=True)):
            if along[k] is None and (sizes[k] or not isinstance(operand, Constant)):
                operands[k] = name = (operand, axis)
                self._names[name] = operand
                self._shapes[name] = sizes[k] if axis is None else _with(sizes[k], axis, self._step)
        (result,) = operation.results
        self._along[result], self._shapes[result] = cut.result, _with(shape, cut.result, self._step)
        equation = operation.equation
        if key := _SIZES.get(operation.name):
            params = {**equation.params, key: _with(equation.params[key], cut.result, self._step)}
            equation = equation.replace(params=params)
        self._inner.append(dataclasses.replace(operation, equation=equation, operands=tuple(operands)))

    def pays(self, readers: Mapping[Any, Sequence[Any]]) -> bool:
        """Tells whether it ends with another product, and nothing else needs a value as large as the first result."""
        first, last = self.operations[0], self.operations[-1]
        if last is first or last.name != "dot_general":
            return False
        large = math.prod(self._of_program[first.results[0]])
        return all(v in last.results or math.prod(self._of_program[v]) < large for v in self._results(readers))

    def _results(self, readers: Mapping[Any, Sequence[Any]]) -> list[Any]:
        inside = set(self.operations)
        return [v for o in self.operations for v in o.results if not inside.issuperset(readers[v])]

    def loop(self, readers: Mapping[Any, Sequence[Any]]) -> Loop:
        """Returns it as a loop; where one entry is too large, with another loop inside."""
        results = tuple(self._results(readers))
        types = {v: x.aval.dtype for o in self.operations for v, x in zip(o.results, o.equation.outvars, strict=True)}
        return Loop(
            tuple(_looped(self._inner, self._shapes, results, _BLOCK)),
            tuple(self._names.values()),
            tuple(self._names),
            results,
            tuple(_Result(self._of_program[v], types[v], self._along[v]) for v in results),
            self._size,
            self._step,
            self.operations[0].scope,
        )


def _agree(axes: Sequence[int | None], along: Sequence[int | None]) -> bool:
    """Tells whether operands that are cut already are cut along these axes. along: None for one from outside."""
    return all(a is None or a == axis for axis, a in zip(axes, along, strict=True))


def _before_transposes(product: Operation, producers: Mapping[Any, Operation]) -> Operation:
    """Returns a product of transposed values as one of these values themselves.

    XLA sees no transpose through the start of a loop: it would copy the keys of attention, and for those of 1,500
    places compile that for 0.3 s.
    """
    over, batch = product.params["dimension_numbers"]
    operands, dimensions = list(product.operands), [list(map(tuple, over)), list(map(tuple, batch))]
    for k, operand in enumerate(operands):
        producer = producers.get(operand)
        if producer is None or producer.name != "transpose":
            continue
        perm = producer.params["permutation"]
        free = [axis for a, axis in enumerate(perm) if a not in (*over[k], *batch[k])]
        if free == sorted(free):  # they keep their order in the result
            operands[k] = producer.operands[0]
            for axes in dimensions:
                axes[k] = tuple(perm[a] for a in axes[k])
    numbers = tuple(map(tuple, dimensions))
    equation = product.equation.replace(params={**product.params, "dimension_numbers": numbers})
    return dataclasses.replace(product, equation=equation, operands=tuple(operands))
