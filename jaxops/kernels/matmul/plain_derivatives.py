"""Products whose values are computed in one way, and whose derivatives in another."""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_derivatives import SymbolicZero


def with_derivatives_of(plain: Callable[[Any, Any], Any], compute: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Returns `compute`, a function of two operands, with the derivatives of `plain`, which is linear in each.

    >>> import jax.numpy as jnp
    >>> rounded = with_derivatives_of(jnp.multiply, lambda a, b: jnp.round(a * b))
    >>> float(rounded(1.4, 2.0)), float(jax.grad(rounded)(1.4, 2.0))
    (3.0, 2.0)
    """
    run = jax.custom_jvp(compute)

    def rule(values: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
        (a, b), (along_a, along_b) = values, tangents
        parts = [] if isinstance(along_a, SymbolicZero) else [plain(along_a, b)]
        parts += [] if isinstance(along_b, SymbolicZero) else [plain(a, along_b)]
        return run(a, b), sum(parts[1:], parts[0])

    run.defjvp(rule, symbolic_zeros=True)
    return run
