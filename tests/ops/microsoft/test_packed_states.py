"""Causal convolution and gated delta networks of packed batches, beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, compare, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SizeError, UnsupportedError

RNG = np.random.default_rng(45)
CONV, NET = "VarlenCausalConvWithState", "GatedDeltaNet"
THREE = (True, True, True)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def i32(*values):
    return np.array(values, np.int32)


def trimmed(values):
    return trimmed(values[:-1]) if values[-1] is None else values


@pytest.mark.parametrize("sums", [(0, 2, 7), (0, 7), (0, 0, 3, 3, 7)], ids=str)
@pytest.mark.parametrize(("taps", "dilation"), [(1, 1), (4, 1), (3, 2)])
def test_causal_conv(sums, taps, dilation):
    batch = len(sums) - 1
    given = [f32(7, 3), f32(3, 1, taps), i32(*sums), f32(3) if taps > 1 else None, f32(batch, 3, (taps - 1) * dilation)]
    agree(CONV, given, (True, True, False), compiled=True, dilation=dilation, activation="silu" if taps > 3 else "none")
    more = [*given, RNG.integers(-1, 9, batch).astype(np.int32)]
    agree(CONV, more, THREE, dilation=dilation, state_update_capacity=5)
    half = [x if x is None or x.dtype != np.float32 else x.astype(np.float16) for x in given]
    expected = runtime(CONV, half, (True, True), dilation=dilation)
    compare(ours(CONV, half, 2, dilation=dilation)[:2], expected, 2e-3, 2e-3)
    given[0][3, 1], given[4][0, :, :1] = np.nan, np.inf
    agree(CONV, given, (True, True, False), compiled=True, dilation=dilation)


def test_causal_conv_of_thousands_of_tokens():
    sums = np.cumsum([0, 1, 5000, 200, 0, 3]).astype(np.int32)
    given = [f32(5204, 8), f32(8, 1, 4), sums, f32(8), f32(5, 8, 3)]
    agree(CONV, given, (True, True, False), compiled=True, rtol=1e-4, activation="swish")
    assert ms.varlen_causal_conv_with_state(f32(0, 8), *given[1:2], i32(0, 0), None, given[4][:1])[0].shape == (0, 8)


def inputs(rule, sums, by_key, gate):
    """Two sequences of tokens, with heads of sizes 3 and 5."""
    q, k, v, state = f32(6, 2, 3), f32(6, 2, 3) / 2, f32(6, 4, 5), f32(2, 4, 5, 3)
    decay = -abs(f32(6, 4, *(3,) * by_key)) if "gated" in rule else None
    rate = 1 / (1 + np.exp(-f32(6, 4))) if "delta" in rule else None
    shift = [None, None] if gate == "none" else [f32(4), f32(12) if by_key else f32(4)]
    return [q, k, v, None if sums is None else i32(*sums), decay, rate, state, *shift]


def check(given, **how):
    agree(NET, trimmed(given), THREE, rtol=1e-4, atol=1e-4, **how)


@pytest.mark.parametrize("sums", [None, (0, 1, 6), (0, 6, 6)], ids=str)
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_delta_net(rule, sums):
    for by_key in (False, True):
        for gate in ("none", "softplus", "kda") if "gated" in rule else ("none",):
            given = inputs(rule, sums, by_key, gate)
            how = {"update_rule": rule, "gate_activation": gate, "qk_l2_norm": int(by_key), "scale": 0.7 * by_key}
            check(given, compiled=gate == "none", beta_activation="sigmoid" if by_key else "none", **how)
            counts = RNG.integers(-1, 9, 2).astype(np.int32)
            check([*given, counts], state_update_capacity=3, **how)
            check([*given, counts, i32(0)], state_update_capacity=2, **how)
            if sums is not None:
                check([*given[:6], None, *given[7:]], **how)
                continue
            apart = [x if x is None or k > 5 else x.reshape(2, 3, *x.shape[1:]) for k, x in enumerate(given)]
            check(apart, **how)
            check([*apart[:6], None, *apart[7:]], **how)
            packed = np.concatenate([x.reshape(6, -1) for x in given[:3]], 1)
            check([packed, None, None, *given[3:]], compiled=True, **how)
            check([packed.reshape(2, 3, -1), None, None, *apart[3:]], **how)


def test_delta_net_of_narrow_types_and_of_many_tokens():
    given = inputs("gated_delta", (0, 1, 6), False, "none")
    half = [x.astype(np.float16) if k < 3 else x for k, x in enumerate(given)]
    compare(ours(NET, trimmed(half), 3), runtime(NET, trimmed(half), THREE), 2e-3, 2e-3)
    gates = [x.astype(np.float16) if k in (4, 5) else x for k, x in enumerate(half)]
    compare(ours(NET, trimmed(gates), 3), runtime(NET, trimmed(gates), THREE), 2e-3, 2e-3)
    sums = np.cumsum([0, 700, 1, 500]).astype(np.int32)
    long = [f32(1201, 2, 8), f32(1201, 2, 8), f32(1201, 2, 8), sums, -abs(f32(1201, 2)), abs(f32(1201, 2)) / 9]
    agree(NET, long, THREE, compiled=True, qk_l2_norm=1, rtol=1e-3, atol=1e-4)
    long[2][3, 1, 2] = np.nan  # stays in its sequence
    agree(NET, long, THREE, compiled=True, qk_l2_norm=1, rtol=1e-3, atol=1e-4)


def test_states_of_a_narrowed_model():
    """`Model.astype` narrows all operands: what is float32 in a file has the type of the state then."""
    given = inputs("gated_delta", (0, 1, 6), False, "softplus")
    exact = ours(NET, given, 3, gate_activation="softplus")
    brain = [x.astype(jnp.bfloat16) if x.dtype == np.float32 else x for x in given]
    found = ms.gated_delta_net(*brain, gate_activation="softplus")
    assert [y.dtype for y in found] == [jnp.bfloat16] * 3
    compare([y.astype(np.float32) for y in found], [np.asarray(y) for y in exact], 5e-2, 5e-2)
    without = [*brain[:6], None, *brain[7:]]
    assert ms.gated_delta_net(*without, gate_activation="softplus")[1].dtype == jnp.bfloat16


def test_gradients_vmap_and_symbolic_sizes():
    given = inputs("gated_delta", (0, 2, 6), True, "softplus")
    sums, moving = given[3], [x for x in given if x is not None and x.dtype == np.float32]
    state = f32(2, 20, 2)

    def fn(q, k, v, decay, rate, old, a, shift, state, sums):
        gates = {"gate_activation": "softplus", "qk_l2_norm": 1}
        y, last, _ = ms.gated_delta_net(q, k, v, sums, decay, rate, old, a, shift, **gates)
        flat = y.reshape(y.shape[0], 20)
        z, tail, _ = ms.varlen_causal_conv_with_state(flat, WEIGHT, sums, None, state, activation="silu")
        return z, tail, last

    check_grads(jax.jit(lambda *v: fn(*v, sums)), [*moving, state], order=1, modes=["rev"], rtol=3e-2, atol=3e-2)
    operands = [*moving, state, sums]
    expected = [np.asarray(y) for y in fn(*operands)]
    tokens = ["t, 2, 3", "t, 2, 3", "t, 4, 5", "t, 4, 3", "t, 4"]
    specs = [*tokens, "b, 4, 5, 3", "4", "12", "b, 20, 2", "b + 1"]
    made = export(jax.jit(fn))(*symbolic_args_specs(operands, specs))
    compare(made.call(*operands), expected, 1e-4, 1e-5)
    mapped = jax.vmap(fn, (0,) * 9 + (None,))(*(jnp.stack([x, x]) for x in operands[:-1]), sums)
    compare([y[1] for y in mapped], expected, 1e-4, 1e-5)

    def uniform(q, k, v, old):
        return ms.gated_delta_net(q, k, v, None, None, None, old, update_rule="linear")[:2]

    operands = [*moving[:3], moving[5]]
    made = export(jax.jit(uniform))(
        *symbolic_args_specs(operands, ["2*s, 2, 3", "2*s, 2, 3", "2*s, 4, 5", "2, 4, 5, 3"])
    )
    compare(made.call(*operands), [np.asarray(y) for y in uniform(*operands)], 1e-4, 1e-5)


WEIGHT = f32(20, 1, 3)
X, W, STATE, SUMS = f32(6, 3), f32(3, 1, 2), f32(2, 3, 1), i32(0, 2, 6)


def conv(x=X, w=W, sums=SUMS, bias=None, state=STATE, **more):
    return ms.varlen_causal_conv_with_state(x, w, sums, bias, state, **more)


def net(q=None, k=None, v=None, sums=SUMS, **more):
    ones = np.ones((6, 2, 3), np.float32)
    q, k, v = (ones if x is None else x for x in (q, k, v))
    return ms.gated_delta_net(q, k, v, sums, **({"update_rule": "linear"} | more))


Q, GATE = np.ones((6, 2, 3), np.float32), np.ones((6, 2), np.float32)
GATED = {"update_rule": "gated", "decay": GATE}
ERRORS = [
    (lambda: conv(kernel_delta=X), UnsupportedError, "`kernel_delta` and `previous_mask` are not supported, nor is"),
    (lambda: conv(state=None), ArgumentError, "`initial_state` must be given"),
    (lambda: conv(dilation=0), ArgumentError, "`dilation` is 0; it must be at least 1"),
    (lambda: conv(activation="relu"), ArgumentError, "`activation` is 'relu'; it must be one of"),
    (lambda: conv(X[0]), ShapeError, r"`input` of \(3,\) must be \(T, C\)"),
    (lambda: conv(w=W[:2]), ShapeError, r"`weight` of \(2, 1, 2\) must be \(3, 1, k\), with k at least 1"),
    (lambda: conv(state=STATE[:1]), ShapeError, r"`initial_state` of \(1, 3, 1\) must be \(2, 3, 1\)"),
    (lambda: conv(bias=X[0, :2]), ShapeError, r"`bias` of \(2,\) must be \(3,\)"),
    (
        lambda: conv(sums=i32(0, 3, 2)),
        ArgumentError,
        "must begin with 0, end with 6, the number of tokens, and grow by",
    ),
    (lambda: conv(capture_count=i32(1, 1)), ArgumentError, "capacity` of 0 allows no `capture_count`"),
    (lambda: net(chunk_size=0), ArgumentError, "`chunk_size` is 0; it must be at least 1"),
    (lambda: net(gate_lower_bound=0.0), ArgumentError, "`gate_lower_bound` is 0.0; it must be negative and finite"),
    (lambda: net(update_rule="delta"), ArgumentError, "the update rule 'delta' needs `beta`"),
    (lambda: net(decay=GATE), ArgumentError, "the update rule 'linear' has no `decay`"),
    (lambda: net(gate_activation="kda", **GATED), ArgumentError, "the gate activation 'kda' needs `a_log`"),
    (lambda: net(dt_bias=GATE[0]), ArgumentError, "the gate activation 'none' has no `dt_bias`"),
    (
        lambda: net(update_rule="gated", decay=GATE.astype(np.float16)),
        DTypeError,
        "`decay` is float16; it must be floa",
    ),
    (lambda: ms.gated_delta_net(Q, Q, Q, SUMS), ArgumentError, "needs `decay`"),
    (lambda: ms.gated_delta_net(Q, Q, update_rule="linear"), ShapeError, "`key` and `value` must both be given"),
    (
        lambda: ms.gated_delta_net(GATE, update_rule="linear"),
        ArgumentError,
        "without key and value `initial_state` mus",
    ),
    (lambda: net(initial_state=GATE), ShapeError, r"`initial_state` of \(6, 2\) must be \(B, Hv, V, K\)"),
    (
        lambda: ms.gated_delta_net(GATE, initial_state=np.ones((1, 1, 1, 1), np.float32), update_rule="linear"),
        ShapeError,
        r"the width of `query` \(6, 2\) does not fit `initial_state` \(1, 1, 1, 1\)",
    ),
    (
        lambda: ms.gated_delta_net(Q[None], initial_state=np.ones((1, 1, 1, 1), np.float32), update_rule="linear"),
        ShapeError,
        r"`query` of \(1, 6, 2, 3\) must be \(T, D\) or \(B, L, D\) if it holds all three",
    ),
    (lambda: net(Q[0, 0], Q, Q), ShapeError, r"`query` of \(3,\) must be \(T, Hk, K\) or \(B, L, Hk, K\)"),
    (lambda: net(k=Q[:5]), ShapeError, r"`key` of \(5, 2, 3\) must be \(6, 2, 3\)"),
    (
        lambda: net(v=np.ones((6, 3, 3), np.float32)),
        ShapeError,
        "3 heads for values must be a positive multiple of the",
    ),
    (
        lambda: jax.eval_shape(net, *symbolic_args_specs([Q, Q, Q], ["t, h, 3"] * 3)),
        SizeError,
        "(?s)gated_delta_net: the numbers and sizes of heads must be numbers, got the symbolic size h.*{'h': 8}",
    ),
    (
        lambda: net(Q[None], Q[None], Q[None]),
        ShapeError,
        r"with `cu_seqlens` the tokens must be on one axis, got \(",
    ),
    (
        lambda: net(sums=None),
        ArgumentError,
        "`cu_seqlens` or `initial_state` must be given, for the number of sequence",
    ),
    (
        lambda: net(sums=None, initial_state=np.ones((4, 2, 3, 3), np.float32)),
        ShapeError,
        "6 tokens do not divide into the 4 sequences of `initial_state`",
    ),
    (lambda: net(update_rule="gated", decay=GATE[:, :1]), ShapeError, r"`decay` of \(6, 1\) must be \(6, 2\) or \(6,"),
    (
        lambda: net(gate_activation="softplus", a_log=GATE[0], dt_bias=Q[0], **GATED),
        ShapeError,
        r"`dt_bias` of \(2, 3\) must be \(2,\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:40] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
