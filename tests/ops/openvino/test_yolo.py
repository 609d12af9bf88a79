"""RegionYolo and ReorgYolo against loops in NumPy and against OpenVINO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import ArgumentError, ShapeError
from jaxops.openvino import ops

X = np.random.default_rng(3).normal(size=(2, 21, 3, 4)).astype(np.float32)
COMMON = {"axis": 1, "end_axis": 3, "coords": 4, "classes": 2, "anchors": [1.0, 2.0]}


@pytest.mark.parametrize(
    "case",
    [
        {"num": 3, "do_softmax": True, "mask": []},
        {"num": 6, "do_softmax": False, "mask": [0, 1, 2]},
        {"num": 3, "do_softmax": True, "mask": [], "axis": -2, "end_axis": -1},
    ],
    ids=str,
)
def test_region_yolo(case):
    case = {**COMMON, **case}
    expected = X.astype(np.float64)
    for n, region in np.ndindex(2, 3):
        part = expected[n, region * 7 : region * 7 + 7]
        part[[0, 1, 4]] = 1 / (1 + np.exp(-part[[0, 1, 4]]))
        part[5:] = np.exp(part[5:]) / np.exp(part[5:]).sum(0) if case["do_softmax"] else 1 / (1 + np.exp(-part[5:]))
    if case["do_softmax"]:
        expected = expected.reshape((2, -1) if case["axis"] == 1 else (2, 21, -1))
    y = jax.jit(lambda x: ops.region_yolo(x, **case))(X)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    agree(1, "RegionYolo", [X], case, y)
    check_grads(lambda x: ops.region_yolo(x, **case), (jnp.asarray(X[:1]),), 1, ["rev"], 1e-2, 1e-2)


@pytest.mark.parametrize("stride", [1, 2])
def test_reorg_yolo(stride):
    x = X[:, :8, :2]
    n, c, h, w = x.shape
    expected = np.zeros(x.size, np.float32)
    larger = x.reshape(n, c // stride**2, h * stride, w * stride)
    for place, (i, k, a, b) in enumerate(np.ndindex(n, c, h, w)):
        block, channel = divmod(k, c // stride**2)
        expected[place] = larger[i, channel, a * stride + block // stride, b * stride + block % stride]
    y = ops.reorg_yolo(x, stride=stride)
    np.testing.assert_array_equal(y, expected.reshape(n, c * stride**2, h // stride, w // stride))
    agree(2, "ReorgYolo", [x], {"stride": [stride]}, y)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ShapeError,
            r"`data` of \(2, 21, 3, 4\) must be \(N, 14, H, W\): 7 for each of 2 regions",
            lambda: ops.region_yolo(X, num=2, **COMMON),
        ),
        (
            ArgumentError,
            "`end_axis` is 1, which comes before `axis`, 3",
            lambda: ops.region_yolo(X, num=3, **{**COMMON, "axis": 3, "end_axis": 1}),
        ),
        (ShapeError, "are not multiples of `stride` 2", lambda: ops.reorg_yolo(X, stride=2)),
        (ShapeError, r"`data` of \(21, 3, 4\) must be", lambda: ops.reorg_yolo(X[0], stride=1)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
