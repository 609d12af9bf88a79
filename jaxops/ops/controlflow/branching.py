"""The choice between two Python callables, which may capture any values."""

__all__ = ["if_"]

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax.numpy as jnp  # noqa: F401 - the doctests use it
import numpy as np
from jax import lax

from jaxops.errors import BOTH_BRANCHES, ShapeError, SignatureError, amount
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.chosen_strings import appended_strings, holds_strings
from jaxops.ops.controlflow.state import carried, condition, difference, value_text
from jaxops.signature import Subgraph
from jaxops.static import FromSizes

Branch: TypeAlias = Annotated[Callable[[], Sequence[Any]], Subgraph(decided_by=("cond",))]


def if_(cond: Any, then_branch: Branch, else_branch: Branch) -> tuple[Any, ...]:
    """The outputs of one of two branches.

    cond: one boolean. If it is known, only the chosen branch is traced, and its outputs may be anything. If it is
    traced, both branches are compiled (`lax.cond`), and their outputs become JAX arrays of equal types and shapes;
    strings become `ChosenStrings` inside `jit`.
    If a symbolic size decides the condition, and the branches differ, that is a SizeError.
    then_branch, else_branch: functions of no arguments that return a sequence of outputs. Returns a tuple of outputs.
    Raises ShapeError, DTypeError or SignatureError when the branches differ under a traced `cond`.
    Source: ONNX If, opsets 1–25.

    >>> if_(jnp.array(2) > 1, lambda: [np.ones(2)], lambda: [np.zeros(2)])
    (array([1., 1.]),)
    """
    chosen = condition("`cond`", cond)
    if isinstance(chosen, bool):
        return tuple((then_branch if chosen else else_branch)())
    outputs: dict[str, list[Any]] = {}
    strings: dict[int, list[str]] = {}  # position of an output → the strings of both branches

    def traced(name: str, branch: Branch) -> Callable[[], tuple[Any, ...]]:
        def run() -> tuple[Any, ...]:
            outputs[name] = [
                appended_strings(y, strings.setdefault(k, [])) if holds_strings(y) else carried(y)
                for k, y in enumerate(branch())
            ]
            if len(outputs) == 2:
                _check_branches(**outputs)
            return tuple(outputs[name])

        return run

    try:
        results = lax.cond(chosen, traced("then_branch", then_branch), traced("else_branch", else_branch))
        return tuple(
            ChosenStrings.of(y.array, np.array(strings[k], object)) if k in strings else y
            for k, y in enumerate(results)
        )
    except (ShapeError, SignatureError) as error:
        if not isinstance(cond, FromSizes):
            error.add_note(BOTH_BRANCHES)
            raise
        raise cond.problem(
            "`cond` must be static, because the branches differ in shape or need some sizes to be equal"
        ) from error


def _check_branches(then_branch: list[Any], else_branch: list[Any]) -> None:
    if len(then_branch) != len(else_branch):
        outputs = amount(len(then_branch), "output")
        raise SignatureError(f"then_branch has {outputs}, else_branch {len(else_branch)}")
    for position, (then_value, else_value) in enumerate(zip(then_branch, else_branch, strict=True)):
        kind = difference(then_value, else_value)
        if kind:
            raise kind(
                f"under a traced `cond` both branches must give outputs of one type and shape, "
                f"but output {position} is\n"
                f"  then_branch  {value_text(then_value)}\n"
                f"  else_branch  {value_text(else_value)}\n"
                f"  hint    pad them to one shape, or make `cond` known, so that only one branch is traced"
            )
