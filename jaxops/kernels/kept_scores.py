"""The number of attention scores that a gradient keeps. More of them are computed anew, block by block."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from jaxops.kernels.target import this_machine

# The number of keys from which on a sequence is long.
LONG = 1024
# Bytes of all scores in float32. On a CPU, a gradient of fewer takes longer in blocks, as it computes scores anew: 1.0
# to 1.25 times as long for 50 to 280 MB, 0.8 to 1.0 for 430 and 800 MB, where the output takes 0.4 and 0.7
# (two cores of AMD EPYC, JAX 0.10.1, 2026-11-29, tests/benchmarks/attention.py --blocks 1024 1500 2048 2400 3000 4096).
# Elsewhere, blocks save memory; their time was not measured.
_MOST = 1 << 24
_MOST_ON_CPU = 3 << 27

# The platform of a gradient that is traced; None for a program that may have any scores.
_PLATFORM: ContextVar[str | None] = ContextVar("_PLATFORM", default=None)


class TooManyScores(Exception):
    """Ends the trace of a program whose gradient would keep too many scores."""


def keeps(platform: str, sizes: Sequence[Any]) -> bool:
    """Returns True if a gradient on a platform keeps scores of these sizes. It keeps those of symbolic sizes."""
    if not all(isinstance(size, int) for size in sizes):
        return True
    return 4 * math.prod(sizes) < (_MOST_ON_CPU if platform == "cpu" else _MOST)


def are_scores(first: Sequence[Any], second: Sequence[Any], product: Sequence[Any]) -> bool:
    """Returns True if a product of two operands, by the sizes of the three, may be scores of a long sequence: there is
    more of it than of each operand. Other products of attention, and scores of few queries, are smaller.

    >>> are_scores((512, 64), (64, 65536), (512, 65536)), are_scores((512, 65536), (65536, 64), (512, 64))
    (True, False)
    """
    if not all(isinstance(size, int) for size in (*first, *second, *product)):
        return False
    return max(product, default=0) >= LONG and math.prod(product) > max(math.prod(first), math.prod(second))


@contextlib.contextmanager
def ends_at_scores() -> Iterator[None]:
    """Inside `with`, `check` raises TooManyScores for scores that a gradient does not keep."""
    token = _PLATFORM.set(this_machine().platform)
    try:
        yield
    finally:
        _PLATFORM.reset(token)


def check(a: Any, b: Any, product: Any) -> None:
    """Checks a product that may be scores: one of two operands with batches."""
    platform = _PLATFORM.get()
    if platform is None or min(a.ndim, b.ndim) < 3 or not are_scores(a.shape, b.shape, product.shape):
        return
    if not keeps(platform, product.shape):
        raise TooManyScores
