"""Programs whose weights are prepared, and what is in a program."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from jaxops.compiler.ir import Program
from jaxops.compiler.passes.inline_calls import inline_calls
from jaxops.compiler.primitives import jaxprs
from jaxops.kernels.target import Target
from jaxops.static import PREPARED

TARGET = Target("cpu", cores=2)


def inlined(fn: Callable[..., Any], *args: Any) -> Program:
    """The program of a function, without calls, as every pass but the first one gets it."""
    return inline_calls(Program.of(jax.make_jaxpr(fn)(*args)), TARGET)


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
