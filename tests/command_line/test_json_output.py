"""`--json`, which prints one object of one form."""

import dataclasses
import json
import math

import pytest
from onnx import parser, save

import jaxops.onnx
from jaxops.command_line import json_output, main
from jaxops.frontend import catalogue, operator_check
from jaxops.tools.inspect import compare, summary

ROWS = {
    "check": operator_check.Row,
    "summary": summary.Row,
    "compare": compare.Row,
    "operators": catalogue.OperatorRow,
}
ARGUMENTS = {
    "check": (),
    "summary": ("--size=N=5", "--depth=1"),
    "compare": ("--size=N=2",),
    "operators": ("--domain=ai.onnx", "--grep=reshape"),
}


def printed(capsys, *arguments, code=0):
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", ROWS)
def test_each_command_prints_one_form(command, model, capsys):
    given = () if command == "operators" else (str(model),)
    found = printed(capsys, command, *given, *ARGUMENTS[command])
    rows = found.pop("rows")
    assert found == {"command": command, "jaxops": jaxops.__version__, "model": [*given, None][0], "succeeded": True}
    assert rows
    fields = [field.name for field in dataclasses.fields(ROWS[command])]
    assert all(list(row) == fields for row in rows)
    (line,) = (line for line in json_output.__doc__.splitlines() if line.startswith(command) and "," in line)
    assert all(name in line.split(None, 1)[1] for name in fields)


def test_rows_are_those_of_the_report(model, capsys):
    rows = printed(capsys, "check", str(model))["rows"]
    assert rows == [dataclasses.asdict(row) for row in jaxops.onnx.check(model)]
    (row,) = printed(capsys, "operators", "--domain=ai.onnx", "--grep=reshape")["rows"]
    assert row["static"] == ["shape"]
    assert row["versions"][:2] == [1, 5]
    rows = printed(capsys, "compare", str(model), "--size=N=2")["rows"]
    assert [row["output"] for row in rows][-1] == "total"


def test_a_missing_operator_and_names_that_control_a_terminal(tmp_path, capsys):
    text = """<ir_version: 9, opset_import: ["": 18, "mine": 1]> g (float[1] x) => (float[1] y) { y = mine.Gone (x) }"""
    proto = parser.parse_model(text)
    proto.graph.node[0].op_type = "G\x1b[31mo"
    save(proto, tmp_path / "m.onnx")
    assert main(["check", str(tmp_path / "m.onnx"), "--json"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    found = json.loads(out)
    assert not found["succeeded"]
    assert [(row["operator"], row["status"]) for row in found["rows"]] == [("G\x1b[31mo", "missing")]


def test_a_difference_and_numbers_that_are_not_finite(model, capsys, monkeypatch):
    row = compare.Row("n", "Exp", "y", math.inf, math.nan, False)
    monkeypatch.setattr("jaxops.model.Model.compare", lambda *_, **__: compare.Comparison((row,), 1e-3, 1e-5))
    found = printed(capsys, "compare", str(model), "--size=N=2", code=1)
    assert not found["succeeded"]
    assert [(row["absolute"], row["relative"]) for row in found["rows"]] == [("inf", "nan")]


def test_an_error_prints_no_json(tmp_path, capsys):
    assert main(["check", str(tmp_path / "none.onnx"), "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "none.onnx" in err
