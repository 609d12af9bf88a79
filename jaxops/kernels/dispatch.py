"""Forms of an operator that are for one platform."""

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import jax
from jax import lax

from jaxops.static import PREPARED


def by_platform(
    *operands: Any, cpu: Callable[..., Any], default: Callable[..., Any], gpu: Callable[..., Any] | None = None
) -> Any:
    """One of two functions of the operands: where the program runs on a CPU, and elsewhere.

    A program whose weights are prepared runs where it was traced, so the other function is not traced: a fifth of the
    time until MobileNet's first call. gpu: the function for such a program on a GPU, if it is another.
    """
    if PREPARED.get():
        return {"cpu": cpu, "gpu": gpu or default}.get(jax.default_backend(), default)(*operands)
    if cpu is default:
        return default(*operands)
    return lax.platform_dependent(*operands, cpu=cpu, default=default)


def prepared_on_cpu() -> bool:
    """Whether this is a program whose weights are prepared, which runs on a CPU."""
    return PREPARED.get() and jax.default_backend() == "cpu"


@functools.cache
def divides_batches() -> bool:
    """Whether XLA:CPU divides a batch of small products among the cores; those of jaxlib before 0.11 take one core."""
    return tuple(map(int, version("jaxlib").split(".")[:2])) >= (0, 11)
