"""Files that NNCF wrote, beside OpenVINO: weights in each of its modes, and a network with simulated quantization."""

from pathlib import Path

import jax
import numpy as np
import openvino_peer
import pytest
from openvino_files import assert_close, written_package

from jaxops.openvino import load

FOLDER = Path(__file__).parents[1] / "models/nncf"
NAMES = sorted(path.stem for path in FOLDER.glob("*.xml"))
WORDS = np.array([[1, 5, 15], [0, 9, 2]])
IMAGES = np.random.default_rng(9).random((2, 3, 8, 8), np.float32)


def inputs_of(name):
    return IMAGES if name == "quantized" else WORDS


def by_openvino(path, x):
    openvino = openvino_peer.imported()
    core = openvino.Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
    compiled = core.compile_model(core.read_model(str(path)), "CPU", exact)
    return np.array(compiled([x])[compiled.output(0)])


def test_all_files_are_there():
    assert len(NAMES) == 9


@pytest.mark.parametrize("name", NAMES)
def test_as_openvino(name, tmp_path):
    model, x = load(FOLDER / f"{name}.xml"), inputs_of(name)
    assert not model.x64
    assert_close([np.asarray(model(x))], [by_openvino(FOLDER / f"{name}.xml", x)], 1e-4)
    exported = model.export()
    np.testing.assert_allclose(exported.call(model.params, x.astype(exported.in_avals[-1].dtype)), model(x), atol=1e-5)
    module, _ = written_package(model, tmp_path / "net")
    np.testing.assert_allclose(module.apply(module.load_params(), x), model(x), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_other_scales_are_saved(name, tmp_path):
    model, x = load(FOLDER / f"{name}.xml"), inputs_of(name)
    scales = [key for key, path in model.paths.items() if path.endswith(("scale", "fq_weights_1"))]
    params = {key: value * 2 if key in scales else value for key, value in model.params.items()}
    model.save(tmp_path / "tuned.xml", params)
    expected = np.asarray(model.apply(params, x))
    assert not np.allclose(expected, model(x), rtol=1e-2)
    assert_close([np.asarray(load(tmp_path / "tuned.xml")(x))], [expected], 1e-4)
    assert_close([by_openvino(tmp_path / "tuned.xml", x)], [expected], 1e-4)


def test_scales_and_biases_are_trained_and_weights_stay_as_small_as_they_are():
    model = load(FOLDER / "int4_asym.xml")
    trained = {name: value for name, value in model.params.items() if model.trainable[name]}
    others = {name: value for name, value in model.params.items() if name not in trained}
    loss = lambda params: (model.apply({**others, **params}, WORDS) ** 2).sum()  # noqa: E731
    gradients = jax.grad(loss)(trained)
    assert {model.paths[name] for name in gradients} >= {"1.weight.scale", "1.Add", "3.weight.scale", "3.Add"}
    assert all(np.abs(gradient).max() > 0 for gradient in gradients.values())
    assert sum(value.nbytes for value in model.params.values()) < 0.4 * 4 * (16 * 32 + 32 * 32 + 8 * 32)
