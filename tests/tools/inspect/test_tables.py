"""Tables as text, as HTML in a notebook, and as `rich` draws them: the same rows, and nothing of a name is markup."""

import functools
import html.parser
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from graphs import build, info, node
from nbclient import NotebookClient
from rich.console import Console

from jaxops.onnx import decoder, load
from jaxops.tools.inspect.passes import pass_report
from jaxops.tools.inspect.tables import Table

MODELS = Path(__file__).resolve().parents[2] / "models"
TABLE = Table(["a model"], ["module", "count"], [["net", "1,234"], ["  fc & co", "5"]], right=["count"])
EVIL = """<script>alert(1)</script>"'&amp;\x1b[31m\n\u202e"""
EVIL_MODEL = build(
    node("Relu", [f"x{EVIL}"], [f"h{EVIL}"], node_name=f"/{EVIL}/Relu"),
    node("Neg", [f"h{EVIL}"], [f"y{EVIL}"], node_name=f"/{EVIL}/Neg"),
    inputs=[info(f"x{EVIL}", ["N<b>", 3])],
    outputs=[info(f"y{EVIL}", ["N<b>", 3])],
)
X = np.ones((2, 3), np.float32)


class Parsed(html.parser.HTMLParser):
    """The cells of a table by row, its tags, and their attributes."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.rows, self.title, self.tags, self.attributes, self._open = [], "", set(), [], []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes += attributes
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("th", "td"):
            self.rows[-1][-1] += data
        elif self._open and self._open[-1] == "div":
            self.title += data


def test_text():
    assert str(TABLE).splitlines() == [
        "a model",
        "",
        " module      count",
        " ─────────────────",
        " net         1,234",
        "   fc & co       5",
    ]


def test_rich_draws_the_same_lines():
    console = Console(file=io.StringIO(), width=140, color_system=None)
    console.print(TABLE, highlight=False)
    assert [line.rstrip() for line in console.file.getvalue().splitlines()] == [*str(TABLE).splitlines(), ""]


def test_html():
    parsed = Parsed(TABLE._repr_html_())
    assert parsed.title == "a model"
    assert parsed.rows == [["module", "count"], ["net", "1,234"], ["  fc & co", "5"]]


REPORTS = {
    "model": lambda: load(EVIL_MODEL),
    "summary": lambda: load(EVIL_MODEL).summary(X),
    "passes": lambda: pass_report(functools.partial(load(EVIL_MODEL), X), EVIL),
    "differing": lambda: load(EVIL_MODEL).compare(X, rtol=-1, atol=-1),
    "agreeing": lambda: load(EVIL_MODEL).compare(X),
    "decoder": lambda: decoder(load(MODELS / "gpt2.dynamo.onnx")),
}


@pytest.fixture(params=REPORTS)
def report(request):
    return REPORTS[request.param]()


def test_no_name_is_markup_and_no_colour_is_ours(report):
    parsed = Parsed(report._repr_html_())
    assert parsed.tags == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert {name for name, _ in parsed.attributes} == {"style"}
    words = {word for _, style in parsed.attributes for word in style.replace(":", ";").split(";")}
    assert {word.strip() for word in words} <= {"text-align", "left", "right", "white-space", "pre-wrap"}
    assert len({len(row) for row in parsed.rows}) == 1
    assert all(line.isprintable() for line in repr(report).splitlines())
    assert all(cell.isprintable() for row in parsed.rows for cell in row)


def test_text_and_html_have_the_same_rows(report):
    rows = Parsed(report._repr_html_()).rows[1:]
    assert rows
    assert all(cell.strip() in repr(report) for row in rows for cell in row)


def test_a_long_name_is_cut():
    name = "x" * 1_000_000
    model = load(build(node("Relu", ["x"], ["y"], node_name=name), inputs=[info("x", [3])], outputs=[info("y", [3])]))
    assert len(str(model.summary())) < 2_000
    assert len(model.summary()._repr_html_()) < 3_000


CELLS = [
    "import jaxops.onnx\nmodel = jaxops.onnx.load(PATH)\nmodel",
    "model.summary(sizes={'batch': 1, 'sequence': 4})",
    "text = str(model.summary())",
    "print(text)",
]


@pytest.mark.filterwarnings("ignore")  # of Jupyter's own machinery
def test_a_notebook_shows_html_and_a_string_is_only_a_string():
    path = str(MODELS / "bert.script.onnx")
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(cell.replace("PATH", repr(path))) for cell in CELLS]
    NotebookClient(book, timeout=300, kernel_name="python3").execute()
    model, summary, silent, printed = (cell.outputs for cell in book.cells)
    assert [output.output_type for output in (*model, *summary)] == ["execute_result"] * 2
    names = [row[1] for row in Parsed(model[0].data["text/html"]).rows]
    assert names == ["name", "input_ids", "attention_mask", "logits"]
    assert Parsed(summary[0].data["text/html"]).rows[1][0] == "model"
    assert "  bert" in summary[0].data["text/plain"]
    assert silent == []
    assert printed[0].text.startswith("main_graph · ")
