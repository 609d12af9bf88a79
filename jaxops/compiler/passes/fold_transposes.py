"""Makes matrix products read a matrix in place of its transpose.

XLA does so, too, but later: kernels of products are selected by the layout of their weights. Without this pass, the
transposed embedding table that is the last layer of a language model would seem to have the layout (K, N).
"""

import dataclasses

from jaxops.compiler.ir import Operation, Program
from jaxops.kernels.target import Target

_SWAPPED = (1, 0)


def fold_transposes(program: Program, target: Target) -> Program:
    """Returns the program without transposes of matrices that are the second operand of a product."""
    operations = [_folded(o, program) if o.name == "dot_general" else o for o in program.operations]
    return program.replace(operations=operations).needed()


def fold_inner_transposes(program: Program, target: Target) -> Program:
    """Does the same for the products of kernels. If weights are prepared, a kernel transposes them to read them so,
    and the result is prepared."""
    return program if target.prepared else fold_transposes(program, target)


def _folded(operation: Operation, program: Program) -> Operation:
    a, b = operation.operands
    transpose = program.producer(b)
    if transpose is None or transpose.name != "transpose" or transpose.params["permutation"] != _SWAPPED:
        return operation
    (over_a, over_b), batch = operation.params["dimension_numbers"]
    if len(over_b) != 1 or batch[0]:  # the result would have other axes
        return operation
    equation, (matrix,) = operation.equation, transpose.operands
    params = {**equation.params, "dimension_numbers": ((over_a, (1 - over_b[0],)), batch)}
    equation = equation.replace(invars=[equation.invars[0], transpose.equation.invars[0]], params=params)
    return dataclasses.replace(operation, equation=equation, operands=(a, matrix))
