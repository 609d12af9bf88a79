"""A trial tells right from wrong, and goes on behind a case that ends its process; the table says what was found."""

import json
import sys
from pathlib import Path

import alternatives
import numpy as np
import peers
import pytest
import trials
from alternatives import ENGINES, PROPERTIES, outcomes, table

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
RESNET = str(MODELS / "resnet.script.onnx"), *trials.data(MODELS / "resnet.npz")


@pytest.mark.parametrize("task", trials.TASKS)
def test_jaxops_does_each(task):
    assert trials.why(trials.TASKS[task], "jaxops", *RESNET) == ""


@pytest.mark.parametrize("task", ["exports", "sizes"])
def test_onnxruntime_runs_a_model_at_each_size(task):
    assert trials.why(trials.TASKS[task], "onnxruntime", *RESNET) == ""


@pytest.mark.parametrize("task", ["vmap", "sharding"])
def test_what_an_engine_lacks_is_said(task):
    assert trials.why(trials.TASKS[task], "onnxruntime", *RESNET).startswith("NotImplementedError: has no ")


@pytest.mark.parametrize("task", trials.TASKS)
def test_wrong_outputs_are_told(task):
    path, inputs, (y,) = RESNET
    assert trials.why(trials.TASKS[task], "jaxops", path, inputs, [1.01 * y]).startswith("AssertionError: ")


def test_a_wrong_gradient_is_told(monkeypatch):
    right = peers.PEERS["jaxops"].gradient

    def wrong(path, inputs):
        weights, function = right(path, inputs)
        return weights, lambda w: (function(w)[0], {n: 0.5 * g for n, g in function(w)[1].items()})

    monkeypatch.setattr(peers.PEERS["jaxops"], "gradient", wrong)
    found = trials.why(trials.gradients, "jaxops", *RESNET)
    assert found.startswith("AssertionError: finite differences are ")
    assert float(found.split()[4]) == pytest.approx(2, rel=0.1)


def test_cases_of_the_suite():
    command = [sys.executable, str(HERE / "trials.py"), "onnxruntime", "cases"]
    version, (relu, unknown) = outcomes(command, ["test_relu", "test_no_such"])
    assert version[0].isdigit()
    assert relu == ""
    assert unknown == "KeyError: 'test_no_such'"


def test_a_process_that_dies_starts_again_behind_the_case(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(
        "import sys\nprint('\"1.0\"')\nfor line in sys.stdin.read().split():\n"
        "    if line == 'bad':\n        sys.exit('no more')\n    print('\"\"', flush=True)\n"
    )
    version, found = outcomes([sys.executable, str(script)], ["a", "bad", "b", "bad"])
    assert version == "1.0"
    assert found == ["", "the process ends with 1: no more", "", "the process ends with 1: no more"]


def test_a_process_that_does_not_start_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="does not start"):
        outcomes([sys.executable, str(tmp_path / "none.py")], ["a"])


def test_a_case_has_its_time(monkeypatch, tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(
        "import time, trials\ntrials.LONG = 1\n"
        "trials.TASKS['exports'] = lambda engine, path, *data: time.sleep(60)\n"
        f"trials.main('numpy', 'exports', [{json.dumps(['slow', str(MODELS / 'resnet.npz')])!r}])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    _, (found,) = outcomes([sys.executable, str(script)], ["slow"])
    assert found.startswith("the process ends with -14")


def test_the_table_counts_and_takes_means():
    found = {
        "jaxops": {
            "version": "1.0",
            "cases": {"right": 2027, "of": 2027},
            "exports": {"a": "", "b": "", "c": ""},
            "gradients": {"a": ""},
            "call": {"a": {"onnxruntime": 1.0, "jaxops": 2.0}, "b": {"onnxruntime": 10.0, "jaxops": 5.0}},
            "training": {"a": {"torch": 2.0, "jaxops": 3.0}, "b": {"torch": 2.0, "jaxops": None}},
        },
        "onnxruntime": {"version": "2.0", "exports": {"a": "", "b": "KeyError: b", "c": ""}},
    }
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table(found).splitlines()]
    assert rows[0] == ["", "jaxops 1.0", "onnxruntime 2.0"]
    assert rows[2] == ["cases of the standard's suite", "2,027 of 2,027", "–"]
    assert rows[3] == ["exported models", "3 of 3", "2 of 3"]
    assert rows[4] == [PROPERTIES["gradients"], "1 of 1", "–"]
    assert rows[-2] == ["time of a call / onnxruntime's", "1.00 (2 of 2)", "–"]
    assert rows[-1] == ["time of a training step / PyTorch's", "1.50 (1 of 2)", "–"]


def test_figures_are_those_of_known_engines():
    assert set(json.loads(alternatives.FIGURES.read_text())) <= set(ENGINES) == set(peers.PEERS)


def test_small_models_have_data():
    assert len(alternatives.small("jaxops")) == 18
    assert len(alternatives.small("torchax")) == 9
    assert all(file.exists() for _, file in alternatives.small("jaxops"))
    assert all(isinstance(x, np.ndarray) for x in RESNET[2])
