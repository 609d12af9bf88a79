"""`python -m jaxops`: bad arguments, files and installations end in a message and exit code 1."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from onnx import parser, save

from jaxops.command_line import main


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "no_such_model"], "carries no model 'no_such_model'; it has light_bvlc_alexnet"),
        (["run", "no_such_file.onnx"], "there is no file 'no_such_file.onnx'"),
        (["show", __file__], "not an ONNX model"),
        (["run", "{model}", "--input=q=a.npy"], "--input q: the model's inputs are"),
        (["run", "{model}", "--input=a.npy"], "--input a.npy: write NAME=VALUE"),
        (["run", "{model}", "--size=N=many"], "--size N=many: a size is a whole number"),
        (["run", "{model}", "--size=M=2"], "--size: the model has no size 'M'; its sizes are: N"),
        (["run", "{model}", "--bound=NonZero=some"], "--bound NonZero=some: a size is a whole number"),
        (["run", "{model}", "--bound=NonZero=5"], "`bounds`: the model has no node and no operator 'NonZero'"),
        (["run", "{model}", "--size=N=1", "--size=N=2"], "--size: N is given twice, as 1 and as 2"),
        (["run", "{model}", "--size=N=1000000000000000"], "Unable to allocate"),
        (["run", "{model}", "--seed=-1"], "--seed -1: a seed is at least 0"),
        (["compare", "{model}", "--rtol=-1"], "--rtol and --atol must be at least 0"),
        (["compare", "{model}", "--atol=nan"], "--rtol and --atol must be at least 0"),
        (["run", "{model}", "--repeat=0"], "--repeat and --top must be at least 1"),
        (["show", "{model}", "--head=-1"], "show: head is -1; it must be at least 0"),
        (["show", "{model}", "--grep=["], "show: '[' is not a regular expression"),
        (["summary", "{model}", "--depth=-1"], "summary: depth is -1"),
        (["plot", "{model}", "sums.png"], "plot: a picture is saved as .svg, not .png"),
        (["plot", "absent.onnx", "absent/sums.svg"], "absent/sums.svg: there is no folder 'absent' to write to"),
        (["export", "absent.onnx", "absent/f"], "absent/f: there is no folder 'absent' to write to"),
        (["export", "{model}", "f", "--platform=abacus"], "export: unknown platform 'abacus'; name some of cpu, cuda"),
        (["export", "{model}", "f", "--size=N=-1"], "sizes: 'N' is -1; it must be an integer of at least 0"),
        (["operators", "--domain=my.own"], "--domain my.own: jaxops has ai.onnx, ai.onnx.ml, "),
    ],
)
def test_errors_are_messages(arguments, text, model, capsys):
    assert main([a.format(model=model) for a in arguments]) == 1
    error = capsys.readouterr().err
    assert error.startswith("jaxops: ")
    assert text in error


def test_an_error_keeps_its_notes(tmp_path, capsys):
    path = tmp_path / "reshape.onnx"
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (float[N, 3] x) => (float[N, 4] y) { s = Constant <value_ints = [5, 7]> () a = Relu (x) y = Reshape (a, s) }"""
    save(parser.parse_model(text), path)
    assert main(["run", str(path), "--size=N=2"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "jaxops: reshape: `shape` (5, 7) does not fit data of (2, 3): data has 6 elements, (5, 7) has 35",
        "in node 'y' (Reshape, opset 18)",
        "  data    'a' float32[2,3]",
        "  shape   's' int64[2] [5 7]",
    ]


def test_ctrl_c_ends_with_one_line(model, tmp_path, monkeypatch, capsys):
    def interrupted(*args, **named):
        signal.raise_signal(signal.SIGINT)

    # In the background a process may have been told to ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr("jaxops.model.Model.__call__", interrupted)
        assert main(["run", str(model), f"--cache={tmp_path}"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err.endswith("jaxops: interrupted\n")


def test_a_platform_that_is_absent_is_a_message(model):
    command = [sys.executable, "-m", "jaxops", "show", str(model)]
    environment = {**os.environ, "JAX_PLATFORMS": "abacus"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("jaxops: JAX has no device to run on: Unable to initialize backend 'abacus': ")


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"PK\3\4", b"\x80\4N.", "shortened", "object"], ids=["empty", "text", "zip", "pickle", *"so"]
)
def test_a_bad_array_file_is_a_message(data, model, tmp_path, capsys):
    path = tmp_path / "x.npy"
    np.save(path, np.array([None]) if data == "object" else np.ones((2, 3), np.float32))
    path.write_bytes(data if isinstance(data, bytes) else path.read_bytes()[: -1 if data == "shortened" else None])
    assert main(["run", str(model), f"--input=x={path}"]) == 1
    assert capsys.readouterr().err.startswith(f"jaxops: {path}: not a .npy file of numbers or strings: ")


@pytest.mark.parametrize("command", ["run", "show", "check"])
def test_without_the_onnx_package_it_says_what_to_install(command):
    code = (
        f"import sys; sys.modules['onnx'] = None; from jaxops.__main__ import main; sys.exit(main(['{command}', 'm']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "jaxops: jaxops.onnx needs the onnx package; "
        "install the extra `onnx` of jaxops: pip install '.[onnx]' in a checkout of jaxops\n"
    )


@pytest.mark.parametrize(
    ("package", "command", "subject"),
    [
        ("rich", ["operators"], "the command line"),
        ("safetensors", ["export", "absent.onnx", "f"], "export"),
        ("flatbuffers", ["export", "absent.onnx", "f"], "export"),
        ("safetensors", ["to-python", "absent.onnx", "f"], "to-python"),
    ],
)
def test_a_missing_package_of_the_extra_is_told_before_a_model_is_loaded(
    package, command, subject, monkeypatch, capsys
):
    monkeypatch.setitem(sys.modules, package, None)
    assert main(command) == 1
    assert capsys.readouterr().err == (
        f"jaxops: {subject} needs the {package} package; "
        "install the extra `onnx` of jaxops: pip install '.[onnx]' in a checkout of jaxops\n"
    )


def test_an_input_that_cannot_be_random_is_given(tmp_path, capsys):
    path = tmp_path / "upper.onnx"
    text = """<ir_version: 9, opset_import: ["": 18]>
    g (string[N] x) => (string[N] y) { y = StringNormalizer<case_change_action="UPPER">(x) }"""
    save(parser.parse_model(text), path)
    assert main(["run", str(path)]) == 1
    assert capsys.readouterr().err == (
        "jaxops: input x: string[N] cannot be random; give it with --input x=FILE.npy or --value x=VALUE\n"
    )
    assert main(["run", str(path), "--value", "x=['ab']"]) == 0
    assert "AB" in capsys.readouterr().out
