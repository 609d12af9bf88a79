"""Finds the programs that compute each row of a symbolic axis from the same row of their operands.

Such a program may also run on surplus rows, since they do not change the true rows. So a piece of a model after a
data-dependent size is compiled once for the next power of two, and serves all sizes down to half of it.
"""

import math
from typing import Any

import jax

from jaxops.compiler.axis_rules import PARAMETERS_BY_AXIS, Axis, dependent_axes, independent_axes
from jaxops.compiler.primitives import CALLS, called_jaxpr, jaxprs, sizes_of, symbolic_axes
from jaxops.static import Sizes, is_symbolic


def serves_surplus_rows(jaxpr: Any) -> bool:
    """Returns True if each equation computes rows of a symbolic axis separately, and none uses the size as a number."""
    return all(_serves_surplus_rows(eqn) for eqn in jaxpr.eqns)


def _serves_surplus_rows(eqn: Any) -> bool:
    name = eqn.primitive.name
    if name in CALLS or called_jaxpr(eqn) is not None:
        # A loop over a symbolic number of rows would run over the surplus ones too.
        return isinstance(eqn.params.get("length", 0), int) and all(map(serves_surplus_rows, jaxprs(eqn)))
    if name == "reshape" and all(only_first_axis_is_symbolic(sizes_of(v)) for v in (eqn.invars[0], eqn.outvars[0])):
        return True  # the rows may get another size, but true rows stay before surplus rows
    return name != "dim_as_value" and is_row_wise(eqn)


def only_first_axis_is_symbolic(sizes: Sizes) -> bool:
    """Returns True if, of the axes whose size is not 1, only the first one has a symbolic size."""
    first, *row = [size for size in sizes if size != 1] or [1]
    return is_symbolic(first) and not symbolic_axes(row) and math.prod(row) > 0


def is_row_wise(eqn: Any) -> bool:
    """Returns True if an operation computes each row of a symbolic axis from the same row of its operands."""
    if any(map(is_symbolic, jax.tree.leaves([eqn.params.get(key) for key in PARAMETERS_BY_AXIS]))):
        return False  # a slice may begin at a symbolic place
    operands, results = ([sizes_of(v) for v in variables] for variables in (eqn.invars, eqn.outvars))
    axes = independent_axes_of(eqn)
    independent = {axis.result for axis in axes}
    return eqn.primitive.name == "optimization_barrier" or (
        all(symbolic_axes(y) <= independent for y in results)
        and not any(symbolic_axes(x) & dependent_axes(axes, k, x) for k, x in enumerate(operands))
    )


def independent_axes_of(eqn: Any) -> list[Axis]:
    """Returns the independent axes of an equation with results."""
    result = sizes_of(eqn.outvars[0])
    return independent_axes(eqn.primitive.name, eqn.params, [sizes_of(v) for v in eqn.invars], result)
