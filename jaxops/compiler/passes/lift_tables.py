"""Large constants become values that are prepared once.

XLA compiles a constant into each program, and evaluates operations on constants while it compiles, slowly: the cosines
of a large table, for example. As an argument, one copy of a table serves the programs for all sizes of the inputs.
"""

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxops.compiler.ir import Constant, Program
from jaxops.compiler.numpy_interpreter import CONSTANT, PortableOperation
from jaxops.kernels.target import Target

# Bytes. A smaller constant costs less inside the program, since each call takes time to hand over an argument.
TABLE = 1 << 16


def lift_tables(program: Program, target: Target) -> Program:
    """Makes each large constant a value."""
    types, lifted = list(program.types), dict[int, PortableOperation]()

    def lift(operand: Any) -> Any:
        if not isinstance(operand, Constant) or getattr(operand.value, "nbytes", 0) < TABLE:
            return operand
        key = id(operand.value)  # lives as long as the program
        if key not in lifted:
            table = np.asarray(operand.value)
            lifted[key] = PortableOperation(CONSTANT, {}, (table.dtype,), (Constant(table),), (len(types),))
            types.append(jax.typeof(operand.value))
        return lifted[key].results[0]

    operations = [dataclasses.replace(o, operands=tuple(map(lift, o.operands))) for o in program.operations]
    if not lifted:
        return program
    return program.replace(operations=[*lifted.values(), *operations], types=types)
