"""Proposal against a loop in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import runtime

from jaxops.errors import ArgumentError, DTypeError, ShapeError
from jaxops.openvino import ops

RNG = np.random.default_rng(0)
SCORES = RNG.uniform(size=(2, 12, 5, 7)).astype(np.float32)
DELTAS = (RNG.normal(size=(2, 24, 5, 7)) * 0.3).astype(np.float32)
IMAGE = np.array([60, 80, 1, 1.5], np.float32)
BASE = {
    "base_size": 16,
    "pre_nms_topn": 50,
    "post_nms_topn": 20,
    "nms_thresh": 0.3,
    "feat_stride": 8,
    "min_size": 8,
    "ratio": [0.5, 1.0, 2.0],
    "scale": [1.0, 2.0],
}


def overlap(a, b, one):
    edges = [max(min(a[2 + i], b[2 + i]) - max(a[i], b[i]) + one, 0) for i in (0, 1)]
    area = [(x[2] - x[0] + one) * (x[3] - x[1] + one) for x in (a, b)]
    return edges[0] * edges[1] / (sum(area) - edges[0] * edges[1])


def formula(scores, deltas, image, **how):
    """One image. Anchors have their centre in the middle of a cell of `base_size`; TensorFlow's at its corner."""
    tensorflow = how.get("framework") == "tensorflow"
    one, base = 0 if tensorflow else 1, how["base_size"]
    limits = image[:2] if tensorflow else image[1::-1]
    boxes = []
    for i, j in np.ndindex(*scores.shape[1:]):
        for k, (ratio, scale) in enumerate((r, s) for r in how["ratio"] for s in how["scale"]):
            w = np.sqrt(base * base / ratio)
            w = w if tensorflow else np.floor(w + 0.5)
            h = w * ratio if tensorflow else np.floor(w * ratio + 0.5)
            middle = (base - one) / 2 - (base / 2 if tensorflow else 0)
            at = np.array([i, j] if tensorflow else [j, i]) * how["feat_stride"] + middle
            half = (np.array([w, h]) * scale - one) / 2
            box = np.concatenate([at - half, at + half])
            box = np.clip(box, 0, [*limits, *limits]) if tensorflow else box
            side = box[2:] - box[:2] + one
            d = deltas[4 * k : 4 * k + 4, i, j].astype(float)
            centre = box[:2] + side / 2 + d[:2] / how.get("box_coordinate_scale", 1) * side
            half = np.exp(d[2:] / how.get("box_size_scale", 1)) * side / 2
            box = np.concatenate([centre - half, centre + half])
            box = np.clip(box, 0, np.tile(limits - one, 2)) if how.get("clip_before_nms", True) else box
            fits = (box[2:] - box[:2] + one >= how["min_size"] * image[[-1, 2]]).all()
            boxes.append((float(scores[scores.shape[0] // 2 + k, i, j]) * fits, box))
    chosen = []
    for score, box in sorted(boxes, key=lambda pair: -pair[0])[: how["pre_nms_topn"]]:
        if all(overlap(box, other, one) <= how["nms_thresh"] for _, other in chosen):
            chosen.append((score, box))
    chosen = chosen[: how["post_nms_topn"]]
    rows = np.zeros((how["post_nms_topn"], 6))
    for row, (score, box) in zip(rows, chosen, strict=False):
        box = np.clip(box, 0, np.tile(limits, 2)) if how.get("clip_after_nms") else box
        row[1:] = [*(box / np.tile(limits, 2) if how.get("normalize") else box), score]
    return rows, len(chosen)


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"framework": "tensorflow"},
        {"normalize": True, "clip_after_nms": True, "clip_before_nms": False},
        {"box_size_scale": 5.0, "box_coordinate_scale": 10.0},
    ],
    ids=str,
)
def test_proposal(case):
    how = {**BASE, **case}
    boxes, scores = jax.jit(lambda *v: ops.proposal(*v, **how))(SCORES, DELTAS, IMAGE)
    counts = []
    for n in range(2):
        expected, count = formula(SCORES[n], DELTAS[n], IMAGE, **how)
        counts.append(count)
        expected[:count, 0] = n
        expected[count : count + 1, 0] = -1
        np.testing.assert_allclose(boxes[20 * n : 20 * n + 20], expected[:, :5], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(scores[20 * n : 20 * n + 20], expected[:, 5], atol=1e-6)
    theirs = runtime(4, "Proposal", [SCORES, DELTAS, IMAGE], how)
    for n, count in enumerate(counts):  # what stands behind the -1 is whatever the memory held
        rows = slice(20 * n, 20 * n + count)
        np.testing.assert_allclose(boxes[rows], theirs[0][rows], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(scores[rows], theirs[1][rows], atol=1e-6)


@pytest.mark.parametrize(
    ("error", "text", "change"),
    [
        (ShapeError, r"`class_probs` of \(2, 10, 5, 7\) must be \(N, 12, H, W\)", {"class_probs": SCORES[:, 2:]}),
        (ShapeError, r"`bbox_deltas` of \(2, 20, 5, 7\) must be \(2, 24, 5, 7\)", {"bbox_deltas": DELTAS[:, 4:]}),
        (ShapeError, r"`image_shape` of \(2,\) must be \(3,\) or \(4,\)", {"image_shape": IMAGE[:2]}),
        (ArgumentError, "`framework` is 'caffe'", {"framework": "caffe"}),
        (DTypeError, "operands must have one element type", {"image_shape": IMAGE.astype(np.float16)}),
    ],
)
def test_errors(error, text, change):
    operands = {"class_probs": SCORES, "bbox_deltas": DELTAS, "image_shape": IMAGE}
    with pytest.raises(error, match=text):
        ops.proposal(**{**operands, **BASE, **change})
