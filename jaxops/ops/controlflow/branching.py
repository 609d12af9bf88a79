"""The choice between two Python callables. What a callable captures needs no plumbing."""

__all__ = ["if_"]

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax.numpy as jnp  # noqa: F401 - the doctests use it
import numpy as np  # noqa: F401 - the doctests use it
from jax import lax

from jaxops.errors import SignatureError
from jaxops.ops.controlflow.state import carried, condition, difference, text
from jaxops.static import Subgraph

Branch: TypeAlias = Annotated[Callable[[], Sequence[Any]], Subgraph(decided_by=("cond",))]


def if_(cond: Any, then_branch: Branch, else_branch: Branch) -> tuple[Any, ...]:
    """The outputs of one of two branches.

    cond: one boolean. While it is known, only its branch is traced, and the outputs may be anything. Traced, both
    branches are compiled (`lax.cond`), and their outputs become JAX arrays, which must agree.
    then_branch, else_branch: functions of no arguments that return a sequence of outputs.
    Raises ShapeError, DTypeError or SignatureError when the branches differ under a traced `cond`.
    Source: ONNX If, opsets 1–25.

    >>> if_(jnp.array(2) > 1, lambda: [np.ones(2)], lambda: [np.zeros(2)])
    (array([1., 1.]),)
    """
    chosen = condition("if_", "`cond`", cond)
    if isinstance(chosen, bool):
        return tuple((then_branch if chosen else else_branch)())
    seen: dict[str, list[Any]] = {}

    def traced(name: str, branch: Branch) -> Callable[[], tuple[Any, ...]]:
        def run() -> tuple[Any, ...]:
            seen[name] = [carried(value) for value in branch()]
            if len(seen) == 2:
                _check_branches(**seen)
            return tuple(seen[name])

        return run

    return lax.cond(chosen, traced("then_branch", then_branch), traced("else_branch", else_branch))


def _check_branches(then_branch: list[Any], else_branch: list[Any]) -> None:
    if len(then_branch) != len(else_branch):
        raise SignatureError(f"if_: then_branch has {len(then_branch)} outputs, else_branch {len(else_branch)}")
    for position, (one, other) in enumerate(zip(then_branch, else_branch, strict=True)):
        kind = difference(one, other)
        if kind:
            raise kind(
                f"if_: under a traced `cond` both branches must give alike outputs, but output {position} is\n"
                f"  then_branch  {text(one)}\n"
                f"  else_branch  {text(other)}\n"
                f"  hint    pad them to one shape, or let `cond` be known: then only its branch is traced"
            )
