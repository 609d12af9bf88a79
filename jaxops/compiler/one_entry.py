"""Makes a program compute one entry along an axis of its first result, such as the logits of the last token.

The slice of one entry moves from the result towards the inputs, through operations that compute each entry separately:
products with weights, sums, norms. It stays where entries mix, and where further results need all entries.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from jaxops.compiler.axis_rules import SIZES, independent_axes, keeps_parameters
from jaxops.compiler.ir import Constant, Operand, Operation, Program
from jaxops.compiler.primitives import PRODUCTS, jaxprs, jit_jaxpr, sizes_of, symbolic_axes
from jaxops.kernels.named_call import named_call, plain_jaxpr


class _Cut(NamedTuple):
    """An operation that computes one entry. axis: of its results. operands: for each operand, the corresponding axis;
    None where the entry needs the complete operand."""

    axis: int
    operands: tuple[int | None, ...]


class _Plan(NamedTuple):
    """The work for one entry of a value.

    cuts: by the position of an operation. whole: the values that are computed completely. entries: the axis of each
    value of which one entry is needed. begins: the values that are sliced, each with whether a product follows.
    """

    cuts: dict[int, _Cut]
    whole: set[Operand]
    entries: dict[Operand, int]
    begins: list[tuple[Operand, bool]]


def with_one_entry(closed: Any, axis: int) -> Any:
    """Returns the closed jaxpr with one entry along an axis of its first result; its last input, an int32, says which.

    Returns None if entries mix behind the last matrix product, so that the complete result would be computed.
    """
    program = Program.of(closed, jit_jaxpr)
    result, *others = program.outputs
    if not isinstance(result, int):
        return None
    plan = _planned(program, result, axis, others)
    most = math.prod(program.types[result].shape)
    if any(not behind and _elements(program, v) >= most for v, behind in plan.begins):
        return None

    def run(*arguments: Any) -> list[Any]:
        *inputs, index = arguments
        return _run(program, plan, inputs, index)

    types = [jax.ShapeDtypeStruct(program.types[v].shape, program.types[v].dtype) for v in program.inputs]
    return jax.make_jaxpr(run)(*types, jax.ShapeDtypeStruct((), np.int32))


def _planned(program: Program, result: Operand, axis: int, whole: Iterable[Operand]) -> _Plan:
    """Plans one entry of a result. whole: values that are needed completely anyway.

    All readers of a value follow it. So when the walk from the end reaches its operation, their needs are known.
    """
    plan = _Plan({}, set(whole), {result: axis}, [])
    follows = {result: False}  # whether a product follows one entry of a value
    for position in reversed(range(len(program.operations))):
        operation = program.operations[position]
        wanted = [v for v in operation.results if v in plan.entries]
        axes = {plan.entries[v] for v in wanted}
        if operation.effects or not plan.whole.isdisjoint(operation.results):
            plan.whole.update((*operation.results, *operation.operands))
        elif len(axes) == 1 and (cut := _cut(operation, *axes)) is not None:
            plan.cuts[position] = cut
            behind = all(follows[v] for v in wanted) or _multiplies(operation.equation)
            for v, a in zip(operation.operands, cut.operands, strict=True):
                if a is None or plan.entries.get(v, a) != a:
                    plan.whole.add(v)
                if a is not None:
                    plan.entries.setdefault(v, a)
                    follows[v] = follows.get(v, True) and behind
        elif wanted:
            plan.whole.update((*operation.results, *operation.operands))
    computed = program.producers.keys() - plan.whole
    plan.begins.extend((v, behind) for v, behind in follows.items() if v not in computed)
    return plan


def _cut(operation: Operation, axis: int) -> _Cut | None:
    """Returns how an operation computes one entry; None if it reads several entries for it."""
    equation = operation.equation
    named = named_call(equation)
    if named is not None:
        return _cut_of_call(equation, axis)
    if not keeps_parameters(equation):
        return None
    operands = [sizes_of(v) for v in equation.invars]
    axes = independent_axes(operation.name, operation.params, operands, sizes_of(equation.outvars[0]))
    return next((_Cut(axis, a.operands) for a in axes if a.result == axis), None)


def _cut_of_call(equation: Any, axis: int) -> _Cut | None:
    """Returns the axes of a named call, those of its plain form."""
    named, call = named_call(equation), equation.params["call"]
    assert named is not None
    if call.transforms or named.outside is not None or named.sizes is not None:  # its keywords may hold sizes
        return None
    program = Program.of(plain_jaxpr(equation), jit_jaxpr)
    (result,) = program.outputs
    plan = _planned(program, result, axis, ())
    operands = tuple(plan.entries.get(v) for v in program.inputs)
    begins = [v for v, _ in plan.begins]
    if not set(begins) <= set(program.inputs) or not plan.whole.isdisjoint(begins):
        return None
    types = [_with_one(v.aval, a) for v, a in zip(equation.invars, operands, strict=True)]
    (found,) = named.jaxpr(call, types).out_avals
    return _Cut(axis, operands) if found.shape == _with_one(equation.outvars[0].aval, axis).shape else None


def _with_one(type: Any, axis: int | None) -> jax.ShapeDtypeStruct:
    sizes = (1 if a == axis else size for a, size in enumerate(type.shape))
    return jax.ShapeDtypeStruct(tuple(sizes), type.dtype)


def _multiplies(equation: Any) -> bool:
    return equation.primitive.name in PRODUCTS or any(map(_multiplies, (e for j in jaxprs(equation) for e in j.eqns)))


def _elements(program: Program, operand: Operand) -> int:
    """Returns the number of elements of a value; 0 if its sizes are symbolic."""
    sizes = program.types[operand].shape if isinstance(operand, int) else np.shape(operand.value)
    return 0 if symbolic_axes(sizes) else math.prod(sizes)


def _run(program: Program, plan: _Plan, inputs: Sequence[Any], index: Any) -> list[Any]:
    values: dict[Any, Any] = dict(zip(program.inputs, inputs, strict=True))
    computed = program.producers.keys() - plan.whole
    slices: dict[tuple[Operand, int], Any] = {}

    def read(operand: Operand, axis: int | None = None) -> Any:
        value = operand.value if isinstance(operand, Constant) else values[operand]
        if axis is None or operand in computed:
            return value
        if (operand, axis) not in slices:
            slices[operand, axis] = lax.dynamic_slice_in_dim(value, index, 1, axis)
        return slices[operand, axis]

    for position, operation in enumerate(program.operations):
        cut = plan.cuts.get(position)
        if cut is None and plan.whole.isdisjoint(operation.results):
            continue
        with jax.named_scope(operation.scope):
            if cut is None:
                results = operation.emit([read(v) for v in operation.operands])
            else:
                operands = map(read, operation.operands, cut.operands)
                results = operation.emit(list(operands), _parameters(operation, cut.axis))
        values.update(zip(operation.results, results, strict=True))
    first, *others = program.outputs
    return [read(first, plan.entries[first]), *map(read, others)]


def _parameters(operation: Operation, axis: int) -> Any:
    name = SIZES.get(operation.name)
    if name is None:
        return operation.params
    sizes = tuple(1 if a == axis else size for a, size in enumerate(operation.params[name]))
    return {**operation.params, name: sizes}
