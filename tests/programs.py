"""Programs whose weights are prepared, and what is in a program."""

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxops.graph.rows import jaxprs
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
