"""NonMaxSuppression against a loop in NumPy and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import at_opset
from onnx import helper

import jaxops as jo
from jaxops.errors import DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(9)
CORNERS = RNG.uniform(0, 9, (2, 200, 2))
BOXES = np.concatenate([CORNERS, CORNERS + RNG.uniform(-4, 4, (2, 200, 2))], 2).astype(np.float32)
SCORES = RNG.uniform(0, 1, (2, 3, 200)).astype(np.float32)
SCORES[0, 0, ::3] = 0.75  # equal ones


def formula(boxes, scores, most=0, overlap=0.0, least=-np.inf, centred=False):
    found = []
    for b, c in np.ndindex(*scores.shape[:2]):
        x = boxes[b]
        if centred:
            x = np.concatenate([x[:, :2] - x[:, 2:] / 2, x[:, :2] + x[:, 2:] / 2], 1)
        low, high = np.minimum(x[:, :2], x[:, 2:]), np.maximum(x[:, :2], x[:, 2:])
        area, chosen = (high - low).prod(1), []
        for i in np.argsort(-scores[b, c], kind="stable"):
            common = [np.maximum(np.minimum(high[i], high[j]) - np.maximum(low[i], low[j]), 0).prod() for j in chosen]
            shares = [v / (area[i] + area[j] - v) for v, j in zip(common, chosen, strict=True)]
            if len(chosen) < most and scores[b, c, i] >= least and not any(s > overlap for s in shares):
                chosen.append(i)
        found += [[b, c, i] for i in chosen]
    return np.array(found, np.int64).reshape(-1, 3)


def runtime(inputs, **attributes):
    names = ["abcde"[i] if x is not None else "" for i, x in enumerate(inputs)]
    given = {n: x for n, x in zip(names, inputs, strict=True) if n}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in given.items()
    ]
    node = helper.make_node("NonMaxSuppression", names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)[0]


@pytest.mark.grid
@pytest.mark.parametrize("centred", [0, 1])
@pytest.mark.parametrize(
    ("most", "overlap", "least"), [(5, 0.5, 0.3), (300, 0.3, None), (7, None, 0.9), (0, 0.5, 0.0), (None, None, None)]
)
def test_values(most, overlap, least, centred):
    boxes = np.abs(BOXES) if centred else BOXES
    given = [
        boxes,
        SCORES,
        *(None if v is None else np.array([v], d) for v, d in ((most, np.int64), (overlap, "f4"), (least, "f4"))),
    ]
    expected = formula(
        boxes, SCORES, most or 0, overlap or 0, -np.inf if least is None else np.float32(least), bool(centred)
    )
    assert (jo.non_max_suppression(*given, center_point_box=centred) == expected).all()
    assert (runtime(given, center_point_box=centred) == expected).all()
    for opset in (10, 11):
        (found,) = at_opset("NonMaxSuppression", opset, *given, center_point_box=centred)
        assert found.tolist() == expected.tolist()
    traced = [None if v is None else jnp.asarray(v) for v in given]
    for size in (3, 250):
        fn = jax.jit(lambda *a, n=size: jo.non_max_suppression(*a, center_point_box=centred, size=n))
        filled = np.concatenate([expected, np.full((size, 3), -1)])[:size]
        assert fn(*traced).tolist() == filled.tolist()


def test_corners():
    square = np.float32([[[0, 0, 1, 1], [1, 1, 0, 0], [2, 2, 2, 2], [2, 2, 2, 2]]])
    scores = np.float32([[[0.5, np.nan, -np.inf, 0.5]]])
    # No area overlaps nothing; a NaN is not selected, minus infinity is; a score equal to the threshold stays.
    assert jo.non_max_suppression(square, scores, 9)[:, 2].tolist() == [0, 3, 2]
    assert jo.non_max_suppression(square, scores, 9, 0.5, np.float32(0.5))[:, 2].tolist() == [0, 3]
    assert jo.non_max_suppression(square[:, :0], scores[..., :0], 9).shape == (0, 3)
    empty = jax.jit(lambda b, s: jo.non_max_suppression(b, s, 9, size=2))(square[:, :0], scores[..., :0])
    assert empty.tolist() == [[-1] * 3] * 2


def test_errors():
    with pytest.raises(StaticError, match="the number of selected boxes depends on operands that are traced"):
        jax.jit(jo.non_max_suppression)(BOXES, SCORES)
    with pytest.raises(ShapeError, match=r"`boxes` of \(2, 199, 4\) must be \(B, S, 4\)"):
        jo.non_max_suppression(BOXES[:, 1:], SCORES)
    with pytest.raises(ShapeError, match="`iou_threshold` must be one number"):
        jo.non_max_suppression(BOXES, SCORES, 3, np.float32([0.1, 0.2]))
    with pytest.raises(DTypeError, match="must be floating-point"):
        jo.non_max_suppression(BOXES.astype(np.int32), SCORES)


def test_a_limit_of_a_type_that_does_not_hold_the_number_of_boxes():
    low = np.arange(200, dtype=np.float32)
    boxes = np.stack([low, low, low + 1, low + 1], -1)[None]
    found = jo.non_max_suppression(boxes, np.ones((1, 1, 200), np.float32), np.int8(100), 0.5)
    np.testing.assert_array_equal(found[:, 2], np.arange(100))
