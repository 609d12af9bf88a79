"""Scalar constants in which equal layers differ become arguments, so that XLA compiles one kernel for all of them.

XLA compiles equal kernels of a program once, but a constant is a part of its kernel: the scales of a quantized model
made each layer's kernels new ones. A formula of many numbers is no layers but one kernel, and an argument costs each
call 0.3 µs, so there must be products between them.
"""

import dataclasses
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.fingerprint import fingerprint
from jaxops.compiler.ir import Constant, Program
from jaxops.compiler.numpy_interpreter import CONSTANT, PortableOperation
from jaxops.compiler.primitives import IN_ORDER, PRODUCTS
from jaxops.kernels.target import Target

# Operations that do the same with any number; a bound of 0, say, or an exponent of 2 may have a kernel of its own.
_READERS = {"add", "div", "dynamic_update_slice", "mul", "pad", "select_n", "sub"}
# Operations that hand a number on.
_BETWEEN = IN_ORDER | {"convert_element_type"}
_TYPES = {np.dtype(name) for name in ("float32", "int32", "int8", "uint8")}
# The largest part of the uses of one kind that a number may have and still count as one of many.
_RARE = 1 / 4
# The most numbers for each product: a quantized convolution, with what is behind it, reads about four.
_MOST = 8


def lift_scalar_constants(program: Program, target: Target) -> Program:
    """Makes each number a value of its own where operations of one kind read another number in each place."""
    operations, types = list(program.operations), list(program.types)
    handed: dict[Any, _Use] = {}  # a value that is made of one number → where it is read
    uses: dict[Any, list[_Use]] = defaultdict(list)  # kind of operand → where such operands read numbers
    for position, operation in enumerate(operations):
        if operation.name not in _READERS | _BETWEEN:
            continue
        for index, (operand, dtype) in enumerate(zip(operation.operands, operation.dtypes, strict=True)):
            use = _use(position, index, operand, dtype) or handed.get(operand)
            if use is None:
                continue
            if operation.name in _BETWEEN:
                handed[operation.results[0]] = use
            else:
                uses[operation.name, *(str(v.aval) for v in operation.equation.invars), index].append(use)
    chosen: dict[tuple[int, int], _Use] = {}
    for of_a_kind in uses.values():
        often = Counter(use.text for use in of_a_kind)
        once = sum(count == 1 for count in often.values())
        for use in of_a_kind:
            if often[use.text] <= _RARE * len(of_a_kind) or often[use.text] == 1 < once:
                chosen[use.position, use.operand] = use
    if len({use.text for use in chosen.values()}) > _MOST * sum(o.name in PRODUCTS for o in operations):
        return program
    lifted: dict[Any, PortableOperation] = {}
    for (position, index), use in chosen.items():
        key = use.text, use.number.shape
        if key not in lifted:
            constant = (Constant(use.number),)
            lifted[key] = PortableOperation(CONSTANT, {}, (use.number.dtype,), constant, (len(types),))
            types.append(jax.typeof(use.number))
        operands = list(operations[position].operands)
        (operands[index],) = lifted[key].results
        operations[position] = dataclasses.replace(operations[position], operands=tuple(operands))
    return program.replace(operations=[*lifted.values(), *operations], types=types)


class _Use(NamedTuple):
    """An operand that is a number, or made of one, by the position of its operation, and its own among the operands.

    text: the same for equal numbers.
    """

    position: int
    operand: int
    number: np.ndarray
    text: str


def _use(position: int, index: int, operand: Any, dtype: Any) -> _Use | None:
    """Returns an operand as a number; None where it is something else."""
    if not isinstance(operand, Constant) or dtype not in _TYPES or np.size(operand.value) != 1:
        return None
    number = np.asarray(operand.value, dtype)
    return _Use(position, index, number, fingerprint(number, repr))
