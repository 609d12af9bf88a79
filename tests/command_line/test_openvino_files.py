"""The commands on an OpenVINO IR."""

import os
import subprocess
import sys
import warnings
from unittest import mock

import jax.export
import numpy as np
import pytest
from openvino_files import REASON, File
from safetensors.flax import load_file

from jaxops.command_line import main
from jaxops.openvino.catalogue import operators
from jaxops.openvino.schemas import classes


@pytest.fixture
def ir(tmp_path):
    file = File("small")
    x = file.parameter(["?", 3], name="x")
    y = file.layer("Add", 1, [x, file.constant(np.array([[1, 2, 3]], "f4"), name="b")], name="sum")
    file.result(file.layer("Relu", 1, [y], name="positive"))
    (tmp_path / "small.xml").write_bytes(file.xml)
    (tmp_path / "small.bin").write_bytes(file.bin)
    return str(tmp_path / "small.xml")


def printed(capsys, *arguments, code=0):
    assert main(arguments) == code
    return capsys.readouterr().out


def test_check_lists_operations(ir, capsys):
    assert "Relu" in printed(capsys, "check", ir)


def test_check_fails_for_a_missing_operation(ir, tmp_path, capsys):
    text = (tmp_path / "small.xml").read_text().replace('type="Relu"', 'type="Relux"')
    (tmp_path / "odd.xml").write_text(text)
    assert "missing" in printed(capsys, "check", str(tmp_path / "odd.xml"), code=1)


def test_show_summary_and_plot(ir, tmp_path, capsys):
    assert "positive = Relu(sum)" in printed(capsys, "show", ir)
    assert "OpenVINO IR 11" in printed(capsys, "summary", ir, "--size=x_0=2")
    pytest.importorskip("igraph", reason="it places the modules of a plot")
    printed(capsys, "plot", ir, str(tmp_path / "small.svg"))
    assert (tmp_path / "small.svg").read_text().startswith("<svg")


def test_run_takes_weights_of_another_folder(ir, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "small.bin").rename(tmp_path / "elsewhere" / "small.bin")
    np.save(tmp_path / "x.npy", np.array([[1, -9, 1]], "f4"))
    folder = f"--external-data={tmp_path / 'elsewhere'}"
    arguments = ["run", ir, str(tmp_path / "x.npy"), folder, f"--output={tmp_path / 'y.npy'}", "--repeat=1", "--cache="]
    assert "positive: float32[1, 3]" in printed(capsys, *arguments)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), [[2, 0, 4]])


def test_compare_runs_openvino(ir, capsys):
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # it starts a process
        with mock.patch.dict(os.environ, {"CI": "true"}):  # it sends no message then
            pytest.importorskip("openvino", reason=REASON)
        assert "all 2 tensors agree" in printed(capsys, "compare", ir, "--size=x_0=2")


def test_export(ir, tmp_path, capsys):
    file = tmp_path / "small.jaxexport"
    assert "wrote" in printed(capsys, "export", ir, str(file))
    params = load_file(f"{file}.safetensors")
    program = jax.export.deserialize(bytearray(file.read_bytes()))
    np.testing.assert_array_equal(program.call(params, np.zeros((1, 3), "f4")), [[1, 2, 3]])


def test_operators_of_openvino(capsys):
    out = printed(capsys, "operators", "--domain=openvino", "--grep=gather")
    assert "GatherND" in out
    assert "5, 8" in out
    rows = operators()
    assert len({row.name for row in rows}) == len(rows) > 190
    assert {f"{row.name}-{since}" for row in rows for since in row.versions} <= set(classes())


def test_an_ir_needs_no_onnx(ir):
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from jaxops.command_line import main\n"
        f"sys.exit(main(['check', {ir!r}]) or main(['run', {ir!r}, '--cache=', '--repeat=1']))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert "positive" in run.stdout
