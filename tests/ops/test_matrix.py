"""Every (operator, element type) pair, in a child process an operator, so that an abort of XLA is a failure."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxops as jo

pytestmark = pytest.mark.optimized  # XLA's older emitters change the bits of bfloat16

CHILD = Path(__file__).with_name("matrix.py")
MATRIX = runpy.run_path(str(CHILD))
OPERATORS = [*MATRIX["ROWS"], "cast", "constant_of_shape"]


def run(*arguments: str) -> tuple[int, str]:
    """The exit status of a Python program and all that it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=environment,
        text=True,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return child.returncode, child.stdout


def announced(output: str, operator: str) -> list[str]:
    return [line.removeprefix(operator + " ") for line in output.splitlines() if line.startswith(operator + " ")]


@pytest.mark.grid
@pytest.mark.parametrize("operator", OPERATORS)
def test_every_type(operator):
    status, output = run(str(CHILD), operator)
    tried = announced(output, operator)
    assert status == 0, f"{operator} on {tried[-1] if tried else '?'} ended with {status}:\n{output[-3000:]}"
    assert output.endswith("done\n")
    assert tried == list(MATRIX["DTYPES"])
    assert len(tried) >= 25


def test_an_abort_is_seen_and_attributed():
    program = "import os; print('op int2', flush=True); print('op int4', flush=True); os.abort()"
    status, output = run("-c", program)
    assert status != 0
    assert announced(output, "op")[-1] == "int4"


def test_strings_are_static():
    strings = np.array(["b", "a", "ccc"], object)
    assert jo.cast(strings, to=str).tolist() == strings.tolist()
    assert jo.gather(strings, np.array([2, -2])).tolist() == ["ccc", "a"]
    assert jo.constant_of_shape((2,), value=np.array(["x"], object)).tolist() == ["x", "x"]
    assert jo.shape(strings).tolist() == [3]
    assert jo.size(strings) == 3
