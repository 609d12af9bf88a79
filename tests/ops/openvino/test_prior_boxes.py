"""PriorBox and PriorBoxClustered against loops in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from jax.export import export, symbolic_shape
from openvino_peer import agree

from jaxops.errors import ArgumentError, ShapeError, StaticError
from jaxops.openvino import ops

GRID, IMAGE = np.array([3, 4]), np.array([40, 60])
CASES = [
    {"min_size": [16.0, 32.0], "max_size": [38.0, 44.0], "aspect_ratio": [2.0, 3.0], "flip": True, "step": 16.0},
    {"min_size": [16.0], "max_size": [38.0], "aspect_ratio": [2.0, 0.5], "flip": True, "clip": True},
    {"min_size": [16.0], "max_size": [38.0], "aspect_ratio": [2.0], "min_max_aspect_ratios_order": False},
    {"fixed_size": [30.0, 13.0], "density": [2.0, 1.0], "aspect_ratio": [2.0], "flip": True, "step": 8.0},
    {"fixed_size": [30.0, 13.0], "density": [2.0, 3.0], "fixed_ratio": [0.5], "step": 8.0},
    {"min_size": [0.2, 0.3], "aspect_ratio": [2.0], "step": -1.0, "scale_all_sizes": False},
    {"min_size": [0.2, 0.3], "aspect_ratio": [2.0], "step": 0.1, "scale_all_sizes": False, "variance": [0.5]},
]


def boxes_of_a_cell(x, y, low, high=(), ratios=(), flip=False, last=False):
    """The boxes of one cell: centre ± half the sizes, in the order of the text."""
    for i, size in enumerate(low):
        extra = [(np.sqrt(size * high[i]),) * 2] if i < len(high) else []
        shapes, known = [], [1.0]
        for ratio in ratios:
            if ratio not in known:
                both = [ratio, 1 / ratio] if flip else [ratio]
                known += both
                shapes += [(size * np.sqrt(r), size / np.sqrt(r)) for r in both]
        for w, h in [(size, size), *(shapes + extra if last else extra + shapes)]:
            yield [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_the_boxes_of_each_size(case):
    case = {"offset": 0.5, **case}
    step = [case.get("step") or d / g for d, g in zip(IMAGE, GRID, strict=True)]
    rows = [
        box
        for i, j in np.ndindex(*GRID)
        for box in boxes_of_a_cell(
            (j + 0.5) * step[1],
            (i + 0.5) * step[0],
            case["min_size"],
            case["max_size"],
            case["aspect_ratio"],
            case.get("flip", False),
            not case.get("min_max_aspect_ratios_order", True),
        )
    ]
    expected = np.array(rows) / [60, 40, 60, 40]
    expected = np.clip(expected, 0, 1) if case.get("clip") else expected
    y = jax.jit(lambda: ops.prior_box(GRID, IMAGE, **case))()
    np.testing.assert_allclose(y[0], expected.reshape(-1), atol=1e-6)
    np.testing.assert_allclose(y[1], np.full(expected.size, 0.1), atol=1e-7)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_openvino_agrees(case):
    case = {"offset": 0.3, **case}
    agree(8, "PriorBox", [GRID, IMAGE], case, ops.prior_box(GRID, IMAGE, **case), constants=(0, 1))


CLUSTERED = [
    {"step": 16.0, "variance": [0.1, 0.1, 0.2, 0.2], "clip": False},
    {},
    {"step_w": 4.0, "step_h": 5.0},
    {"step_w": 4.0, "step": 3.0},
]


@pytest.mark.parametrize("case", CLUSTERED, ids=str)
def test_clustered_boxes(case):
    case = {"width": [8.0, 5.0], "height": [3.0, 9.0], "offset": 0.5, **case}
    y = ops.prior_box_clustered(GRID, IMAGE, **case)
    step = case.get("step", 0)
    x_step, y_step = case.get("step_w") or step or 15, case.get("step_h") or step or 40 / 3
    rows = []
    for i, j in np.ndindex(*GRID):
        for w, h in zip(case["width"], case["height"], strict=True):
            x, z = (j + 0.5) * x_step, (i + 0.5) * y_step
            rows.append([(x - w / 2) / 60, (z - h / 2) / 40, (x + w / 2) / 60, (z + h / 2) / 40])
    expected = np.clip(rows, 0, 1) if case.get("clip", True) else np.array(rows)
    np.testing.assert_allclose(y[0], expected.reshape(-1), atol=1e-6)
    np.testing.assert_allclose(y[1].reshape(-1, 4)[5], case.get("variance", [0.1] * 4), atol=1e-7)
    agree(1, "PriorBoxClustered", [GRID, IMAGE], case, y, constants=(0, 1))


def test_symbolic_sizes():
    n, h, w = symbolic_shape("n, h, w")
    x = jax.ShapeDtypeStruct((n, 3, h, w), np.float32)

    def net(x):
        return ops.prior_box(np.array(x.shape[2:], object), (40, 60), offset=0.5, min_size=[4.0], aspect_ratio=[2.0])

    exported = export(jax.jit(net))(x)
    expected = ops.prior_box(GRID, IMAGE, offset=0.5, min_size=[4.0], aspect_ratio=[2.0])
    np.testing.assert_allclose(exported.call(np.zeros((1, 3, 3, 4), np.float32)), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, r"`output_size` \(3,\) must be two", lambda: ops.prior_box([3], IMAGE, offset=0.5)),
        (
            ArgumentError,
            r"`variance` \[1.0, 2.0\] must be none, one or four",
            lambda: ops.prior_box(GRID, IMAGE, offset=0.5, min_size=[4.0], variance=[1.0, 2.0]),
        ),
        (
            ArgumentError,
            r"`fixed_size` \[4.0\] and `density` \(\) must have one length",
            lambda: ops.prior_box(GRID, IMAGE, offset=0.5, fixed_size=[4.0]),
        ),
        (
            ArgumentError,
            r"`width` \[4.0, 3.0\] and `height` \(1.0,\) must",
            lambda: ops.prior_box_clustered(GRID, IMAGE, offset=0.5, width=[4.0, 3.0]),
        ),
        (
            StaticError,
            "`image_size` must be known while tracing",
            lambda: jax.jit(lambda i: ops.prior_box(GRID, i, offset=0.5))(IMAGE),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
