"""Activations and biases of com.microsoft against NumPy formulas and onnxruntime."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError

RNG = np.random.default_rng(7)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def phi(x):
    return 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


X, WIDE, BIAS = 3 * f32(2, 3, 8), 4 * f32(7, 300, 8), f32(8)


@pytest.mark.parametrize("x", [X, WIDE, f32(0, 8), 9 * f32(8)], ids=["small", "wide", "empty", "vector"])
def test_against_onnxruntime(x):
    compiled = x is WIDE
    agree("Gelu", [x], compiled=compiled)
    agree("FastGelu", [x], compiled=compiled)
    agree("FastGelu", [x, BIAS])
    agree("BiasGelu", [x, BIAS], compiled=compiled)
    agree("QuickGelu", [x])
    agree("QuickGelu", [x], alpha=-0.5)
    agree("ScaledSiLU", [x], alpha=0.25)
    agree("ScaledSiLU", [x, np.float32(2)])


@pytest.mark.parametrize(
    "options", [{}, {"limit": 1.5, "activation_alpha": 1.702, "activation_beta": 1.0}, {"limit": -1.0}]
)
@pytest.mark.parametrize("halves", [[WIDE], [WIDE, WIDE[::-1].copy()], [X, -X]], ids=["one", "two", "small"])
def test_swiglu(halves, options):
    expected = swiglu(*(np.float64(x) for x in halves), **options)
    (found,) = jax.jit(lambda *halves: ours("SwiGLU", halves, **options))(*halves)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def swiglu(gate, up=None, limit=0.0, activation_alpha=1.0, activation_beta=0.0):
    gate, up = np.split(gate, 2, -1) if up is None else (gate, up)
    if limit > 0:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate * sigmoid(activation_alpha * gate) * (up + activation_beta)


def test_swiglu_rounds_in_sixteen_bits():
    gate, up = (np.float16(x) for x in (WIDE, WIDE[::-1]))
    (once,) = ours("SwiGLU", [jnp.asarray(gate), jnp.asarray(up)], activation_alpha=1.702)
    (twice,) = ours("SwiGLU", [jnp.asarray(gate), jnp.asarray(up)], activation_alpha=1.702, round_activation=1)
    exact = swiglu(np.float32(gate), np.float32(up), activation_alpha=np.float32(1.702))
    np.testing.assert_allclose(once, np.float16(exact), rtol=2e-3, atol=1e-6)
    (activated,) = ours("QuickGelu", [jnp.asarray(gate)], alpha=1.702)
    np.testing.assert_array_equal(twice, activated * jnp.asarray(up))
    assert (once != twice).any()


def test_swiglu_keeps_what_is_no_number_and_signs_of_zero():
    gate = np.float32([np.nan, -np.inf, np.inf, 1.0, 1.0])
    up = np.float32([1, 1, 2, np.nan, -0.0])
    (found,) = ours("SwiGLU", [jnp.asarray(gate), jnp.asarray(up)])
    np.testing.assert_array_equal(found, np.float32([np.nan, np.nan, np.inf, np.nan, -0.0]))
    assert np.signbit(found[-1])


def test_bad_swiglu():
    with pytest.raises(ShapeError, match=r"swiglu: `gate` is float32\[2,3,8\], and `up` float32\[8\]"):
        ms.swiglu(X, BIAS)
    with pytest.raises(ShapeError, match="swiglu: the last axis"):
        ms.swiglu(X[..., :7])
    with pytest.raises(DTypeError, match="swiglu"):
        ms.swiglu(np.int32([1, 2]))
    with pytest.raises(ArgumentError, match="swiglu: `round_activation` is 2"):
        ms.swiglu(X, round_activation=2)


def test_gated_add():
    agree("GatedAdd", [WIDE, WIDE[::-1].copy(), f32(7, 300, 1)], compiled=True)
    x, y, gate = (v.astype(np.float16) for v in (WIDE, WIDE[::-1], f32(7, 300, 1)))
    agree("GatedAdd", [x, y, gate], compiled=True, rtol=0, atol=0)  # the product is rounded before it is added
    np.testing.assert_array_equal(jax.jit(ms.gated_add)(x, y, gate), x + y * gate)


def test_formulas():
    np.testing.assert_allclose(ms.gelu(X), X * phi(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ms.bias_gelu(X, BIAS), (X + BIAS) * phi(X + BIAS), rtol=1e-5, atol=1e-6)
    y = X + BIAS
    tanh = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    np.testing.assert_allclose(ms.fast_gelu(X, BIAS), tanh, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ms.quick_gelu(X), X * sigmoid(1.702 * X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ms.scaled_silu(X, alpha=3.0), 3 * X * sigmoid(3 * X), rtol=1e-5, atol=1e-6)


# onnxruntime has these on other devices only.


def split_gelu(x, bias):
    left, right = np.split(x + bias, 2, -1)
    return left * right * phi(right)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("fn", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_without_a_cpu_kernel(fn):
    compare([fn(ms.bias_split_gelu)(WIDE, BIAS)], [split_gelu(WIDE, BIAS)], 1e-5, 1e-5)
    compare([fn(ms.bias_add)(WIDE, BIAS, -WIDE)], [np.broadcast_to(BIAS, WIDE.shape)], 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("data", "bias", "axis", "inner", "full"),
    [
        ((2, 4, 3, 5), (2, 1, 1, 5), 3, 1, (2, 1, 1, 5)),  # a mask of keys for each instance
        ((2, 4, 3, 5), (1, 1, 3, 5), 3, 0, (1, 1, 3, 5)),  # a mask of queries and keys
        ((2, 4, 3, 5), (3, 5), -1, 0, (1, 1, 3, 5)),
        ((2, 4, 3, 5), (2, 1, 3, 5), 2, 1, (2, 1, 3, 5)),  # a softmax over the last two axes
        ((6, 5), (6, 5), 1, 1, (6, 5)),
    ],
)
def test_bias_softmax(data, bias, axis, inner, full):
    x, b = f32(*data), f32(*bias)
    total = x + b.reshape(full)
    flat = softmax(total.reshape(*data[: axis % len(data)], -1)).reshape(data)
    found = ours("BiasSoftmax", [x, b], axis=axis, is_inner_broadcast=inner)
    compare(found, [flat], 1e-5, 1e-6)


def test_bias_dropout():
    data, residual = f32(3, 40, 8), f32(3, 40, 8)
    for bias in (BIAS, f32(3, 40, 8)):
        (y,) = ours("BiasDropout", [data, bias, residual])
        np.testing.assert_allclose(y, data + bias + residual, rtol=1e-6)
    y, mask = ours("BiasDropout", [data, BIAS], n_outputs=2)
    assert mask.all()
    key = jax.random.key(3)
    y, mask = ours("BiasDropout", [data, BIAS, residual, np.float32(0.25), np.True_], n_outputs=2, rng=key)
    np.testing.assert_allclose(y, np.where(mask, (data + BIAS) / 0.75, 0) + residual, rtol=1e-5, atol=1e-6)
    assert 0.7 < mask.mean() < 0.8
    again = ours("BiasDropout", [data, BIAS, None, None, np.True_], seed=3)
    np.testing.assert_array_equal(again[0], ms.bias_dropout(data, BIAS, None, 0.5, True, seed=3))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_element_types(dtype):
    with jax.enable_x64(True):
        x, b = X.astype(dtype), BIAS.astype(dtype)
        wide, step = x.astype(np.float64), b.astype(np.float64)
        eps = float(jnp.finfo(dtype).eps)
        for found, expected in (
            (ms.gelu(x), wide * phi(wide)),
            (ms.bias_gelu(x, b), (wide + step) * phi(wide + step)),
            (ms.quick_gelu(x, alpha=2.0), wide * sigmoid(2 * wide)),
            (ms.bias_add(x, b, x), 2 * wide + step),
            (ms.bias_split_gelu(x, b), split_gelu(wide, step)),
            (ms.bias_softmax(x[0], b[None], axis=1, is_inner_broadcast=0), softmax(wide[0] + step)),
        ):
            assert found.dtype == dtype
            # Half an ulp of rounding: the arithmetic itself is wider.
            np.testing.assert_allclose(
                np.asarray(found).astype(np.float64), expected, rtol=max(eps / 2, 1e-12) * 1.1, atol=1e-7
            )


def test_gradients_vmap_and_symbolic_sizes():
    def smooth(x, b):
        return ms.gated_add(ms.bias_split_gelu(ms.fast_gelu(x, b), b), x[..., 4:], ms.quick_gelu(x[..., :1]))

    check_grads(jax.jit(smooth), (X, BIAS), order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(jax.vmap(ms.bias_gelu, (0, None))(X, BIAS), ms.bias_gelu(X, BIAS), rtol=5e-6)

    def fn(x, b):
        y = ms.bias_add(ms.bias_gelu(x, b), b, ms.fast_gelu(x, b))
        return ms.bias_softmax(y, b[None], axis=2, is_inner_broadcast=0), ms.bias_split_gelu(y, b)

    made = export(jax.jit(fn))(*symbolic_args_specs([X, BIAS], ["n, s, 8", "8"]))
    chex.assert_trees_all_close(made.call(X, BIAS), fn(X, BIAS), rtol=1e-5, atol=1e-6)


ERRORS = [
    (lambda: ms.bias_gelu(X, f32(7)), ShapeError, r"bias_gelu: `bias` has the shape \(7,\), but x .* 8 elements"),
    (lambda: ms.fast_gelu(f32(), f32(1)), ShapeError, "fast_gelu: x is a scalar; it needs at least one axis"),
    (lambda: ms.fast_gelu(X, BIAS.astype(np.float16)), DTypeError, "fast_gelu: operands must have one element type"),
    (lambda: ms.gelu(np.arange(3)), DTypeError, "gelu: `x` must be floating-point"),
    (lambda: ms.scaled_silu(X, BIAS), ShapeError, "scaled_silu: `scale` must be one number, got"),
    (lambda: ms.bias_split_gelu(f32(2, 3), f32(3)), ShapeError, r"last axis of x of \(2, 3\) does not divide into two"),
    (
        lambda: ms.bias_add(X, BIAS, X[0]),
        ShapeError,
        r"bias_add: `skip` of \(3, 8\) must be \(2, 3, 8\), the shape of x",
    ),
    (lambda: ms.gated_add(X, X, X), ShapeError, r"gated_add: `gate` of \(2, 3, 8\) must be \(2, 3, 1\)"),
    (lambda: ms.gated_add(X, X[0], X), ShapeError, "gated_add: `y` of"),
    (
        lambda: ms.bias_softmax(X, f32(4, 8), axis=2, is_inner_broadcast=0),
        ShapeError,
        r"`bias` of \(4, 8\) does not fit data of \(2, 3, 8\): its size must be a multiple",
    ),
    (lambda: ms.bias_softmax(X, BIAS, axis=3, is_inner_broadcast=0), AxisError, "bias_softmax: `axis` is 3"),
    (lambda: ms.bias_softmax(X, BIAS, axis=2, is_inner_broadcast=2), ArgumentError, "`is_inner_broadcast` is 2"),
    (lambda: ms.bias_dropout(X, BIAS, X[0]), ShapeError, r"bias_dropout: `residual` of \(3, 8\) must be \(2, 3, 8\)"),
    (lambda: ms.bias_dropout(X, f32(3, 8)), ShapeError, r"bias_dropout: `bias` has the shape \(3, 8\)"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_a_wrong_operator_is_caught(monkeypatch):
    monkeypatch.setattr("microsoft_peer.ours", lambda op, inputs, *_: (ms.fast_gelu(inputs[0]),))
    with pytest.raises(AssertionError):
        agree("QuickGelu", [X])
