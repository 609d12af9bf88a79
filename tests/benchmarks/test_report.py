"""The tables and the chart that given figures make."""

import re
from pathlib import Path
from xml.etree import ElementTree

import levers
import pytest
from report import BASE, COUNTED, FIGURES, chart, errors, geometric_mean, ratios, show, table
from rich.console import Console

HERE = Path(__file__).parent


def row(**calls):
    """The figures of engines, whose other figures are twice those of a call."""
    return {
        engine.replace("_", "-"): {"call": ms, "import": 2 * ms, "start": 2 * ms, "peak": 2 * ms, "error": ms / 1e6}
        for engine, ms in calls.items()
    }


@pytest.fixture
def figures():
    return {
        "resnet50_int8_qdq": row(onnxruntime=10, jaxops=80),
        "gpt2": row(onnxruntime=40, jaxops=80, openvino_f32=30),
        "resnet50": row(onnxruntime=20, jaxops=10),
        "bert_base": row(jaxops=7),
    }


def text(shown):
    """The rows of a table, each as its cells."""
    console = Console(width=200)
    with console.capture() as captured:
        console.print(shown)
    lines = [re.split(r"\s*[│┃]\s*", line)[1:-1] for line in captured.get().splitlines()]
    return captured.get(), {cells[0]: cells[1:] for cells in lines if cells}


def test_a_table_has_each_model_and_the_mean_of_those_that_count(figures):
    whole, rows = text(table(figures, "call"))
    assert whole.startswith("call, ms (ratio to onnxruntime)")
    assert rows == {
        "model": ["onnxruntime", "jaxops", "openvino-f32"],
        "resnet50": ["20", "10 (0.50)", "–"],
        "bert_base": ["–", "7", "–"],
        "gpt2": ["40", "80 (2.00)", "30 (0.75)"],
        "geometric mean of 3": ["1.00 of 2", "1.00 of 2", "0.75 of 1"],
        "resnet50_int8_qdq": ["10", "80 (8.00)", "–"],
    }
    assert list(rows)[-2] == "geometric mean of 3"  # what it leaves out stands below it


def test_a_table_says_its_unit_and_shows_its_own_figure(figures):
    assert [text(table(figures, figure))[0].splitlines()[0].split(" (")[0].strip() for figure in FIGURES] == [
        *("import, s", "start, s", "call, ms", "peak, MiB")
    ]
    assert text(table(figures, "peak"))[1]["resnet50"] == ["40", "20 (0.50)", "–"]


def test_without_a_model_that_counts_there_is_no_mean():
    rows = text(table({"other": row(onnxruntime=1, jaxops=2)}, "start"))[1]
    assert list(rows) == ["model", "other"]


def test_the_mean_is_geometric_and_over_the_models_that_both_run(figures):
    assert geometric_mean([1, 4]) == pytest.approx(2)
    assert ratios(figures, ["resnet50", "bert_base", "gpt2"], "jaxops", "call") == [0.5, 2.0]


def test_thirteen_models_count():
    assert len(set(COUNTED)) == 13


def test_errors_are_shown_for_each_engine_but_the_base(figures):
    rows = text(errors(figures))[1]
    assert rows["model"] == ["jaxops", "openvino-f32"]
    assert rows["gpt2"] == ["8.0e-05", "3.0e-05"]
    assert rows["resnet50"] == ["1.0e-05", "–"]


def test_every_table_is_printed(figures, capsys):
    show(figures)
    printed = capsys.readouterr().out
    assert all(f"{figure}, {unit}" in printed for figure, unit in FIGURES.items())
    assert "largest difference from onnxruntime" in printed


def test_the_table_of_levers_has_each_and_the_means():
    given = {
        "resnet50_int8_qdq": {levers.ALL: 7.0, "nothing": 1, "cache": 100},
        "gpt2": {levers.ALL: 20.0, "nothing": 1, "cache": 8},
        "resnet50": {levers.ALL: 5.0, "nothing": 1, "cache": 2},
    }
    rows = text(levers.table(given))[1]
    assert rows == {
        "": ["all,", "", ""],
        "model": ["ms", "nothing", "cache"],
        "resnet50": ["5", "1.00", "2.00"],
        "gpt2": ["20", "1.00", "8.00"],
        "geometric mean of 2": ["", "1.00", "4.00"],
        "resnet50_int8_qdq": ["7", "1.00", "100.00"],
    }
    assert list(rows)[-2:] == ["geometric mean of 2", "resnet50_int8_qdq"]


def test_the_chart_has_a_bar_for_each_ratio(figures, tmp_path):
    pytest.importorskip("matplotlib", reason="only the chart needs matplotlib")
    chart(figures, tmp_path / "a.svg")
    chart(figures, tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    words = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    models = ["geometric mean of 3", "resnet50", "bert_base", "gpt2", "resnet50_int8_qdq"]
    assert [word for word in words if word in models] == models
    assert sorted(word for word in words if re.fullmatch(r"\d\.\d\d", word)) == sorted(
        ["1.00", "0.50", "2.00", "8.00", *("0.75", "0.75")]
    )
    assert {"jaxops", "openvino-f32", "1×"} <= set(words)
    assert BASE not in words  # it is the line at 1
