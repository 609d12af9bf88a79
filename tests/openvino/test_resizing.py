"""Interpolate in all modes, beside OpenVINO and the specification."""

import numpy as np
import pytest
from openvino_files import agrees, assert_close, gives, outputs_of, single

from jaxops.errors import SizeError
from jaxops.openvino import load

RANDOM = np.random.RandomState(0)
X = RANDOM.randn(1, 2, 5, 6).astype("f4")
COMMON = {"mode": "linear_onnx", "shape_calculation_mode": "sizes", "pads_begin": [0], "pads_end": [0]}
AXES = (np.array([2, 3]),)
COORDINATES = ["half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"]


def sizes(*numbers):
    return (np.array(numbers),)


def scales(*numbers):
    return (np.array(numbers, "f4"),)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "linear_onnx", "cubic"])
def test_coordinates(mode, coordinates):
    attributes = {**COMMON, "mode": mode, "coordinate_transformation_mode": coordinates}
    for target in (sizes(7, 9), sizes(3, 3)):
        agrees("Interpolate", 11, [X, target, AXES], attributes)
    agrees("Interpolate", 11, [X, scales(1.7, 0.6), AXES], {**attributes, "shape_calculation_mode": "scales"})


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"])
def test_nearest(nearest, coordinates):
    how = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
    for target in (sizes(7, 9), sizes(3, 3)):
        agrees("Interpolate", 11, [X, target, AXES], {**COMMON, **how})


@pytest.mark.parametrize("mode", ["bilinear_pillow", "bicubic_pillow"])
def test_pillow(mode):
    for target in (sizes(7, 9), sizes(3, 3), sizes(3, 9)):
        agrees("Interpolate", 11, [X, target, AXES], {**COMMON, "mode": mode, "cube_coeff": -0.5})


def test_version_4():
    both = [X, sizes(10, 12), scales(2, 2), AXES]
    agrees("Interpolate", 4, both, {**COMMON, "mode": "nearest"})
    agrees("Interpolate", 4, both, {**COMMON, "pads_begin": [0, 0, 1, 0], "pads_end": [0, 0, 0, 2]})


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_version_1(mode, align_corners):
    how = {"mode": mode, "axes": [2, 3], "align_corners": align_corners}
    for target in (sizes(7, 9), sizes(3, 3)):
        agrees("Interpolate", 1, [X, target], how)


def test_antialias_widens_the_triangle_of_every_axis():
    """By the text, from which the plugin differs: it ignores `antialias`."""
    x = np.array([[0.0, 1, 2, 3]], "f4")
    weights = np.maximum(1 - np.abs(0.5 * (np.array([0.5, 2.5])[:, None] - np.arange(4))), 0)
    expected = (x @ (weights / weights.sum(1, keepdims=True)).T).astype("f4")
    how = {**COMMON, "mode": "linear", "antialias": True}
    gives("Interpolate", 11, [x, sizes(1, 2), (np.array([0, 1]),)], how, expected)


OWN = {
    "antialias": {"mode": "linear", "antialias": True},
    "narrow": {"mode": "linear", "antialias": True, "coordinate_transformation_mode": "align_corners"},
    "bilinear_pillow": {"mode": "bilinear_pillow"},
    "bicubic_pillow": {"mode": "bicubic_pillow", "cube_coeff": -0.5},
    **{
        f"simple {c}": {"mode": "nearest", "nearest_mode": "simple", "coordinate_transformation_mode": c}
        for c in COORDINATES
    },
}


@pytest.mark.parametrize("target", [sizes(7, 3), scales(1.5, 0.5)], ids=["sizes", "scales"])
@pytest.mark.parametrize("name", OWN)
def test_one_program_for_all_sizes(name, target):
    """What ONNX's Resize does not have; where it has the mode, that is tested there."""
    by = "sizes" if target[0].dtype.kind == "i" else "scales"
    attributes = {**COMMON, **OWN[name], "shape_calculation_mode": by}
    file, _ = single("Interpolate", 11, [X, target, AXES], attributes, free=True)
    model = load(file.xml, weights=file.bin)
    exported = model.export()
    for height, width in ((5, 6), (2, 12), (14, 3), (33, 47)):
        image = RANDOM.randn(1, 2, height, width).astype("f4")
        assert_close([np.asarray(exported.call(model.params, image))], outputs_of(model, [image]), 1e-5)


def test_a_scale_that_no_size_follows_from():
    attributes = {**COMMON, "mode": "bilinear_pillow", "shape_calculation_mode": "scales"}
    file, inputs = single("Interpolate", 11, [X, scales(np.pi, 1), AXES], attributes, free=True)
    model = load(file.xml, weights=file.bin)
    assert outputs_of(model, inputs)[0].shape == (1, 2, 15, 6)
    with pytest.raises(SizeError, match=r"the factor 3\.14\d+ of a symbolic size is not a ratio of small integers"):
        model.export()
