"""A call like an earlier one runs the program that is there; whatever differs is looked at as at first."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import build, info, model, node, tensor
from onnx import helper

from jaxops.errors import ArgumentError, DTypeError, ModelError, ShapeError, SignatureError
from jaxops.onnx import load
from jaxops.runtime.arguments import InputBinder

W = np.float32([[1, 2], [3, 4], [5, 6]])
X = np.float32([[1, 0, 3]])
BODY = "main (float[N,3] x) => (float[N,2] y, float[N,2] z) { y = MatMul(x, w) z = Tanh(y) }"


@pytest.fixture
def loaded():
    """Has been called once."""
    found = load(model(BODY, initializers={"w": W}))
    found(jnp.asarray(X))
    return found


@pytest.fixture
def at_once(monkeypatch):
    """Fails where a call is looked at closely."""

    def bind_inputs(self, given, named):
        raise AssertionError("looked at")

    return lambda: monkeypatch.setattr(InputBinder, "bind_inputs", bind_inputs)


def test_the_same_again(loaded, at_once):
    first = loaded(X)
    at_once()
    for given in (jnp.asarray(X) * 2, X * 2):
        found = loaded(given)
        np.testing.assert_allclose(found.y, 2 * X @ W)
        np.testing.assert_allclose(found.z, np.tanh(2 * X @ W), rtol=1e-6)
        assert type(found) is type(first)
        assert isinstance(found.y, jax.Array)


def test_a_model_without_parameters(at_once):
    loaded = load(model("main (float[N,3] x) => (float[N,3] y) { a = Tanh(x) y = Mul(a, x) }"))
    loaded(X)
    at_once()
    np.testing.assert_allclose(loaded(2 * X), np.tanh(2 * X) * 2 * X, rtol=1e-6)


def test_inputs_by_name_and_a_key(at_once):
    """Names may come in any order. The key is an argument of the program; both kinds of keys have one."""
    text = "main (float[N] b, float[N] a) => (float[N] y, float[N] r) { y = Sub(b, a) r = RandomUniformLike(b) }"
    loaded, (a, b) = load(model(text)), np.random.default_rng(0).normal(size=(2, 3000)).astype(np.float32)
    keys = [make(seed) for make in (jax.random.key, jax.random.PRNGKey) for seed in (0, 7)]
    drawn = [np.asarray(loaded.apply({}, b, a, rng=key).r) for key in keys]
    for key in keys:
        loaded(b, a, rng=key), loaded(a=a, b=b, rng=key), loaded(b=b, a=a, rng=key)
    with pytest.raises(SignatureError, match="input 'b' was given twice"):
        loaded(b, a=a, b=b, rng=keys[0])
    with pytest.raises(ArgumentError, match="`rng` is 3; it must be one random key"):
        loaded(a=a, b=b, rng=3)
    at_once()
    for key, r in zip(keys, drawn, strict=True):
        for found in (loaded(b, a, rng=key), loaded(a=a, b=b, rng=key), loaded(b=b, a=a, rng=key)):
            np.testing.assert_array_equal(found.y, b - a)
            np.testing.assert_array_equal(found.r, r)


@pytest.mark.parametrize(("name", "given"), [("int", [3, 7, 5]), ("string", ["a", "b", "c"])])
def test_dictionaries_and_strings(at_once, name, given):
    """What is no JAX array is made anew for each call."""
    wide = name.replace("int", "int64")
    proto = build(
        node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", coefficients=W.ravel().tolist(),
             intercepts=[0.0] * 3, multi_class=1, post_transform="NONE", **{f"classlabels_{name}s": given}),
        node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", **{f"classlabels_{wide}s": given}),
        inputs=[info("x", ["N", 2])],
        outputs=[helper.make_empty_tensor_value_info(name) for name in ("label", "maps")],
        opsets=(("", 20), ("ai.onnx.ml", 3)),
    )  # fmt: skip
    loaded, x = load(proto), np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    loaded(np.zeros_like(x))
    # What looks at every tensor sees them, too.
    assert loaded.compare(x).agrees
    assert "ZipMap" in str(loaded.summary(x, time=True))
    at_once()
    label, maps = loaded(x)
    scores = x @ W.T
    assert np.asarray(label).tolist() == [given[k] for k in scores.argmax(1)]
    assert type(maps) is list
    assert [list(row) for row in maps] == [given] * 50
    np.testing.assert_allclose([list(row.values()) for row in maps], scores, rtol=1e-5, atol=1e-6)
    assert type(maps[0][given[0]]) is float


def test_inputs_come_in_the_order_of_the_model(at_once):
    proto = build(
        node("Sub", ["b", "a"], ["d"]),
        node("MatMul", ["d", "w"], ["y"]),
        inputs=[info("b", [1, 3]), info("a", [1, 3])],
        initializers=[tensor(W)],
    )
    loaded = load(proto)
    given = jnp.asarray(X), jnp.ones((1, 3))
    loaded(*given)
    at_once()
    np.testing.assert_array_equal(loaded(*given), (X - 1) @ W)


def test_other_parameters(loaded):
    loaded.params["w"] = jnp.asarray(2 * W)
    np.testing.assert_allclose(loaded(jnp.asarray(X)).y, 2 * X @ W)
    np.testing.assert_allclose(loaded.apply({"w": jnp.asarray(3 * W)}, jnp.asarray(X)).y, 3 * X @ W)


def test_other_inputs(loaded):
    np.testing.assert_allclose(loaded(jnp.ones((4, 3))).y, np.ones((4, 3)) @ W)
    np.testing.assert_allclose(loaded([[1.0, 0.0, 3.0]]).y, X @ W)
    np.testing.assert_allclose(loaded(x=X).y, X @ W)
    assert loaded(jnp.asarray(X), outputs=["z"]).shape == (1, 2)
    for call, kind in (
        (lambda: loaded(jnp.ones((1, 2))), ShapeError),
        (lambda: loaded(jnp.ones((1, 3), np.int32)), DTypeError),
        (lambda: loaded(jnp.asarray(X), jnp.asarray(X)), SignatureError),
        (lambda: loaded(None), SignatureError),
        (lambda: loaded(), SignatureError),
    ):
        for _ in range(2):
            with pytest.raises(kind):
                call()


def test_under_other_settings(loaded, monkeypatch):
    x = jnp.asarray(X)
    with jax.default_matmul_precision("bfloat16"):
        np.testing.assert_allclose(loaded(x).y, X @ W, rtol=1e-2)
    with jax.enable_x64(True):
        assert loaded(x).y.dtype == np.float32
    seen = []
    monkeypatch.setattr("jaxops.runtime.counted_sizes.run_graph", lambda *given: seen.append(given) or [x, x])
    with jax.disable_jit():
        assert loaded(x).y is x
    assert len(seen) == 1


def test_inside_transformations(loaded):
    x = jnp.asarray(X)
    np.testing.assert_allclose(jax.jit(lambda: loaded(x))().y, X @ W)
    np.testing.assert_allclose(jax.grad(lambda x: loaded(x).y.sum())(x), W.sum(1)[None])
    np.testing.assert_allclose(jax.vmap(loaded)(x[None]).y, [X @ W])


def test_a_wrong_declaration_is_told_each_time():
    loaded = load(model("main (float[N,3] x) => (int32[N,2] y) { y = MatMul(x, w) }", initializers={"w": W}))
    for _ in range(3):
        with pytest.raises(ModelError, match="declares the output"):
            loaded(jnp.asarray(X))


def test_copies(loaded):
    for other in (copy.copy(loaded), copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        np.testing.assert_allclose(other(jnp.asarray(X)).y, X @ W)
    assert loaded.astype(jnp.bfloat16)(jnp.asarray(X, jnp.bfloat16)).y.dtype == jnp.bfloat16


GATHER = "main (int64[N] i) => (float[N,2] y) { y = Gather(w, i) }"


def test_numbers_of_64_bits():
    """With x64 off they enter as 32 bits, where they fit."""
    loaded = load(model(GATHER, initializers={"w": W}))
    for given in (np.int64([2, 0]), np.int32([2, 0]), jnp.asarray([2, 0])):
        for _ in range(2):
            np.testing.assert_array_equal(loaded(given), W[[2, 0]])
    for _ in range(2):
        with pytest.raises(OverflowError):
            loaded(np.int64([2**40, 0]))
    np.testing.assert_array_equal(loaded(np.int64([1, 0])), W[[1, 0]])
    with jax.enable_x64(True):
        np.testing.assert_array_equal(loaded(np.int64([1, 2])), W[[1, 2]])
    np.testing.assert_array_equal(loaded(np.int64([1, 0])), W[[1, 0]])


def test_numbers_of_64_bits_again(at_once):
    loaded = load(model(GATHER, initializers={"w": W}))
    loaded(np.int64([2, 0]))
    at_once()
    np.testing.assert_array_equal(loaded(np.int64([1, 1])), W[[1, 1]])


def test_a_model_of_64_bits_again(at_once):
    loaded = load(model("main (double[N] x) => (double[N] y) { y = Add(x, x) }"))
    x = np.float64([1 + 2**-40, 3])
    loaded(x)
    at_once()
    found = loaded(x)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(np.asarray(found), 2 * x)
    assert not jax.config.jax_enable_x64


def test_numbers_of_64_bits_that_the_model_does_not_declare():
    loaded = load(model(GATHER.replace("int64", "int32"), initializers={"w": W}))
    for _ in range(2):
        np.testing.assert_array_equal(loaded(np.int64([2, 0])), W[[2, 0]])
        with pytest.raises(DTypeError, match="input 'i'"):
            loaded(np.int64([2**32 + 2, 0]))


def test_what_draws_draws_anew():
    loaded = load(model("main (float[N,3] x) => (float[N,2] y) { n = RandomNormalLike(x) y = MatMul(n, w) }",
                        initializers={"w": W}))  # fmt: skip
    found = [np.asarray(loaded(jnp.asarray(X), rng=jax.random.key(k))) for k in (0, 1, 1)]
    assert (found[0] != found[1]).any()
    np.testing.assert_array_equal(found[1], found[2])
