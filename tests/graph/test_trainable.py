"""Which constants are parameters, and which of them are trained."""

import chex
import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from graphs import model

from jaxops.errors import ArgumentError, SignatureError
from jaxops.onnx import load

X = np.float32([[1, -2, 3], [0, 5, -6]])
NET = model(
    """main (float[N,3] x) => (float[N,4] y) {
        a = Add(x, mask)  b = Where(keep, a, x)  t = Pow(b, three)
        h = MatMul(t, w)  o = ConstantOfShape<value = float[1] {2.0}>(four)  s = Mul(h, o)
        y = BatchNormalization(s, scale, bias, mean, var)
    }""",
    initializers={
        "mask": np.float32([0, -np.inf, 0]),
        "keep": np.array([True, False, True]),
        "three": np.float32(3),
        "w": np.ones((3, 4), np.float32),
        "four": np.int64([4]),
        "scale": np.ones(4, np.float32),
        "bias": np.zeros(4, np.float32),
        "mean": np.zeros(4, np.float32),
        "var": np.ones(4, np.float32),
    },
)
TRAINABLE = {"mask": False, "w": True, "scale": True, "bias": True, "mean": False, "var": False, "o": False}


def test_masks_statistics_and_generated_tables_are_not_trained():
    found = load(NET)
    assert found.trainable == TRAINABLE
    assert list(found.trainable) == list(found.params)


@pytest.mark.parametrize("opset", [1, 6, 7, 9, 14, 15])
def test_running_statistics_at_every_version(opset):
    listed = "<is_test=1, consumed_inputs=[0,0,0,1,1]>" if opset < 6 else "<is_test=1>" if opset < 7 else ""
    names = ("scale", "bias", "mean", "var")
    text = f"main (float[N,4] x) => (float[N,4] y) {{ y = BatchNormalization{listed}(x, {', '.join(names)}) }}"
    found = load(model(text, opset=opset, initializers=dict.fromkeys(names, np.ones(4, np.float32))))
    assert found.trainable == {"scale": True, "bias": True, "mean": False, "var": False}


def test_statistics_inside_a_function():
    call = "main (float[N,4] x) => (float[N,4] y) { y = loc.Norm(x, s, v) }"
    body = """<domain: "loc", opset_import: ["": 18]> Norm (x, s, v) => (y) { y = BatchNormalization(x, s, s, v, v) }"""
    values = {"s": np.ones(4, np.float32), "v": np.ones(4, np.float32)}
    found = load(model(call, functions=body, imports=', "loc" : 1', initializers=values))
    assert found.trainable == {"s": True, "v": False}


@pytest.mark.parametrize(
    ("values", "trained"),
    [
        (np.tril(np.ones((3, 3))), False),
        (np.ones((3, 3)), True),
        (np.zeros((3, 3)), True),
        (np.float32([0, -10_000, 0]), False),
        (np.float32([0, np.finfo(np.float32).min]), False),
        (np.float32([0, -9.5, 4]), True),
        (np.float32([0, 0.5, 1]), True),
    ],
)
def test_what_looks_like_a_mask(values, trained):
    text = "main (float[3,3] x) => (float[3,3] y) { y = Add(x, w) }"
    found = load(model(text.replace("3]", "N]"), initializers={"w": values.astype(np.float32)}))
    assert found.trainable == {"w": trained}


def test_bytes_are_arguments_that_nobody_trains():
    text = "main (int32[N] i) => (int8[K] q, float[K] f) { q = Gather(b, i) f = Gather(w, i) }"
    values = {"b": np.zeros(70_000, np.int8), "w": np.ones(5, np.float32)}
    assert load(model(text, initializers=values)).trainable == {"b": False, "w": True}
    zero_points = {"b": np.zeros(2000, np.int8), "w": np.ones(5, np.float32)}
    assert load(model(text, initializers=zero_points)).trainable == {"w": True}


def test_a_caller_decides_by_name_by_dictionary_and_by_function():
    assert load(NET, trainable=["mean", "var"]).trainable == {**TRAINABLE, "mean": True, "var": True}
    assert load(NET, trainable={"w": False}).trainable == {**TRAINABLE, "w": False}
    found = load(NET, trainable=lambda name: None if name == "w" else False)
    assert [name for name, trained in found.trainable.items() if trained] == ["w"]
    found = load(NET, static={"three": False, "o": True, "mask": True})
    assert sorted(found.params) == ["bias", "mean", "scale", "three", "var", "w"]
    assert found.params["three"].shape == ()
    np.testing.assert_allclose(found(X), load(NET)(X), rtol=1e-6)
    assert sorted(load(NET, static="w").params) == sorted(TRAINABLE.keys() - {"w"})


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"static": ["ww"]}, SignatureError, "`static`: the model has no constant 'ww'; similar: 'w'"),
        (
            {"trainable": {"means": True}},
            SignatureError,
            "`trainable`: the model has no constant 'means'; similar: 'mean'",
        ),
        (
            {"static": {"four": False}},
            ArgumentError,
            "`static`: 'four' must be known while tracing: ConstantOfShape 'o'",
        ),
        ({"static": {"keep": False}, "trainable": "keep"}, ArgumentError, "`trainable`: 'keep' is bool; only floating"),
    ],
)
def test_decisions_that_cannot_be_followed(options, error, text):
    with pytest.raises(error, match=text):
        load(NET, **options)


def test_optax_and_equinox_take_it():
    found = load(NET)
    optimizer = optax.masked(optax.sgd(0.1), found.trainable)
    updates, _ = optimizer.update(jax.tree.map(jnp.ones_like, found.params), optimizer.init(found.params), found.params)
    assert float(updates["w"][0, 0]) == pytest.approx(-0.1)
    trained, kept = equinox.partition(found.params, found.trainable)
    grads = jax.grad(lambda p: found.apply(equinox.combine(p, kept), X).sum())(trained)
    assert {name for name, g in grads.items() if g is not None} == {"w", "scale", "bias"}
    chex.assert_tree_all_finite(grads)


def test_single_numbers_of_layers_are_trained():
    """The bias of a layer with one output, by Gemm, Conv, and MatMul with Add; and the slope of PyTorch's PReLU."""
    net = load(
        model(
            """main (float[N,1,3] x) => (float[N,1,1] y) {
                c = Conv(x, filter, conv_bias) n = BatchNormalization(c, scale, shift, mean, var)
                p = PRelu(n, slope) m = MatMul(p, w) a = Add(m, bias) e = Add(a, epsilon) t = Mul(e, third)
                f = Flatten(t) g = Gemm(f, v, last) y = Unsqueeze(g, one)
            }""",
            initializers={
                "filter": np.full((1, 1, 1), 2, np.float32),
                "conv_bias": np.float32([0.5]),
                **{name: np.float32([1]) for name in ("scale", "shift", "mean", "var")},
                "slope": np.float32([[0.25]]),
                "w": np.ones((3, 1), np.float32),
                "bias": np.float32([0.1]),
                "epsilon": np.float32(1e-6),
                "third": np.float32([1 / 3]),
                "v": np.float32([[3]]),
                "last": np.float32([0.2]),
                "one": np.int64([1]),
            },
        )
    )
    layers = {"filter", "conv_bias", "scale", "shift", "slope", "w", "bias", "v", "last"}
    assert {name for name, trained in net.trainable.items() if trained} == layers
    assert net.params.keys() - layers <= {"mean", "var"}
    x = X[:, None]
    grads = jax.grad(lambda params: net.apply(params, x).sum())(net.params)
    assert all(np.all(grads[name]) for name in layers)
    assert float(grads["last"][0]) == len(x)


def test_single_numbers_of_a_formula_are_not_trained():
    """An epsilon beside a product of two results, as in linear attention, and what an Add without a product adds."""
    net = load(
        model(
            """main (float[N,3] x) => (float[N,N] y) {
                t = Transpose(x) m = MatMul(x, t) a = Add(m, epsilon) r = Relu(a) y = Add(r, epsilon)
            }""",
            initializers={"epsilon": np.float32([1e-6])},
        )
    )
    assert not net.params
