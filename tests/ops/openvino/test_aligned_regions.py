"""ROIAlign, ROIAlignRotated and the pooling of a pyramid against loops in NumPy and against OpenVINO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree, runtime

from jaxops.errors import ArgumentError, DTypeError, ShapeError
from jaxops.openvino import ops

RNG = np.random.default_rng(8)
X = RNG.normal(size=(2, 3, 9, 8)).astype(np.float32)
CORNERS = RNG.uniform(-2, 9, (5, 2))
ROIS = np.concatenate([CORNERS, CORNERS + RNG.uniform(0.2, 9, (5, 2))], 1).astype(np.float32)
TURNED = [RNG.uniform(1, 7, (5, 2)), RNG.uniform(1, 5, (5, 2)), RNG.uniform(-3, 3, (5, 1))]
TURNED = np.concatenate(TURNED, 1).astype(np.float32)
BATCH = np.array([0, 1, 1, 0, 1])
BASE = {"pooled_h": 2, "pooled_w": 3, "spatial_scale": 0.9}


def sample(image, y, x):
    """An image (C, H, W) between its elements; zero further outside than one element."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    total = 0
    for i in {int(y), min(int(y) + 1, height - 1)}:
        for j in {int(x), min(int(x) + 1, width - 1)}:
            total = total + image[:, i, j].astype(float) * (1 - abs(y - i)) * (1 - abs(x - j))
    return total


def pool(image, start, extent, shape, samples, mode="avg", place=lambda y, x: (y, x)):
    out = np.zeros((len(image), *shape))
    size = [e / n for e, n in zip(extent, shape, strict=True)]
    counts = [samples or int(np.ceil(s)) for s in size]
    for i, j in np.ndindex(*shape):
        values = [
            sample(
                image,
                *place(
                    start[0] + (i + (a + 0.5) / counts[0]) * size[0],
                    start[1] + (j + (b + 0.5) / counts[1]) * size[1],
                ),
            )
            for a, b in np.ndindex(*counts)
        ]
        out[:, i, j] = np.max(values, 0) if mode == "max" else np.mean(values, 0)
    return out


@pytest.mark.grid
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("aligned", ["asymmetric", "half_pixel_for_nn", "half_pixel"])
def test_roi_align(aligned, mode, samples):
    how = {**BASE, "sampling_ratio": samples, "mode": mode, "aligned_mode": aligned}
    expected = []
    for (x1, y1, x2, y2), n in zip(ROIS.astype(float), BATCH, strict=True):
        before, after = (0.5 if aligned == "half_pixel" else 0), (0 if aligned == "asymmetric" else 0.5)
        x1, y1, x2, y2 = ((v + before) * 0.9 - after for v in (x1, y1, x2, y2))
        extent = [y2 - y1, x2 - x1]
        extent = [max(e, 1) for e in extent] if aligned == "asymmetric" else extent
        expected.append(pool(X[n], (y1, x1), extent, (2, 3), samples, mode))
    y = jax.jit(lambda *v: ops.roi_align(*v, **how))(X, ROIS, BATCH)
    np.testing.assert_allclose(y, expected, atol=2e-5)
    if mode == "avg":
        agree(9, "ROIAlign", [X, ROIS, BATCH], how, y)
    else:  # the plugin takes 0 for the largest of negative samples
        np.testing.assert_allclose(np.maximum(y, 0), *runtime(9, "ROIAlign", [X, ROIS, BATCH], how), atol=2e-5)


@pytest.mark.grid
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("clockwise", [True, False])
def test_roi_align_rotated(clockwise, samples):
    how = {**BASE, "sampling_ratio": samples, "clockwise_mode": clockwise}
    expected = []
    for (x, y, w, h, angle), n in zip(TURNED.astype(float), BATCH, strict=True):
        angle = -angle if clockwise else angle
        x, y, w, h = x * 0.9 - 0.5, y * 0.9 - 0.5, w * 0.9, h * 0.9
        c, s = np.cos(angle), np.sin(angle)
        place = lambda a, b, x=x, y=y, c=c, s=s: (a * c - b * s + y, a * s + b * c + x)  # noqa: E731
        expected.append(pool(X[n], (-h / 2, -w / 2), (h, w), (2, 3), samples, place=place))
    y = jax.jit(lambda *v: ops.roi_align_rotated(*v, **how))(X, TURNED, BATCH)
    np.testing.assert_allclose(y, expected, atol=2e-5)
    agree(15, "ROIAlignRotated", [X, TURNED, BATCH], how, y, atol=2e-5)


@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("aligned", [True, False])
def test_a_pyramid(aligned, samples):
    levels = [RNG.normal(size=(1, 2, 64 // 2**i, 48 // 2**i)).astype(np.float32) for i in range(3)]
    corners = RNG.uniform(0, 150, (9, 2))
    rois = np.concatenate([corners, corners + RNG.uniform(1, 400, (9, 2))], 1).astype(np.float32)
    rois[3, 2] = rois[3, 0] - 1
    rois[4, 2:] = rois[4, :2] + 20
    how = {"output_size": 3, "sampling_ratio": samples, "pyramid_scales": [4, 8, 16], "aligned": aligned}
    expected = []
    for box in rois.astype(float):
        area = (box[2] - box[0]) * (box[3] - box[1])
        if area <= 0:
            expected.append(np.zeros((2, 3, 3)))
            continue
        level = int(np.clip(np.floor(2 + np.log2(np.sqrt(area) / 224)), 0, 2))
        x1, y1, x2, y2 = box / how["pyramid_scales"][level] - 0.5 * aligned
        extent = [max(y2 - y1, 1), max(x2 - x1, 1)]
        expected.append(pool(levels[level][0], (y1, x1), extent, (3, 3), samples))
    inputs = [rois, *levels]
    found = jax.jit(lambda rois, *v: ops.experimental_detectron_roi_feature_extractor(rois, v, **how))(*inputs)
    np.testing.assert_allclose(found[0], expected, atol=2e-5)
    np.testing.assert_array_equal(found[1], rois)
    agree(6, "ExperimentalDetectronROIFeatureExtractor", inputs, how, found)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_gradients(mode):
    def pooled(x, rois):
        return ops.roi_align(x, rois, BATCH, **BASE, sampling_ratio=2, mode=mode)

    check_grads(pooled, (jnp.asarray(X), jnp.asarray(ROIS)), 1, ["rev"], 5e-2, 5e-2, 1e-3)
    half = ops.roi_align(X.astype(np.float16), ROIS.astype(np.float16), BATCH, **BASE, sampling_ratio=2, mode=mode)
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, pooled(X, ROIS), atol=2e-2)


HOW = {**BASE, "sampling_ratio": 2, "mode": "avg"}


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`data` of \(3, 9, 8\) must be \(N, C, H, W\)", lambda: ops.roi_align(X[0], ROIS, BATCH, **HOW)),
        (ShapeError, r"`rois` of \(5, 5\) must be \(R, 4\)", lambda: ops.roi_align(X, TURNED, BATCH, **HOW)),
        (ArgumentError, "`mode` is 'sum'", lambda: ops.roi_align(X, ROIS, BATCH, **{**HOW, "mode": "sum"})),
        (
            ArgumentError,
            "`pooled_h` is 0; it must be at least 1",
            lambda: ops.roi_align(X, ROIS, BATCH, **{**HOW, "pooled_h": 0}),
        ),
        (DTypeError, "`batch_indices` must be integers", lambda: ops.roi_align(X, ROIS, BATCH * 1.0, **HOW)),
        (
            ArgumentError,
            r"`pyramid_scales` is \(4, 8\); it must have one number per feature map, 1",
            lambda: ops.experimental_detectron_roi_feature_extractor(
                ROIS, [X[:1]], output_size=2, sampling_ratio=1, pyramid_scales=(4, 8)
            ),
        ),
        (
            ShapeError,
            r"`pyramid 0` of \(2, 3, 9, 8\) must be \(1, 3, H, W\)",
            lambda: ops.experimental_detectron_roi_feature_extractor(
                ROIS, [X], output_size=2, sampling_ratio=1, pyramid_scales=(4,)
            ),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
