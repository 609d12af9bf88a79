"""Forms of an operator that are for one platform."""

import functools
from importlib.metadata import version

import jax

from jaxops.static import PREPARED


def prepared_on_cpu() -> bool:
    """Whether this is a program whose weights are prepared, which runs on a CPU."""
    return PREPARED.get() and jax.default_backend() == "cpu"


@functools.cache
def divides_batches() -> bool:
    """Whether XLA:CPU divides a batch of small products among the cores; those of jaxlib before 0.11 take one core."""
    return tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 11)
