"""Two host devices and JAX's strictest promotion rules, for every test."""

import itertools
import os
import sys
import zlib
from pathlib import Path

# Before JAX starts its backend. A flag that is already there is kept.
_FLAG = "--xla_force_host_platform_device_count"
if _FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_FLAG}=2".strip()

# Test folders are not packages; this makes `harness` importable in all of them.
sys.path.insert(0, str(Path(__file__).parent))

from fast_compiling import compile_fast, lower_fast  # noqa: E402

# Two thirds of the time of all tests are XLA's, and most look at few elements. Those marked `optimized` run in
# another process (test_optimized.py), compiled as users' programs are: what looks at numbers in many elements, where
# vectorised loops may round otherwise, and what XLA's older emitters are known to compute wrongly.
FAST = compile_fast()

import chex  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

import jaxops  # noqa: E402, F401 - pytest runs the modules of a package that is not imported yet once more

lower_fast()

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


_since = itertools.count(1)


@pytest.fixture(autouse=True)
def _forgotten():
    """Lets go of compiled programs now and then: thousands of them make every further one slower."""
    yield
    chex.clear_trace_counter()
    if next(_since) % 1000 == 0:
        jax.clear_caches()


@pytest.fixture(autouse=True)
def _verified(request):
    """Each step from a traced program to one that runs is verified, where tests are about such programs."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    with jax.enable_checks(folder in ("compiler", "runtime")):
        yield


def pytest_ignore_collect(collection_path):
    """Leaves out modules without tests, which have no doctests: pytest would run those that are imported already once
    more, under another name, and what adds itself to a table would stand in it twice."""
    if collection_path.suffix == ".py" and not collection_path.name.startswith("test_"):
        return True
    return None


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="all cases of the tests marked `grid`, not a third of them")


def pytest_collection_modifyitems(config, items):
    """Those that run for minutes come first, so that no worker waits for another at the end."""
    left_out = {item for item in items if FAST and item.get_closest_marker("optimized")}
    if not config.getoption("all"):
        left_out |= set(_two_of_three(items))
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: "test_optimized.py" not in item.nodeid)


def _two_of_three(items):
    """Of the tests marked `grid`, but not the first case of any."""
    seen = set()
    for item in items:
        if item.get_closest_marker("grid"):
            function = item.path, item.originalname
            if function in seen and zlib.crc32(item.nodeid.encode()) % 3:
                yield item
            seen.add(function)


@pytest.fixture
def x64():
    """JAX with 64-bit types, for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture
def cut_however_short(monkeypatch):
    """Programs are cut into parts, however few operations they have, and however short their calls are."""
    for name, least in {"_FEW": 2, "_LEAST_WORK": 1, "_WORTH": 0, "_HALVED": 0, "_VARIED": 0}.items():
        monkeypatch.setattr(f"jaxops.compiler.partition.repeated_layers.{name}", least)
