"""Barriers keep XLA from rewriting float operations in ways that change their results.

XLA's algebraic simplifier ignores rounding and overflow. It turns (x + c) - d into x + (c - d) for constants c and d,
(x / b) / c into x / (b * c), and log(exp(x)) into x. A barrier between the two operations prevents that; what XLA
removes, such as a sum over an axis of size 1, may stand between them. It also turns x + 0 into x, which differs for
-0.0, unless a barrier hides the zero. On a CPU a barrier costs nothing before jaxlib 0.11.1, where XLA removes barriers
before it fuses loops; later it ends a loop. XLA 0.12 rewrites quotients alone. There BERT, GPT-2, EfficientNet and
MobileNet have as many loops with barriers as without.
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

# Operations that move elements, but do not change them; and those that change nothing along axes of size 1.
_BETWEEN = IN_ORDER | {"rev", "slice", "transpose"}
_ALONG_AXES = {"cummax", "cummin", "cumprod", "cumsum", "reduce_max", "reduce_min", "reduce_prod", "reduce_sum", "sort"}
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
        elif (kept := _unchanged(operation, [constants.get(v) for v in operands], types)) is not None:
            if operands[kept] in producers and len(operation.results) == 1:
                producers[operation.results[0]] = producers[operands[kept]]
        elif operation.results and _is_float(types[operation.results[0]]):
            before = [None if v in constants else producers.get(v) for v in operands]
            for position in _rewritten(name, before, any(constant)):
                operand, barrier = operands[position], len(types)
                types.append(types[operand])
                args = lax.optimization_barrier, (operand,), (barrier,), types, operation.scope
                operations.append(operation_of(*args))
                operands[position] = barrier
            for position in _lost_zeros(name, [constants.get(v) for v in operation.operands]):
                zero = _hidden(operation.operands[position], constants, types, operation.scope)
                operations += zero
                operands[position] = zero[-1].results[0]
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


def _unchanged(operation: Operation, constants: Sequence[Any], types: Sequence[Any]) -> int | None:
    """Returns the position of the operand whose elements the results have, so that XLA removes the operation.

    constants: the values of the operands; None for all others. Operators add -0.0 to a quotient to hide the quotient
    from XLA's simplifier, in programs that do not go through this pass.
    """
    name, operand = operation.name, operation.operands[0]
    if name in _BETWEEN:
        return 0
    if name in _ALONG_AXES and isinstance(operand, int):
        params = operation.params
        axes = params["axes"] if "axes" in params else [params["axis"] if "axis" in params else params["dimension"]]
        return 0 if all(types[operand].shape[axis] == 1 for axis in axes) else None
    neutral = {"add": "-0.0", "sub": "0.0", "mul": "1.0", "div": "1.0"}.get(name)
    if neutral is None:
        return None
    found = [position for position, constant in enumerate(constants) if _number(constant) == neutral]
    return 1 - found[0] if found and (found[0] == 1 or name in ("add", "mul")) else None


def _lost_zeros(name: str, constants: Sequence[Any]) -> list[int]:
    """Returns the positions of constant zeros that XLA drops although they turn -0.0 into 0.0.

    constants: as in `_unchanged`.
    """
    if name == "add":
        return [k for k, constant in enumerate(constants) if _number(constant) == "0.0"]
    return [1] if name == "sub" and _number(constants[1]) == "-0.0" else []


def _hidden(operand: Any, constants: dict[Any, Any], types: list[Any], scope: str) -> list[Operation]:
    """Returns the operations that make an operand, a constant of one number, after a barrier."""
    wanted = types[operand] if isinstance(operand, int) else jax.typeof(operand.value)
    constant, number = Constant(np.ravel(constants[operand])[0].astype(wanted.dtype)), len(types)
    types += [jax.typeof(constant.value), wanted]
    hidden = operation_of(lax.optimization_barrier, (constant,), (number,), types, scope)
    if not wanted.shape:
        return [hidden]
    spread = operation_of(lambda x: lax.broadcast_in_dim(x, wanted.shape, ()), (number,), (number + 1,), types, scope)
    return [hidden, spread]


def _number(constant: Any) -> str:
    """Returns the text of a constant of one float, which distinguishes 0.0 from -0.0; "" for all other operands."""
    if constant is None or np.size(constant) != 1 or not _is_float(np.asarray(constant)):
        return ""
    return str(float(np.ravel(constant)[0]))


def _is_float(type: Any) -> bool:
    return hasattr(type, "dtype") and jax.numpy.issubdtype(type.dtype, np.floating)
