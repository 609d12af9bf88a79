"""NonMaxSuppression and NMSRotated against loops in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from openvino_peer import agree

from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError
from jaxops.openvino import ops

RNG = np.random.default_rng(4)
N, C, P = 2, 3, 25
LOW = RNG.uniform(0, 0.7, (N, P, 2))
BOXES = np.concatenate([LOW, LOW + RNG.uniform(0.1, 0.4, (N, P, 2))], -1).astype(np.float32)
BOXES[0, ::2] = BOXES[0, ::2][:, [2, 1, 0, 3]]  # any two opposite corners
TURNED = [RNG.uniform(0, 6, (N, P, 2)), RNG.uniform(0.5, 4, (N, P, 2)), RNG.uniform(-3, 3, (N, P, 1))]
TURNED = np.concatenate(TURNED, -1).astype(np.float32)
SCORES = RNG.uniform(size=(N, C, P)).astype(np.float32)


def rectangle(box, centred=False, clockwise=True):
    """The corners of a box, counterclockwise where y grows upwards."""
    if len(box) == 4:
        a, b, c, d = map(float, box)
        low, high = (min(a, c), min(b, d)), (max(a, c), max(b, d))
        low, high = ((a - c / 2, b - d / 2), (a + c / 2, b + d / 2)) if centred else (low, high)
        return [low, (high[0], low[1]), high, (low[0], high[1])]
    x, y, w, h, angle = map(float, box)
    angle = angle if clockwise else -angle
    turn = complex(np.cos(angle), np.sin(angle))
    corners = [complex(x, y) + turn * complex(u * w, v * h) / 2 for u, v in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    return [(z.real, z.imag) for z in corners]


def area(polygon):
    pairs = zip(polygon, polygon[1:] + polygon[:1], strict=True)
    return sum(a[0] * b[1] - a[1] * b[0] for a, b in pairs) / 2


def overlap(one, other):
    """By cutting one polygon along the edges of the other."""
    cut = one
    for a, b in zip(other, other[1:] + other[:1], strict=True):
        side = [(b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0]) for p in cut]
        points = []
        for i, p in enumerate(cut):
            if (side[i - 1] < 0) != (side[i] < 0):
                part = side[i - 1] / (side[i - 1] - side[i])
                points.append(tuple(cut[i - 1][k] + part * (p[k] - cut[i - 1][k]) for k in (0, 1)))
            if side[i] >= 0:
                points.append(p)
        cut = points
        if not cut:
            return 0.0
    return area(cut) / (area(one) + area(other) - area(cut))


def formula(boxes, scores, most=0, threshold=0.0, least=0.0, sigma=0.0, ordered=True, **how):
    rows = []
    for n, c in np.ndindex(*scores.shape[:2]):
        shapes = [rectangle(box, **how) for box in boxes[n]]
        marks = {p: float(s) for p, s in enumerate(scores[n, c]) if s >= least}
        count = 0
        while marks and count < most:
            best = max(marks, key=lambda p: (marks[p], -p))
            rows.append((n, c, best, marks.pop(best)))
            count += 1
            for p in list(marks):
                common = overlap(shapes[p], shapes[best])
                if sigma > 0:
                    marks[p] *= np.exp(-0.5 * common**2 / sigma)
                if (marks[p] < least) if sigma > 0 else (common > threshold):
                    del marks[p]
    rows = sorted(rows, key=lambda row: -row[3]) if ordered else rows
    return np.array([row[:3] for row in rows]), np.array([(*row[:2], row[3]) for row in rows]), [len(rows)]


def check(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    np.testing.assert_array_equal(found[2], expected[2])


LIMITS = [np.array(6), np.array(0.4, np.float32), np.array(0.1, np.float32)]


@pytest.mark.parametrize("sigma", [0.0, 0.5])
@pytest.mark.parametrize("encoding", ["corner", "center"])
@pytest.mark.parametrize("ordered", [True, False])
def test_non_max_suppression(ordered, encoding, sigma):
    inputs = [BOXES, SCORES, *LIMITS, np.array(sigma, np.float32)]
    how = {"box_encoding": encoding, "sort_result_descending": ordered}
    found = ops.non_max_suppression(*inputs, **how)
    check(found, formula(BOXES, SCORES, 6, 0.4, 0.1, sigma, ordered, centred=encoding == "center"))
    rows = len(found[0])
    padded = jax.jit(lambda *v: ops.non_max_suppression(*v, **how, size=rows + 2))(*inputs)
    check([v[:rows] for v in padded[:2]] + [padded[2]], found)
    assert (np.asarray(padded[0])[rows:] == -1).all()
    assert (np.asarray(padded[1])[rows:] == -1).all()
    cropped = ops.non_max_suppression(*inputs, **how, size=2, output_type="int32")
    check(cropped, [found[0][:2], found[1][:2], [2]])
    agree(9, "NonMaxSuppression", inputs, how, found, constants=(2, 3, 4, 5))


@pytest.mark.parametrize("clockwise", [True, False])
def test_rotated_boxes(clockwise):
    inputs = [TURNED, SCORES, np.array(6), np.array(0.2, np.float32), np.array(0.1, np.float32)]
    found = ops.nms_rotated(*inputs, clockwise=clockwise)
    check(found, formula(TURNED, SCORES, 6, 0.2, 0.1, clockwise=clockwise))
    agree(13, "NMSRotated", inputs, {"clockwise": clockwise}, found, constants=(2, 3, 4))


def test_rotated_overlaps_of_equal_and_nested_boxes():
    from jaxops.ops.openvino.rotated_boxes import rotated_overlaps

    boxes = np.array([[3, 2, 4, 2, 0.3], [3, 2, 4, 2, 0.3], [3, 2, 2, 1, 0.3], [3, 2, 0, 1, 0.3], [9, 9, 4, 2, 1]])
    found = rotated_overlaps(jax.numpy.asarray(boxes, np.float32))(0)
    np.testing.assert_allclose(found, [1, 1, 0.25, 0, 0], atol=1e-5)


def test_equality_keeps_a_box_by_the_text():
    """A score equal to the threshold is kept, and an overlap equal to the threshold too; the CPU plugin drops both."""
    boxes = np.array([[[0, 0, 2, 2], [0, 1, 2, 3]]], np.float32)  # one third in common
    scores = np.array([[[0.75, 0.5]]], np.float32)
    rows, _, count = ops.non_max_suppression(boxes, scores, 2, np.float32(1) / np.float32(3), np.float32(0.5))
    assert np.asarray(rows).tolist() == [[0, 0, 0], [0, 0, 1]]
    assert np.asarray(count).tolist() == [2]


def test_left_out_limits():
    assert ops.non_max_suppression(BOXES, SCORES)[0].shape == (0, 3)
    apart = np.array([[[0, 0, 1, 1], [0, 2, 1, 3], [0, 0, 1, 1]]], np.float32)
    scores = np.array([[[0.0, 0.5, -1.0]]], np.float32)
    rows, marks, _ = ops.non_max_suppression(apart, scores, 2**62)
    assert np.asarray(rows).tolist() == [[0, 0, 1], [0, 0, 0]]
    assert np.asarray(marks).tolist() == [[0, 0, 0.5], [0, 0, 0]]
    empty = ops.non_max_suppression(BOXES[:, :0], SCORES[:, :, :0], 3)
    assert [v.shape for v in empty] == [(0, 3), (0, 3), (1,)]


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            StaticError,
            "the number of selected boxes depends on operands that are traced",
            lambda: jax.jit(ops.non_max_suppression)(BOXES, SCORES),
        ),
        (
            ShapeError,
            r"`boxes` of \(2, 25, 4\) must be \(N, P, 5\), and `scores` of \(2, 3, 25\) must be \(N, C, P\)",
            lambda: ops.nms_rotated(BOXES, SCORES, *LIMITS),
        ),
        (
            ShapeError,
            "`iou_threshold` must be one number",
            lambda: ops.non_max_suppression(BOXES, SCORES, 1, [0.1] * 2),
        ),
        (ArgumentError, "`box_encoding` is 'yx'", lambda: ops.non_max_suppression(BOXES, SCORES, box_encoding="yx")),
        (
            DTypeError,
            "`output_type` is float32; it must be int64 or int32",
            lambda: ops.non_max_suppression(BOXES, SCORES, output_type="float32"),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
