"""The architectures of `tests/models` as IRs that OpenVINO's converter writes: they are what PyTorch computes."""

from pathlib import Path

import jax
import numpy as np
import openvino_peer
import pytest
from openvino_files import assert_close

import jaxops.onnx
from jaxops.errors import ArgumentError, JaxopsError
from jaxops.openvino import load

PATHS = sorted((Path(__file__).parents[1] / "models").glob("*.onnx"))


def data_of(path):
    with np.load(path.with_name(f"{path.name.partition('.')[0]}.npz")) as file:
        inputs = {name.removeprefix("in:"): file[name] for name in file if name.startswith("in:")}
        return inputs, [file[name] for name in file if name.startswith("out:")]


def converted(path, folder):
    openvino = openvino_peer.imported()
    openvino.save_model(openvino.Core().read_model(path), str(folder / "model.xml"), compress_to_fp16=False)
    return load(folder / "model.xml")


def arrays_of(results):
    return list(map(np.asarray, jax.tree.leaves(results)))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_ir_is_what_pytorch_computes(path, tmp_path):
    (inputs, expected), model = data_of(path), converted(path, tmp_path)
    found = arrays_of(model(inputs))
    assert len(found) == len(expected)
    assert_close(found, expected, 1e-4)
    assert_close(arrays_of(jax.jit(model.apply)(model.params, inputs)), expected, 1e-4)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_an_ir_exports_where_its_onnx_file_does(path, tmp_path):
    inputs, expected = data_of(path)
    try:
        jaxops.onnx.load(path).export()
    except JaxopsError as error:
        pytest.skip(f"the ONNX file does not: {error}"[:80])
    model = converted(path, tmp_path)
    exported = model.export()
    arrays = [
        inputs[value.name].astype(type_.dtype)
        for value, type_ in zip(model.inputs, exported.in_avals[-len(model.inputs) :], strict=True)
    ]
    assert_close(arrays_of(exported.call(model.params, *arrays)), expected, 1e-4)


def test_all_models_are_there():
    assert len(PATHS) == 18


def test_training_is_said_in_words_of_openvino():
    file = Path(__file__).parents[2] / "notebooks" / "running_sum.xml"
    with pytest.raises(ArgumentError, match=r"OpenVINO's operators infer only.*load the ONNX file") as caught:
        load(file, training=True)
    assert "torch" not in str(caught.value)
