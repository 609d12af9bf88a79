"""A product reads a matrix as it lies in memory, and not its transpose.

XLA does so, too; but forms of products are chosen before, by the layout of their weights. Without this, the head of a
language model whose table of words is transposed in the file would be taken for (K, N).
"""

import dataclasses

from jaxops.compiler.ir import Operation, Program
from jaxops.kernels.target import Target

_SWAPPED = (1, 0)


def fold_transposes(program: Program, target: Target) -> Program:
    """Returns the program in which each product with a transposed matrix as its second operand reads the matrix."""
    operations = [_folded(o, program) if o.name == "dot_general" else o for o in program.operations]
    return program.replace(operations=operations).needed()


def _folded(operation: Operation, program: Program) -> Operation:
    a, b = operation.operands
    transpose = program.producer(b)
    if transpose is None or transpose.name != "transpose" or transpose.params["permutation"] != _SWAPPED:
        return operation
    (over_a, over_b), batch = operation.params["dimension_numbers"]
    if len(over_b) != 1 or batch[0]:  # without another axis, or with both, the result would be another one
        return operation
    equation, (matrix,) = operation.equation, transpose.operands
    params = {**equation.params, "dimension_numbers": ((over_a, (1 - over_b[0],)), batch)}
    equation = equation.replace(invars=[equation.invars[0], transpose.equation.invars[0]], params=params)
    return dataclasses.replace(operation, equation=equation, operands=(a, matrix))
