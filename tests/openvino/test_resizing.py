"""Interpolate in all modes, beside OpenVINO and the specification."""

import numpy as np
import pytest
from openvino_files import agrees, gives

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
