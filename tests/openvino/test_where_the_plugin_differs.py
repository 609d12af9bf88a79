"""Results that differ from OpenVINO's CPU plugin, with the reason: nothing else differs."""

import numpy as np
import pytest
from openvino_files import File, assert_close, outputs_of, run_by_plugin, single

from jaxops.openvino import load


@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("samples", [0, 2])
def test_the_largest_sample_of_a_region_may_be_negative(version, samples):
    """The text asks for maximum pooling; the plugin begins with 0, so that negative bins become 0."""
    random = np.random.default_rng(0)
    data = random.standard_normal((1, 3, 8, 8)).astype(np.float32)
    rois = np.float32([[0, 0, 5, 5], [1, 2, 7, 6], [2.5, 0.5, 6, 7]])
    how = {"pooled_h": 3, "pooled_w": 2, "sampling_ratio": samples, "spatial_scale": 1.0, "mode": "max"}
    if version == 9:
        how["aligned_mode"] = "half_pixel"
    file, inputs = single("ROIAlign", version, [data, rois, np.zeros(3, np.int32)], how)
    (ours,) = outputs_of(load(file.xml, weights=file.bin), inputs)
    assert (ours < -0.01).any()
    assert_close([np.maximum(ours, 0)], run_by_plugin(file, inputs))


def test_a_softmax_of_equal_numbers_that_rounding_tells_apart():
    """Of numbers near 7e9 that are equal but for their last bits, a Softmax takes those that rounding made largest.

    So ends a SqueezeNet whose weights are all 0.02, as the package `onnx` has it: each engine chooses other classes.
    """
    file = File()
    x = file.parameter([1, 4])
    file.result(file.layer("Softmax", 8, [x], {"axis": 1}))
    model, logit = load(file.xml), np.float32(6.769e9)
    equal = np.full((1, 4), logit)
    assert_close(outputs_of(model, [equal]), [np.full((1, 4), 0.25, np.float32)])
    rounded = np.array([[logit, logit, logit, np.nextafter(logit, np.float32(np.inf))]], np.float32)
    for y in (outputs_of(model, [rounded]), run_by_plugin(file, [rounded])):
        assert_close(y, [np.float32([[0, 0, 0, 1]])])
