"""LinearAttention and CausalConvWithState against loops over tokens in NumPy, and against themselves token by token."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError

RNG = np.random.default_rng(11)
B, T, HQ, HKV, DK, DV = 2, 5, 4, 2, 3, 6
RULES = ("linear", "gated", "delta", "gated_delta")
HEADS = {"q_num_heads": HQ, "kv_num_heads": HKV}


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def operands(rule, decay=DK, beta=HKV, length=T):
    """query, key, value, past_state, decay, beta."""
    return [
        floats(B, length, HQ * DK),
        floats(B, length, HKV * DK),
        floats(B, length, HKV * DV),
        floats(B, HKV, DK, DV),
        -np.abs(floats(B, length, HKV * decay)) if "gated" in rule else None,
        np.abs(floats(B, length, beta)) / 3 if "delta" in rule else None,
    ]


def formula(query, key, value, past, decay, beta, scale=DK**-0.5):
    length, found = query.shape[1], []
    state = np.zeros((B, HKV, DK, DV)) if past is None else past.astype(np.float64)
    for t in range(length):
        k, v = key[:, t].reshape(B, HKV, DK), value[:, t].reshape(B, HKV, DV)
        if decay is not None:
            state = state * np.exp(decay[:, t].astype(np.float64)).reshape(B, HKV, -1, 1)
        if beta is not None:
            v = beta[:, t].reshape(B, -1, 1) * (v - np.einsum("bhkv,bhk->bhv", state, k))
        state = state + k[..., None] * v[:, :, None]
        read = np.repeat(state, HQ // HKV, 1)
        found.append(np.einsum("bhk,bhkv->bhv", query[:, t].reshape(B, HQ, DK), read) * scale)
    return np.stack(found, 1).reshape(B, length, -1), state


def close(found, expected, tolerance=1e-5):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours, np.float64), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rule", RULES)
def test_linear_attention(rule):
    for decay, beta in ((DK, HKV), (1, 1)):
        given = operands(rule, decay, beta)
        found = at_opset("LinearAttention", 27, *given, n_outputs=2, update_rule=rule, **HEADS)
        close(found, formula(*given))
    given[3] = None
    found = jo.linear_attention(*given, update_rule=rule, scale=0.3, **HEADS)
    close(found, formula(*given, scale=0.3))


def test_linear_attention_continues():
    """The state after some tokens takes their place."""
    given = operands("gated_delta")
    whole, last = jo.linear_attention(*given, **HEADS)
    parts, state = [], given[3]
    for at in (slice(0, 2), slice(2, 3), slice(3, 5)):
        query, key, value, _, decay, beta = (x[:, at] for x in given)
        part, state = jo.linear_attention(query, key, value, state, decay, beta, **HEADS)
        parts.append(part)
    close((np.concatenate(parts, 1), state), (whole, last))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_linear_attention_of_16_bits(dtype):
    """The state keeps a type of its own."""
    given = [x.astype(dtype) for x in operands("gated_delta")]
    tolerance = 2e-3 if dtype == np.float16 else 2e-2
    expected = formula(*(x.astype(np.float64) for x in given))
    for state in (given[3], given[3].astype(np.float32)):
        found = jo.linear_attention(*given[:3], state, *given[4:], **HEADS)
        assert [x.dtype for x in found] == [dtype, state.dtype]
        close(found, expected, tolerance)
    assert jo.linear_attention(*given[:3], None, *given[4:], **HEADS)[1].dtype == dtype


def test_linear_attention_transformed():
    given = operands("gated_delta", length=70)
    run = jax.jit(lambda *a: jo.linear_attention(*a, **HEADS))
    close(run(*given), formula(*given), 1e-4)
    close([x[0] for x in jax.vmap(run)(*(x[None] for x in given))], formula(*given), 1e-4)
    few = tuple(x[:, :3] if i != 3 else x for i, x in enumerate(given))
    check_grads(run, few, 1, modes=["rev"], rtol=3e-2, atol=3e-2)
    shapes = ("b,t,12", "b,t,6", "b,t,12", "b,2,3,6", "b,t,6", "b,t,2")
    close(export(run)(*symbolic_args_specs(tuple(given), shapes)).call(*few), formula(*few))


C, K = 3, 4
FILTER, BIAS, PAST = floats(C, 1, K), floats(C), floats(B, C, K - 1)


def convolved(x, weight, bias=None, past=None, activation="none"):
    past = np.zeros((*x.shape[:2], weight.shape[2] - 1)) if past is None else past
    padded = np.concatenate([past, x], 2).astype(np.float64)
    y = np.stack([(padded[:, :, t : t + weight.shape[2]] * weight[:, 0]).sum(-1) for t in range(x.shape[2])], 2)
    y = y if bias is None else y + bias[:, None]
    return y if activation == "none" else y / (1 + np.exp(-y)), padded[:, :, x.shape[2] :]


@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
@pytest.mark.parametrize("length", [1, 2, 9])
def test_causal_conv(length, activation):
    x = floats(B, C, length)
    for more in ((), (BIAS,), (None, PAST), (BIAS, PAST)):
        found = at_opset("CausalConvWithState", 27, x, FILTER, *more, n_outputs=2, activation=activation)
        close(found, convolved(x, FILTER, *more, activation=activation))


def test_causal_conv_of_one_tap_has_an_empty_state():
    y, state = jo.causal_conv_with_state(PAST, FILTER[..., :1])
    close((y, state), convolved(PAST, FILTER[..., :1]))
    assert state.shape == (B, C, 0)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_causal_conv_of_16_bits(dtype):
    given = [x.astype(dtype) for x in (floats(B, C, 6), FILTER, BIAS, PAST)]
    found = jo.causal_conv_with_state(*given, activation="silu")
    assert {x.dtype for x in found} == {np.dtype(dtype)}
    expected = convolved(*(x.astype(np.float64) for x in given), activation="silu")
    close(found, expected, 1e-3 if dtype == np.float16 else 8e-3)


def test_causal_conv_transformed():
    given = (floats(B, C, 900), FILTER, BIAS, PAST)
    run = jax.jit(lambda *a: jo.causal_conv_with_state(*a, activation="silu"))
    close(run(*given), convolved(*given, activation="silu"))
    few = (given[0][..., :5], *given[1:])
    close([x[0] for x in jax.vmap(run)(*(x[None] for x in few))], convolved(*few, activation="silu"))
    check_grads(run, few, 1, modes=["rev"], rtol=2e-2, atol=2e-2)
    exported = export(run)(*symbolic_args_specs(given, ("b,3,t", "3,1,4", "3", "b,3,3")))
    close(exported.call(*few), convolved(*few, activation="silu"))


def attend(changed=None, value=None, rule="gated_delta", **attributes):
    given = dict(zip(("query", "key", "value", "past_state", "decay", "beta"), operands(rule), strict=True))
    given |= {} if changed is None else {changed: value}
    return jo.linear_attention(**given, update_rule=rule, **(HEADS | attributes))


X = floats(B, C, 5)
ERRORS = [
    (lambda: attend("query", X[0]), ShapeError, r"`query` of \(3, 5\) must be \(batch, length, heads \* size\)"),
    (
        lambda: attend("key", floats(B, T + 1, 6)),
        ShapeError,
        r"`key` of \(2, 6, 6\) must be \(2, 5, heads \* size\), as `query` is \(2, 5, 12\)",
    ),
    (lambda: attend("key", floats(B, T, 8)), ShapeError, "differ in the size of a head"),
    (lambda: attend("value", floats(B, T, 7)), ShapeError, "7 elements of `value` .* do not divide into 2 heads"),
    (lambda: attend(q_num_heads=3), ArgumentError, "`q_num_heads` 3 must be a multiple of `kv_num_heads` 2"),
    (lambda: attend("past_state", floats(B, HKV, DV, DK)), ShapeError, r"must be \(2, 2, 3, 6\)"),
    (lambda: attend("decay", floats(B, T, 1)), ShapeError, r"`decay` .* must be \(2, 5, 2\) or \(2, 5, 6\)"),
    (lambda: attend("beta", floats(B, T, 6)), ShapeError, r"`beta` .* must be \(2, 5, 2\) or \(2, 5, 1\)"),
    (lambda: attend("beta", None), SignatureError, "the update rule 'gated_delta' needs `beta`; the rules 'delta' and"),
    (lambda: attend("decay", floats(B, T, 2), rule="linear"), SignatureError, "rule 'linear' has no `decay`"),
    (lambda: attend("key", floats(B, T, 6).astype(np.float16)), DTypeError, "query float32, key float16"),
    (lambda: jo.causal_conv_with_state(X[0], FILTER), ShapeError, r"must be \(batch, channels, length\)"),
    (lambda: jo.causal_conv_with_state(X, FILTER[:, 0]), ShapeError, r"`weight` .* must be \(3, 1, k\)"),
    (lambda: jo.causal_conv_with_state(X, FILTER, BIAS[:2]), ShapeError, r"`bias` of \(2,\) must be \(3,\)"),
    (lambda: jo.causal_conv_with_state(X, FILTER, None, X), ShapeError, r"must be \(2, 3, 3\)"),
    (lambda: jo.causal_conv_with_state(X, FILTER.astype(np.float16)), DTypeError, "input float32, weight float16"),
    (lambda: jo.causal_conv_with_state(X, FILTER, activation="relu"), ArgumentError, "`activation` is 'relu'"),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_wrong_formula_is_caught():
    given = operands("gated_delta")
    with pytest.raises(AssertionError):
        close(jo.linear_attention(*given, **HEADS), formula(*given, scale=1))
