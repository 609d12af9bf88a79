"""README and the guides have the figures of the records, and the chart shows them."""

import json
import re
from xml.etree import ElementTree

import pytest
from written_figures import ENGINES, HERE, ROOT, WRITTEN, alternatives_table, chart, mean, records, share, with_figures

FIGURES, MODELS = records()
PAGES = sorted({page for page, _ in WRITTEN.values()})


def words(path):
    return [e.text or "" for e in ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_the_figures_of_the_records(page):
    text = (ROOT / page).read_text()
    assert with_figures(page, text, FIGURES, MODELS) == text
    if page.endswith(".ipynb"):
        json.loads(text)


def test_another_record_changes_the_page():
    text = (ROOT / "README.md").read_text()
    slower = json.loads(json.dumps(FIGURES))
    for times in slower["jaxops"]["call"].values():
        times["jaxops"] *= 2
    twice = f"| {2 * mean('call', 'jaxops', FIGURES['jaxops'])[0]:.2f} |"
    assert twice in with_figures("README.md", text, slower, MODELS)
    assert twice not in text


def test_a_page_without_its_place_is_an_error():
    with pytest.raises(AssertionError, match="0 places for alternatives"):
        with_figures("README.md", "no markers", FIGURES, MODELS)


def test_shares_and_means():
    found = {
        "exports": {"a": "", "b": "KeyError: b"},
        "sizes": {"a": "TypeError"},
        "cases": {"right": 1, "of": 4},
        "call": {"a": {"onnxruntime": 1.0, "tinygrad": 2.0}, "b": {"onnxruntime": 2.0, "tinygrad": 16.0}, "c": {}},
    }
    assert [share(task, "tinygrad", found) for task in ("exports", "sizes", "cases", "vmap")] == [0.5, None, 0.25, None]
    assert mean("call", "tinygrad", found) == (pytest.approx(4), 2)
    assert mean("training", "tinygrad", found) is None
    assert mean("call", "onnxruntime", {}) == (1.0, 0)


def test_the_table_has_one_number_a_cell():
    head, _, *rows = (line.strip("|").split("|") for line in alternatives_table(FIGURES, MODELS).splitlines())
    assert tuple(cell.strip() for cell in head[1:]) == ENGINES
    assert len(rows) == 6
    for row in rows:
        assert all(re.fullmatch(r" (\*\*)?(\d+%|\d+\.\d\d|–)(\*\*)? ", cell) for cell in row[1:])


def test_the_chart_shows_the_means(tmp_path):
    pytest.importorskip("matplotlib", reason="only the chart needs matplotlib")
    for name in ("a.svg", "b.svg"):
        chart(FIGURES, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    found = [mean(task, e, FIGURES[e]) for task, base in (("call", "onnxruntime"), ("training", "")) for e in ENGINES]
    wanted = sorted(f"{value:.2f}" for value, count in filter(None, found) if count)
    for path in (tmp_path / "a.svg", HERE / "alternatives.svg"):
        assert sorted(word.strip() for word in words(path) if re.fullmatch(r" ?\d+\.\d\d", word)) == wanted
