"""The conversions of a model after `astype`, written as calls of a function in the package."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxops.tools.precision import Converting, as_type
from jaxops.tools.python.expressions import Data, call
from jaxops.tools.python.literals import literal
from jaxops.tools.python.operands import Operand, abstract

# In the package, what `as_type` is here.
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
    """What the operator computes with in place of its inputs."""
    return operator.converted(inputs, lambda x: isinstance(x, Operand), written)


def written(value: Any, dtype: np.dtype) -> Any:
    """A value in a floating-point type, if it has another such type."""
    if isinstance(value, np.ndarray):
        found = as_type(value, dtype)
        # What goes to a file stays as it is, since .npz has no bfloat16.
        return _conversion(value, literal(value), value, dtype) if isinstance(literal(found), Data) else found
    if not isinstance(value, Operand):
        return value
    return _conversion(value, value.expression, value.fact, dtype)


def _conversion(value: Any, expression: Any, fact: Any, dtype: np.dtype) -> Any:
    known = (
        None if fact is None else abstract(lambda x: as_type(x, dtype), [jax.ShapeDtypeStruct(fact.shape, fact.dtype)])
    )
    if known is not None and known.dtype == fact.dtype:
        return value
    return Operand(call("converted", [expression, literal(dtype)]), known)
