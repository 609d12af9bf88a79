"""Limits the bytes of a result. Its sizes are checked before anything is computed.

A result that is computed here, by NumPy or by a compiled program, may take `max_bytes`: half of the machine's memory,
unless a model was loaded with another number; so may all static values that are held together. A program that is only
traced, for `jax.export` or a caller's `jit`, may run on another machine, so only the 64-bit numbers of XLA limit its
sizes: beyond them XLA ends the process.
"""

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from jaxops.errors import ArgumentError, TooLargeError, amount, shape_text

# XLA ends the process from 2^63 bytes on; a step of an operator may take a few times as many as its result.
_COUNTED = 1 << 60
# Larger broadcast views enter a program as their elements and a broadcast.
LARGE_VIEW = 1 << 16
# Smaller static results are not counted together: a model would need thousands of them.
_COUNTED_TOGETHER = 1 << 16
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_HALF = 4 << 30  # if the system does not report it
if hasattr(os, "sysconf") and {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= os.sysconf_names.keys():
    _HALF = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2

# How many bytes a result may take.
LIMIT: ContextVar[int] = ContextVar("LIMIT", default=_HALF)
_RUNS_HERE: ContextVar[bool] = ContextVar("_RUNS_HERE", default=False)


@contextmanager
def max_bytes(limit: int) -> Iterator[None]:
    """Sets the most bytes that one result of an operator may take, for calls inside `with`.

    The default is half of the machine's memory. Raises ArgumentError unless `limit` is an integer >= 0.

    >>> import jaxops as jo
    >>> with max_bytes(2**40):
    ...     jo.constant_of_shape((2**36,)).shape
    (68719476736,)
    """
    if type(limit) is not int or limit < 0:
        raise ArgumentError(f"`max_bytes` is {limit!r}; it must be an integer >= 0")
    before = LIMIT.set(limit)
    try:
        yield
    finally:
        LIMIT.reset(before)


@contextmanager
def runs_here() -> Iterator[None]:
    """Declares that everything traced inside `with` will run at once, on this machine."""
    before = _RUNS_HERE.set(True)
    try:
        yield
    finally:
        _RUNS_HERE.reset(before)


def bounded(sizes: Sequence[Any], itemsize: int, subject: str = "", *, computed: bool | None = True) -> None:
    """Raises TooLargeError if an array of these sizes may not be made. Symbolic sizes are left out.

    subject: what the array is, if it is not the result of an operator. computed: whether it takes memory on this
    machine; None, for a result of JAX, asks if traced programs run here. Else its bytes need only be countable.
    """
    computed = _RUNS_HERE.get() if computed is None else computed
    concrete = [int(d) for d in sizes if isinstance(d, int | np.integer)]
    # NumPy and XLA multiply all sizes but zeros, though the array may be empty.
    extent, limit = math.prod(d for d in concrete if d) * itemsize, LIMIT.get()
    if extent < _COUNTED and (extent <= limit or not computed or 0 in concrete):
        return
    begin = f"{subject}: " if subject else ""
    shape = f"{begin}an array of shape {shape_text(sizes)} with elements of {itemsize} bytes takes {readable(extent)}"
    if extent >= _COUNTED:
        raise TooLargeError(f"{shape}; no array may take {readable(_COUNTED)}")
    raise TooLargeError(
        f"{shape}, but `max_bytes` is {readable(limit)}\n"
        f"  hint    allow more by load(path, max_bytes={extent}), or by `with jaxops.memory.max_bytes({extent}):`"
    )


def fits(value: np.ndarray) -> bool:
    """Returns True if a static array may be computed with; a broadcast view takes no memory until then."""
    return value.nbytes <= LIMIT.get()


def bounded_operands(values: Iterable[Any], subject: str = "a static value") -> None:
    """Raises TooLargeError for a static value that takes too many bytes, which a broadcast view may."""
    for value in values:
        if isinstance(value, np.ndarray) and not fits(value):
            bounded(value.shape, value.itemsize, subject)


def bounded_results(values: Iterable[Any], subject: str = "") -> None:
    """`bounded` for each result of an operator that is a part of a program."""
    for value in values:
        if not isinstance(value, np.ndarray) and hasattr(value, "dtype"):
            bounded(value.shape, value.dtype.itemsize, subject, computed=None)


def read_once(values: np.ndarray) -> np.ndarray:
    """Returns the elements of an array without those that a broadcast view repeats; the rank stays."""
    # With `...`, an array of rank 0 stays an array.
    return values[(*(slice(0, 1) if stride == 0 else slice(None) for stride in values.strides), ...)]


def bounded_total(extent: int, subject: str, limit: int | None = None) -> None:
    """Raises TooLargeError if values that are held together take more than a limit. subject: names them.

    limit: by default that of this thread.
    """
    limit = LIMIT.get() if limit is None else limit
    if extent > limit:
        raise TooLargeError(
            f"{subject} take {readable(extent)}, but `max_bytes` is {readable(limit)}\n"
            f"  hint    allow more by load(path, max_bytes={extent})"
        )


def bounded_together(results: Iterable[Any], held: Iterable[Any], operator: str) -> None:
    """Raises TooLargeError if static results of an operator and the values held with them take too many bytes.

    A model of a few bytes may have many values each of which fits. held: all other values; arrays of JAX do not count,
    nor do views, of which NumPy keeps only the array that they show. It is counted if a result is large.
    """
    found = {id(x): x for x in map(_owner, _arrays(results)) if x.nbytes >= _COUNTED_TOGETHER}
    if not found:
        return
    found |= {id(x): x for x in map(_owner, _arrays(held))}
    total = sum(x.nbytes for x in found.values())
    bounded_total(total, f"{operator}: its result and the static values that are held with it")


def _arrays(values: Iterable[Any]) -> Iterator[np.ndarray]:
    """The NumPy arrays among values and in their lists."""
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from _arrays(value)


def _owner(x: np.ndarray) -> np.ndarray:
    """The array whose memory `x` shows."""
    while isinstance(x.base, np.ndarray):
        x = x.base
    return x


def readable(count: int) -> str:
    """Returns a number of bytes in the unit that makes it short.

    >>> readable(3000)
    '2 KiB'
    """
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{count >> 10 * power} {_UNITS[power]}" if power else amount(count, "byte")
