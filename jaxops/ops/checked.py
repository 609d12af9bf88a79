"""Results in the sizes that were resolved, where symbolic ones may come out in another form."""

from typing import Any

from jax import lax

from jaxops.shapes.arithmetic import all_agree
from jaxops.static import Sizes


def with_sizes(op: str, y: Any, expected: Sizes) -> Any:
    """The result with these sizes, to which its own must be equal, in their form: JAX joins arrays of one form only.

    Raises SizeError where it depends on the value of a symbolic size whether they are equal.
    """
    if y.shape == expected and all(a is b or str(a) == str(b) for a, b in zip(y.shape, expected, strict=True)):
        return y
    problem = f"{op}: the result has the sizes {y.shape}, expected {expected}"
    assert all_agree(problem, y.shape, expected), problem
    return lax.slice(y, (0,) * y.ndim, expected)
