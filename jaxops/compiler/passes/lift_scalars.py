"""Scalar constants in which equal layers differ become arguments, so that XLA compiles one kernel for all layers.

XLA compiles equal kernels of a program once, but a constant is a part of its kernel. So different scales in each layer
of a quantized model would make a new kernel for each layer. An argument costs each call a little time, and a formula of
many numbers is one kernel anyway; so the pass does nothing if there are many numbers for each product.
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

# Operations for which one kernel serves every number. In others, XLA may have a special kernel for a number, such as an
# exponent of 2.
_READERS = {"add", "div", "dynamic_update_slice", "mul", "pad", "select_n", "sub"}
# Operations that pass a number on to their readers.
_BETWEEN = IN_ORDER | {"convert_element_type"}
_TYPES = {np.dtype(name) for name in ("float32", "int32", "int8", "uint8")}
# A number is lifted if it has at most this part of all uses of one kind.
_RARE = 1 / 4
# The largest count of numbers per product: a quantized convolution and the operations after it read about four.
_MOST = 8


def lift_scalar_constants(program: Program, target: Target) -> Program:
    """Makes a constant number a value if operations of one kind read different numbers."""
    operations, types = list(program.operations), list(program.types)
    handed: dict[Any, _Use] = {}  # a value that repeats or converts one number → where the number is read
    uses: dict[Any, list[_Use]] = defaultdict(list)  # kind of operand → its uses of numbers
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
    """The use of a constant number: the position of the operation that reads it, and that of the operand.

    text: equal for equal numbers.
    """

    position: int
    operand: int
    number: np.ndarray
    text: str


def _use(position: int, index: int, operand: Any, dtype: Any) -> _Use | None:
    """Returns the use of a constant number by an operand; None for any other operand."""
    if not isinstance(operand, Constant) or dtype not in _TYPES or np.size(operand.value) != 1:
        return None
    number = np.asarray(operand.value, dtype)
    return _Use(position, index, number, fingerprint(number, repr))
