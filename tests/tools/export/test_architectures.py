"""The script that exports architectures of PyTorch, transformers and TensorFlow with named sizes."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import onnx
import pytest
from symbolic_graphs import model

SCRIPT = Path(__file__).parents[2] / "models" / "free_sizes.py"


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("free_sizes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path(tmp_path):
    onnx.save(model("(float[b,s,8] x) => (float[b,s,8] y)", "y = Neg(x)"), tmp_path / "neg.onnx")
    return tmp_path / "neg.onnx"


def test_a_file_is_right_at_both_sizes(script, path):
    assert script.problem(path) == ""


@pytest.mark.parametrize("wrong", [lambda x: x, lambda x: -x[:1]], ids=["values", "sizes"])
def test_a_wrong_program_is_noticed(script, path, wrong, monkeypatch):
    monkeypatch.setattr(jax.export.Exported, "call", lambda program, params, x: wrong(x))
    assert script.problem(path) == "differs at [2, 7, 8]"


def test_architectures_of_pytorch():
    pytest.importorskip("onnxscript", reason="what writes models of PyTorch is no dependency of the tests")
    pytest.importorskip("torch", reason="PyTorch is no dependency of the tests")
    command = [sys.executable, str(SCRIPT), "residual", "squeeze"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "6 of 6 are right" in done.stdout
