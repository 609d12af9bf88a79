"""Counts the arithmetic of a program: an addition or a multiplication of two numbers is one operation."""

import math
from typing import Any

from jaxops.compiler.primitives import ARITHMETIC, PRODUCTS, jaxprs, multiplications

# Primitives that count as one operation for each element of the operand.
_REDUCTIONS = {
    *("argmax", "argmin", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum"),
    *("reduce_max", "reduce_min", "reduce_prod", "reduce_sum"),
}


def operations(jaxpr: Any) -> float:
    """The operations of a jaxpr. A `while` counts as one iteration, since their number is unknown; a `cond` as its
    longest branch.

    >>> import jax, numpy as np
    >>> operations(jax.make_jaxpr(lambda a, b: a @ b + 1)(np.ones((2, 3)), np.ones((3, 4))).jaxpr)
    56.0
    """
    return float(sum(of_equation(equation) for equation in jaxpr.eqns))


def of_equation(equation: Any) -> float:
    """The operations of an equation, with the programs that it calls."""
    name, params = equation.primitive.name, equation.params
    if name == "cond":
        return max(operations(branch.jaxpr) for branch in params["branches"])
    inner = sum(map(operations, jaxprs(equation)))
    if inner or name == "scan":
        return inner * params.get("length", 1)
    shapes: list[Any] = [getattr(v.aval, "shape", ()) for v in equation.invars]
    size = math.prod(equation.outvars[0].aval.shape) if equation.outvars else 0
    if name in PRODUCTS:
        return 2.0 * multiplications(equation)
    if name.startswith("reduce_window"):
        return float(size * math.prod(params["window_dimensions"]))
    if name in _REDUCTIONS:
        return float(math.prod(shapes[0]))
    return float(size) if name in ARITHMETIC else 0.0
