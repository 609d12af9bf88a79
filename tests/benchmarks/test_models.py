"""That a process measures its engine, on the inputs that it is given, and nothing else."""

import engines
import models
import numpy as np
import pytest
from engines import ENGINES, measure
from graphs import build, info, node, tensor
from models import error, example, measured, run_environment
from onnx import TensorProto, save
from report import FIGURES

RELU = build(node("Relu", ["x"], ["y"]), inputs=[info("x", ["N", 3])])


@pytest.fixture
def path(tmp_path):
    save(RELU, tmp_path / "relu.onnx")
    return tmp_path / "relu.onnx"


def test_an_example_is_what_the_file_declares(tmp_path):
    weights = tensor(np.ones((2, 3), np.float32))
    inputs = [info("x", ["N", 3]), info("ids", [2, 5], TensorProto.INT64), info("w", [2, 3])]
    save(build(node("Gather", ["w", "ids"], ["y"]), inputs=inputs, initializers=[weights]), tmp_path / "m.onnx")
    found = example(tmp_path / "m.onnx")
    assert {name: (x.shape, x.dtype) for name, x in found.items()} == {
        "x": ((1, 3), np.float32),
        "ids": ((2, 5), np.int64),
    }
    assert len(np.unique(found["ids"])) > 5


@pytest.mark.parametrize("engine", ["onnxruntime", "jaxops", "jaxops-bfloat16"])
def test_an_engine_is_measured_on_the_inputs_of_its_folder(engine, path, tmp_path):
    x = np.array([[-1, 0, 2]], np.float32)
    np.savez(tmp_path / "inputs.npz", x=x)
    figures, outputs = measure(engine, str(path), tmp_path)
    assert set(figures) == set(FIGURES)
    assert all(value > 0 for value in figures.values())
    np.testing.assert_array_equal(outputs, [np.maximum(x, 0)])


def test_the_peak_is_that_of_the_process_alone(path):
    ours = np.ones(200 << 20, np.uint8)  # which `getrusage` of a child would have in it
    found = measured(path, ["onnxruntime"], rounds=1)
    assert found["onnxruntime"]["peak"] < ours.nbytes / 2**20 < engines.peak()


def test_what_an_engine_cannot_run_is_told_and_left_out(tmp_path, capsys):
    save(build(node("Celu", ["x"], ["y"]), opsets=[("", 99)]), tmp_path / "new.onnx")
    assert measured(tmp_path / "new.onnx", ["onnxruntime"], rounds=2) == {}
    assert capsys.readouterr().out.count("new: onnxruntime fails: ") == 1


def test_what_takes_too_long_is_told_and_left_out(path, monkeypatch, capsys):
    monkeypatch.setattr(models, "LONGEST", 0.01)
    assert measured(path, ["onnxruntime"], rounds=2) == {}
    assert capsys.readouterr().out == "relu: onnxruntime takes more than 0.01 s\n"


def test_the_best_of_each_figure_counts(path, monkeypatch):
    figures = [dict.fromkeys(FIGURES, 2.0) | {"call": 1.0}, dict.fromkeys(FIGURES, 1.0) | {"call": 3.0}]
    monkeypatch.setattr(models, "run", lambda *_: figures.pop())
    assert measured(path, ["jaxops"], rounds=2) == {"jaxops": dict.fromkeys(FIGURES, 1.0)}


def test_the_cache_is_filled_before_a_start_counts(path, monkeypatch):
    asked = []
    monkeypatch.setattr(models, "run", lambda engine, *_: asked.append(engine))
    measured(path, ["jaxops", "jaxops-cached"], rounds=1)
    assert asked == ["jaxops-cached", "jaxops", "jaxops-cached"]


def test_a_start_may_write_bytecode(monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert "PYTHONDONTWRITEBYTECODE" not in run_environment()
    assert "PATH" in run_environment()


ONES = np.ones(3)


@pytest.mark.parametrize(
    ("outputs", "expected", "found"),
    [
        ([ONES], [ONES], 0),
        ([ONES, 4 * ONES], [ONES, 5 * ONES], 0.2),
        ([[np.nan, 1]], [[np.nan, 2]], 0.5),
        ([[np.nan, 1]], [[2, 2]], np.inf),
        ([[np.inf]], [[-np.inf]], np.inf),
        ([ONES], [ONES[:2]], np.inf),
        ([[np.nan, 1]], [[1, 1]], np.inf),
        ([0 * ONES], [0 * ONES], 0),
        ([ONES[:0]], [ONES[:0]], 0),
    ],
)
def test_an_error_is_relative_to_the_largest_number(outputs, expected, found):
    assert error(outputs, expected) == pytest.approx(found)


def test_an_error_needs_as_many_outputs():
    with pytest.raises(ValueError, match="argument"):
        error([ONES], [ONES, ONES])


def test_every_default_is_an_engine():
    assert set(models.DEFAULTS) <= set(ENGINES)
    assert all((models.LIGHT / f"{name}.onnx").exists() for name in models.LIGHT_MODELS)
