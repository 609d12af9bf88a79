"""The picture of a model: well-formed SVG, everything on it, no box on top of another, arrows that point down."""

import re
import sys
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from graphs import build, model, node

from jaxops.errors import ArgumentError
from jaxops.onnx import load
from jaxops.tools.plot.coordinates import place

MODELS = Path(__file__).resolve().parents[2] / "models"
SVG = "{http://www.w3.org/2000/svg}"
SEQUENCE = model("main (float[N,4] x) => (float[N,4] y) { a = Relu(x) b = Sigmoid(a) y = Add(a, b) }")


def texts(picture):
    return [found.text for found in ElementTree.fromstring(picture.svg).iter(f"{SVG}text")]


def boxes(picture):
    """Left, top, right, bottom of each coloured box; those of modules that show what they hold are transparent."""
    found = []
    for group in ElementTree.fromstring(picture.svg).iter(f"{SVG}g"):
        (rect,) = group.iter(f"{SVG}rect")
        x, y, width, height = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        found.append((x, y, x + width, y + height))
    return found


def labels(picture):
    """The same of each shape on an arrow."""
    rects = (
        r.attrib for r in ElementTree.fromstring(picture.svg).iter(f"{SVG}rect") if r.get("fill-opacity") == "0.92"
    )
    numbers = [[float(r[key]) for key in ("x", "y", "width", "height")] for r in rects]
    return [(x, y, x + width, y + height) for x, y, width, height in numbers]


def overlapping(found):
    return [(a, b) for a, b in combinations(found, 2) if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]


@pytest.mark.parametrize("depth", [0, 2, 4])
@pytest.mark.parametrize("name", ["bert.script", "gpt2.dynamo", "resnet.dynamo"])
def test_real_models(name, depth):
    loaded = load(MODELS / f"{name}.onnx")
    picture = loaded.plot(depth=depth)
    found = boxes(picture)
    assert len(found) >= len(loaded.inputs) + len(loaded.outputs)
    assert overlapping(found) == []
    width, height = (float(v) for v in re.search(r'viewBox="0 0 (\d+) (\d+)"', picture.svg).groups())
    assert all(x0 >= 0 and y0 >= 0 and x1 <= width and y1 <= height for x0, y0, x1, y1 in found)
    assert overlapping(labels(picture)) == []
    shown = texts(picture)
    assert {value.name for value in (*loaded.inputs, *loaded.outputs)} <= set(shown)


def test_overlaps_would_be_seen():
    assert overlapping([(0, 0, 2, 2), (1, 1, 3, 3)])


def test_modules_are_shown_to_a_depth():
    loaded = load(MODELS / "bert.script.onnx")
    assert "encoder" not in texts(loaded.plot(depth=1))
    assert "encoder" in texts(loaded.plot(depth=2))
    assert "layer.1" not in texts(loaded.plot(depth=2))
    assert {"layer.0", "layer.1", "attention"} <= set(texts(loaded.plot(depth=4)))
    assert {"attention", "linear", "normalization", "embedding"} <= set(texts(loaded.plot(depth=4)))


def test_arrows_say_shapes():
    loaded = load(SEQUENCE)
    assert "N×4" in texts(loaded.plot())
    assert "3×4" in texts(loaded.plot(sizes={"N": 3}))
    assert "float32[N, 4]" in texts(loaded.plot())


def test_shapes_of_a_model_that_has_a_limit_of_its_own():
    """A table of 32 positions needs `sequence <= 32`; the picture finds that out, as an export does."""
    assert "batch×sequence×16" in texts(load(MODELS / "bert.script.onnx").plot())


def test_a_sum_of_sizes_stands_in_parentheses():
    text = "main (float[N,4] x, float[M,4] z) => (float[K,4] y) { a = Concat <axis = 0> (x, z) y = Relu(a) }"
    assert {"(N + M)×4", "(M + N)×4"} & set(texts(load(model(text)).plot()))


def test_a_graph_without_modules_shows_its_operators():
    shown = texts(load(SEQUENCE).plot())
    assert {"Relu", "Sigmoid", "Add", "x", "y"} <= set(shown)


def test_what_only_computes_sizes_is_left_out():
    text = "main (float[N,4] x) => (float[N,4] y) { s = Shape(x) a = Relu(x) y = Reshape(a, s) }"
    assert "Shape" not in texts(load(model(text)).plot())


def test_names_are_escaped():
    proto = build(node("Relu", ["x"], ["y"], node_name="/a<b>/&/Relu"), node("Neg", ["y"], ["z"], node_name="/c/Neg"))
    assert any("a<b>" in (text or "") for text in texts(load(proto).plot()))


def test_a_notebook_and_a_file(tmp_path):
    picture = load(SEQUENCE).plot()
    assert picture._repr_svg_().startswith("<svg")
    picture.save(tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text(encoding="utf-8") == picture.svg
    with pytest.raises(ArgumentError, match=r"plot: a picture is saved as \.svg, not \.png: .*model\.png"):
        picture.save(tmp_path / "model.png")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"depth": -1}, "plot: depth is -1; it must be at least 0"),
        ({"sizes": {"M": 1}}, "plot: the model has no size 'M'; its sizes are: N"),
    ],
)
def test_errors(given, text):
    with pytest.raises(ArgumentError, match=text):
        load(SEQUENCE).plot(**given)


def test_without_igraph_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "igraph", None)
    text = r"plot needs the igraph package; install the extra `plot` of jaxops: pip install '\.\[plot\]'"
    with pytest.raises(ModuleNotFoundError, match=text):
        load(SEQUENCE).plot()


def test_places():
    sizes = [(40.0, 20.0), (90.0, 20.0), (90.0, 20.0), (40.0, 20.0), (30.0, 20.0)]
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3), (4, 3)]
    found = place(sizes, edges)
    assert all(found.centers[a][1] < found.centers[b][1] for a, b in edges)
    assert abs(found.centers[1][0] - found.centers[2][0]) >= 90
    assert found.centers[4][1] == found.centers[1][1]  # what nothing leads to stands above what reads it
    assert [len(route) for route in found.routes] == [2, 2, 2, 2, 4, 2]


def test_places_with_a_cycle_and_without_anything():
    found = place([(10.0, 10.0)] * 3, [(0, 1), (1, 2), (2, 0)])
    assert len(found.routes) == 3
    assert place([], []).size == (0.0, 0.0)
