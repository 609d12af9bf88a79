"""Two host devices and JAX's strictest promotion rules, for every test."""

import itertools
import os
import sys
from pathlib import Path

# Before JAX starts its backend. A flag that is already there is kept.
_FLAG = "--xla_force_host_platform_device_count"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=2".strip()

# Most of the time is XLA's, and most tests look at few elements: its lowest level of optimization takes 0.6 of it. Set
# this to 0 to test all programs as users get them; child processes inherit it.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax  # noqa: E402
import pytest  # noqa: E402

# Test folders are not packages; this makes `harness` importable in all of them.
sys.path.insert(0, str(Path(__file__).parent))

collect_ignore = ["models", "benchmarks/export.py"]  # what writes models needs torch

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


_since = itertools.count(1)


@pytest.fixture(autouse=True)
def _forgotten():
    """Lets go of compiled programs now and then: thousands of them make every further one slower."""
    yield
    if next(_since) % 1000 == 0:
        jax.clear_caches()


@pytest.fixture(scope="module")
def optimized():
    """Programs as users get them: for tests of numbers in many elements, as vectorised loops may round otherwise."""
    before = jax.config.read("jax_disable_most_optimizations")
    _compile_with(False)
    yield
    _compile_with(before)


def _compile_with(few_optimizations):
    if few_optimizations != jax.config.read("jax_disable_most_optimizations"):
        jax.clear_caches()  # the setting is no part of their keys
        jax.config.update("jax_disable_most_optimizations", few_optimizations)


@pytest.fixture
def x64():
    """JAX with 64-bit types, for one test."""
    with jax.enable_x64(True):
        yield
