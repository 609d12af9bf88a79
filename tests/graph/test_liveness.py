"""Nodes whose results nothing reads: they do not run, and may be asked for."""

import importlib
import sys

import jax
import numpy as np
import onnx
import pytest
from graphs import model

from jaxops.errors import StaticError
from jaxops.graph.liveness import live
from jaxops.onnx import load

X = np.float32([[1, 0, 3], [0, -2, 0]])
LOCAL = ', "loc": 1'
FUNCTION = '<opset_import: ["": 18], domain: "loc"> f (a, b) => (p, q) { p = NonZero(a) q = Neg(b) }'
THREE = "m = Constant<value_int=3>()"
# Each has a node that cannot be compiled, as its result has a size that data decide; nothing reads it.
UNREAD = {
    "NonZero": model("main (float[N,3] x) => (float[N,3] y) { u = NonZero(x) y = Neg(x) }"),
    "what reads it": model(
        "main (float[N,3] x) => (float[N,3] y) { u = NonZero(x) v = Cast<to=1>(u) w = ReduceSum(v) y = Neg(x) }"
    ),
    "Unique": model("main (float[N,3] x) => (float[N,3] y) { u, a, b, c = Unique(x) y = Neg(x) }"),
    "Reshape": model("main (float[N,3] x, int64[2] s) => (float[N,3] y) { u = Reshape(x, s) y = Neg(x) }"),
    "If": model(
        "main (float[N,3] x, bool c) => (float[N,3] y) { u = If(c) <then_branch = t () => (int64[2,K] p) "
        "{ p = NonZero(x) }, else_branch = e () => (int64[L] q) { q = Shape(x) }> y = Neg(x) }"
    ),
    "an output of If": model(
        "main (float[N,3] x, bool c) => (float[N,3] y) { u, y = If(c) <then_branch = t () => (int64[2,K] p, float[N,3] "
        "v) { p = NonZero(x) v = Neg(x) }, else_branch = e () => (int64[L] q, float[N,3] w) { q = Shape(x) w = Neg(x) "
        "}> }"
    ),
    "inside of If": model(
        "main (float[N,3] x, bool c) => (float[N,3] y) { y = If(c) <then_branch = t () => (float[N,3] v) "
        "{ p = NonZero(x) v = Neg(x) }, else_branch = e () => (float[N,3] w) { q = Unique(x) w = Neg(x) }> }"
    ),
    "inside of Loop": model(
        f"main (float[N,3] x) => (float[N,3] y) {{ {THREE} y = Loop(m, , x) <body = b (int64 i, bool c, float[N,3] s) "
        "=> (bool d, float[N,3] t) { d = Identity(c) u = NonZero(s) t = Neg(s) }> }"
    ),
    "rows of Loop": model(
        f"main (float[N,3] x) => (float[N,3] y) {{ {THREE} y, z = Loop(m, , x) <body = b (int64 i, bool c, float[N,3] "
        "s) => (bool d, float[N,3] t, int64[2,K] u) { d = Identity(c) u = NonZero(s) t = Neg(s) }> }"
    ),
    "a state of Loop": model(
        f"main (float[N,3] x) => (float[N,3] y) {{ {THREE} n = NonZero(x) w, y = Loop(m, , n, x) <body = b (int64 i, "
        "bool c, int64[2,K] g, float[N,3] s) => (bool d, int64[2,L] h, float[N,3] t) "
        "{ d = Identity(c) h = Concat<axis=1>(g, g) t = Neg(s) }> }"
    ),
    "a state and rows of Scan": model(
        "main (float[N,3] x) => (float[3,N] y) { z = Constant<value_float=0.0>() n = NonZero(x) w, v, y = "
        "Scan<num_scan_inputs=1, scan_output_axes=[0, 1], scan_output_directions=[1, 0], body = b (int64[2,K] g, "
        "float[3] r) => (int64[2,K] h, int64[1,L] u, float[3] t) { h = Identity(g) u = NonZero(r) t = Neg(r) }>(n, x) }"
    ),
    "an output of a function": model(
        "main (float[N,3] x) => (float[N,3] y) { u, y = loc.f(x, x) }", imports=LOCAL, functions=FUNCTION
    ),
    "an input of a function": model(
        "main (float[N,3] x) => (float[N,3] y) { n = NonZero(x) u, y = loc.f(n, x) }", imports=LOCAL, functions=FUNCTION
    ),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_nothing_reads_does_not_run(name, tmp_path, monkeypatch):
    found = load(UNREAD[name])
    assert not found.cuts
    assert not any(value.static for value in found.inputs)
    others = {"s": np.int64([3, 2]), "c": np.bool_(True)}
    inputs = [X, *(others[value.name] for value in found.inputs[1:])]
    expected = -X.T if "Scan" in name else -X
    for call in (found, jax.jit(found), lambda *inputs: found.apply(found.params, *inputs)):
        np.testing.assert_array_equal(call(*inputs), expected)
    np.testing.assert_array_equal(jax.vmap(lambda x: found(x, *inputs[1:]))(np.stack([X, X]))[1], expected)
    np.testing.assert_array_equal(jax.grad(lambda x: found(x, *inputs[1:]).sum())(X), -np.ones_like(X))
    np.testing.assert_array_equal(found.export().call({}, *inputs), expected)
    assert not found.cuts
    assert found.summary(*inputs).rows[0].output == f"float32[{', '.join(map(str, expected.shape))}]"
    found.to_python(tmp_path / "written")
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("written", None)
    package = importlib.import_module("written")
    np.testing.assert_array_equal(jax.jit(package.apply)(package.load_params(), *inputs), expected)


def test_it_may_be_asked_for(tmp_path):
    found = load(UNREAD["what reads it"])
    u, w = found(X, outputs=["u", "w"])
    np.testing.assert_array_equal(u, np.nonzero(X))
    assert w.item() == np.sum(np.nonzero(X))
    with pytest.raises(StaticError, match="NonZero"):
        jax.jit(lambda x: found(x, outputs=["u"]))(X)
    assert jax.jit(lambda x: found(x, outputs=["w"]))(X)[0].item() == w.item()
    assert "NonZero" in found.show()
    assert [row.output for row in found.compare(X).rows] == ["u", "v", "w", "y"]
    found.save(tmp_path / "same.onnx")
    assert len(onnx.load(tmp_path / "same.onnx").graph.node) == 4


def test_parameters_stay(tmp_path):
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = load(model("main (float[N,3] x) => (float[N,3] y) { u = Mul(x, w) y = Neg(x) }", initializers={"w": w}))
    np.testing.assert_array_equal(found.params["w"], w)
    grads = jax.grad(lambda params: found.apply(params, X).sum())(found.params)
    np.testing.assert_array_equal(grads["w"], np.zeros_like(w))
    np.testing.assert_array_equal(found(X, outputs=["u"]), X * w)
    found.to_python(tmp_path / "with_weights")
    np.testing.assert_array_equal(found.astype("float16")(X.astype(np.float16)), -X)


@pytest.mark.parametrize(
    "made",
    [
        "u = RandomNormalLike(x)",
        "u = CumSum(x, a)",
        "v = Cast<to=8>(x) u = Identity(v)",
        "v = CumSum(x, a) w = Cast<to=11>(v) u = Bernoulli(w)",
        "t = Constant<value=bool {1}>() r = Constant<value_float=0.5>() u, z = Dropout(x, r, t)",
    ],
)
def test_what_only_says_its_sizes_does_not_run(made):
    """Strings, an axis that is traced, numbers without a key: none can be computed."""
    text = f"main (float[N,3] x, int64 a) => (int64[2] y, int64 n) {{ {made} y = Shape(u) n = Size(u) }}"
    found = load(model(text, opset=17))
    assert not found.cuts
    assert not any(value.static for value in found.inputs)
    for call in (found, jax.jit(found)):
        y, n = call(X, np.int64(0))
        assert (np.asarray(y).tolist(), int(n)) == ([2, 3], 6)


def test_what_says_more_than_its_sizes_runs():
    text = (
        "main (float[N,3] x) => (int64[2] y, float[N,3] z) { a = Constant<value_int=1>() z = CumSum(x, a) y = Shape(z)}"
    )
    y, z = load(model(text))(X)
    assert np.asarray(y).tolist() == [2, 3]
    np.testing.assert_array_equal(z, np.cumsum(X, 1))
    text = "main (float[N,3] x) => (int64[2] y) { u, m = Dropout(x) y = Shape(m) }"
    assert np.asarray(load(model(text))(X)).tolist() == [2, 3]


DRAWING = """main (float[N,3] x) => (float[N,3] y, float[N,3] z) {
    y = RandomUniformLike(x) u = RandomUniformLike(x) z = RandomUniformLike(x)
}"""


def test_what_others_draw_stays():
    found, key = load(model(DRAWING)), jax.random.key(0)
    y, u, z = found(X, rng=key, outputs=["y", "u", "z"])
    for call in (found, jax.jit(found), lambda x, rng: found(x, rng=rng, outputs=["y", "z"])):
        np.testing.assert_array_equal(call(X, rng=key), [y, z])
    np.testing.assert_array_equal(found(X, rng=key, outputs=["z"]), z)
    assert not np.array_equal(u, z)


def test_what_draws_and_is_not_read_needs_no_key():
    found = load(model("main (float[N,3] x) => (float[N,3] y) { u = RandomNormalLike(x) y = Neg(x) }"))
    np.testing.assert_array_equal(found(X), -X)


def test_a_state_that_the_end_depends_on_stays():
    text = """main (float x) => (int64 y) {
        one = Constant<value_int=1>() zero = Constant<value_int=0>() t = Constant<value=bool {1}>()
        w, y = Loop(, t, x, zero) <body = b (int64 i, bool c, float s, int64 n) => (bool d, float h, int64 k) {
            two = Constant<value_float=2.0>() most = Constant<value_float=100.0>()
            h = Mul(s, two) d = Less(h, most) k = Add(n, one)
        }>
    }"""
    found = load(model(text))
    for call in (found, jax.jit(found)):
        assert call(np.float32(1)).item() == 7


def test_a_graph_that_is_read_as_a_whole_is_itself():
    for text in (
        "main (float[N] x) => (float[N] y) { a = Neg(x) y = Abs(a) }",
        f"main (float[N] x) => (float[N] y) {{ {THREE} y = Loop(m, , x) <body = b (int64 i, bool c, float[N] s) "
        "=> (bool d, float[N] t) { d = Identity(c) t = Neg(s) }> }",
    ):
        graph = load(model(text)).graph
        assert live(graph) is graph
