"""Names of a file as they are shown: in text, in tables, in pictures, by the command line; none controls a terminal."""

import traceback
from xml.etree import ElementTree

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import jaxops.onnx
from jaxops.command_line import main
from jaxops.errors import ArgumentError, JaxopsError
from jaxops.shown_text import clean

F = np.float32
WORST = "\x1b[2J\x1b]0;t\x07\r\n\x9b31m\x00\u202e\u2028<&\"'>]]>\ufffe[red]批"


def written(folder, op="Relu"):
    """The path of a model with that text in each name."""
    w = WORST
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Neg", [f"{w}h"], [f"{w}b"], name=f"/{w}/{w}")], w, [], [info(f"{w}b", 1, None)]
    )
    nodes = [
        helper.make_node("MatMul", [f"{w}x", f"{w}w"], [f"{w}h"], name=f"/{w}/{w}/m"),
        helper.make_node("If", [f"{w}c"], [f"{w}i"], name=f"/{w}/i", then_branch=body, else_branch=body),
        helper.make_node(op, [f"{w}i"], [f"{w}y"], name=f"/{w}/r"),
        helper.make_node("Compress", [f"{w}y", f"{w}q"], [f"{w}z"], name=f"/{w}/z"),
    ]
    graph = helper.make_graph(
        nodes,
        w,
        [info(f"{w}x", 1, [f"{w}n", 3]), info(f"{w}c", TensorProto.BOOL, []), info(f"{w}q", TensorProto.BOOL, [2])],
        [info(f"{w}y", 1, [f"{w}n", 3]), info(f"{w}z", 1, [f"{w}m"])],
        [numpy_helper.from_array(np.ones((3, 3), F), f"{w}w")],
    )
    model = helper.make_model(graph, producer_name=w, opset_imports=[helper.make_opsetid("", 17)])
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def check(text):
    """Asserts that a text of lines has the name, and nothing that does not print."""
    assert "\\x1b[2J" in text
    assert [c for c in text.replace("\n", "") if not c.isprintable()] == []


@pytest.mark.parametrize(
    "shown",
    [
        str,
        repr,
        lambda model: model.show(),
        lambda model: model.show(head=2),
        lambda model: str(model.graph),
        lambda model: "\n".join(map(str, model.graph.nodes)),
        lambda model: "\n".join(map(str, model.inputs)),
        lambda model: model._repr_html_(),
    ],
)
def test_a_model_as_text(tmp_path, shown):
    check(shown(jaxops.onnx.load(written(tmp_path))))


@pytest.mark.parametrize("shown", [str, repr, lambda table: table._repr_html_()])
def test_a_summary(tmp_path, shown):
    model = jaxops.onnx.load(written(tmp_path), bounds={"Compress": 2})
    check(shown(model.summary(sizes={f"{WORST}n": 2})))


def test_the_operators_of_a_model(tmp_path):
    path = written(tmp_path, WORST)
    check(str(jaxops.onnx.check(path)))


def test_a_picture_is_well_formed(tmp_path):
    pytest.importorskip("igraph", reason="pictures are laid out by igraph")
    svg = jaxops.onnx.load(written(tmp_path)).plot().svg
    texts = "".join(ElementTree.fromstring(svg).itertext())
    check(texts)


@pytest.mark.parametrize("command", [["show"], ["summary"], ["check"], ["run"]])
def test_the_command_line(tmp_path, capsys, command):
    path = written(tmp_path)
    sizes = ["--size", f"{WORST}n=2"] if command != ["show"] and command != ["check"] else []
    main([*command, str(path), *sizes])
    captured = capsys.readouterr()
    assert [c for c in (captured.out + captured.err).replace("\n", "") if not c.isprintable()] == []


def test_an_error_of_the_command_line(tmp_path, capsys):
    assert main(["show", str(written(tmp_path, WORST))]) == 1
    check(capsys.readouterr().err)


def test_errors_and_notes(tmp_path):
    with pytest.raises(JaxopsError) as caught:
        jaxops.onnx.load(written(tmp_path, WORST))
    check(str(caught.value))
    model = jaxops.onnx.load(written(tmp_path))
    with pytest.raises(JaxopsError) as caught:
        model(np.ones((2, 4), F), np.True_, np.ones(2, bool))
    check(str(caught.value))
    error = ArgumentError(WORST)
    error.add_note(WORST)
    check("".join(traceback.format_exception_only(error)))


def test_warnings():
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Concat", [f"{WORST}x", "z"], ["y"], axis=0)],
        "g",
        [info(f"{WORST}x", 1, [f"{WORST}n"]), info("z", 1, [f"{WORST}n"])],
        [info("y", 1, None)],
    )
    model = jaxops.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    with pytest.warns(UserWarning, match="the model runs with both") as caught:
        model(np.ones(2, F), np.ones(3, F))
    check(str(caught[0].message))


def test_text_that_is_not_cleaned_would_be_noticed():
    with pytest.raises(AssertionError):
        check(f"\\x1b[2J {WORST}")
    assert clean("a\nb", keep="\n") == "a\nb"
