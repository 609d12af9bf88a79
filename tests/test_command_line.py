"""`python -m jaxops`: what it prints, and that bad arguments end in a message and exit code 1."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import parser, save

from jaxops.__main__ import main

TEXT = """
<ir_version: 9, opset_import: ["": 18]>
sums (float[N, 3] x, int64[N, 3] k) => (float[N] total)
{
    y = Cast <to = 1> (k)
    z = Add (x, y)
    axes = Constant <value_ints = [1]> ()
    total = ReduceSum <keepdims = 0> (z, axes)
}
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "sums.onnx"
    save(parser.parse_model(TEXT), path)
    return path


def test_run_prints_the_top_outputs_and_the_time(model, tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
    np.save(tmp_path / "k.npy", np.array([[1, 0, 0], [0, 0, 2]]))
    inputs = [f"--input=x={tmp_path / 'x.npy'}", f"--input=k={tmp_path / 'k.npy'}"]
    assert main(["run", str(model), *inputs, "--repeat=1", "--top=1"]) == 0
    printed = capsys.readouterr().out
    assert "total: float32[N]" in printed
    assert "17.0" in printed
    assert "7.0" not in printed.replace("17.0", "")
    assert "load" in printed
    assert "first call" in printed


def test_run_makes_inputs_up(model, capsys):
    assert main(["run", str(model), "--size=N=4", "--repeat=1", "--top=9"]) == 0
    assert capsys.readouterr().out.count("│") == 4 * 3


def test_show_prints_the_graph(model, capsys):
    assert main(["show", str(model)]) == 0
    printed = capsys.readouterr().out
    assert "in   x: float32[N, 3]" in printed
    assert "z = Add(x, y)" in printed


def test_check_lists_the_operators(model, tmp_path, capsys):
    assert main(["check", str(model)]) == 0
    assert "ReduceSum  ai.onnx  13       1      supported" in capsys.readouterr().out
    path = tmp_path / "missing.onnx"
    save(parser.parse_model(TEXT.replace("Cast", "Cost")), path)
    assert main(["check", str(path)]) == 1
    assert "missing: not in opset 18; the standard has no such operator" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "no_such_model"], "carries no model 'no_such_model'; it has light_bvlc_alexnet"),
        (["run", "no_such_file.onnx"], "No such file"),
        (["show", __file__], "not an ONNX model"),
        (["run", "{model}", "--input=q=a.npy"], "--input q: the model's inputs are"),
        (["run", "{model}", "--input=a.npy"], "--input a.npy: write NAME=VALUE"),
        (["run", "{model}", "--size=N=many"], "--size N=many: a size is a number"),
        (["run", "{model}", "--size=M=2"], "--size M: the model has no such size; it has N"),
        (["run", "{model}", "--repeat=0"], "--repeat and --top must be at least 1"),
    ],
)
def test_errors_are_messages(arguments, text, model, capsys):
    assert main([a.format(model=model) for a in arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("jaxops: ")
    assert text in error


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"PK\3\4", b"\x80\4N.", "shortened", "object"], ids=["empty", "text", "zip", "pickle", *"so"]
)
def test_a_bad_array_file_is_a_message(data, model, tmp_path, capsys):
    path = tmp_path / "x.npy"
    np.save(path, np.array([None]) if data == "object" else np.ones((2, 3), np.float32))
    path.write_bytes(data if isinstance(data, bytes) else path.read_bytes()[: -1 if data == "shortened" else None])
    assert main(["run", str(model), f"--input=x={path}"]) == 1
    assert capsys.readouterr().err.startswith(f"jaxops: {path}: not a .npy file of numbers or strings: ")


def test_it_is_a_module():
    done = subprocess.run([sys.executable, "-m", "jaxops", "--help"], capture_output=True, text=True, check=True)
    assert "run" in done.stdout
    assert "show" in done.stdout


@pytest.mark.parametrize("command", ["run", "show", "check"])
def test_without_the_onnx_package_it_says_what_to_install(command):
    code = (
        f"import sys; sys.modules['onnx'] = None; from jaxops.__main__ import main; sys.exit(main(['{command}', 'm']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "jaxops: jaxops.onnx needs the onnx package: pip install 'jaxops[onnx]'\n"
