"""Runs a pass on the programs inside of operations: branches, bodies of loops, and functions that stay calls."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from jaxops.compiler.ir import Operation, Program, run
from jaxops.compiler.primitives import CONTROL

# Primitives whose programs a pass may replace by others with the same arguments and results.
_OUTER = CONTROL | {"jit", "remat2"}


def changed_inside(program: Program, change: Callable[[Program], Program], inlined: Callable[[Any], Any]) -> Program:
    """Returns the program with each program inside of an operation changed; the same object if none changes.

    change: a pass, which returns the same object for a program that stays as it is. inlined: as in `Program.of`.
    """

    def value_of(value: Any) -> Any:
        if type(value) in (tuple, list):
            values = type(value)(map(value_of, value))
            return value if all(new is old for new, old in zip(values, value, strict=True)) else values
        jaxpr = getattr(value, "jaxpr", value)
        if not hasattr(jaxpr, "eqns"):
            return value
        before = Program.of(value, inlined)
        after = change(before)
        if after is before:
            return value
        types = [v.aval for v in jaxpr.invars]
        if value is not jaxpr:
            return jax.make_jaxpr(lambda *operands: run(after, operands))(*types)
        # An open jaxpr has no place for constants; inside of `jit`, they have one.
        return jax.make_jaxpr(jax.jit(lambda *operands: run(after, operands)))(*types).jaxpr

    def operation_of(operation: Operation) -> Operation:
        if operation.name not in _OUTER:
            return operation
        params = {name: value_of(value) for name, value in operation.params.items()}
        if all(params[name] is value for name, value in operation.params.items()):
            return operation
        return dataclasses.replace(operation, equation=operation.equation.replace(params=params))

    operations = tuple(map(operation_of, program.operations))
    same = all(new is old for new, old in zip(operations, program.operations, strict=True))
    return program if same else program.replace(operations=operations)
