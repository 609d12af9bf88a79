"""DetectionOutput against a loop in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import ArgumentError, ShapeError, SignatureError
from jaxops.openvino import ops

P, C = 20, 4
CENTER = "caffe.PriorBoxParameter.CENTER_SIZE"
CASES = [
    {},
    {"code_type": CENTER},
    {"share_location": False, "clip_after_nms": True},
    {"variance_encoded_in_target": True, "clip_before_nms": True, "keep_top_k": [6]},
    {"top_k": 5, "keep_top_k": [-1]},
    {"decrease_label_id": True, "top_k": 7},
    {"decrease_label_id": True, "keep_top_k": [3]},
    {"normalized": False, "input_height": 100, "input_width": 200},
    {"aux": True, "objectness_score": 0.3},
    {"aux": True, "objectness_score": 0.3, "normalized": False, "input_height": 2, "input_width": 3},
    {"keep_top_k": [-1], "background_label_id": -1, "confidence_threshold": 0.6},
]


def operands(seed=0, n=2, aux=False, **case):
    rng = np.random.default_rng(seed)
    locations = 1 if case.get("share_location", True) else C
    moves = rng.normal(size=(n, P * locations * 4))
    scores = rng.uniform(size=(n, P * C))
    low = rng.uniform(0, 0.7, (n, P, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.1, 0.4, (n, P, 2))], -1)
    if not case["normalized"]:
        size = [case["input_width"], case["input_height"]] * 2
        boxes = np.concatenate([np.zeros((n, P, 1)), boxes * size], -1)
    encoded = case.get("variance_encoded_in_target", False)
    rows = [boxes.reshape(n, -1)] + [] * encoded
    rows += [] if encoded else [np.full((n, rows[0].shape[1]), 0.1)]
    values = [moves * (0.1 if encoded else 1), scores, np.stack(rows, 1)]
    values += [rng.uniform(size=(n, P * 2)), rng.normal(size=moves.shape)] if aux else []
    return [v.astype(np.float32) for v in values]


def overlap(a, b):
    edges = [min(a[2 + i], b[2 + i]) - max(a[i], b[i]) for i in (0, 1)]
    area = [max(x[2] - x[0], 0) * max(x[3] - x[1], 0) for x in (a, b)]
    common = edges[0] * edges[1] if min(edges) > 0 else 0
    return common / (sum(area) - common) if common else 0


def formula(moves, scores, priors, objects=None, first=None, **case):
    n, shared = len(moves), case.get("share_location", True)
    scores = scores.reshape(n, P, C).astype(float)
    if objects is not None:
        absent = objects.reshape(n, P, 2)[..., 1] < case["objectness_score"]
        scores[absent] = np.arange(C) == case["background_label_id"]
    rows = []
    for i in range(n):
        chosen = []
        decoded = {}
        for c in range(C):
            boxes = priors[i, 0].reshape(P, -1)[:, -4:].astype(float)
            for deltas in (first, moves):
                if deltas is None:
                    continue
                if not case["normalized"]:
                    boxes = boxes / ([case["input_width"], case["input_height"]] * 2)
                d = deltas[i].reshape(P, -1, 4)[:, 0 if shared else c].astype(float)
                d = d if case.get("variance_encoded_in_target") else d * priors[i, 1, : P * 4].reshape(P, 4)
                if case.get("code_type") == CENTER:
                    side, centre = boxes[:, 2:] - boxes[:, :2], (boxes[:, 2:] + boxes[:, :2]) / 2
                    centre, half = centre + d[:, :2] * side, np.exp(d[:, 2:]) * side / 2
                    boxes = np.concatenate([centre - half, centre + half], 1)
                else:
                    boxes = boxes + d
                boxes = np.clip(boxes, 0, 1) if case.get("clip_before_nms") else boxes
            decoded[c] = boxes
        if case.get("decrease_label_id"):
            pairs = [(p, 1 + int(np.argmax(scores[i, p, 1:]))) for p in range(P)]
            pairs = [(p, c) for p, c in pairs if scores[i, p, c] >= case["confidence_threshold"]]
            groups = [pairs]
        else:
            groups = [
                [(p, c) for p in range(P) if scores[i, p, c] > case["confidence_threshold"]]
                for c in range(C)
                if c != case["background_label_id"]
            ]
        for group in groups:
            group = sorted(group, key=lambda pc: (-scores[i, pc[0], pc[1]], pc[0]))
            group = group[: case["top_k"]] if case.get("top_k", -1) >= 0 else group
            kept = []
            for p, c in group:
                if all(c != d or overlap(decoded[c][p], decoded[c][q]) <= case["nms_threshold"] for q, d in kept):
                    kept.append((p, c))
            chosen += kept
        limit = case["keep_top_k"][0]
        chosen = sorted(chosen, key=lambda pc: (-scores[i, pc[0], pc[1]], pc[0]))
        chosen = chosen[:limit] if limit >= 0 else chosen
        for p, c in sorted(chosen, key=lambda pc: (pc[1], -scores[i, pc[0], pc[1]], pc[0])):
            box = np.clip(decoded[c][p], 0, 1) if case.get("clip_after_nms") else decoded[c][p]
            rows.append([i, c - case.get("decrease_label_id", False), scores[i, p, c], *box])
    limit = case["keep_top_k"][0]
    size = n * limit if limit > 0 else n * C * (case["top_k"] if case.get("top_k", -1) > 0 else P)
    y = np.zeros((size, 7))
    y[: len(rows)] = rows
    if len(rows) < size:
        y[len(rows), 0] = -1
    return y[None, None]


@pytest.mark.grid
@pytest.mark.parametrize("case", CASES, ids=str)
def test_detection_output(case):
    base = {"keep_top_k": [9], "nms_threshold": 0.3, "normalized": True, "background_label_id": 0}
    case = {**base, "confidence_threshold": 0.3, **case}
    values = operands(**case)
    case.pop("aux", None)
    y = jax.jit(lambda *v: ops.detection_output(*v, **case))(*values)
    np.testing.assert_allclose(y, formula(*values, **case), atol=1e-5)
    agree(8, "DetectionOutput", values, case, y)


def test_version_1_tells_the_number_of_classes():
    case = {"keep_top_k": [9], "nms_threshold": 0.3, "normalized": True, "num_classes": C}
    values = operands(**case)
    agree(1, "DetectionOutput", values, case, ops.detection_output(*values, **case))


def test_one_image_of_boxes_serves_all():
    case = {"keep_top_k": [9], "nms_threshold": 0.3, "normalized": True}
    moves, scores, priors = operands(**case)
    y = ops.detection_output(moves, scores, priors[:1], **case)
    assert y.dtype == np.float32
    both = np.concatenate([priors[:1]] * 2)
    np.testing.assert_allclose(y, ops.detection_output(moves, scores, both, **case))


M, S, B = operands(normalized=True)


@pytest.mark.parametrize(
    ("error", "text", "change"),
    [
        (SignatureError, "`aux_class_preds` and `aux_box_preds` must be given together", {"aux_class_preds": S}),
        (ArgumentError, "`keep_top_k` is empty", {"keep_top_k": []}),
        (ArgumentError, "`code_type` is 'corner'", {"code_type": "corner"}),
        (ShapeError, r"`proposals` of \(2, 2, 80\) must be \(1, 1, 80\)", {"variance_encoded_in_target": True}),
        (ShapeError, "must have 5 numbers for each box", {"normalized": False, "proposals": B[..., :72]}),
        (ShapeError, "a number for each class and each of 20 boxes", {"class_preds": S[:, :70]}),
        (ShapeError, "`num_classes` is 5, but `class_preds` has 4 for each box", {"num_classes": 5}),
        (ShapeError, r"`box_logits` of \(2, 80\) must be \(2, 320\)", {"share_location": False}),
        (ShapeError, r"`proposals` \(80,\) three", {"proposals": B[0, 0]}),
    ],
)
def test_errors(error, text, change):
    arguments = {"box_logits": M, "class_preds": S, "proposals": B, "keep_top_k": [3], "nms_threshold": 0.3}
    with pytest.raises(error, match=text):
        ops.detection_output(**{**arguments, "normalized": True, **change})
