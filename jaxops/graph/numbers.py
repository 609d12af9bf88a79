"""Numbers in which equal layers differ become arguments, so that XLA compiles one kernel for all of these layers.

XLA compiles equal kernels of a program once, but a constant is a part of its kernel: the scales of a quantized model
made each layer's kernels new ones. A formula of many numbers is no layers but one kernel, and an argument costs each
call 0.3 µs, so there must be products between them.
"""

import dataclasses
from collections import Counter, defaultdict
from typing import Any

import jax
import numpy as np

from jaxops.graph.on_host import NUMBER, Step
from jaxops.graph.program import PRODUCTS, Known, Operation, Program
from jaxops.graph.said import said

# What does the same with any number; a bound of 0, say, or an exponent of 2 may have a kernel of its own.
_READERS = {"add", "div", "dynamic_update_slice", "mul", "pad", "select_n", "sub"}
# What hands a number on.
_BETWEEN = {"broadcast_in_dim", "convert_element_type", "copy", "expand_dims", "reshape", "squeeze", "stop_gradient"}
_TYPES = {np.dtype(name) for name in ("float32", "int32", "int8", "uint8")}
# The part of the uses of one kind that a number may have, and still be one of many.
_RARE = 1 / 4
# The most numbers for each product: a quantized convolution, with what is behind it, reads about four.
_MOST = 8


def numbers_as_arguments(program: Program) -> Program:
    """The same program. Where operations of one kind read another number in each place, each number is a value, made
    by a step of its own."""
    operations, types = list(program.operations), list(program.types)
    handed: dict[int, tuple[int, int]] = {}  # a value that is made of one number → the operand that this number is
    uses: dict[Any, list[tuple[int, int]]] = defaultdict(list)  # kind → operands: (place of an operation, position)
    for place, operation in enumerate(operations):
        if operation.name not in _READERS | _BETWEEN:
            continue
        for position, operand in enumerate(operation.operands):
            found = (place, position) if _is_number(operand, operation.dtypes[position]) else handed.get(operand)
            if found is None:
                continue
            if operation.name in _BETWEEN:
                handed[operation.results[0]] = found
            else:
                kind = operation.name, *(str(v.aval) for v in operation.equation.invars), position
                uses[kind].append(found)
    chosen: dict[tuple[int, int], str] = {}
    steps: dict[str, Step] = {}
    for found in uses.values():
        numbers = [_text(operations[place], position) for place, position in found]
        often = Counter(numbers)
        once = sum(count == 1 for count in often.values())
        for (place, position), number in zip(found, numbers, strict=True):
            if often[number] <= _RARE * len(found) or often[number] == 1 < once:
                chosen[place, position] = number
    if len(set(chosen.values())) > _MOST * sum(operation.name in PRODUCTS for operation in operations):
        return program
    for (place, position), number in chosen.items():
        operation = operations[place]
        if number not in steps:
            known = operation.operands[position]
            steps[number] = Step(NUMBER, {}, (operation.dtypes[position],), (known,), (len(types),))
            types.append(jax.typeof(_array(operation, position)))
        operands = list(operation.operands)
        (operands[position],) = steps[number].results
        operations[place] = dataclasses.replace(operation, operands=tuple(operands))
    return Program((*steps.values(), *operations), tuple(types), program.inputs, program.outputs)


def _is_number(operand: Any, dtype: Any) -> bool:
    return isinstance(operand, Known) and dtype in _TYPES and np.size(operand.value) == 1


def _array(operation: Operation, position: int) -> np.ndarray:
    known = operation.operands[position]
    assert isinstance(known, Known)
    return np.asarray(known.value, operation.dtypes[position])


def _text(operation: Operation, position: int) -> str:
    return said(_array(operation, position), repr)
