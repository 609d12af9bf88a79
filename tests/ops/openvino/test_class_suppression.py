"""MatrixNms and MulticlassNms against loops in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import ArgumentError, ShapeError, StaticError
from jaxops.openvino import ops

RNG = np.random.default_rng(4)
N, C, P = 2, 3, 25
LOW = RNG.uniform(0, 0.7, (N, P, 2))
BOXES = np.concatenate([LOW, LOW + RNG.uniform(0.1, 0.4, (N, P, 2))], -1).astype(np.float32)
SCORES = RNG.uniform(size=(N, C, P)).astype(np.float32)


def overlap(a, b, one, gap):
    edges = [min(a[2 + i], b[2 + i]) - max(a[i], b[i]) for i in (0, 1)]
    if min(edges) < -gap:
        return 0
    common = max(edges[0] + one, 0) * max(edges[1] + one, 0)
    areas = [(x[2] - x[0] + one) * (x[3] - x[1] + one) for x in (a, b)]
    return common / (sum(areas) - common)


def formula(boxes, scores, choose, least, including, **how):
    """boxes and scores by image and class; `choose` gives (box, score) of boxes by falling score."""
    images = []
    for n, by_class in enumerate(scores):
        rows = []
        for c, marks in enumerate(by_class):
            order = sorted(range(len(marks)), key=lambda p: -marks[p])
            order = [p for p in order if marks[p] > least or (including and marks[p] == least)]
            top = how.get("nms_top_k", -1)
            for p, score in choose(boxes[n][c], marks, order[:top] if top >= 0 else order):
                if c != how.get("background_class", -1):
                    rows.append((c, score, n, p))
        rows.sort(key=lambda row: (-row[1], row[0]))
        top = how.get("keep_top_k", -1)
        images.append(rows[:top] if top >= 0 else rows)
    counts = [len(rows) for rows in images]
    by_class = how.get("sort_result_type", "none") == "classid"
    across = how.get("sort_result_across_batch", False) and how.get("sort_result_type", "none") != "none"
    rows = [row for rows in images for row in rows]
    rows.sort(key=lambda row: (0 if across else row[2], row[0] if by_class else 0, row[2] if by_class else 0, -row[1]))
    table = np.array([(c, score, *boxes[n][c][p]) for c, score, n, p in rows]).reshape(-1, 6)
    return table, rows, counts


def matrix(boxes, scores, **how):
    one = 0 if how.get("normalized", True) else 1

    def choose(boxes, marks, order):
        common = [[overlap(boxes[p], boxes[q], one, 0) for q in order] for p in order]
        worst = [max(common[i][:i], default=0) for i in range(len(order))]
        sigma = how.get("gaussian_sigma", 2.0)
        for i, p in enumerate(order):
            factors = [1.0]
            for j in range(i):
                x, m = common[i][j], worst[j]
                is_gaussian = how.get("decay_function") == "gaussian"
                factors.append(np.exp((m * m - x * x) * sigma) if is_gaussian else (1 - x) / (1 - m))
            if min(factors) * marks[p] > how.get("post_threshold", 0):
                yield p, min(factors) * marks[p]

    return formula(boxes, scores, choose, how.get("score_threshold", 0), False, **how)


def multiclass(boxes, scores, **how):
    one = 0 if how.get("normalized", True) else 1

    def choose(boxes, marks, order):
        chosen, limit = [], how["iou_threshold"]
        for p in order:
            if all(overlap(boxes[p], boxes[q], one, one) <= limit for q in chosen):
                chosen.append(p)
                limit *= how.get("nms_eta", 1.0) if limit > 0.5 else 1
                yield p, marks[p]

    return formula(boxes, scores, choose, how.get("score_threshold", 0), True, **how)


def check(found, expected, index):
    table, rows, counts = expected
    np.testing.assert_allclose(found[0], table, atol=1e-5)
    np.testing.assert_array_equal(found[1], np.array([index(*row) for row in rows]).reshape(-1, 1))
    np.testing.assert_array_equal(found[2], counts)


SHARED = np.repeat(BOXES[:, None], C, 1)
ORDERS = [
    {},
    {"sort_result_type": "score"},
    {"sort_result_type": "classid", "keep_top_k": 9},
    {"sort_result_type": "score", "sort_result_across_batch": True},
    {"sort_result_type": "classid", "sort_result_across_batch": True, "keep_top_k": 9},
]
MATRIX = [
    *ORDERS,
    {"decay_function": "gaussian", "nms_top_k": 7, "keep_top_k": 11, "post_threshold": 0.1, "gaussian_sigma": 1.5},
    {"background_class": 1, "normalized": False, "score_threshold": 0.3},
]
MULTICLASS = [
    *({"iou_threshold": 0.3, **order} for order in ORDERS),
    {"iou_threshold": 0.8, "nms_eta": 0.7, "nms_top_k": 17, "keep_top_k": 31},
    {"iou_threshold": 0.3, "background_class": 1, "normalized": False, "score_threshold": 0.3},
]


@pytest.mark.parametrize("how", MATRIX, ids=str)
def test_matrix_nms(how):
    found = ops.matrix_nms(BOXES, SCORES, **how)
    check(found, matrix(SHARED, SCORES, **how), lambda c, score, n, p: n * P + p)
    # The plugin sorts by class across the batch alone; the text sorts each image, too.
    if how.get("sort_result_type") != "classid" or how.get("sort_result_across_batch"):
        agree(8, "MatrixNms", [BOXES, SCORES], how, found)
    sized = jax.jit(lambda *v: ops.matrix_nms(*v, **how, size=200))(BOXES, SCORES)
    count = len(found[0])
    np.testing.assert_allclose(sized[0][:count], found[0], atol=1e-6)
    np.testing.assert_array_equal(sized[0][count:], -1)
    np.testing.assert_array_equal(sized[1][:, 0], [*found[1][:, 0], *[-1] * (200 - count)])


@pytest.mark.parametrize("how", MULTICLASS, ids=str)
def test_multiclass_nms(how):
    found = ops.multiclass_nms(BOXES, SCORES, **how)
    check(found, multiclass(SHARED, SCORES, **how), lambda c, score, n, p: n * P + p)
    agree(9, "MulticlassNms", [BOXES, SCORES], how, found)


@pytest.mark.parametrize("order", ["classid", "score"])
def test_boxes_of_each_class_for_all_images(order):
    boxes = np.repeat(BOXES.reshape(1, -1, 4), C, 0) + RNG.normal(0, 0.01, (C, 1, 4)).astype(np.float32)
    scores = RNG.uniform(size=(C, N * P)).astype(np.float32)
    counts, how = np.array([20, 0, 30]), {"iou_threshold": 0.3, "sort_result_type": order, "keep_top_k": 25}
    found = ops.multiclass_nms(boxes, scores, counts, **how)
    parts = [slice(0, 20), slice(20, 20), slice(20, 50)]
    expected = multiclass([boxes[:, s] for s in parts], [scores[:, s] for s in parts], **how)
    check(found, expected, lambda c, score, n, p: (parts[n].start + p) * C + c)
    agree(9, "MulticlassNms", [boxes, scores, counts], how, found)


def test_nothing_remains():
    found = ops.matrix_nms(BOXES, SCORES, score_threshold=2.0)
    assert [v.shape for v in found] == [(0, 6), (0, 1), (2,)]
    assert np.asarray(found[2]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (StaticError, "the number of selected boxes", lambda: jax.jit(ops.matrix_nms)(BOXES, SCORES)),
        (
            ArgumentError,
            "`sort_result_type` is 'class'",
            lambda: ops.matrix_nms(BOXES, SCORES, sort_result_type="class"),
        ),
        (ArgumentError, "`nms_top_k` is -2", lambda: ops.multiclass_nms(BOXES, SCORES, nms_top_k=-2)),
        (
            ShapeError,
            r"`boxes` of \(2, 25, 4\) must be \(N, P, 4\), and `scores` of \(2, 25\) must be \(N, C, P\)",
            lambda: ops.multiclass_nms(BOXES, SCORES[:, 0]),
        ),
        (
            ShapeError,
            r"must be \(C, P, 4\), and `scores` of \(2, 3, 25\) must be \(C, P\)",
            lambda: ops.multiclass_nms(BOXES, SCORES, np.array([25, 25])),
        ),
        (
            ShapeError,
            r"`roisnum` of \(1, 1\) must be \(N,\)",
            lambda: ops.multiclass_nms(BOXES, SCORES[:, 0], np.array([[25]])),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
