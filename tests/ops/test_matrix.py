"""Every (operator, element type) pair, in a child process an operator, so that an abort of XLA is a failure."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import jaxops as jo

CHILD = Path(__file__).with_name("matrix.py")
OPERATORS = [
    "reshape", "flatten", "variadic_split", "split", "shape", "size", "identity", "squeeze", "unsqueeze", "transpose",
    "concat", "expand", "slice", "gather", "gather traced", "cast", "constant_of_shape",
]  # fmt: skip

# As the standard calls them, where NumPy and ml_dtypes have another name.
NAMES = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
}


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


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_type(operator):
    status, output = run(str(CHILD), operator)
    tried = announced(output, operator)
    assert status == 0, f"{operator} on {tried[-1] if tried else '?'} ended with {status}:\n{output[-3000:]}"
    assert output.endswith("done\n")
    assert len(tried) == 25


def test_an_abort_is_seen_and_attributed():
    program = "import os; print('op int2', flush=True); print('op int4', flush=True); os.abort()"
    status, output = run("-c", program)
    assert status != 0
    assert announced(output, "op")[-1] == "int4"


def test_the_matrix_covers_the_standard():
    """The types of the newest Reshape, Split, …: none of them is missing from the matrix."""
    status, output = run("-c", f"import runpy; print(*runpy.run_path({str(CHILD)!r})['DTYPES'])")
    assert status == 0, output
    covered = set(output.split())
    for operator in ("Reshape", "Flatten", "Split", "Transpose", "Identity", "Cast", "Concat", "Slice", "Gather"):
        schema = onnx.defs.get_schema(operator)
        for constraint in schema.type_constraints:
            for text in constraint.allowed_type_strs:
                kind = text.removeprefix("tensor(").removesuffix(")")
                # Strings are below; JAX has no 6-bit floats, which Cast-28 and its like added.
                if not text.startswith("tensor(") or kind == "string" or kind.startswith("float6"):
                    continue
                assert NAMES.get(kind, kind) in covered, f"{operator}: {text}"
    assert {"complex64", "complex128"} <= covered


def test_strings_are_static():
    strings = np.array(["b", "a", "ccc"], object)
    assert jo.cast(strings, to=str).tolist() == strings.tolist()
    assert jo.gather(strings, np.array([2, -2])).tolist() == ["ccc", "a"]
    assert jo.constant_of_shape((2,), value=np.array(["x"], object)).tolist() == ["x", "x"]
    assert jo.shape(strings).tolist() == [3]
    assert jo.size(strings) == 3
