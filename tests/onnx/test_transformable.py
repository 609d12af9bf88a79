"""Parts of a model that JAX differentiates or maps, where `model(…)` has forms of layers that it cannot."""

import jax
import numpy as np
import pytest
from graphs import build, info, node, tensor
from jax import lax
from onnx import helper

from jaxops.onnx import load


@pytest.mark.parametrize(("channels", "group", "kernel"), [(8, 8, 3), (32, 2, 3), (8, 1, 1), (16, 1, 3), (4, 4, 13)])
def test_a_derivative(channels, group, kernel):
    rng = np.random.default_rng(kernel)
    x = rng.normal(size=(1, channels, 9, 9)).astype(np.float32)
    w = rng.normal(size=(channels, channels // group, kernel, kernel)).astype(np.float32)
    nodes = [
        node("Conv", ["x", "w"], ["c"], group=group, pads=[kernel // 2] * 4),
        node("Mul", ["c", "c"], ["y"]),
        node("Gradient", ["x"], ["dx"], xs=["x"], y="y", domain="ai.onnx.preview.training"),
    ]
    made = build(
        *nodes,
        inputs=[info("x", x.shape)],
        outputs=[info("y", None), info("dx", None)],
        opsets=(("", 18), ("ai.onnx.preview.training", 1)),
        initializers=[tensor(w, "w")],
    )
    y, dx = load(made)(x)
    pads = [(kernel // 2, kernel // 2)] * 2

    def squares(x):
        return lax.conv_general_dilated(x, w, (1, 1), pads, feature_group_count=group) ** 2

    np.testing.assert_allclose(y, squares(x), rtol=1e-4, atol=1e-3)
    expected = jax.grad(lambda x: squares(x).sum())(x)
    np.testing.assert_allclose(dx, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_a_batch_of_scan_8():
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=s).astype(np.float32) for s in ((8, 1, 3, 3), (2, 3, 1, 8, 9, 9)))
    inner = [info("s", [1, 8, 9, 9]), info("v", [1, 8, 9, 9])], [info("s2", None), info("r", None)]
    conv = helper.make_node("Conv", ["v", "w"], ["r"], group=8, pads=[1] * 4)
    body = helper.make_graph([conv, helper.make_node("Add", ["s", "r"], ["s2"])], "body", *inner)
    scan = helper.make_node("Scan", ["", "s0", "x"], ["y", "rows"], body=body, num_scan_inputs=1)
    inputs = [info("s0", [2, 1, 8, 9, 9]), info("x", x.shape)]
    graph = helper.make_graph([scan], "main", inputs, [info("y", None), info("rows", None)], [tensor(w, "w")])
    loaded = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)]))
    last, rows = loaded(np.zeros((2, 1, 8, 9, 9), np.float32), x)
    padded = np.pad(x[:, :, 0], [(0, 0)] * 3 + [(1, 1)] * 2)
    shown = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (3, 4))
    expected = np.einsum("btchwij,cij->btchw", shown, w[:, 0])[:, :, None]
    np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(last, expected.sum(1), rtol=1e-4, atol=1e-5)
