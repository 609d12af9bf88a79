"""What the processor of this machine can do, and how much of it is ours."""

import functools
import os
from pathlib import Path


@functools.cache
def processor_features() -> frozenset[str]:
    """What this processor can do, and who made it, as Linux names it; nothing, where no file says it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    found = (next((line for line in lines if line.startswith(field)), "") for field in ("vendor_id", "flags"))
    return frozenset(" ".join(found).split())


def cores() -> int:
    """How many cores this process may use, as XLA counts them: a container or `taskset` may leave it a few of many."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
