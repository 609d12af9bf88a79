"""Checks that a program is well formed: after each pass in the tests, and under `jax_enable_checks`."""

from typing import Any

import jax

from jaxops.compiler.ir import Constant, Program, evaluate


def verify(program: Program, step: str = "") -> None:
    """Raises AssertionError if a value is read before it is computed, or computed twice, or has another type than its
    operation computes.

    step: the pass that has just run, for the message.
    """
    prefix = f"after '{step}': " if step else ""
    defined = set(program.inputs)
    for position, operation in enumerate(program.operations):
        name = f"operation {position}, '{operation.name}',"
        for v in operation.operands:
            if not isinstance(v, Constant) and v not in defined:
                raise AssertionError(f"{prefix}{name} reads value {v}, which nothing has computed")
        for v in operation.results:
            if v in defined:
                raise AssertionError(f"{prefix}{name} computes value {v}, which was computed before")
            defined.add(v)
    for v in program.outputs:
        if not isinstance(v, Constant) and v not in defined:
            raise AssertionError(f"{prefix}value {v} is an output, but nothing has computed it")
    arguments = [jax.ShapeDtypeStruct(program.types[v].shape, program.types[v].dtype) for v in program.inputs]
    for v, computed in jax.eval_shape(lambda *x: _values(program, x), *arguments).items():
        type = program.types[v]
        if (type.shape, type.dtype) != (computed.shape, computed.dtype):
            raise AssertionError(f"{prefix}value {v} is said to be {_text(type)}, but is computed as {_text(computed)}")


def _values(program: Program, arguments: Any) -> dict[int, Any]:
    values = dict(zip(program.inputs, arguments, strict=True))
    evaluate(program.operations, values, ())
    return values


def _text(type: Any) -> str:
    return f"{type.dtype}[{','.join(map(str, type.shape))}]"
