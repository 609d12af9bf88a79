"""What callers give and what they get: inputs by name and position, sizes, types, outputs under their names."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node, tensor

from jaxops.errors import DTypeError, ShapeError, SignatureError, StaticError
from jaxops.onnx import load
from jaxops.runtime import compiled_pieces as calls

X = np.float32([[1, -2, 3], [0, 5, -6]])
W = np.float32([[1, 2], [-3, 4], [5, -6]])
PRODUCT = model(
    "main (float[N,3] x) => (float[N,2] y) { h = MatMul(x, w) a = Relu(h) y = Add(a, b) }",
    initializers={"w": W, "b": np.float32([1, 2])},
)


@pytest.fixture
def product():
    return load(PRODUCT)


def test_inputs_as_a_dictionary():
    found = load(model("main (float[N] x, float[N] y) => (float[N] z) { z = Sub(x, y) }"))
    given = {"y": np.float32([1]), "x": np.float32([3])}
    assert (
        found(given).tolist()
        == found(**given).tolist()
        == found.apply({}, {"x": given["x"]}, y=given["y"]).tolist()
        == [2]
    )
    with pytest.raises(SignatureError, match="input 'y' was given twice, in the dictionary and by name"):
        found(given, y=given["y"])
    with pytest.raises(SignatureError, match="the model has no input 'w'"):
        found({**given, "w": 1})


TWO_ALIKE = "main (float[B, 2] x, float[B, 2] m) => (float[K, 2] y, float[M, 2] z) { y = Neg(x) z = Exp(m) }"
TOGETHER = "main (float[B] x, float[B] m, float[1] s) => (float[K] y) { t = Mul(x, m) y = Mul(t, s) }"


def test_two_sizes_under_one_name_are_warned_of_once():
    """Names are documentation: nodes say what must be equal."""
    proto = model(TWO_ALIKE)
    three, one = np.ones((3, 2), np.float32), np.full((1, 2), 2, np.float32)
    for call in (lambda f: f, jax.jit, lambda f: lambda *a: f.apply({}, *a)):
        found = load(proto)
        with pytest.warns(UserWarning, match="the size 'B' is 3 in input 'x', but 1 in 'm'; the model runs with both"):
            y, z = call(found)(three, one)
        np.testing.assert_array_equal(y, -three)
        np.testing.assert_allclose(z, np.exp(one), rtol=1e-6)
        found(one, three)  # in silence
    other = load(model(TOGETHER))
    with pytest.warns(UserWarning, match="the size 'B' is 3 in input 'x', but 1 in 'm'"):
        assert other(three[:, 0], one[:, 0], one[0, :1]).shape == (3,)
    with pytest.raises(ShapeError, match=r"mul: .*\(3,\).*\(2,\)"):
        other(three[:, 0], three[:2, 0], one[0, :1])


def test_exports_have_two_names_where_nothing_says_that_sizes_are_equal():
    three, one = np.ones((3, 2), np.float32), np.ones((1, 2), np.float32)
    program = load(model(TWO_ALIKE)).export()
    assert [str(a.shape[0]) for a in program.in_avals] == ["B", "m_0"]
    assert [y.shape for y in program.call({}, three, one)] == [(3, 2), (1, 2)]
    program = load(model(TWO_ALIKE)).export(sizes={"B": "b"})  # the caller says that it is one size
    assert [str(a.shape[0]) for a in program.in_avals] == ["b", "b"]
    joined = load(model("main (float[B] x, float[B] m) => (float[K] y) { y = Concat<axis=0>(x, m) }"))
    assert [str(a.shape[0]) for a in joined.export().in_avals] == ["B", "B"]
    program = joined.export(sizes={"m_0": "n"})
    assert [str(a.shape[0]) for a in program.in_avals] == ["B", "n"]
    assert program.call({}, three[:, 0], one[:, 0]).shape == (4,)
    together = load(model(TOGETHER)).export()
    assert [str(a.shape[0]) for a in together.in_avals] == ["B", "B", "1"]


def test_sizes_of_initializers_under_one_name():
    inputs = [info("x", [2, 3]), info("w", ["M"]), info("v", ["M"])]
    weights = [tensor(np.ones(3, np.float32), "w"), tensor(np.ones((), np.float32).reshape(1), "v")]
    proto = build(node("Sum", ["x", "w", "v"], ["y"]), inputs=inputs, initializers=weights)
    with pytest.warns(UserWarning, match="the size 'M' is 3 in input 'w', but 1 in 'v'; the model runs with both"):
        found = load(proto)
    assert found(np.ones((2, 3), np.float32)).tolist() == [[3, 3, 3]] * 2


@pytest.mark.parametrize("unnamed", ["?", "-1", "None", ""])
def test_sizes_without_a_name_may_differ(unnamed):
    inputs = [info("x", [unnamed]), info("m", [unnamed])]
    found = load(build(node("Mul", ["x", "m"], ["y"]), inputs=inputs))
    assert found.inputs[0].shape == (None,)
    assert found(np.ones(3, np.float32), np.ones(1, np.float32)).shape == (3,)


def test_integers_of_another_width_are_converted_where_that_is_exact():
    found = load(model("main (int64[N] i, int8[N] j) => (int64[N] a, int8[N] b) { a = Add(i, i) b = Identity(j) }"))
    a, b = found(np.int32([3]), np.int64([-128]))
    assert (a.tolist(), b.tolist(), b.dtype) == ([6], [-128], np.int8)
    with jax.enable_x64(True):
        assert found(jnp.array([3], jnp.int32), np.int8([1]))[0].dtype == np.int64
    with pytest.raises(DTypeError, match=r"input 'j' is int64\[1\] \[128\], but the model expects j: int8\[N\]"):
        found(np.int32([3]), np.int64([128]))
    with pytest.raises(DTypeError, match=r"input 'i' is float32.*\n  hint    give it as int64: x.astype\(np.int64\)"):
        found(np.float32([3]), np.int8([1]))


def test_several_outputs_are_a_namedtuple_in_the_order_of_the_graph():
    outputs = [info("b", ["N"]), info("a.0.key", ["N"])]
    found = load(
        build(node("Relu", ["x"], ["a.0.key"]), node("Neg", ["x"], ["b"]), inputs=[info("x", ["N"])], outputs=outputs)
    )
    for call in (found, jax.jit(found), lambda x: found.apply({}, x)):
        b, a = outputs = call(np.float32([1, -1]))
        np.testing.assert_array_equal(b, [-1, 1])
        np.testing.assert_array_equal(a, [1, 0])
        assert outputs._fields == ("b", "a_0_key")
        assert outputs.a_0_key is a
    again = pickle.loads(pickle.dumps(outputs))
    assert type(again) is type(outputs)
    np.testing.assert_array_equal(again.a_0_key, a)


def test_any_tensor_may_be_asked_for(product):
    h, y = product.apply(product.params, X, outputs=["h", "y"])
    np.testing.assert_array_equal(h, X @ W)
    np.testing.assert_array_equal(y, product(X))
    np.testing.assert_array_equal(product(X, outputs=["a"]), np.maximum(h, 0))
    np.testing.assert_array_equal(product(X, outputs=["w"]), W)
    with pytest.raises(SignatureError, match="`outputs`: the model has no tensor 'hh'; similar: 'h'"):
        product(X, outputs=["hh"])
    with pytest.raises(SignatureError, match="`outputs` is empty; name at least one tensor"):
        product(X, outputs=[])


def test_only_what_the_asked_tensors_need_runs():
    found = load(model("main (float[N] x) => (int64[1,K] y) { a = Relu(x) y = NonZero(a) }"))
    assert jax.jit(lambda x: found(x, outputs=["a"]))(np.float32([1, -1])).tolist() == [1, 0]


def test_asking_for_another_tensor_does_not_change_what_is_drawn():
    text = "main (float[N] x) => (float[N] y) { a = Dropout(x, r, t) y = Dropout(x, r, t) }"
    found = load(model(text, initializers={"r": np.float32(0.5), "t": np.bool_(True)}))
    x, key = np.ones(64, np.float32), jax.random.key(0)
    np.testing.assert_array_equal(found(x, rng=key), found(x, rng=key, outputs=["y"]))


def test_apply_is_compiled_and_runs_node_by_node_when_jit_is_disabled(product, monkeypatch):
    traces, piece = [], calls._piece
    monkeypatch.setattr(calls, "_piece", lambda *args: traces.append(args) or piece(*args))
    wanted = np.maximum(X @ W, 0) + np.float32([1, 2])
    for _ in range(3):
        grads = jax.grad(lambda p: product.apply(p, X).sum())(product.params)
        np.testing.assert_array_equal(grads["b"], [2, 2])
        product.apply({**product.params, "b": jnp.zeros(2)}, X)
    count = len(traces)
    assert count <= 2  # with a value beside its derivative, and without
    with jax.disable_jit():
        np.testing.assert_array_equal(product(X), wanted)
        np.testing.assert_array_equal(product.apply(product.params, X), wanted)
    assert len(traces) == count


def test_sizes_that_data_decide_beside_a_gradient():
    text = "main (float[N] x, float[N] w) => (float[M] z) { c = Cast<to=9>(w) y = Compress(x, c) z = Mul(y, y) }"
    found, x, w = load(model(text)), np.float32([1, 2, 3]), np.float32([1, 0, 1])
    np.testing.assert_array_equal(jax.grad(lambda x: found(x, w).sum())(x), [2, 0, 6])
    np.testing.assert_array_equal(jax.grad(lambda w: found(x, w).sum())(w), [0, 0, 0])
    with pytest.raises(StaticError, match="condition"):
        jax.vmap(found)(x[None], w[None])


def test_static_outputs_are_the_callers_to_write_into():
    """The program keeps its static results: neither another output nor a later call sees what a caller writes."""
    shape = load(
        model("main (float[N, 3] x) => (int64[K] y, int64[L] z) { s = Shape(x) y = Identity(s) z = Identity(s) }")
    )
    named = load(model("main (string[N] x) => (string[N] y) { y = Identity(x) }"))
    constant = load(
        model("main (float[N] x) => (int64[K] y) { y = Identity(c) }", initializers={"c": np.int64([5, 6])})
    )
    for found, given in ((shape, np.ones((2, 3), np.float32)), (constant, np.ones(2, np.float32))):
        first = found(given)
        for output in first if isinstance(first, tuple) else (first,):
            before = output.copy()
            output[0] = 99
            again = found(given)
            np.testing.assert_array_equal(again[-1] if isinstance(again, tuple) else again, before)
    assert shape(np.ones((2, 3), np.float32)).y.tolist() == [2, 3]
    words = np.array(["a", "b"], object)
    assert named(words).tolist() == ["a", "b"]
    words[0] = "c"
    assert named(np.array(["a", "b"], object)).tolist() == ["a", "b"]
    assert named(words).tolist() == ["c", "b"]
