"""The features of this machine's processor, the number of cores that this process may use, and its memory."""

import ctypes
import functools
import os
import sys
from pathlib import Path

# A function of glibc.
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


@functools.cache
def processor_features() -> frozenset[str]:
    """The processor's vendor and features as Linux names them; empty if no file has them."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    fields = (next((line for line in lines if line.startswith(field)), "") for field in ("vendor_id", "flags"))
    return frozenset(" ".join(fields).split())


def cores() -> int:
    """The number of cores that this process may use, as XLA counts them: a container or `taskset` may restrict it to a
    few.
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trim_heap() -> None:
    """Gives free memory back to the system: glibc would keep most of the memory that a compiler has freed.

    That is a tenth or more of the memory of a convolutional network; calls would take new memory in addition to it.
    """
    if _TRIM is not None:
        _TRIM(0)
