"""The operators of Detectron's networks against loops in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError
from jaxops.openvino import ops

RNG = np.random.default_rng(5)
H, W, A = 4, 5, 3
LOW = RNG.uniform(0, 60, (H, W, A, 2))
ANCHORS = np.concatenate([LOW, LOW + RNG.uniform(3, 30, (H, W, A, 2))], -1).astype(np.float32)
DELTAS = (RNG.normal(size=(2, A * 4, H, W)) * 0.3).astype(np.float32)
DELTAS[0, 2, 1, 1] = 9  # a logarithm beyond the limit
SCORES = RNG.uniform(size=(2, A, H, W)).astype(np.float32)
INFO = np.array([[70, 80, 1, 1], [60, 60, 1.2, 0.5]], np.float32)


def overlap(a, b, one):
    edges = [min(a[2 + i], b[2 + i]) - max(a[i], b[i]) for i in (0, 1)]
    if min(edges) < 0:
        return 0
    areas = [(x[2] - x[0] + one) * (x[3] - x[1] + one) for x in (a, b)]
    common = (edges[0] + one) * (edges[1] + one)
    return common / (sum(areas) - common) if sum(areas) > common else 0


MOST_LOG = np.log(1000 / 16)


def moved(box, d, one, most=MOST_LOG):
    box, d = np.asarray(box, float), np.asarray(d, float)
    side = box[2:] - box[:2] + one
    centre = d[:2] * side + box[:2] + side / 2
    half = np.exp(np.minimum(d[2:], most)) * side / 2
    return np.concatenate([centre - half, centre + half - one])


def thinned(pairs, threshold, most, one, eta=1.0):
    chosen = []
    for box, score in pairs:
        if len(chosen) < most and all(overlap(box, other, one) <= threshold for other, _ in chosen):
            chosen.append((box, score))
            threshold *= eta if threshold > 0.5 else 1
    return chosen


def proposals(deltas, scores, info, one, one_of_overlaps, drop_first, **how):
    pairs = []
    for i, j, k in np.ndindex(H, W, A):
        box = moved(ANCHORS[i, j, k], deltas[4 * k : 4 * k + 4, i, j], one)
        box = np.clip(box, 0, np.tile(info[1::-1] - one, 2))
        least = how["min_size"] * (np.ones(2) if drop_first else info[[-1, 2]])
        pairs.append((box, scores[k, i, j], (box[2:] - box[:2] + one >= least).all()))
    pairs = [pair for pair in pairs if pair[2]] if drop_first else pairs
    pairs = sorted(pairs, key=lambda pair: -pair[1])[: how["pre_nms_count"]]
    pairs = [(box, score) for box, score, large in pairs if large]
    return thinned(pairs, how["nms_threshold"], how["post_nms_count"], one_of_overlaps, how.get("nms_eta", 1.0))


@pytest.mark.parametrize("how", [{}, {"stride_x": 3.0, "stride_y": 2.0, "flatten": False}, {"h": 2, "w": 3}], ids=str)
def test_prior_grid(how):
    priors, maps = ANCHORS[0, 0], [np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 30, 50), np.float32)]
    h, w = how.get("h", 3), how.get("w", 4)
    steps = [how.get("stride_y") or 30 / h, how.get("stride_x") or 50 / w]
    centres = [((i + 0.5) * steps[0], (j + 0.5) * steps[1]) for i, j in np.ndindex(h, w)]
    expected = np.concatenate([priors + np.array([x, y, x, y]) for y, x in centres])
    y = jax.jit(lambda *v: ops.experimental_detectron_prior_grid_generator(*v, **how))(priors, *maps)
    assert y.shape == ((36, 4) if how.get("flatten", True) else (3, 4, 3, 4))
    np.testing.assert_allclose(y.reshape(-1, 4)[: len(expected)], expected, rtol=1e-6)
    np.testing.assert_array_equal(y.reshape(-1, 4)[len(expected) :], 0)
    if "h" not in how:  # else the plugin leaves the rest as the memory was
        every = {"flatten": True, "h": 0, "w": 0, "stride_x": 0.0, "stride_y": 0.0, **how}
        agree(6, "ExperimentalDetectronPriorGridGenerator", [priors, *maps], every, y)


def test_best_boxes():
    boxes, scores = ANCHORS[0, :, 0], np.array([0.3, 0.9, 0.1, 0.9, 0.5], np.float32)
    y = ops.experimental_detectron_topk_rois(boxes, scores, max_rois=3)
    np.testing.assert_array_equal(y, boxes[[1, 3, 4]])
    more = ops.experimental_detectron_topk_rois(boxes, scores, max_rois=7)
    np.testing.assert_array_equal(more[5:], 0)
    np.testing.assert_array_equal(more[:5], boxes[[1, 3, 4, 0, 2]])
    scores[3] = 0.8
    y = ops.experimental_detectron_topk_rois(boxes, scores, max_rois=3)
    agree(6, "ExperimentalDetectronTopKROIs", [boxes, scores], {"max_rois": 3}, y)


@pytest.mark.parametrize("change", [{}, {"post_nms_count": 30}, {"min_size": 18.0, "pre_nms_count": 60}], ids=str)
def test_proposals_of_one_image(change):
    how = {"min_size": 6.0, "nms_threshold": 0.4, "pre_nms_count": 40, "post_nms_count": 12, **change}
    inputs = [INFO[0, :3], ANCHORS.reshape(-1, 4), DELTAS[0], SCORES[0]]
    expected = proposals(DELTAS[0], SCORES[0], INFO[0], 1, 0, True, **how)
    fn = ops.experimental_detectron_generate_proposals_single_image
    boxes, scores = jax.jit(lambda *v: fn(*v, **how))(*inputs)
    count = len(expected)
    np.testing.assert_allclose(boxes[:count], [box for box, _ in expected], atol=1e-4)
    np.testing.assert_allclose(scores[:count], [score for _, score in expected])
    assert not np.any(boxes[count:])
    assert not np.any(scores[count:])
    if "min_size" not in change:  # the plugin keeps small boxes with a score of 0
        agree(6, "ExperimentalDetectronGenerateProposalsSingleImage", inputs, how, (boxes, scores), atol=1e-4)


@pytest.mark.parametrize("numbers", [3, 4])
@pytest.mark.parametrize("change", [{}, {"normalized": False}, {"post_nms_count": 30}, {"nms_eta": 0.7}], ids=str)
def test_proposals_of_images(change, numbers):
    how = {"min_size": 6.0, "nms_threshold": 0.6, "pre_nms_count": 40, "post_nms_count": 12, **change}
    info, one = INFO[:, :numbers], 0 if how.get("normalized", True) else 1
    inputs = [info, ANCHORS, DELTAS, SCORES]
    expected = [proposals(DELTAS[n], SCORES[n], info[n], one, one, False, **how) for n in range(2)]
    found = ops.generate_proposals(*inputs, **how)
    np.testing.assert_allclose(found[0], [box for part in expected for box, _ in part], atol=1e-4)
    np.testing.assert_allclose(found[1], [score for part in expected for _, score in part])
    np.testing.assert_array_equal(found[2], [len(part) for part in expected])
    if "nms_eta" not in change:  # which OpenVINO refuses
        agree(9, "GenerateProposals", inputs, how, found, atol=1e-4)
    rows = len(found[0])
    sized = jax.jit(lambda *v: ops.generate_proposals(*v, **how, size=rows + 1, roi_num_type="int32"))(*inputs)
    np.testing.assert_allclose(sized[0][:rows], found[0], atol=1e-5)
    assert np.asarray(sized[0])[rows:].tolist() == [[-1] * 4]
    np.testing.assert_array_equal(sized[2], found[2])


R, C = 12, 4
BOXES = np.concatenate([LOW.reshape(-1, 2)[:R], LOW.reshape(-1, 2)[:R] + RNG.uniform(3, 30, (R, 2))], 1)
BOXES[3, 2:] = BOXES[3, :2]
OUTPUT = {
    "score_threshold": 0.2,
    "nms_threshold": 0.4,
    "num_classes": C,
    "post_nms_count": 20,
    "max_detections_per_image": R,
    "max_delta_log_wh": 4.0,
    "deltas_weights": [10.0, 10.0, 5.0, 5.0],
    "class_agnostic_box_regression": False,
}


@pytest.mark.parametrize("change", [{}, {"max_detections_per_image": 8}, {"post_nms_count": 2}], ids=str)
def test_detection_output(change):
    how = {**OUTPUT, **change}
    rng = np.random.default_rng(2)
    deltas = (rng.normal(size=(R, C * 4)) * 3).astype(np.float32)
    scores = rng.uniform(size=(R, C)).astype(np.float32)
    rois = BOXES.astype(np.float32)
    rows = []
    for c in range(1, C):
        pairs = []
        for i in np.argsort(-scores[:, c]):
            if scores[i, c] > 0.2 and (rois[i, 2:] > rois[i, :2]).all():
                box = moved(rois[i], deltas[i, 4 * c : 4 * c + 4] / how["deltas_weights"], 1, 4.0)
                pairs.append((np.maximum(box, 0), scores[i, c]))
        rows += [(c, *row) for row in thinned(pairs, 0.4, how["post_nms_count"], 1)]
    most = how["max_detections_per_image"]
    rows = sorted(rows, key=lambda row: -row[2])[:most] if len(rows) > most else rows
    inputs = [rois, deltas, scores, np.array([[70, 80, 1]], np.float32)]
    found = jax.jit(lambda *v: ops.experimental_detectron_detection_output(*v, **how))(*inputs)
    count = len(rows)
    np.testing.assert_allclose(found[0][:count], [row[1] for row in rows], atol=1e-4)
    np.testing.assert_array_equal(found[1][:count], [row[0] for row in rows])
    np.testing.assert_allclose(found[2][:count], [row[2] for row in rows])
    assert not any(np.any(v[count:]) for v in found)
    agree(6, "ExperimentalDetectronDetectionOutput", inputs, how, found, atol=1e-4)


COUNTS = {"min_size": 0.0, "nms_threshold": 0.5, "pre_nms_count": 3, "post_nms_count": 3}


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            StaticError,
            "the number of proposals depends on operands that are traced",
            lambda: jax.jit(lambda s: ops.generate_proposals(INFO, ANCHORS, DELTAS, s, **COUNTS))(SCORES),
        ),
        (
            ShapeError,
            r"`boxesdeltas` of \(2, 11, 4, 5\) must be \(2, 12, 4, 5\)",
            lambda: ops.generate_proposals(INFO, ANCHORS, DELTAS[:, 1:], SCORES, **COUNTS),
        ),
        (
            DTypeError,
            "`roi_num_type` is uint8",
            lambda: ops.generate_proposals(INFO, ANCHORS, DELTAS, SCORES, **COUNTS, roi_num_type="uint8"),
        ),
        (
            ArgumentError,
            "`h` is 9, but the feature map has 3 cells along it",
            lambda: ops.experimental_detectron_prior_grid_generator(
                ANCHORS[0, 0], np.zeros((1, 2, 3, 4)), np.zeros((1, 2, 3, 4)), h=9
            ),
        ),
        (
            ArgumentError,
            r"`deltas_weights` \[1.0\] must be four numbers",
            lambda: ops.experimental_detectron_detection_output(
                ANCHORS[0, 0],
                np.zeros((3, 16), np.float32),
                np.zeros((3, 4), np.float32),
                INFO[:1, :3],
                **{**OUTPUT, "deltas_weights": [1.0]},
            ),
        ),
        (
            ShapeError,
            r"`rois_probs` of \(2,\) must be \(3,\)",
            lambda: ops.experimental_detectron_topk_rois(ANCHORS[0, 0], np.zeros(2, np.float32)),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
