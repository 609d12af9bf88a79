"""A model from the standard input."""

import io
import types

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from jaxops.command_line import main


@pytest.fixture
def given(monkeypatch):
    """Sets the standard input."""
    return lambda data: monkeypatch.setattr("sys.stdin", types.SimpleNamespace(buffer=io.BytesIO(data)))


@pytest.mark.parametrize("arguments", [["check"], ["show"], ["summary", "--size=N=2"], ["compare", "--size=N=2"]])
def test_a_model_is_read(arguments, model, given, capsys):
    command, *options = arguments
    assert main([command, str(model), *options]) == 0
    wanted = capsys.readouterr().out
    given(model.read_bytes())
    assert main([command, "-", *options]) == 0
    assert capsys.readouterr().out == wanted


def test_run_and_write(model, given, tmp_path, capsys):
    given(model.read_bytes())
    assert main(["run", "-", "--size=N=2", "--repeat=1"]) == 0
    assert "-: 3 nodes" in capsys.readouterr().out
    given(model.read_bytes())
    assert main(["export", "-", str(tmp_path / "m.jaxexport"), "--size=N=2", "--platform=cpu"]) == 0
    assert (tmp_path / "m.jaxexport").stat().st_size


def test_data_of_other_files_is_refused(given, tmp_path, monkeypatch, capsys):
    """Its folder is not known, and the current one is not looked at."""
    proto = parser.parse_model("""<ir_version: 9, opset_import: ["": 18]> g (float[4] x) => (float[4] y) {
        y = Add (x, w) }""")
    proto.graph.initializer.append(numpy_helper.from_array(np.arange(4, dtype=np.float32), "w"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    data = (tmp_path / "m.onnx").read_bytes()
    monkeypatch.chdir(tmp_path)
    given(data)
    assert main(["run", "-"]) == 1
    assert "external_data" in capsys.readouterr().err
    given(data)
    assert main(["run", "-", "--repeat=1", f"--external-data={tmp_path}"]) == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'<?xml version="1.0"?><net/>',
            "-: the standard input is XML, but the weights of an OpenVINO IR are in a file",
        ),
        (b"\xef\xbb\xbf\n <net/>", "-: the standard input is XML"),
        (b"no model", "the bytes"),
        (b"", "the bytes"),
    ],
)
def test_what_is_no_model(data, message, given, capsys):
    given(data)
    assert main(["check", "-"]) == 1
    assert capsys.readouterr().err.startswith("jaxops: ")
    given(data)
    assert main(["run", "-"]) == 1
    assert message in capsys.readouterr().err
