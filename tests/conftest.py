"""Two host devices and JAX's strictest promotion rules, for every test."""

import os
import sys
from pathlib import Path

# Before JAX starts its backend. A flag that is already there is kept.
_FLAG = "--xla_force_host_platform_device_count"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=2".strip()

import jax  # noqa: E402
import pytest  # noqa: E402

# Test folders are not packages; this makes `harness` importable in all of them.
sys.path.insert(0, str(Path(__file__).parent))

collect_ignore = ["models", "benchmarks/export.py"]  # what writes models needs torch

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(autouse=True, scope="module")
def _forgotten():
    """Lets go of the programs of a file behind its tests: thousands of them make every further one slower."""
    yield
    jax.clear_caches()


@pytest.fixture
def x64():
    """JAX with 64-bit types, for one test."""
    with jax.enable_x64(True):
        yield
