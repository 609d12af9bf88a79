"""Operators that the caller of `load` brings."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import model

from jaxops.errors import ArgumentError, SignatureError, StaticError, UnsupportedError
from jaxops.onnx import load
from jaxops.signature import Static

X = np.float32([[1, -2, 3], [0, 5, -6]])
TEXT = """main (float[N,3] x) => (float[M] y, float[N,3] z) {
    s = Shape(x)  n = ReduceProd<keepdims=0>(s)  y, z = my.domain.Scaled<factor = 2.0, mode = "flat">(x, , n)
}"""


def scaled(x, bias=None, size: Static = None, *, factor, mode="plain"):
    assert bias is None
    assert mode == "flat"
    assert isinstance(size, np.ndarray)
    return factor * jnp.reshape(x, (int(size),)), jnp.sin(x)


def own(fn=scaled, text=TEXT):
    return load(model(text, imports=', "my.domain" : 1'), operators={("my.domain", "Scaled"): fn})


def test_inputs_attributes_and_static_marks():
    found = own()
    for call in (found, jax.jit(found)):
        y, z = call(X)
        np.testing.assert_array_equal(y, 2 * X.reshape(6))
        np.testing.assert_allclose(z, np.sin(X), rtol=1e-6)
    np.testing.assert_array_equal(jax.grad(lambda x: found(x)[0].sum())(X), np.full_like(X, 2))
    assert "Scaled(x, , n, factor=2, mode='flat')" in found.show()


def test_without_it_the_operator_is_missing():
    with pytest.raises(UnsupportedError, match=r"Scaled.*my.domain"):
        load(model(TEXT, imports=', "my.domain" : 1'))


def test_it_goes_before_an_operator_of_the_standard_and_draws_with_a_key():
    text = "main (float[N] x) => (float[N] y) { a = Relu(x) y = Neg(a) }"
    found = load(model(text), operators={("", "Relu"): lambda x, *, rng: x + jax.random.normal(rng, x.shape)})
    x = np.zeros(3, np.float32)
    one, again, other = (found(x, rng=jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_any_number_of_inputs():
    text = "main (float[N] x) => (float[N] y) { y = my.domain.Scaled(x, x, x) }"
    assert own(lambda *xs: sum(xs), text)(np.float32([2])).tolist() == [6]


def test_a_traced_value_where_it_must_be_static():
    text = """main (float[N,3] x, int64 n) => (float[M] y, float[N,3] z) {
        y, z = my.domain.Scaled<factor = 2.0, mode = "flat">(x, , n)
    }"""
    found = own(text=text)
    assert found.inputs[1].static == "Scaled 'y' `size`"
    assert found(X, 6)[0].shape == (6,)
    with pytest.raises(StaticError, match="input 'n' must be known while tracing"):
        jax.jit(found)(X, 6)


@pytest.mark.parametrize(
    ("operators", "error", "text"),
    [
        ({"Scaled": scaled}, ArgumentError, r"the key 'Scaled' must be \(domain, name\), such as"),
        ({("my.domain", "Scaled"): 3}, ArgumentError, r"\('my.domain', 'Scaled'\) is 3; it must be a function"),
        (
            {("my.domain", "Scaled"): lambda x, n: x},
            SignatureError,
            r"Scaled: .*; the node has 3 inputs and the .*factor",
        ),
        (
            {("my.domain", "Scaled"): lambda *x, mode: x},
            SignatureError,
            "unexpected keyword argument 'factor'; the node",
        ),
    ],
)
def test_errors(operators, error, text):
    with pytest.raises(error, match=text):
        load(model(TEXT, imports=', "my.domain" : 1'), operators=operators)


def test_fewer_results_than_outputs():
    with pytest.raises(SignatureError, match="Scaled: returned 1 output, but the node has 2"):
        own(lambda *x, **attributes: x[0])(X)


@pytest.mark.parametrize(
    "value", ["a", object(), {1, 2}, iter([1]), ([["a"]], X), jax.ShapeDtypeStruct((2,), np.float32)]
)
def test_results_that_are_no_arrays(value):
    with pytest.raises(SignatureError, match=r"Scaled: output 0 of the function given to load .*; it must be an arr"):
        own(lambda *x, **attributes: value)(X)


@pytest.mark.parametrize("value", [2.5, np.float32(3)])
def test_numbers_become_arrays(value):
    found = jax.tree.leaves(own(lambda *x, **attributes: (value, value))(X))
    assert [(y.dtype, y.item()) for y in found] == [(jnp.asarray(value).dtype, value)] * 2
    assert not any(getattr(y, "weak_type", False) for y in found)


def test_a_model_with_one_is_copied_and_pickled():
    found = own()
    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(again(X)[0], found(X)[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda model, params: model(X),
        lambda model, params: model.apply(params, X),
        lambda model, params: jax.jit(model.apply)(params, X),
        lambda model, params: jax.jit(lambda params: jax.jit(model.apply)(params, X))(params),
        lambda model, params: jax.jit(lambda model: model(X))(model),
        lambda model, params: (pair := model.specialize(X, transformable=True)).run(pair.prepare(params), X),
    ],
)
def test_an_operator_may_read_traced_values_from_around_it(call):
    """As in a low-rank adapter that an override of a product closes over."""
    text = "main (float[N,3] x) => (float[N,3] y) <float[3,3] w = {1,0,0, 0,1,0, 0,0,1}> { y = MatMul(x, w) }"
    params = load(model(text)).params

    def total(scale):
        found = load(model(text), operators={("", "MatMul"): lambda x, w: scale * (x @ w)})
        return call(found, params).sum()

    expected = X.sum()
    np.testing.assert_allclose(jax.grad(total)(2.0), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(total)(jnp.arange(3.0)), expected * np.arange(3), rtol=1e-6)


WIDE = """main (float[N,3] x, int64[N] i) => (float[N,3] y, int64[N] j)
<float[3,3] w = {1,0,0, 0,1,0, 0,0,1}, int64[1] big = {1099511627776}> { y = MatMul(x, w)  j = Add(i, big) }"""


@pytest.mark.parametrize(
    "call",
    [
        lambda model, params: model.apply(params, X, np.arange(len(X))),
        lambda model, params: jax.jit(model.apply)(params, X, np.arange(len(X))),
        lambda model, params: (pair := model.specialize(X, np.arange(len(X)), transformable=True)).run(
            pair.prepare(params), X, np.arange(len(X))
        ),
    ],
)
def test_a_model_of_64_bits_has_derivatives_by_parameters_and_by_what_an_operator_reads(call):
    params = load(model(WIDE)).params
    assert load(model(WIDE)).x64

    def total(scale, params):
        found = load(model(WIDE), operators={("", "MatMul"): lambda x, w: scale * (x @ w)})
        return call(found, params)[0].sum()

    by_scale, by_params = jax.grad(total, (0, 1))(2.0, params)
    np.testing.assert_allclose(by_scale, X.sum(), rtol=1e-6)
    np.testing.assert_allclose(by_params["w"], 2 * X.sum(0)[:, None] * np.ones(3), rtol=1e-6)
    given = (jnp.float32(2), params)
    np.testing.assert_allclose(jax.jvp(total, given, given)[1], 4 * X.sum(), rtol=1e-6)
    second = jax.grad(lambda scale: (jax.grad(total, 1)(scale, params)["w"] ** 2).sum())(2.0)
    np.testing.assert_allclose(second, 4 * 3 * (X.sum(0) ** 2).sum(), rtol=1e-6)
