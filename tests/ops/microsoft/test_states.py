"""Causal convolution and linear attention of com.microsoft: each token against onnxruntime and against recurrences."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours, runtime

import jaxops as jo
from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, ShapeError, UnsupportedError

RNG = np.random.default_rng(13)
BOTH = (True, True)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


CONV = "CausalConvWithState"


@pytest.mark.parametrize("length", [1, 7])
def test_causal_conv(length):
    x, w, b = f32(2, 3, length), f32(3, 1, 4), f32(3)
    agree(CONV, [x, w], BOTH)
    agree(CONV, [x, w, b, f32(2, 3, 3)], BOTH, activation="silu", compiled=length == 7)
    agree(CONV, [x, w, None, f32(2, 3, 6)], BOTH, activation="swish", dilation=2)
    agree(CONV, [f32(2, length, 3, 2), f32(6, 1, 4), f32(6), f32(2, 3, 3, 2)], BOTH, channels_last=1)
    # onnxruntime has the window on other devices only: each state is that of a prefix.
    window = f32(3, 2, 3, 3)
    y, states = ours(CONV, [x, w, b, window], 2, state_window=3)
    swapped = ours(
        CONV,
        [np.moveaxis(v, -2, -1) if v.ndim > 2 and v is not w else v for v in (x, w, b, window)],
        2,
        state_window=3,
        channels_last=1,
    )
    np.testing.assert_allclose(np.moveaxis(swapped[0], 1, 2), y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.moveaxis(swapped[1], 2, 3), states)
    for slot, n in enumerate(range(length - 2, length + 1)):
        expected = runtime(CONV, [x[..., :n], w, b, window[2]], BOTH)[1] if n > 0 else 0 * states[slot]
        np.testing.assert_array_equal(states[slot], expected)


def test_a_causal_conv_goes_on_where_it_stopped():
    x, w = f32(1, 3, 9), f32(3, 1, 4)
    whole, last = ms.causal_conv_with_state(x, w, activation="silu")
    first, state = ms.causal_conv_with_state(x[..., :5], w, activation="silu")
    second, end = ms.causal_conv_with_state(x[..., 5:], w, None, state, activation="silu")
    np.testing.assert_allclose(np.concatenate([first, second], -1), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(end, last)
    padded = np.pad(x, ((0, 0), (0, 0), (3, 0)))
    plain = np.stack([(padded[..., i : i + 4] * w[:, 0]).sum(-1) for i in range(9)], -1)
    np.testing.assert_allclose(whole, plain / (1 + np.exp(-plain)), rtol=1e-4, atol=1e-5)


ATTENTION = "LinearAttention"


def inputs(rule, queries, keys, length, wide):
    decay = -abs(f32(2, length, keys * (3 if wide else 1))) if "gated" in rule else None
    rate = 1 / (1 + np.exp(-f32(2, length, 1 if wide else keys))) if "delta" in rule else None
    query, key, value = f32(2, length, queries * 3), f32(2, length, keys * 3) / 2, f32(2, length, keys * 4)
    return [query, key, value, f32(2, keys, 3, 4) if wide else None, decay, rate]


def trimmed(values):
    return trimmed(values[:-1]) if values[-1] is None else values


@pytest.mark.parametrize(
    ("rule", "queries", "keys", "wide"),
    [
        ("linear", 4, 2, False),
        ("linear", 2, 2, True),
        ("gated", 2, 4, False),
        ("gated", 2, 2, True),
        ("delta", 2, 2, False),
        ("delta", 4, 2, True),
        ("gated_delta", 4, 2, False),
        ("gated_delta", 2, 4, True),
    ],
)
def test_linear_attention(rule, queries, keys, wide):
    given = trimmed(inputs(rule, queries, keys, 5, wide))
    heads = {"q_num_heads": queries, "kv_num_heads": keys}
    agree(ATTENTION, given, BOTH, update_rule=rule, scale=0.0 if wide else 0.7, atol=1e-4, **heads)


def test_linear_attention_under_jit():
    given = inputs("gated_delta", 4, 2, 60, True)
    agree(ATTENTION, given, BOTH, q_num_heads=4, kv_num_heads=2, compiled=True, rtol=1e-4, atol=1e-4)
    half = [v.astype(np.float16) for v in given]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    compare(ours(ATTENTION, half, 2, **heads), runtime(ATTENTION, half, BOTH, **heads), 2e-2, 2e-2)


def test_doubles_stay_doubles():
    given = [v.astype(np.float64) for v in inputs("gated_delta", 4, 2, 9, True)]
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    gates = [f32(2, 3, 4).astype(np.float64), f32(4).astype(np.float64), f32(4).astype(np.float64)]
    with jax.enable_x64(True):
        compare(ms.linear_attention(*given, **heads), jo.linear_attention(*given, **heads), 1e-12, 1e-12)
        gate = ms.linear_attention_gate(*gates)
    np.testing.assert_allclose(gate, gates[2] * np.logaddexp(gates[0] + gates[1], 0), rtol=1e-12)


def test_the_window_holds_the_last_states():
    length = 2
    # onnxruntime has it on other devices only: each state is that of a prefix.
    query, key, value, past, decay, rate = inputs("gated_delta", 2, 2, length, True)
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    window = np.concatenate([f32(2, *past.shape), past[None]])
    y, states = ours(ATTENTION, [query, key, value, window, decay, rate], 2, state_window=3, **heads)
    assert states.shape == window.shape
    for slot in range(3):
        n = length - 3 + slot + 1
        if n < 1:
            assert not states[slot].any()
            continue
        cut = [v[:, :n] for v in (query, key, value)]
        part, state = ms.linear_attention(*cut, past, decay[:, :n], rate[:, :n], **heads)
        np.testing.assert_allclose(states[slot], state, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y[:, :n], part, rtol=1e-5, atol=1e-6)


def test_gate():
    a, b, shift, factor = 3 * f32(2, 50, 4), f32(2, 50, 4), f32(4), f32(4)
    agree("LinearAttentionGate", [a, shift, factor])
    agree("LinearAttentionGate", [a, shift, factor, b], BOTH, compiled=True)
    half = [a.astype(np.float16), shift, factor, b.astype(np.float16)]
    agree("LinearAttentionGate", half, BOTH, rtol=2e-3, atol=1e-3)


def test_gradients_vmap_and_symbolic_sizes():
    given = inputs("gated_delta", 2, 2, 4, True)

    def fn(*values):
        y, state = ms.linear_attention(*values, q_num_heads=2, kv_num_heads=2)
        z, tail = ms.causal_conv_with_state(y, W, channels_last=1, activation="silu", state_window=2)
        return z, state, tail

    W = f32(8, 1, 3)
    check_grads(jax.jit(fn), given, order=1, modes=["rev"], rtol=2e-2, atol=2e-2)
    shapes = ["n, s, 6", "n, s, 6", "n, s, 8", "n, 2, 3, 4", "n, s, 6", "n, s, 1"]
    made = export(jax.jit(fn))(*symbolic_args_specs(given, shapes))
    chex.assert_trees_all_close(made.call(*given), fn(*given), rtol=1e-4, atol=1e-5)
    one = jax.vmap(lambda *v: ms.causal_conv_with_state(v[0][None], v[1])[0][0], (0, None))(f32(2, 3, 5), f32(3, 1, 2))
    assert one.shape == (2, 3, 5)


X, K = f32(2, 3, 5), f32(3, 1, 4)
ONE = jnp.ones((1, 2, 4))
HEAD = {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear"}
ERRORS = [
    (lambda: ms.causal_conv_with_state(X, K, ndim=2), UnsupportedError, "`ndim` is 2; only 1 is supported"),
    (lambda: ms.causal_conv_with_state(X, K, dilation=0), ArgumentError, "`dilation` is 0; it must be at least 1"),
    (lambda: ms.causal_conv_with_state(X, K, state_window=9), ArgumentError, "`state_window` is 9; it must be in 0 to"),
    (
        lambda: ms.causal_conv_with_state(X[0], K),
        ShapeError,
        r"`input` of \(3, 5\) must be \(batch, channels, ",
    ),
    (lambda: ms.causal_conv_with_state(X, K[:2]), ShapeError, r"`weight` of \(2, 1, 4\) must be \(3, 1, k\)"),
    (lambda: ms.causal_conv_with_state(X[0], K, channels_last=1), ShapeError, r"of \(3, 5\) must be \(N, L, c1, …, cn"),
    (lambda: ms.causal_conv_with_state(X, K, None, X), ShapeError, r"`past_state` of \(2, 3, 5\) must be \(2, 3, 3\)"),
    (
        lambda: ms.linear_attention(ONE, ONE, ONE, q_num_heads=1, kv_num_heads=1),
        ArgumentError,
        "`decay` is missing; the update rule 'gated_delta' needs it",
    ),
    (
        lambda: ms.linear_attention(ONE, ONE, ONE, q_num_heads=2, kv_num_heads=3, update_rule="linear"),
        ArgumentError,
        "`q_num_heads` 2 must be a multiple of `kv_num_heads` 3, or the other way round",
    ),
    (lambda: ms.linear_attention(ONE, ONE[0], ONE, **HEAD), ShapeError, r"`key` of \(2, 4\) must be \(1, 2, "),
    (
        lambda: ms.linear_attention(ONE, ONE[..., :3], ONE, **HEAD),
        ShapeError,
        "differ in the size of a head",
    ),
    (
        lambda: ms.linear_attention(ONE, ONE, ONE, q_num_heads=1, kv_num_heads=3, update_rule="linear"),
        ShapeError,
        r"4 elements of `key` \(1, 2, 4\) do not divide into 3 heads",
    ),
    (
        lambda: ms.linear_attention(ONE, ONE, ONE, decay=ONE[..., :2], **(HEAD | {"update_rule": "gated"})),
        ShapeError,
        r"`decay` of \(1, 2, 2\) must be \(1, 2, 1\) or \(1, 2, 4\)",
    ),
    (
        lambda: ms.linear_attention(ONE, ONE, ONE, ONE, **HEAD),
        ShapeError,
        r"`past_state` of \(1, 2, 4\) must be \(1, 1, 4, 4\)",
    ),
    (
        lambda: ms.linear_attention_gate(X, X[0, 0], X[0, 0], X[0]),
        ShapeError,
        r"`b` of \(3, 5\) must be \(2, 3, 5\), the shape of",
    ),
    (lambda: ms.linear_attention_gate(X, X[0], X[0, 0]), ShapeError, r"`dt_bias` has the shape \(3, 5\)"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
