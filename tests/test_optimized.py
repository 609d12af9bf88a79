"""Tests marked `optimized`, in one process: their programs are compiled as users' programs are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OTHERS = set(Path(__file__).parent.rglob("test_*.py")) - {Path(__file__)}
FILES = [str(path) for path in sorted(OTHERS) if "pytest.mark.optimized" in path.read_text()]


@pytest.mark.skipif(os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0", reason="all tests run so")
def test_as_users_programs_are(pytestconfig):
    assert FILES
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    every = ["--all"] if pytestconfig.getoption("all") else []
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "optimized", *every, *FILES]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-10_000:] + found.stderr[-2_000:]
