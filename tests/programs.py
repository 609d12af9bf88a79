"""Programs whose weights are prepared, and what is in a program."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxops.compiler.primitives import jaxprs
from jaxops.static import PREPARED


@contextlib.contextmanager
def prepared(value: bool = True) -> Iterator[None]:
    """What is traced in this context is as in a program whose weights are prepared, or not."""
    before = PREPARED.set(value)
    try:
        yield
    finally:
        PREPARED.reset(before)


def equations(jaxpr: Any) -> Iterator[Any]:
    """The equations of a program, and of all programs in them."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs(eqn.params):
            yield from equations(inner)


def primitives(fn: Callable[..., Any], *args: Any) -> set[str]:
    """The names of all primitives in a program, those of inner programs included."""
    return {eqn.primitive.name for eqn in equations(jax.make_jaxpr(fn)(*args).jaxpr)}
