"""ROIPooling, PSROIPooling and DeformablePSROIPooling against loops in NumPy and against OpenVINO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree

import jaxops as jo
from jaxops.errors import ArgumentError, ShapeError
from jaxops.openvino import ops

RNG = np.random.default_rng(6)
X = RNG.normal(size=(2, 18, 9, 8)).astype(np.float32)
BATCH = np.array([[0], [1], [1], [0], [1]])
LOW = RNG.uniform(0, 4, (5, 2))
PIXELS = np.concatenate([BATCH, LOW, LOW + RNG.uniform(0.2, 4, (5, 2))], 1).astype(np.float32)
PARTS = np.concatenate([BATCH, LOW / 8, LOW / 8 + RNG.uniform(0.1, 0.45, (5, 2))], 1).astype(np.float32)


def between(image, y, x):
    """An image (H, W) between its elements, clipped to it."""
    y, x = min(max(y, 0), image.shape[0] - 1), min(max(x, 0), image.shape[1] - 1)
    i, j = int(y), int(x)
    rows = [image[a, j] + (image[a, min(j + 1, 7)] - image[a, j]) * (x - j) for a in (i, min(i + 1, 8))]
    return rows[0] + (rows[1] - rows[0]) * (y - i)


@pytest.mark.parametrize("shape", [(2, 3), (1, 1)])
def test_points_from_corner_to_corner(shape):
    x, boxes = X[:, :3], PARTS.copy()
    boxes[0, 3:] = 1.25  # ends outside
    expected = np.zeros((5, 3, *shape))
    for r, c, i, j in np.ndindex(*expected.shape):
        n, x1, y1, x2, y2 = boxes[r].astype(float)
        part = [k / (m - 1) if m > 1 else 0.5 for k, m in zip((i, j), shape, strict=True)]
        y, z = (y1 + (y2 - y1) * part[0]) * 8, (x1 + (x2 - x1) * part[1]) * 7
        if 0 <= y <= 8 and 0 <= z <= 7:
            expected[r, c, i, j] = between(x[int(n), c], y, z)
    how = {"spatial_scale": 0.7, "method": "bilinear"}
    y = ops.roi_pooling(x, boxes, pooled_h=shape[0], pooled_w=shape[1], **how)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    agree(2, "ROIPooling", [x, boxes], {"output_roi": list(shape), **how}, y)


def test_largest_elements():
    how = {"spatial_scale": 0.7, "method": "max"}
    y = ops.roi_pooling(X, PIXELS, pooled_h=2, pooled_w=3, **how)
    np.testing.assert_array_equal(ops.roi_pooling(X, PIXELS, output_roi=(2, 3), output_size=(2, 3), **how), y)
    np.testing.assert_array_equal(y, jo.max_roi_pool(X, PIXELS, pooled_shape=(2, 3), spatial_scale=0.7))
    agree(2, "ROIPooling", [X, PIXELS], {"output_roi": [2, 3], **how}, y)


def test_mean_of_the_elements_of_a_bin():
    how = {"output_dim": 2, "group_size": 3, "spatial_scale": 0.8, "mode": "average"}
    expected = np.zeros((5, 2, 3, 3))
    for r, c, i, j in np.ndindex(*expected.shape):
        n, *corners = np.floor(PIXELS[r].astype(float) + 0.5)
        corners = np.array(corners, np.float32) + np.array([0, 0, 1, 1], np.float32)
        x1, y1, x2, y2 = corners * np.float32(0.8)
        ends = []
        for low, high, k, size in ((y1, y2, i, 9), (x1, x2, j, 8)):
            step = (high - low) / np.float32(3)
            ends.append((min(int(low + k * step), size - 1), min(int(np.ceil(low + (k + 1) * step)), size)))
        (a, b), (d, e) = ends
        expected[r, c, i, j] = X[int(n), (c * 3 + i) * 3 + j, a:b, d:e].astype(float).mean()
    y = jax.jit(lambda *v: ops.psroi_pooling(*v, **how))(X, PIXELS)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    agree(1, "PSROIPooling", [X, PIXELS], {**how, "spatial_bins_x": 1, "spatial_bins_y": 1}, y)


@pytest.mark.parametrize("group", [1, 3])
def test_points_of_bins(group):
    how = {"output_dim": 3, "group_size": group, "spatial_bins_x": 3, "spatial_bins_y": 2, "mode": "bilinear"}
    expected = np.zeros((5, 3, group, group))
    for r, c, i, j in np.ndindex(*expected.shape):
        n, x1, y1, x2, y2 = PARTS[r].astype(float)
        for a, b in np.ndindex(2, 3):
            part = [k / (group - 1) if group > 1 else 0.5 for k in (i, j)]
            y = (y1 + (y2 - y1) / 2 * (a + part[0])) * 8
            z = (x1 + (x2 - x1) / 3 * (b + part[1])) * 7
            if y < 9 and z < 8:
                expected[r, c, i, j] += between(X[int(n), (a * 3 + b) * 3 + c], y, z) / 6
    y = ops.psroi_pooling(X, PARTS, spatial_scale=1.0, **how)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    agree(1, "PSROIPooling", [X, PARTS], {**how, "spatial_scale": 1.0}, y)


@pytest.mark.parametrize("kinds", [0, 1, 2])
def test_moved_bins(kinds):
    how = {
        "output_dim": 2,
        "group_size": 3,
        "spatial_scale": 0.8,
        "spatial_bins_x": 2,
        "spatial_bins_y": 3,
        "trans_std": 0.2,
        "part_size": 2,
        "mode": "bilinear_deformable",
    }
    moves = RNG.normal(size=(5, 2 * kinds, 2, 2)).astype(np.float32)
    boxes = PIXELS.copy()
    boxes[4, 0] = -1
    expected = np.zeros((5, 2, 3, 3))
    for r, c, i, j in np.ndindex(4, 2, 3, 3):
        n, *corners = np.floor(boxes[r].astype(float) + 0.5)
        low = [corners[1] * 0.8 - 0.5, corners[0] * 0.8 - 0.5]
        side = [(corners[3 - k] + 1) * 0.8 - 0.5 - low[k] for k in (0, 1)]
        first = [low[k] + side[k] / 3 * (i, j)[k] for k in (0, 1)]
        if kinds:
            group = c * kinds // 2
            first = [first[k] + moves[r, 2 * group + 1 - k, i * 2 // 3, j * 2 // 3] * 0.2 * side[k] for k in (0, 1)]
        values = []
        for a, b in np.ndindex(3, 2):
            y, z = first[0] + side[0] / 9 * a, first[1] + side[1] / 6 * b
            if -0.5 <= y <= 8.5 and -0.5 <= z <= 7.5:
                values.append(between(X[int(n), (c * 3 + i) * 3 + j], y, z))
        expected[r, c, i, j] = np.mean(values) if values else 0
    inputs = [X, boxes, moves] if kinds else [X, boxes]
    y = jax.jit(lambda *v: ops.deformable_psroi_pooling(*v, **how))(*inputs)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    agree(1, "DeformablePSROIPooling", [v[:4] if v is not X else v for v in inputs], how, y[:4])


def test_gradients():
    boxes, x = jnp.asarray(PARTS), jnp.asarray(X[:, :6])
    for fn in (
        lambda x: ops.roi_pooling(x, boxes, pooled_h=2, pooled_w=2, spatial_scale=1.0, method="bilinear"),
        lambda x: ops.psroi_pooling(x, jnp.asarray(PIXELS), output_dim=6, spatial_scale=1.0),
        lambda x: ops.psroi_pooling(x, boxes, output_dim=6, spatial_scale=1.0, mode="bilinear"),
        lambda x: ops.deformable_psroi_pooling(x, jnp.asarray(PIXELS), output_dim=6, spatial_scale=1.0),
    ):
        check_grads(fn, (x,), 1, ["rev"], 1e-2, 1e-2)


BINS = {"spatial_scale": 1.0}
GROUPED = {"output_dim": 2, "spatial_scale": 1.0, "group_size": 3}


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ShapeError,
            r"`coords` of \(5, 4\) must be \(R, 5\): image, x1",
            lambda: ops.roi_pooling(X, PIXELS[:, 1:], pooled_h=1, pooled_w=1, spatial_scale=1.0),
        ),
        (
            ShapeError,
            r"`input` of \(2, 17, 9, 8\) must be \(N, 18,",
            lambda: ops.psroi_pooling(X[:, 1:], PIXELS, **GROUPED),
        ),
        (
            ShapeError,
            r"`output_roi` \(2,\) must be two numbers",
            lambda: ops.roi_pooling(X, PIXELS, output_roi=(2,), **BINS),
        ),
        (ArgumentError, "`pooled_h` is 0; it must be", lambda: ops.roi_pooling(X, PIXELS, **BINS)),
        (ArgumentError, "`mode` is 'max'", lambda: ops.psroi_pooling(X, PIXELS, **GROUPED, mode="max")),
        (
            ShapeError,
            r"`offsets` of \(5, 2, 1, 1\) must be \(5, 2·K, 3, 3\)",
            lambda: ops.deformable_psroi_pooling(X, PIXELS, np.zeros((5, 2, 1, 1), np.float32), **GROUPED, part_size=3),
        ),
        (
            ShapeError,
            "must have two channels for each group of the 2 output channels",
            lambda: ops.deformable_psroi_pooling(X, PIXELS, np.zeros((5, 3, 1, 1), np.float32), **GROUPED),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
