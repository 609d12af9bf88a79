"""`model.to_python` of an IR: a package of public calls, which needs no IR to run."""

import re
import sys

import jax
import numpy as np
import pytest
from openvino_files import File, single, written_package

from jaxops.openvino import load


def written(folder, op_type, opset, operands, attributes=None, outputs=1, *, free=False):
    """The text of the package of one operation, whose results are asserted to be those of the model."""
    file, inputs = single(op_type, opset, operands, attributes, outputs, free=free)
    model = load(file.xml, weights=file.bin)
    module, text = written_package(model, folder)
    results, expected = module.apply(module.load_params(), *inputs), model(*inputs)
    for mine, theirs in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    body = text[text.index("def apply") :]
    return text, set(re.findall(r"\b(?:jo|jaxops\.openvino\.ops|opset\d+)\.\w+(?=\()", body))


def ones(*sizes):
    return np.ones(sizes, "f4")


@pytest.mark.parametrize("free", [False, True])
def test_operators_of_onnx_are_called_by_their_names(tmp_path, free):
    text, calls = written(tmp_path / "net", "Softmax", 8, [ones(2, 3)], {"axis": 1}, free=free)
    assert calls == {"jo.softmax"}
    assert "openvino" not in text.partition('"""\n')[2]


def test_what_only_openvino_has_is_called_by_its_public_name(tmp_path):
    attributes = {"sort_result_descending": True, "box_encoding": "corner", "output_type": "i32"}
    limits = [(np.array(2),), (np.array(0.5, "f4"),), (np.array(0.1, "f4"),)]
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], "f4")
    scores = np.array([[[0.3, 0.9, 0.5]]], "f4")
    text, calls = written(tmp_path / "net", "NonMaxSuppression", 9, [boxes, scores, *limits], attributes, 3)
    assert any(name.startswith("jaxops.openvino.ops.") for name in calls)
    assert "import jaxops.openvino\n" in text
    anchors = {"anchors": [1.0, 2.0, 3.0, 4.0], "axis": 1, "coords": 4, "classes": 2, "end_axis": 3, "num": 2}
    _, calls = written(tmp_path / "yolo", "RegionYolo", 1, [ones(1, 14, 2, 2)], {**anchors, "do_softmax": True})
    assert calls == {"jaxops.openvino.ops.region_yolo"}


def test_what_depends_on_free_sizes_is_called_by_its_opset(tmp_path):
    operands = [ones(2, 6), (np.array(1),)]
    text, calls = written(tmp_path / "net", "Split", 1, operands, {"num_splits": 2}, 2, free=True)
    assert calls == {"opset1.Split"}
    assert "import jaxops.openvino\n" in text


def test_a_version_that_compares_sizes_is_not_taken_for_the_newest_one(tmp_path):
    """A slope for each channel: the same program as that of ONNX, unless there are three channels."""
    slope, x = np.array([0.1, 0.2, 0.3], "f4"), -np.arange(18, dtype="f4").reshape(2, 3, 3)
    _, calls = written(tmp_path / "net", "PReLU", 1, [x, (slope,)], free=True)
    assert calls == {"opset1.PRelu"}
    _, calls = written(tmp_path / "fixed", "PReLU", 1, [x[:, :2], (slope,)])
    assert calls == {"jo.prelu"}


@pytest.mark.parametrize("free", [False, True])
def test_several_results(tmp_path, free):
    window = {"strides": [2, 2], "pads_begin": [0, 0], "pads_end": [0, 0], "kernel": [2, 2], "dilations": [1, 1]}
    image = np.arange(32, dtype="f4").reshape(1, 2, 4, 4)
    written(tmp_path / "pool", "MaxPool", 8, [image], window, 2, free=free)
    states = [ones(2, 3, 4), ones(2, 1, 5), ones(2, 1, 5), np.array([3, 2])]
    weights = [(ones(1, 20, 4),), (ones(1, 20, 5),), (ones(1, 20),)]
    attributes = {"hidden_size": 5, "direction": "forward"}
    written(tmp_path / "lstm", "LSTMSequence", 5, [*states, *weights], attributes, 3, free=free)


WINDOW = {"strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1]}
SEVERAL_AXES = {
    "AvgPool": ([ones(1, 2, 6, 6)], {**WINDOW, "kernel": [2, 2], "exclude-pad": False, "rounding_type": "ceil"}),
    "ConvolutionBackpropData": (
        [ones(1, 4, 3, 3), (ones(4, 2, 3, 3),), (np.array([9, 9]),)],
        {**WINDOW, "dilations": [1, 1]},
    ),
    "Tile": ([ones(3), (np.array([2, 3, 1]),)], {}),
}


@pytest.mark.parametrize("op", SEVERAL_AXES)
def test_lists_of_axes_are_written(tmp_path, op):
    written(tmp_path / "net", op, 1, *SEVERAL_AXES[op])


def test_a_model_with_weights_of_modules_and_a_branch(tmp_path):
    inner = File()
    inner.result(inner.layer("Exp", 1, [inner.parameter([2, 4], name="a")]))
    file = File("small")
    p, x = file.parameter([], "?", name="p"), file.parameter([2, 3], name="x")
    w = file.constant(np.arange(12).reshape(3, 4).astype("f2") / 12, name="self.fc.weight")
    rt = '<rt_info><attribute name="decompression" version="0"/></rt_info>'
    wide = file.layer("Convert", 1, [w], {"destination_type": "f32"}, body=rt)
    flags = {"transpose_a": False, "transpose_b": False}
    y = file.layer("MatMul", 1, [x, wide], flags, name="__module.fc/aten::linear/MatMul")
    maps = "".join(
        f'<{name}_port_map><input external_port_id="1" internal_layer_id="0"/>'
        f'<output external_port_id="0" internal_layer_id="2"/></{name}_port_map>'
        for name in ("then", "else")
    )
    bodies = f"{maps}<then_body>{inner.net}</then_body><else_body>{inner.net}</else_body>"
    file.result(file.layer("If", 8, [p, y], body=bodies, name="chosen"))
    model = load(file.xml, weights=file.bin)
    module, text = written_package(model, tmp_path / "net")
    assert "OpenVINO IR 11" in text
    assert "jo.if_" in text
    inputs = np.array(True), ones(2, 3)
    np.testing.assert_allclose(module.apply(module.load_params(), *inputs), model(*inputs), rtol=1e-5)
    sys.modules.pop("written", None)


def test_a_size_that_decides_the_rank_is_assumed_in_the_text(tmp_path):
    """Squeeze removes an axis of one element only."""
    text, _ = written(tmp_path / "net", "Squeeze", 1, [ones(2, 3), (np.array([0]),)], free=True)
    assert "Sizes: parameter_0_0 >= 2." in text


def test_arrays_of_free_sizes_that_no_input_fills(tmp_path):
    file = File()
    x = file.parameter(["?", "?"], name="x")
    sizes = file.layer("ShapeOf", 3, [x], {"output_type": "i64"})
    filled = file.layer("Broadcast", 3, [file.constant(np.float32(3)), sizes], {"mode": "numpy"})
    file.result(file.layer("Add", 1, [filled, x]))
    model = load(file.xml, weights=file.bin)
    module, text = written_package(model, tmp_path / "net")
    assert "opset3.Broadcast(" in text
    np.testing.assert_array_equal(module.apply({}, ones(2, 3)), 4 * ones(2, 3))


def test_a_module_that_has_the_name_of_an_input(tmp_path):
    """NNCF calls the layer that quantizes an input after it."""
    file = File()
    x = file.parameter([2, 3], name="x")
    y = file.layer("Relu", 1, [x], name="x/first")
    y = file.layer("Exp", 1, [y], name="x/second")
    file.result(file.layer("Tanh", 1, [y], name="last"))
    model = load(file.xml)
    module, _ = written_package(model, tmp_path / "net")
    np.testing.assert_allclose(module.apply({}, ones(2, 3)), model(ones(2, 3)), rtol=1e-6)
