"""Numbers in which equal layers differ become arguments, so that XLA compiles one kernel for all of these layers.

XLA compiles equal kernels of a program once, but a constant is a part of its kernel: the scales of a quantized model
made each layer's kernels new ones. A formula of many numbers is no layers but one kernel, and an argument costs each
call 0.3 µs, so there must be products between them.
"""

import dataclasses
from collections import Counter, defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxops.compiler.fingerprint import said
from jaxops.compiler.ir import Known, Program
from jaxops.compiler.numpy_interpreter import NUMBER, Step
from jaxops.compiler.primitives import PRODUCTS

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
    handed: dict[int, _Use] = {}  # a value that is made of one number → where it is read
    uses: dict[Any, list[_Use]] = defaultdict(list)  # kind of operand → where such operands read numbers
    for place, operation in enumerate(operations):
        if operation.name not in _READERS | _BETWEEN:
            continue
        for position, (operand, dtype) in enumerate(zip(operation.operands, operation.dtypes, strict=True)):
            use = _use(place, position, operand, dtype) or handed.get(operand)
            if use is None:
                continue
            if operation.name in _BETWEEN:
                handed[operation.results[0]] = use
            else:
                uses[operation.name, *(str(v.aval) for v in operation.equation.invars), position].append(use)
    chosen: dict[tuple[int, int], _Use] = {}
    steps: dict[Any, Step] = {}
    for found in uses.values():
        often = Counter(use.text for use in found)
        once = sum(count == 1 for count in often.values())
        for use in found:
            if often[use.text] <= _RARE * len(found) or often[use.text] == 1 < once:
                chosen[use.place, use.position] = use
    if len({use.text for use in chosen.values()}) > _MOST * sum(o.name in PRODUCTS for o in operations):
        return program
    for (place, position), use in chosen.items():
        key = use.text, use.number.shape
        if key not in steps:
            steps[key] = Step(NUMBER, {}, (use.number.dtype,), (Known(use.number),), (len(types),))
            types.append(jax.typeof(use.number))
        operands = list(operations[place].operands)
        (operands[position],) = steps[key].results
        operations[place] = dataclasses.replace(operations[place], operands=tuple(operands))
    return Program((*steps.values(), *operations), tuple(types), program.inputs, program.outputs)


class _Use(NamedTuple):
    """An operand that is a number, or made of one, by the place of its operation and its position there.

    text: the same for equal numbers.
    """

    place: int
    position: int
    number: np.ndarray
    text: str


def _use(place: int, position: int, operand: Any, dtype: Any) -> _Use | None:
    """An operand as a number; None where it is something else."""
    if not isinstance(operand, Known) or dtype not in _TYPES or np.size(operand.value) != 1:
        return None
    number = np.asarray(operand.value, dtype)
    return _Use(place, position, number, said(number, repr))
