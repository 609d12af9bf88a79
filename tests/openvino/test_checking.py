"""`check`: what is missing, before anything is loaded."""

import pytest
from openvino_files import File

from jaxops.errors import ModelError
from jaxops.openvino import check


def test_a_table_of_operations(tmp_path):
    body = File()
    body.result(body.layer("Relu", 1, [body.layer("Two", "extension", [body.parameter([2])])]))
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/><output external_port_id="2" '
        f'internal_layer_id="3"/></{name}_port_map><{name}_body>{body.net}</{name}_body>'
        for name in ("then", "else")
    )
    file = File(name="net")
    x = file.parameter([2])
    file.layer("Unneeded", 1, [x])
    go = file.constant(True)
    y = file.layer("If", 8, [go, file.layer("ReLU", 1, [x])], body=maps)
    file.result(file.layer("GatherNth", 8, [y, y, y]))
    (tmp_path / "model.xml").write_bytes(file.xml)  # without its weights
    table = check(tmp_path / "model.xml")
    rows = {row.operator: (row.domain, row.version, row.count, row.status) for row in table}
    assert rows["Relu"] == ("opset1", 1, 3, "function")
    assert rows["Two"] == ("extension", None, 2, "missing")
    assert "Unneeded" not in rows
    assert [row.operator for row in table.missing] == ["Two", "GatherNth"]
    assert "jaxops knows no operations of 'extension'" in str(table)
    assert "net: 7 operators, 14 nodes; 2 operators with 3 nodes are missing" in str(table)


def test_a_bad_file():
    with pytest.raises(ModelError, match="its root is <html>"):
        check(b"<html/>")


def test_variables_in_bodies_are_missing():
    body = File()
    variable = {"variable_id": "v", "variable_shape": "2", "variable_type": "f32"}
    value = body.layer("ReadValue", 6, [body.parameter([2])], variable)
    body.layer("Assign", 6, [value], variable)
    body.result(value)
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/><output external_port_id="2" '
        f'internal_layer_id="3"/></{name}_port_map><{name}_body>{body.net}</{name}_body>'
        for name in ("then", "else")
    )
    file = File()
    inputs = [file.parameter([], "?"), file.layer("ReadValue", 6, [file.parameter([2])], variable)]
    file.layer("Assign", 6, [inputs[1]], variable)
    file.result(file.layer("If", 8, inputs, body=maps))
    table = check(file.xml)
    assert sorted((row.operator, row.count) for row in table.missing) == [("Assign", 2), ("ReadValue", 2)]
    assert "jaxops does not support variables in the bodies of If, Loop and TensorIterator" in str(table)
    assert {row.count for row in table if row.operator == "Assign" and row.status == "function"} == {1}
