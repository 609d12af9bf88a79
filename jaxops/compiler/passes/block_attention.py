"""Attention runs in blocks, where the scores of all heads are too large for a processor's caches.

Between two products of batches, q·kᵀ and weights·v, every head, and every query, is computed by itself. A loop needs
memory for the scores of one block: they stay in the caches, and no call asks the system for new pages. Milliseconds on
two cores, at once → in blocks: 8 heads of 1,024 queries 32 → 17, of 1,500 69 → 42; 4 heads of 4,096 233 → 152.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.compiler.axis_rules import Axis, independent_axes
from jaxops.compiler.ir import Constant, Emit, Operand, Operation, Program, run
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


@dataclass(frozen=True, eq=False)
class Loop:
    """A program that runs for `step` entries of an axis at a time.

    program: that of a block. operands: what it reads from outside. cuts: the axis along which each of these is cut;
    None where each block reads all of it. results: the values that are read outside. types: of these. axes: those
    along which their blocks lie. size: of the axis.
    """

    program: Program
    operands: tuple[Operand, ...]
    cuts: tuple[int | None, ...]
    results: tuple[int, ...]
    types: tuple[Any, ...]
    axes: tuple[int, ...]
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
            inputs = [_cut(x, axis, start, self.step) for x, axis in zip(operands, self.cuts, strict=True)]
            results = map(lazy_moves.materialize, run(self.program, inputs, emit))
            parts = zip(arrays, results, self.axes, strict=True)
            return [lax.dynamic_update_slice_in_dim(array, y, start, axis) for array, y, axis in parts]

        arrays = [lax.full(type.shape, 0, type.dtype) for type in self.types]
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
    return _looped(program, _LARGE)


def _looped(program: Program, most: int) -> Program:
    """Returns the program; a product of batches of more than `most` bytes, and all up to the next one, as a loop."""
    loops: dict[int, Loop | None] = {}  # by the position of the last operation in it; None for those before
    for position, operation in enumerate(program.operations):
        if position not in loops and _bytes(operation, program) > most:
            regions = (_Region(program, position, axis) for axis in _axes(operation, program))
            region = next((region for region in regions if region.pays()), None)
            if region is not None:
                loops |= dict.fromkeys(region.positions) | {region.positions[-1]: region.loop()}
    operations = (loops.get(position, operation) for position, operation in enumerate(program.operations))
    return program.replace(operations=[operation for operation in operations if operation is not None])


def _bytes(operation: Operation, program: Program) -> int:
    """Counts the bytes of a product of batches; 0 for any other operation."""
    if operation.name != "dot_general" or not operation.params["dimension_numbers"][1][0]:
        return 0
    type = program.types[operation.results[0]]
    return type.size * type.dtype.itemsize


def _axes(operation: Operation, program: Program) -> Iterator[int]:
    """Yields the axes of a product of batches over which a loop may run: the largest of the batches, or a free one."""
    sizes, batches = program.types[operation.results[0]].shape, len(operation.params["dimension_numbers"][1][0])
    largest = max(range(batches), key=sizes.__getitem__)
    yield from (axis for axis in (largest, *range(batches, len(sizes))) if sizes[axis] > 1)


class _Region:
    """Operations from a product to the next one that need only the same entry of an axis of it.

    positions: those of the operations, up to one that needs more, if there is one.
    """

    def __init__(self, program: Program, start: int, axis: int) -> None:
        """start: the position of the product. axis: that of its result."""
        self._program, first = program, program.operations[start]
        self._size = program.types[first.results[0]].shape[axis]
        self._step = math.ceil(self._size / math.ceil(_bytes(first, program) / _BLOCK))
        self._axes: dict[Any, int] = {}  # a value that is computed inside → the axis along which it is cut
        self._operands: dict[
            tuple[Operand, int | None], int
        ] = {}  # (one from outside, the axis) → its number in a block
        self._numbers: dict[Any, int] = {}  # a value that is computed inside → its number in a block
        self._types: list[Any] = []  # those of a block
        self._operations: list[Operation] = []
        self.positions: list[int] = []
        for position, operation in enumerate(program.operations[start:], start):
            cuts = [self._axes.get(operand) for operand in operation.operands]
            if operation is first:
                operation = _before_transposes(operation, program)
            elif all(cut is None for cut in cuts):
                continue
            if len(operation.results) != 1 or operation.name in _NOT_CUT:
                return
            *sizes, result = (getattr(self._type(v), "shape", ()) for v in (*operation.operands, *operation.results))
            axes = independent_axes(operation.name, operation.params, sizes, result)
            axes = [axes[axis]] if position == start else [each for each in axes if _agree(each.operands, cuts)]
            if not axes:
                return
            self._add(operation, axes[0])
            self.positions.append(position)
            if position > start and operation.name == "dot_general":
                return

    def _type(self, operand: Operand) -> Any:
        return jax.typeof(operand.value) if isinstance(operand, Constant) else self._program.types[operand]

    def _add(self, operation: Operation, cut: Axis) -> None:
        operands: list[Operand] = []
        for operand, axis in zip(operation.operands, cut.operands, strict=True):
            if operand in self._numbers:
                operands.append(self._numbers[operand])
            elif isinstance(operand, Constant) and not np.shape(operand.value):
                operands.append(operand)
            else:
                name = operand, axis
                if name not in self._operands:
                    self._operands[name] = self._value(*name)
                operands.append(self._operands[name])
        (result,) = operation.results
        self._axes[result], self._numbers[result] = cut.result, self._value(result, cut.result)
        equation = operation.equation
        if key := _SIZES.get(operation.name):
            params = {**equation.params, key: _with(equation.params[key], cut.result, self._step)}
            equation = equation.replace(params=params)
        self._operations.append(Operation(equation, tuple(operands), (self._numbers[result],), operation.scope))

    def _value(self, operand: Operand, axis: int | None) -> int:
        """Adds the value of a block that is a part of another one; returns its number."""
        type = self._type(operand)
        self._types.append(type if axis is None else type.update(shape=_with(type.shape, axis, self._step)))
        return len(self._types) - 1

    def _results(self) -> list[int]:
        inside = set(self.positions)
        return [v for v in self._numbers if not inside.issuperset(self._program.readers.get(v, ()))]

    def pays(self) -> bool:
        """Tells whether it ends with another product, and nothing else needs a value as large as the first result."""
        first, last = (self._program.operations[self.positions[k]] for k in (0, -1))
        if last is first or last.name != "dot_general":
            return False
        large = self._type(first.results[0]).size
        return all(v in last.results or self._type(v).size < large for v in self._results())

    def loop(self) -> Loop:
        """Returns it as a loop; where one entry is too large, with another loop inside."""
        results = tuple(self._results())
        operands, cuts = zip(*self._operands, strict=True)
        inputs, outputs = tuple(self._operands.values()), tuple(self._numbers[v] for v in results)
        program = Program(tuple(self._operations), tuple(self._types), inputs, outputs)
        types, axes = tuple(map(self._type, results)), tuple(self._axes[v] for v in results)
        scope = self._operations[0].scope
        return Loop(_looped(program, _BLOCK), operands, cuts, results, types, axes, self._size, self._step, scope)


def _agree(axes: Sequence[int | None], cuts: Sequence[int | None]) -> bool:
    """Tells whether operands that are cut already are cut along these axes. cuts: None for one from outside."""
    return all(cut is None or cut == axis for axis, cut in zip(axes, cuts, strict=True))


def _before_transposes(product: Operation, program: Program) -> Operation:
    """Returns a product of transposed values as one of these values themselves.

    XLA sees no transpose through the start of a loop: it would copy the keys of attention, and for those of 1,500
    places compile that for 0.3 s.
    """
    over, batch = product.params["dimension_numbers"]
    operands, dimensions = list(product.operands), [list(map(tuple, over)), list(map(tuple, batch))]
    for k, operand in enumerate(operands):
        producer = program.producer(operand)
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
