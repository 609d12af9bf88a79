"""Inlines calls, so that each pass sees every operation and its operands.

`jit` inside `jit`, functions with a custom derivative, and choices by platform are inlined. In a program that is not
specialized, JAX may differentiate later, so a function with a custom derivative stays a call.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops.compiler.ir import Constant, Operand, Operation, Program, interpret
from jaxops.compiler.primitives import called_jaxpr
from jaxops.kernels.target import Target

# Primitives that leave the elements of an array in their order.
_RESHAPES = ("reshape", "squeeze")


def inline_calls(program: Program, target: Target) -> Program:
    """Returns the program without calls, as it runs on the target's platform.

    A transpose that undoes the previous one is left out, so weights that are transposed twice stay as the file has
    them. A reshape to a shape that the same elements had before is left out, too.
    """
    types: list[Any] = [program.types[v] for v in program.inputs]
    operations: list[Operation] = []
    undone: dict[Any, Operand] = {}  # (a transposed value, the permutation that undoes it) → the value before
    shaped: dict[Any, Operand] = {}  # (a value, a shape) → its elements in that shape
    origins: dict[Any, Operand] = {}  # a reshaped value → the value before all reshapes

    def inlined(equation: Any, operands: Sequence[Operand], scope: str) -> Sequence[Operand]:
        """Adds the operations of an equation; returns its results."""
        name, params = equation.primitive.name, equation.params
        first = operands[0] if operands else None
        if name == "platform_index":
            return [Constant(_chosen(params["platforms"], target.platform))]
        if name == "cond" and isinstance(first, Constant) and isinstance(first.value, int):
            return walk(params["branches"][first.value], operands[1:], scope)
        if name == "optimization_barrier" and all(isinstance(v, Constant) for v in operands):
            # Passes may see a constant after a barrier; `passes.keep_order` adds the barriers that XLA needs.
            return [_typed(v, x.aval.dtype) for v, x in zip(operands, equation.outvars, strict=True)]
        if (inner := called_jaxpr(equation, transformable=not target.specialized)) is not None:
            return walk(inner, operands, scope)
        if name == "transpose" and (first, params["permutation"]) in undone:
            return [undone[first, params["permutation"]]]
        if name in _RESHAPES and (origins.get(first, first), equation.outvars[0].aval.shape) in shaped:
            return [shaped[origins.get(first, first), equation.outvars[0].aval.shape]]
        results = tuple(range(len(types), len(types) + len(equation.outvars)))
        types.extend(v.aval for v in equation.outvars)
        operations.append(Operation(equation, tuple(operands), results, scope))
        if name == "transpose" and isinstance(first, int):
            undone[results[0], tuple(np.argsort(params["permutation"]))] = first
        if name in _RESHAPES and isinstance(first, int):
            origin = origins[results[0]] = origins.get(first, first)
            assert isinstance(origin, int)
            shaped.update({(origin, types[origin].shape): origin, (origin, types[results[0]].shape): results[0]})
        return results

    def walk(jaxpr: Any, inputs: Sequence[Operand], scope: str) -> list[Operand]:
        def add(equation: Any, operands: Sequence[Operand]) -> Sequence[Operand]:
            return inlined(equation, operands, _joined(scope, str(equation.source_info.name_stack)))

        return interpret(jaxpr, inputs, add, lambda value, _: Constant(value))

    values: dict[int, Operand] = {v: k for k, v in enumerate(program.inputs)}

    def operand(v: Operand) -> Operand:
        return values[v] if isinstance(v, int) else v

    for operation in program.operations:
        results = inlined(operation.equation, list(map(operand, operation.operands)), operation.scope)
        values.update(zip(operation.results, results, strict=True))
    inputs, outputs = tuple(range(len(program.inputs))), tuple(map(operand, program.outputs))
    # The form of a named call may read fewer operands than the call.
    return Program(tuple(operations), tuple(types), inputs, outputs).needed()


def _typed(operand: Any, dtype: Any) -> Constant:
    return Constant(operand.value if np.shape(operand.value) else np.asarray(operand.value, dtype))


def _joined(*scopes: str) -> str:
    return "/".join(filter(None, scopes))


def _chosen(platforms: Sequence[Any], platform: str) -> int:
    """Returns the position of the branch for a platform; None stands for the platforms that no branch names."""
    return next(k for k, names in enumerate(platforms) if names is None or platform in names)
