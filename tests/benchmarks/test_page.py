"""README's table and chart are made of the figures that were measured."""

import json
from xml.etree import ElementTree

import page
import pytest

FOUND = {engine: {} for engine in page.ENGINES} | {
    "jaxops": {
        "exports": {"a": "", "b": "", "c": ""},
        "gradients": {"a": ""},
        "call": {"a": {"onnxruntime": 1.0, "jaxops": 2.0}, "b": {"onnxruntime": 10.0, "jaxops": 20.0}},
        "training": {"a": {"torch": 2.0, "jaxops": 3.0}, "b": {"torch": 2.0, "jaxops": None}},
    },
    "tinygrad": {
        "cases": {"right": 1, "of": 4},
        "sizes": {"a": "KeyError: b"},
        "exports": {"a": "", "b": "KeyError: b", "c": ""},
    },
}


def test_the_table_has_parts_and_means():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.table(FOUND).splitlines()]
    ours, theirs, base = (1 + page.ENGINES.index(name) for name in ("jaxops", "tinygrad", page.BASE))
    assert rows[0] == ["", *page.ENGINES]
    assert [row[ours] for row in rows[2:]] == ["**100 %**", "**100 %**", "**100 %**", "**–**", "**2.00**", "**1.50**"]
    assert [row[theirs] for row in rows[2:]] == ["25 %", "67 %", "–", "–", "–", "–"]
    assert [row[base] for row in rows[2:]] == ["–", "–", "–", "–", "1.00", "–"]


def test_the_readme_has_the_table_of_the_figures():
    (found,) = page.MARKED.findall(page.README.read_text())
    assert found == page.table(json.loads(page.FIGURES.read_text()))


def test_the_text_beside_the_chart_has_its_figures():
    rows = {head: found[0] for head, (found, _) in page.values(json.loads(page.FIGURES.read_text())).items()}
    call, step = (f"{rows[head]:.2f}" for _, head in page.TIMES.values())
    assert f"![A call takes {call} of onnxruntime's time, and a training step {step} of" in page.README.read_text()


def test_the_chart_has_a_bar_for_each_mean(tmp_path):
    pytest.importorskip("matplotlib", reason="only the chart needs matplotlib")
    for name in ("a", "b"):
        page.chart(FOUND, tmp_path / f"{name}.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    drawn = ElementTree.parse(tmp_path / "a.svg").getroot()
    words = [element.text or "" for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert [word for word in words if word in ("2.00", "1.50")] == ["2.00", "1.50"]
    assert words.count("jaxops") == 2
