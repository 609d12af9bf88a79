"""Compiles programs for a device that is not there: `python compile_process.py PLATFORM NAME…`.

Prints a line of JSON for each program, in order: its name, and why it does not compile or what is wrong with it, or "".
"""

import json
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from absent_devices import ENVIRONMENT, devices

    os.environ |= ENVIRONMENT | {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    from compiled_programs import programs

    platform, *names = sys.argv[1:]
    found, chips = programs(), devices(platform)
    for name in names:
        trace, check = found[name]
        try:
            why = check(trace(chips).lower(lowering_platforms=(platform,)).compile(), platform)
        except Exception as error:  # each program has its own kinds of them
            why = f"{type(error).__name__}: {error}"[:400]
        print(json.dumps([name, why]), flush=True)
