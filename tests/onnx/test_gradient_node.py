"""Gradient of ai.onnx.preview.training: which part of the graph it differentiates, and at which values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, node, tensor

from jaxops.errors import DTypeError, ModelError, SignatureError, UnsupportedError
from jaxops.onnx import load

OPSETS = (("", 18), ("ai.onnx.preview.training", 1))
# Small, as 1 - tanh² has few digits where tanh is nearly 1.
X, W = np.float32([[0.1, 0.2], [0.3, 0.4]]), np.float32([[0.5, -1.0], [2.0, 0.25]])


def gradient(inputs, outputs, **attributes):
    return node("Gradient", inputs, outputs, domain="ai.onnx.preview.training", node_name="d", **attributes)


def network(*nodes, outputs, initializers=(), inputs=("x", "w")):
    """y = tanh(x · w), and other nodes."""
    head = [node("MatMul", ["x", "w"], ["h"]), node("Tanh", ["h"], ["y"])]
    formals = [info(name, [2, 2]) for name in inputs]
    return build(
        *head, *nodes, inputs=formals, outputs=[info(name, None) for name in outputs], opsets=OPSETS,
        initializers=initializers,
    )  # fmt: skip


def total(x, w):
    return jnp.tanh(x @ w).sum()


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_inputs_weights_and_values_in_between():
    nodes = [
        gradient(["x", "w"], ["dx", "dw"], xs=["x", "w"], y="y"),
        gradient(["w", "x"], ["dw2"], xs=["w"], zs=["x"], y="y"),
        gradient(["h"], ["dh"], xs=["h"], y="y"),
        gradient(["h", "w"], ["", "dw3"], xs=["h", "w"], y="y"),
    ]
    found = load(network(*nodes, outputs=["y", "dx", "dw", "dw2", "dh", "dw3"]))(X, W)
    dx, dw = jax.grad(total, (0, 1))(X, W)
    for got, expected in zip(found, (np.tanh(X @ W), dx, dw, dw, 1 - np.tanh(X @ W) ** 2, 0 * W), strict=True):
        close(got, expected)
    with pytest.raises(AssertionError):
        close(found[1], dw)


def test_at_another_value():
    nodes = [node("Add", ["x", "x"], ["x2"]), gradient(["x2", "w"], ["dx"], xs=["x"], zs=["w"], y="y")]
    close(load(network(*nodes, outputs=["dx"]))(X, W), jax.grad(total)(2 * X, W))


def test_a_second_derivative():
    nodes = [
        gradient(["x", "w"], ["dx"], xs=["x"], zs=["w"], y="y"),
        gradient(["x", "w"], ["dxx", "dxw"], xs=["x", "w"], y="dx"),
    ]
    model = load(network(*nodes, outputs=["dxx", "dxw"]))
    expected = jax.grad(lambda x, w: jax.grad(total)(x, w).sum(), (0, 1))(X, W)
    for got, want in zip(model(X, W), expected, strict=True):
        close(got, want)


def test_weights_stay_parameters_and_a_step_trains_them():
    nodes = [
        gradient(["w"], ["dw"], xs=["w"], y="y"),
        node("Constant", [], ["rate"], value=tensor(np.float32(0.1))),
        node("Mul", ["rate", "dw"], ["step"]),
        node("Sub", ["w", "step"], ["new"]),
    ]
    model = load(network(*nodes, outputs=["new"], initializers=[tensor(W, "w")], inputs=("x",)))
    assert list(model.params) == ["w"]
    close(model(X), W - 0.1 * jax.grad(total, 1)(X, W))
    close(model.apply({"w": 2 * W}, X), 2 * W - 0.1 * jax.grad(total, 1)(X, 2 * W))
    derivative = jax.grad(lambda p: model.apply(p, X).sum())(model.params)["w"]
    close(derivative, jax.grad(lambda w: (w - 0.1 * jax.grad(total, 1)(X, w)).sum())(W))


def test_only_what_moves_is_run_again():
    nodes = [node("Exp", ["x"], ["e"]), node("Mul", ["y", "e"], ["z"]), gradient(["w"], ["dw"], xs=["w"], y="z")]
    model = load(network(*nodes, outputs=["dw"]))
    inner = model.graph.nodes[-1].attributes["differentiated"]
    assert [n.operator.name for n in inner.nodes] == ["MatMul", "Tanh", "Mul"]
    close(model(X, W), jax.grad(lambda w: (jnp.tanh(X @ w) * jnp.exp(X)).sum())(W))


def test_in_a_loop():
    body = build(
        node("MatMul", ["v", "w"], ["h"]),
        gradient(["v", "w"], ["dv"], xs=["v"], zs=["w"], y="h"),
        node("Sub", ["v", "dv"], ["out"]),
        node("Identity", ["keep"], ["go"]),
        inputs=[info("i", [], 7), info("keep", [], 9), info("v", [2, 2])],
        outputs=[info("go", [], 9), info("out", [2, 2])],
    ).graph
    loop = node("Loop", ["n", "", "x"], ["last"], body=body)
    model = load(network(loop, outputs=["last"], initializers=[tensor(np.int64(3), "n")]))
    close(model(X, W), X - 3 * W.sum(1)[None])


def test_weights_within_a_loop_on_the_way_stay_one_parameter():
    body = build(
        node("MatMul", ["v", "inner"], ["p"]),
        node("Tanh", ["p"], ["out"]),
        node("Identity", ["keep"], ["go"]),
        inputs=[info("i", [], 7), info("keep", [], 9), info("v", [2, 2])],
        outputs=[info("go", [], 9), info("out", [2, 2])],
        initializers=[tensor(W, "inner")],
    ).graph
    loop = node("Loop", ["n", "", "x"], ["last"], body=body)
    nodes = [loop, gradient(["x"], ["dx"], xs=["x"], y="last")]
    model = load(network(*nodes, outputs=["last", "dx"], initializers=[tensor(np.int64(2), "n")]))
    assert list(model.params) == ["inner"]

    def twice(x):
        return jnp.tanh(jnp.tanh(x @ W) @ W)

    last, dx = model(X, W)
    close(last, twice(X))
    close(dx, jax.grad(lambda x: twice(x).sum())(X))


def test_a_shape_among_the_others_stays_known():
    nodes = [
        node("Reshape", ["x", "s"], ["flat"]),
        node("Mul", ["flat", "flat"], ["square"]),
        gradient(["x", "s"], ["dx"], xs=["x"], zs=["s"], y="square"),
    ]
    model = load(network(*nodes, outputs=["dx"], initializers=[tensor(np.int64([-1]), "s")]))
    close(model(X, W), 2 * X)


BAD = [
    ([gradient(["x"], ["o"], xs=["x"], y="q")], ModelError, "`y` is 'q', but no earlier node of the same graph"),
    (
        [gradient(["x"], ["o"], xs=["x", "w"], y="y")],
        SignatureError,
        "gradient: 1 input, but `xs` and `zs` name 2 val",
    ),
    ([gradient(["x"], ["o"], xs=["x"])], SignatureError, "Gradient-1: required attribute `y` is missing"),
    (
        [node("Shape", ["x"], ["s"]), gradient(["s"], ["o"], xs=["s"], y="y")],
        DTypeError,
        "gradient: `s` must be floating-point, got int",
    ),
    (
        [node("Shape", ["x"], ["s"]), gradient(["x"], ["o"], xs=["x"], y="s")],
        DTypeError,
        "gradient: `s` must be floating-point, got int",
    ),
    (
        [node("Nothing", ["x"], ["q"]), gradient(["x"], ["o"], xs=["x"], y="q")],
        UnsupportedError,
        "Nothing: not in opset 18",
    ),
]


@pytest.mark.parametrize(("nodes", "error", "match"), BAD, ids=[m for *_, m in BAD])
def test_errors(nodes, error, match):
    with pytest.raises(error, match=match):
        load(network(*nodes, outputs=["o"])).apply({}, X, W)
