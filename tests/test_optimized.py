"""Tests marked `optimized`, folder by folder: their programs are compiled as users' programs are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
OTHERS = set(TESTS.rglob("test_*.py")) - {Path(__file__)}
FILES = [path for path in sorted(OTHERS) if "pytest.mark.optimized" in path.read_text()]
FOLDERS = {path.parent.relative_to(TESTS) for path in FILES}


@pytest.mark.skipif(os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "0", reason="all tests run so")
@pytest.mark.parametrize("folder", sorted(FOLDERS), ids=str)
def test_folder(folder, pytestconfig):
    files = [str(path) for path in FILES if path.parent.relative_to(TESTS) == folder]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": ""}
    every = ["--all"] if pytestconfig.getoption("all") else []
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "optimized", *every, *files]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-10_000:] + found.stderr[-2_000:]
