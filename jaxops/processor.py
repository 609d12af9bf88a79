"""What the processor of this machine can do."""

import functools
from pathlib import Path


@functools.cache
def processor_features() -> frozenset[str]:
    """What this processor can do, and who made it, as Linux names it; nothing, where no file says it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    found = (next((line for line in lines if line.startswith(field)), "") for field in ("vendor_id", "flags"))
    return frozenset(" ".join(found).split())
