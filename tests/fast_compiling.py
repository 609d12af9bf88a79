"""How tests compile: before JAX is imported, `compile_fast()` sets what XLA shall leave out."""

import os
from importlib.metadata import version

_OLDER = "--xla_cpu_use_fusion_emitters"


def compile_fast() -> bool:
    """Whether programs are compiled fast, and not as users' programs are, which JAX_DISABLE_MOST_OPTIMIZATIONS=0 asks.

    With few optimizations, and XLA's older emitters, a program takes 0.3 of the time. The older emitters cast to float8
    FNUZ wrongly, and change bits of bfloat16. A flag that is already there is kept.
    """
    fast = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "1"
    flags = os.environ.get("XLA_FLAGS", "")
    if fast and _OLDER not in flags and version("jaxlib").startswith("0.10."):  # the last that has them
        os.environ["XLA_FLAGS"] = f"{flags} {_OLDER}=false".strip()
    return fast
