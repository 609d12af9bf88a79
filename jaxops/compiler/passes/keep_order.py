"""Operations on floats that XLA would rewrite, kept as they are: between two of a kind comes a barrier.

XLA computes with reals while it compiles. It makes x + (c - d) of (x + c) - d for constants c and d, so that nothing is
rounded in between, x / (b * c) of (x / b) / c, and x of log(exp(x)), where the exponential may overflow. A barrier
stops that, and costs nothing on a CPU: XLA takes it away before it makes loops.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from jaxops.compiler.ir import Known, Operation, Program

# What leaves the elements as they are.
_BETWEEN = {
    *("broadcast_in_dim", "copy", "expand_dims", "reshape", "rev", "slice"),
    *("squeeze", "stop_gradient", "transpose"),
}
_SUMS, _PRODUCTS = {"add", "sub"}, {"mul", "div"}
_EXPONENTIALS, _SQUARES = {"exp", "exp2", "pow"}, {"integer_pow", "square"}


def in_order(program: Program) -> Program:
    """The same program with barriers."""
    operations: list[Operation] = []
    types = list(program.types)
    makers: dict[int, _Maker] = {}
    constants: dict[Any, Any] = {}  # what is made of constants alone → the one that it spreads, or None
    for operation in program.operations:
        name, operands = operation.name, list(operation.operands)
        constants |= {v: v.value for v in operands if isinstance(v, Known)}
        known = [v in constants for v in operands]
        if all(known):
            constants |= dict.fromkeys(operation.results, constants[operands[0]] if name in _BETWEEN else None)
        elif name in _BETWEEN or (name == "add" and _is_nothing(constants.get(operands[1]))):
            if operands[0] in makers and len(operation.results) == 1:
                makers[operation.results[0]] = makers[operands[0]]
        elif operation.results and _is_float(types[operation.results[0]]):
            found = [None if is_known else makers.get(v) for v, is_known in zip(operands, known, strict=True)]
            for position in _rewritten(name, operands, found, any(known)):
                barrier = _barrier(types[operands[position]], operands[position], len(types), operation.scope)
                types.append(types[operands[position]])
                operations.append(barrier)
                operands[position] = len(types) - 1
            made = _Maker(name, any(known), len(set(operation.operands)) < len(operands))
            makers.update(dict.fromkeys(operation.results, made))
        operations.append(Operation(operation.equation, tuple(operands), operation.results, operation.scope))
    return Program(tuple(operations), tuple(types), program.inputs, program.outputs)


class _Maker(NamedTuple):
    """What made a value. constant: whether it read one. twice: whether it read a value twice."""

    name: str
    constant: bool
    twice: bool


def _rewritten(name: str, operands: Sequence[Any], makers: Sequence[_Maker | None], constant: bool) -> list[int]:
    """The operands that XLA would compute together with the operation. constant: whether another one is one."""

    def by(holds: Callable[[_Maker], bool]) -> list[int]:
        return [k for k, maker in enumerate(makers) if maker is not None and holds(maker)]

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
    """Whether it is the negative zero that hides a quotient where this pass does not come."""
    if constant is None or np.size(constant) != 1:
        return False
    number = np.ravel(constant)[0]
    return bool(number == 0 and np.signbit(number))


def _is_float(type: Any) -> bool:
    return hasattr(type, "dtype") and jax.numpy.issubdtype(type.dtype, np.floating)


def _barrier(type: Any, operand: int, result: int, scope: str) -> Operation:
    """A barrier before an operand."""
    (equation,) = jax.make_jaxpr(lax.optimization_barrier)(jax.ShapeDtypeStruct(type.shape, type.dtype)).eqns
    return Operation(equation, (operand,), (result,), scope)
