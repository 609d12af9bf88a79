"""Attention runs in blocks if the scores of all heads are too large for a processor's caches, or many on a GPU or TPU.

Between the two batched products, q·kᵀ and weights·v, each head and each query is computed separately. A loop over
blocks needs memory for the scores of one block, so they stay in the caches, and no call asks the system for new pages.
On a GPU and a TPU, where blocks save memory but were not measured, only long sequences have them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import jax
import numpy as np

from jaxops.compiler.axis_rules import Axis, independent_axes, with_size
from jaxops.compiler.ir import Constant, Operand, Operation, Program
from jaxops.compiler.passes.inner_programs import changed_inside
from jaxops.compiler.passes.loop_over_blocks import Loop
from jaxops.compiler.primitives import called_jaxpr, jaxprs, jit_jaxpr, plain_jaxpr, xla_metadata
from jaxops.kernels.kept_scores import are_scores, keeps
from jaxops.kernels.matmul.dot import BFLOAT16_PRODUCT
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned

# Bytes. Scores of 15 MB take as long in blocks as at once, scores of 33 MB half as long. Blocks of a quarter of the
# last-level cache are best.
_LARGE: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 1 << 24
_BLOCK: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 23

# The parameter that holds sizes, of which the size of the axis becomes that of a block.
_SIZES = {"broadcast_in_dim": "shape", "dynamic_slice": "slice_sizes", "reshape": "new_sizes", "slice": "limit_indices"}
# Operations that stay outside of loops: convolutions are fast as they are, and a gather's `slice_sizes` are not the
# sizes of its result.
_NOT_CUT = {"conv_general_dilated", "gather"}


def block_attention(program: Program, target: Target) -> Program:
    """Makes a loop of each large batched product and the operations from there to the next product, in branches and
    bodies of loops, too.

    A program for several GPUs or TPUs stays as it is: they may share the axis over which a loop would run.
    """
    if target.platform != "cpu" and target.partitioned:
        return program
    program = changed_inside(
        program, lambda inner: block_attention(inner, target), called_jaxpr if target.specialized else inlined
    )
    return _looped(program, functools.partial(_is_large, target), not target.specialized)


def has_long_product(jaxpr: Any, target: Target) -> bool:
    """Returns True if a jaxpr, or one inside of it, has a product that becomes a loop on a target."""
    return any(
        (eqn.outvars and _is_large(target, eqn, eqn.outvars[0].aval))
        or any(has_long_product(inner, target) for inner in jaxprs(eqn))
        for eqn in jaxpr.eqns
    )


def inlined(eqn: Any) -> Any:
    """Returns the jaxpr of a call whose operations this pass should see in a program that JAX may still transform: of
    `jit`, and of a batched product in bfloat16. None for any other equation."""
    if jit_jaxpr(eqn) is not None:
        return None if xla_metadata(eqn).get("inlineable") == "false" else jit_jaxpr(eqn)
    is_product = eqn.primitive.name == BFLOAT16_PRODUCT and eqn.invars[1].aval.ndim > 2
    return plain_jaxpr(eqn) if is_product else None


def _is_large(target: Target, eqn: Any, type: Any) -> bool:
    """Returns True for a batched product, with a result of this type, that becomes a loop on a target if there is
    another product after it."""
    if not _is_batched(eqn):
        return False
    batches = eqn.params["dimension_numbers"][1]
    first, second = (
        [v.aval.shape[a] for a in range(v.aval.ndim) if a not in axes]
        for v, axes in zip(eqn.invars, batches, strict=True)
    )
    is_long = are_scores(first, second, type.shape[len(batches[0]) :])
    if target.specialized:
        return (target.platform == "cpu" or is_long) and _bytes(type) > _LARGE
    return is_long and not keeps(target.platform, type.shape)


def _looped(program: Program, is_large: Callable[[Any, Any], bool], transformable: bool) -> Program:
    """Returns the program with loops for large batched products, each up to the next product."""
    loops: dict[int, Loop | None] = {}  # the position of the last operation of a loop → the loop; of the rest → None
    for position, operation in enumerate(program.operations):
        if position in loops or operation.name != "dot_general":
            continue
        if is_large(operation.equation, program.types[operation.results[0]]):
            regions = (_Region(program, position, axis) for axis in _axes(operation, program))
            region = next((region for region in regions if region.pays()), None)
            if region is not None:
                loops |= dict.fromkeys(region.positions) | {region.positions[-1]: region.loop(transformable)}
    if not loops:
        return program
    operations = (loops.get(position, operation) for position, operation in enumerate(program.operations))
    return program.replace(operations=[operation for operation in operations if operation is not None]).needed()


def _is_batched(eqn: Any) -> bool:
    return eqn.primitive.name == "dot_general" and bool(eqn.params["dimension_numbers"][1][0])


def _bytes(type: Any) -> int:
    return type.size * type.dtype.itemsize


def _exceeds_block(eqn: Any, type: Any) -> bool:
    return _is_batched(eqn) and _bytes(type) > _BLOCK


def _axes(operation: Operation, program: Program) -> Iterator[int]:
    """Yields the axes of a batched product over which a loop may run: the largest batch axis, then the free axes."""
    sizes, batches = program.types[operation.results[0]].shape, len(operation.params["dimension_numbers"][1][0])
    largest = max(range(batches), key=sizes.__getitem__)
    yield from (axis for axis in (largest, *range(batches, len(sizes))) if sizes[axis] > 1)


class _Region:
    """The operations from a product to the next one whose entries depend only on the same entry of one of its axes.

    positions: those of the operations; the region ends before an operation whose entries depend on more.
    """

    def __init__(self, program: Program, start: int, axis: int) -> None:
        """start: the position of the product. axis: an axis of its result."""
        self._program, first = program, program.operations[start]
        type = program.types[first.results[0]]
        self._size = type.shape[axis]
        self._step = math.ceil(self._size / math.ceil(_bytes(type) / _BLOCK))
        self._axes: dict[Any, int] = {}  # a value computed inside → the axis along which it is cut
        self._operands: dict[
            tuple[Operand, int | None], int
        ] = {}  # (a value from outside, the axis along which it is cut) → its number in the block
        self._broadcast: dict[
            tuple[Operand, int | None], int
        ] = {}  # the same, of values that the block broadcasts itself
        self._numbers: dict[Any, int] = {}  # a value computed inside → its number in the block
        self._types: list[Any] = []  # of the values of the block, by number
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
        operands = tuple(map(self._operand, operation.operands, cut.operands))
        (result,) = operation.results
        self._axes[result], self._numbers[result] = cut.result, self._value(result, cut.result)
        self._append(operation, operands, cut.result, self._numbers[result])

    def _append(self, operation: Operation, operands: tuple[Operand, ...], axis: int, result: int) -> None:
        """Adds an operation to the block, by the numbers of its values there. axis: along which its result is cut."""
        equation = operation.equation
        if key := _SIZES.get(operation.name):
            params = {**equation.params, key: with_size(equation.params[key], axis, self._step)}
            equation = equation.replace(params=params)
        self._operations.append(Operation(equation, operands, (result,), operation.scope))

    def _operand(self, operand: Operand, axis: int | None) -> Operand:
        """Returns a value in the block, cut along an axis if it is one from outside."""
        if operand in self._numbers:
            return self._numbers[operand]
        if isinstance(operand, Constant) and not np.shape(operand.value):
            return operand
        name = operand, axis
        if name not in self._operands and name not in self._broadcast:
            producer = self._program.producer(operand)
            if axis is None or producer is None or producer.name != "broadcast_in_dim":
                self._operands[name] = self._value(operand, axis)
            else:
                self._broadcast[name] = self._broadcast_inside(producer, axis)
        return self._operands[name] if name in self._operands else self._broadcast[name]

    def _broadcast_inside(self, producer: Operation, axis: int) -> int:
        """Adds the operation that broadcasts a scale or a mask to all scores, as its result would be as large as
        they are. Returns the number of its result."""
        (value,), (result,) = producer.operands, producer.results
        sizes = np.shape(value.value) if isinstance(value, Constant) else self._type(value).shape
        axes = independent_axes(producer.name, producer.params, [sizes], self._type(result).shape)
        (inner,) = next(each.operands for each in axes if each.result == axis)
        operand, number = self._operand(value, inner), self._value(result, axis)
        self._append(producer, (operand,), axis, number)
        return number

    def _value(self, operand: Operand, axis: int | None) -> int:
        """Adds a value to the block: the operand, or its part along the axis. Returns the number of the value."""
        type = self._type(operand)
        self._types.append(type if axis is None else type.update(shape=with_size(type.shape, axis, self._step)))
        return len(self._types) - 1

    def _results(self) -> list[int]:
        inside = set(self.positions)
        return [v for v in self._numbers if not inside.issuperset(self._program.readers.get(v, ()))]

    def pays(self) -> bool:
        """Returns True if the region ends with another product, and no value as large as the first result is read
        outside."""
        first, last = (self._program.operations[self.positions[k]] for k in (0, -1))
        if last is first or last.name != "dot_general":
            return False
        large = self._type(first.results[0]).size
        return all(v in last.results or self._type(v).size < large for v in self._results())

    def loop(self, transformable: bool) -> Loop:
        """Returns the region as a loop; with another loop inside if one entry is too large."""
        results = tuple(self._results())
        operands, cuts = zip(*self._operands, strict=True)
        inputs, outputs = tuple(self._operands.values()), tuple(self._numbers[v] for v in results)
        program = Program(tuple(self._operations), tuple(self._types), inputs, outputs)
        types, axes = tuple(map(self._type, results)), tuple(self._axes[v] for v in results)
        scope = self._operations[0].scope
        inner = _looped(program, _exceeds_block, transformable)
        return Loop(inner, operands, cuts, results, types, axes, self._size, self._step, scope, transformable)


def _agree(axes: Sequence[int | None], cuts: Sequence[int | None]) -> bool:
    """Returns True if the operands are cut along these axes already. cuts: None for an operand from outside."""
    return all(cut is None or cut == axis for axis, cut in zip(axes, cuts, strict=True))


def _before_transposes(product: Operation, program: Program) -> Operation:
    """Returns a product that reads the values before their transposes.

    XLA does not fuse a transpose into a loop that begins after it: it would copy the keys of attention, and compiling
    that copy takes long.
    """
    over, batch = product.params["dimension_numbers"]
    operands, dimensions = list(product.operands), [list(map(tuple, over)), list(map(tuple, batch))]
    for k, operand in enumerate(operands):
        producer = program.producer(operand)
        if producer is None or producer.name != "transpose":
            continue
        perm = producer.params["permutation"]
        free = [axis for a, axis in enumerate(perm) if a not in (*over[k], *batch[k])]
        if free == sorted(free):  # the result keeps the order of these axes
            operands[k] = producer.operands[0]
            for axes in dimensions:
                axes[k] = tuple(perm[a] for a in axes[k])
    numbers = tuple(map(tuple, dimensions))
    equation = product.equation.replace(params={**product.params, "dimension_numbers": numbers})
    return dataclasses.replace(product, equation=equation, operands=tuple(operands))
