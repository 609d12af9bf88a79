"""The table by module: shapes, parameters, counted operations and measured times."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node, tensor

from jaxops.errors import ArgumentError, StaticError
from jaxops.onnx import carried, load
from jaxops.tools.inspect.flops import operations
from jaxops.tools.inspect.modules import levels

MODELS = Path(__file__).resolve().parents[2] / "models"
W = np.ones((3, 5), np.float32)
NET = build(
    node("MatMul", ["x", "w"], ["a"], node_name="/net/fc/MatMul"),
    node("Add", ["a", "b"], ["h"], node_name="/net/fc/Add"),
    node("Relu", ["h"], ["r"], node_name="/net/act/Relu"),
    node("Mul", ["r", "r"], ["y"], node_name="/net/Mul"),
    initializers=[tensor(W, "w"), tensor(np.ones(5, np.float32), "b")],
)
X = np.ones((2, 3), np.float32)


def cells(summary):
    return [(row.module, row.level, row.nodes, row.output, row.parameters, row.flops) for row in summary.rows]


def test_rows():
    # 2·2·3·5 for the product, and 2·5 for each of the others.
    assert cells(load(NET).summary(X)) == [
        ("net", 0, 4, "float32[2, 5]", 20, 90.0),
        ("fc", 1, 2, "float32[2, 5]", 20, 70.0),
        ("act", 1, 1, "float32[2, 5]", 0, 10.0),
    ]
    assert cells(load(NET).summary(X, depth=0)) == [("net", 0, 4, "float32[2, 5]", 20, 90.0)]


def test_symbolic_sizes_without_inputs():
    loaded = load(NET)
    assert loaded.summary().rows[0].output == "float32[1, 5]"
    found = loaded.summary(sizes={"N": 7})
    assert (found.rows[0].output, found.rows[0].flops) == ("float32[7, 5]", 7 * 45)
    text = str(found)
    assert "module" in text
    assert "  fc" in text
    assert "245" in text
    assert "time" not in text


def test_no_weight_is_read_for_it():
    loaded = load(NET)
    loaded.summary()
    assert loaded._weights.params == {}


def test_a_graph_without_modules_is_told_by_operators():
    found = load(model("main (float[N] x) => (float[N] y) { a = Relu(x) b = Neg(a) y = Relu(b) }")).summary()
    assert [(row.module, row.nodes) for row in found.rows] == [("main", 3), ("Relu", 2), ("Neg", 1)]


def test_random_numbers_need_no_key():
    nodes = node("RandomNormalLike", ["x"], ["r"], node_name="/a/draw"), node("Add", ["x", "r"], ["y"])
    rows = load(build(*nodes)).summary(X, time=True).rows
    assert rows[0].output == "float32[2, 3]"


def test_times_are_measured():
    found = load(NET).summary(X, time=True)
    assert all(row.seconds is not None and 0 < row.seconds < 10 for row in found.rows)
    assert " ms" in str(found)


def test_a_model_of_sizes_that_depend_on_data():
    loaded = load(
        build(
            node("Relu", ["x"], ["r"], node_name="/a/Relu"),
            node("NonZero", ["r"], ["i"], node_name="/b/NonZero"),
            node("Cast", ["i"], ["y"], node_name="/c/Cast", to=1),
        )
    )
    with pytest.raises(StaticError, match="depends on"):
        loaded.summary()
    found = loaded.summary(X, time=True)
    assert [(row.module, row.output, row.flops) for row in found.rows][1:] == [
        ("a", "float32[2, 3]", None),
        ("b", "int64[2, 6]", None) if jax.config.jax_enable_x64 else ("b", "int32[2, 6]", None),
        ("c", "float32[2, 6]", None),
    ]
    assert found.rows[2].seconds is None
    assert found.rows[1].seconds is not None
    assert "–" in str(found)


def test_a_real_model():
    with np.load(MODELS / "vit.npz") as found:
        given = found["in:pixel_values"]
    loaded = load(MODELS / "vit.dynamo.onnx")
    rows = loaded.summary(given, depth=3).rows
    assert rows[0].module == "model"
    assert rows[0].parameters == sum(p.size for p in loaded.params.values())
    assert {"layers.0", "layers.1", "attention"} <= {row.module for row in rows}
    top = [row for row in rows if row.level == 1]
    assert sum(row.flops or 0 for row in top) <= (rows[0].flops or 0)
    # Within a factor of two of XLA's own count, which knows fusions and its own formulas for exp and erf.
    analysis = jax.jit(loaded.apply).lower(loaded.params, given).compile().cost_analysis()
    assert 0.5 < (rows[0].flops or 0) / analysis["flops"] < 2


def test_a_convolution_network_has_the_operations_that_are_published():
    found = load(carried("light_resnet50")).summary(depth=1)
    assert found.rows[0].flops == pytest.approx(2 * 3.9e9, rel=0.1)  # 3.8 to 4.1 billion multiply-adds


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda a, b: a @ b, 2 * 2 * 3 * 4),
        (lambda a, b: jnp.tanh(a).sum(), 6 + 6),
        (lambda a, b: a.reshape(3, 2).T, 0),
        (lambda a, b: jax.jit(lambda x: x + 1)(a), 6),
        (lambda a, b: jax.lax.scan(lambda c, x: (c + x, c), a[0], jnp.ones((7, 3)))[0], 21),
        (lambda a, b: jax.lax.cond(a[0, 0] > 0, lambda x: x * 2 + 1, lambda x: x, a), 12),
        (lambda a, b: jax.nn.relu(a), 6),
        (lambda a, b: jnp.maximum(jnp.zeros((2, 3)), a), 6),
    ],
)
def test_operations(fn, expected):
    found = operations(jax.make_jaxpr(fn)(jnp.ones((2, 3)), jnp.ones((3, 4))).jaxpr)
    assert found - expected in (0, 1)  # a comparison, an index


def test_levels():
    assert levels("a.layer.0.1.b") == ("a", "layer.0.1", "b")
    assert levels("features.10x.2") == ("features", "10x.2")


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"depth": -1}, ArgumentError, "summary: depth is -1; it must be at least 0"),
        ({"sizes": {"M": 2}}, ArgumentError, "summary: the model has no size 'M'; its sizes are: N"),
        ({"time": True}, ArgumentError, "summary: `time` needs example inputs"),
        ({"sizes": {"N": 2}, "x": X}, ArgumentError, "summary: give example inputs or `sizes`, not both"),
    ],
)
def test_errors(given, error, text):
    with pytest.raises(error, match=text):
        load(NET).summary(**given)


def test_inputs_that_cannot_be_made_up():
    free = load(model("main (float[3] x, int64[2] s) => (float[N] y) { y = Reshape(x, s) }"))
    with pytest.raises(StaticError, match="summary: give example inputs: 's' must be known"):
        free.summary()
    unknown = build(node("Relu", ["x"], ["y"]), inputs=(info("x", None),))
    with pytest.raises(ArgumentError, match="summary: give example inputs: the model does not say the shape of x"):
        load(unknown).summary()
