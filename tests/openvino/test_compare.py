"""`model.compare`: each tensor beside OpenVINO's."""

import os
import subprocess
import sys
import warnings
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
from openvino_files import REASON, File

from jaxops.errors import UnsupportedError
from jaxops.openvino import load


@pytest.fixture(autouse=True)
def openvino():
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):  # it starts a process
        with mock.patch.dict(os.environ, {"CI": "true"}):  # it sends no message then
            pytest.importorskip("openvino", reason=REASON)
        yield


@pytest.fixture
def file():
    file = File()
    x = file.parameter(["?", 3], name="x")
    y = file.layer("Add", 1, [x, file.constant(np.array([[1, -2, 3]], "f4"), name="b")], name="sum")
    y = file.layer("Tanh", 1, [y], name="squashed", outputs=[' names="y,other"'])
    y = file.layer("Softmax", 8, [y], {"axis": -1}, name="weights")
    file.result(y, ' output_names="probabilities"')
    return file


def test_all_tensors_agree(file):
    model = load(file.xml, weights=file.bin)
    report = model.compare(np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3))
    assert report.agrees
    assert [row.output for row in report.rows] == ["sum", "y", "probabilities"]


def wrong_tanh(x, **_):
    return jnp.tanh(x) * 1.5


def test_the_first_difference_is_named(file):
    model = load(file.xml, weights=file.bin, operators={("opset1", "Tanh"): wrong_tanh})
    report = model.compare(np.ones((1, 3), "f4"))
    assert not report.agrees
    assert report.first is not None
    assert (report.first.node, report.first.output) == ("squashed", "y")
    assert "Tanh 'squashed' is the first node that differs" in str(report)


def test_a_part_of_a_file_and_paths(file, tmp_path):
    (tmp_path / "m.xml").write_bytes(file.xml)
    (tmp_path / "m.bin").write_bytes(file.bin)
    model = load(tmp_path / "m.xml", inputs=["sum"], outputs=["probabilities"])
    report = model.compare(np.ones((1, 3), "f4"))
    assert report.agrees
    assert [row.output for row in report.rows] == ["y", "probabilities"]
    whole = load(tmp_path / "m.xml", values={"x": np.ones((2, 3), "f4")})
    assert whole.compare().agrees


def test_a_body_is_compared_by_what_leaves_it():
    body = File()
    a = body.parameter([2], name="a")
    body.result(body.layer("Exp", 1, [a]))
    file = File()
    p, x = file.parameter([], "?", name="p"), file.parameter([2], name="x")
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/>'
        f'<output external_port_id="0" internal_layer_id="2"/></{name}_port_map>'
        for name in ("then", "else")
    )
    inner = f"{maps}<then_body>{body.net}</then_body><else_body>{body.net}</else_body>"
    file.result(file.layer("Negative", 1, [file.layer("If", 8, [p, x], body=inner, name="chosen")], name="minus"))
    report = load(file.xml).compare(np.array(True), np.array([1, 2], "f4"))
    assert report.agrees
    assert [row.output for row in report.rows] == ["chosen", "minus"]


@pytest.mark.parametrize("element", ["bf16", "f16", "i64", "boolean", "u8"])
def test_tensors_of_other_types(element):
    file = File()
    x = file.parameter([3], name="x")
    y = file.layer("Convert", 1, [x], {"destination_type": element}, name="other")
    file.result(file.layer("Convert", 1, [y], {"destination_type": "f32"}, name="again"))
    report = load(file.xml).compare(np.array([0.3, 1, 2.7], "f4"))
    assert report.agrees
    assert [row.output for row in report.rows] == ["other", "again"]


def test_a_model_that_openvino_refuses(file):
    model = load(
        file.xml.replace(b'type="Tanh"', b'type="Tanhh"'), operators={("opset1", "Tanhh"): wrong_tanh}, weights=file.bin
    )
    with pytest.raises(UnsupportedError, match=r"OpenVINO does not run this model: .*Tanhh"):
        model.compare(np.ones((1, 3), "f4"))


def test_without_the_package_the_error_says_what_to_install(file):
    model = load(file.xml, weights=file.bin)
    with (
        mock.patch.dict(sys.modules, {"openvino": None}),
        pytest.raises(ModuleNotFoundError, match="compare needs the openvino package: pip install openvino"),
    ):
        model.compare(np.ones((1, 3), "f4"))


def test_loading_does_not_import_the_package():
    code = "import sys, jaxops.openvino; sys.exit('openvino' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_both_compute_with_the_parameters_of_the_model(file):
    model = load(file.xml, weights=file.bin)
    tuned = model.with_params({name: 3 * x for name, x in model.params.items()})
    x = np.linspace(-1, 1, 6, dtype="f4").reshape(2, 3)
    assert not np.allclose(tuned(x), model(x), atol=1e-2)
    assert tuned.compare(x).agrees
