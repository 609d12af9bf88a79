"""Writes the conversions of a model after `astype` as calls of a function in the package."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops.tools.convert.astype import Converting, as_type
from jaxops.tools.python.expressions import call
from jaxops.tools.python.literals import literal
from jaxops.tools.python.operands import Operand, abstract

# The function `convert.astype.as_type`, in the package.
CONVERSION = '''
def converted(x: Array, dtype: Any) -> Array:
    """Floating-point numbers in another type; a finite number beyond its range becomes its largest."""
    if x.dtype == dtype or not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    limit = jnp.finfo(dtype).max
    if limit >= jnp.finfo(x.dtype).max:
        return x.astype(dtype)
    limit = jnp.asarray(limit, x.dtype)
    return jnp.where(jnp.isinf(x), x, jnp.clip(x, -limit, limit)).astype(dtype)
'''


def operands(operator: Converting, inputs: Sequence[Any]) -> list[Any]:
    """The converted values that the operator computes with in place of its inputs."""
    return operator.converted(inputs, lambda x: isinstance(x, Operand), written)


def written(value: Any, dtype: np.dtype) -> Any:
    """A value in a floating-point type, if it has another such type."""
    if isinstance(value, np.ndarray):
        return as_type(value, dtype)
    if not isinstance(value, Operand):
        return value
    fact = abstract(lambda x: as_type(x, dtype), [value.fact]) if value.traceable else None
    if fact is not None and fact.dtype == value.dtype:
        return value
    return Operand(call("converted", [value.expression, literal(dtype)]), fact)
