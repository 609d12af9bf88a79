"""That each process of `gpu.py` starts, waits, and is measured. Of its engines, only jaxops runs without a GPU."""

import gpu
import numpy as np
import pytest
from graphs import build, info, node
from onnx import save


@pytest.fixture
def path(tmp_path):
    save(build(node("Relu", ["x"], ["y"]), inputs=[info("x", ["N", 3])]), tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def test_figures_of_each_precision(path, tmp_path, capsys):
    jobs = [(engine, p, path) for engine in ("jaxops", "jaxops-apply") for p in ("float32", "bfloat16")]
    figures = gpu.measured(jobs, tmp_path, rounds=2, together=2)
    gpu.errors(figures, tmp_path)
    assert set(figures) == {("relu", *job[:2]) for job in jobs}
    for row in figures.values():
        assert min(row["start"], row["call"], row["queued"]) > 0
    for engine in ("jaxops", "jaxops-apply"):
        assert figures["relu", engine, "bfloat16"]["error"] == pytest.approx(2**-9, rel=1)
    gpu.show(figures)
    assert "bfloat16" in capsys.readouterr().out


def test_what_an_engine_gives_is_kept(path, tmp_path):
    gpu.measured([("jaxops", "float32", path)], tmp_path, rounds=1, together=1)
    with np.load(tmp_path / "relu/inputs.npz") as given, np.load(tmp_path / "relu/jaxops-float32.npz") as found:
        np.testing.assert_array_equal(found["arr_0"], np.maximum(given["x"], 0))


def test_an_engine_that_cannot_run_is_told_and_left_out(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu.sys, "executable", "false")
    assert gpu.measured([("jaxops", "float32", path)], tmp_path, rounds=1, together=1) == {}
    assert "relu jaxops float32 fails: no message" in capsys.readouterr().out
