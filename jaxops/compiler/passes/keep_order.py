"""Barriers keep XLA from rewriting float operations in ways that change their results.

XLA's algebraic simplifier ignores rounding and overflow. It turns (x + c) - d into x + (c - d) for constants c and d,
(x / b) / c into x / (b * c), and log(exp(x)) into x. A barrier between the two operations prevents that. On a CPU it
costs nothing before jaxlib 0.11.1, where XLA removes barriers before it fuses loops; later it ends a loop. XLA 0.12
rewrites quotients alone. There BERT, GPT-2, EfficientNet and MobileNet have as many loops with barriers as without.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from jaxops.compiler.ir import Constant, Operation, Program, operation_of
from jaxops.compiler.primitives import IN_ORDER
from jaxops.kernels.target import Target

# Operations that move elements, but do not change them.
_BETWEEN = IN_ORDER | {"rev", "slice", "transpose"}
_SUMS, _PRODUCTS = {"add", "sub"}, {"mul", "div"}
_EXPONENTIALS, _SQUARES = {"exp", "exp2", "pow"}, {"integer_pow", "square"}


def keep_order(program: Program, target: Target) -> Program:
    """Returns the program with a barrier between operations that XLA would combine."""
    operations: list[Operation] = []
    types = list(program.types)
    producers: dict[Any, _Producer] = {}
    constants: dict[Any, Any] = {}  # value made of constants → the constant that it moves or broadcasts, or None
    for operation in program.operations:
        name, operands = operation.name, list(operation.operands)
        constants |= {v: v.value for v in operands if isinstance(v, Constant)}
        constant = [v in constants for v in operands]
        if all(constant):
            constants |= dict.fromkeys(operation.results, constants[operands[0]] if name in _BETWEEN else None)
        elif name in _BETWEEN or (name == "add" and _is_nothing(constants.get(operands[1]))):
            if operands[0] in producers and len(operation.results) == 1:
                producers[operation.results[0]] = producers[operands[0]]
        elif operation.results and _is_float(types[operation.results[0]]):
            before = [None if v in constants else producers.get(v) for v in operands]
            for position in _rewritten(name, before, any(constant)):
                operand, barrier = operands[position], len(types)
                types.append(types[operand])
                args = lax.optimization_barrier, (operand,), (barrier,), types, operation.scope
                operations.append(operation_of(*args))
                operands[position] = barrier
            producer = _Producer(name, any(constant), len(set(operation.operands)) < len(operands))
            producers.update(dict.fromkeys(operation.results, producer))
        operations.append(dataclasses.replace(operation, operands=tuple(operands)))
    return program.replace(operations=operations, types=types)


class _Producer(NamedTuple):
    """The operation that computed a value.

    constant: whether one of its operands is a constant. twice: whether two of its operands are the same value.
    """

    name: str
    constant: bool
    twice: bool


def _rewritten(name: str, producers: Sequence[_Producer | None], constant: bool) -> list[int]:
    """Returns the positions of the operands whose producers XLA would combine with the operation.

    producers: of each operand; None for inputs and constants. constant: whether an operand is a constant.
    """

    def by(holds: Callable[[_Producer], bool]) -> list[int]:
        return [k for k, producer in enumerate(producers) if producer is not None and holds(producer)]

    if name in _SUMS:
        return by(lambda m: m.name in _SUMS and m.constant) if constant else []
    if name == "mul":
        powers = by(lambda m: m.name == "exp")
        products = by(lambda m: m.name in _PRODUCTS and m.constant) if constant else []
        return products or (powers[:1] if len(powers) > 1 else [])
    if name == "div":
        products = by(lambda m: m.name == "div" or (constant and m.name == "mul" and m.constant))
        return products or [k for k in by(lambda m: m.name in _EXPONENTIALS) if k == 1]
    if name in ("log", "pow"):
        return [k for k in by(lambda m: m.name in _EXPONENTIALS) if k == 0]
    if name in ("sqrt", "rsqrt"):
        return by(lambda m: m.name in _SQUARES or (m.name == "mul" and m.twice))
    return []


def _is_nothing(constant: Any) -> bool:
    """Tells whether a constant is -0.0. Operators add it to a quotient to hide the quotient from XLA's simplifier, in
    programs that do not go through this pass."""
    if constant is None or np.size(constant) != 1:
        return False
    number = np.ravel(constant)[0]
    return bool(number == 0 and np.signbit(number))


def _is_float(type: Any) -> bool:
    return hasattr(type, "dtype") and jax.numpy.issubdtype(type.dtype, np.floating)
