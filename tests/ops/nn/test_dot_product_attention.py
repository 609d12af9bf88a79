"""Attention against its formula in NumPy, and against onnxruntime."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from peer import runtime

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError

RNG = np.random.default_rng(5)
B, HEADS, KV, S, L, P, H, V = 2, 4, 2, 3, 5, 2, 8, 6


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


Q, K, VALUE = floats(B, HEADS, S, H), floats(B, KV, L, H), floats(B, KV, L, V)
PAST = floats(B, KV, P, H), floats(B, KV, P, V)
ALLOWED = RNG.random((B, 1, S, L)) < 0.6
ALLOWED[0, 0, 1] = False  # a query without a key
LENGTHS = np.int64([4, 2])
EXCLUDED = np.where(ALLOWED, 0, -np.inf).astype(np.float32)


def formula(
    q,
    k,
    v,
    mask=None,
    past_key=None,
    past_value=None,
    lengths=None,
    *,
    is_causal=0,
    scale=None,
    softcap=0.0,
    left_window_size=-1,
    right_window_size=-1,
):
    """The outputs y, present key and value, and the scores of the four modes."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    if past_key is not None:
        k, v = np.concatenate([past_key, k], 2), np.concatenate([past_value, v], 2)
    present = k, v
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    product = q @ k.swapaxes(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    capped = softcap * np.tanh(product / softcap) if softcap > 0 else product
    biased = capped.copy()
    if mask is not None:
        missing = [(0, 0)] * (mask.ndim - 1) + [(0, k.shape[2] - mask.shape[-1])]
        mask = np.pad(mask, missing, constant_values=False) if mask.dtype == bool else mask.astype(np.float64)
        mask = mask if mask.dtype == bool else np.pad(mask, missing, constant_values=-np.inf)
        biased = np.where(mask, biased, -np.inf) if mask.dtype == bool else biased + mask
    for b, i, j in np.ndindex(len(q), q.shape[2], k.shape[2]):
        at = i + (0 if past_key is None else past_key.shape[2])
        at = at if lengths is None else i + lengths[b] - q.shape[2]
        out = (is_causal and j > at) or (lengths is not None and j >= lengths[b])
        out = out or (left_window_size >= 0 and j < at - left_window_size)
        if out or (right_window_size >= 0 and j > at + right_window_size):
            biased[b, :, i, j] = -np.inf
    top = biased.max(-1, keepdims=True)
    powers = np.exp(biased - np.where(np.isneginf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    return weights @ v, *present, (product, capped, biased, weights)


def close(found, expected, tolerance=2e-6):
    np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=tolerance, atol=tolerance)


CASES = {
    "plain": ((), {}),
    "causal": ((), {"is_causal": 1}),
    "scale": ((), {"scale": 0.7}),
    "softcap": ((), {"softcap": 0.7}),
    "negative softcap": ((), {"softcap": -0.7}),
    "softcap NaN": ((), {"softcap": np.nan}),
    "float mask": ((floats(S, L),), {"softcap": 1.5}),
    "mask of 3 axes": ((floats(HEADS, S, L),), {}),
    "boolean mask": ((ALLOWED,), {}),
    "boolean mask, causal": ((ALLOWED,), {"is_causal": 1}),
    "infinite mask": ((EXCLUDED,), {}),
    "integer mask": ((RNG.integers(0, 2, (S, L)),), {}),
    "past": ((None, *PAST), {"is_causal": 1}),
    "past, mask": ((floats(S, L + P), *PAST), {"softcap": 2.0}),
    "lengths": ((None, None, None, LENGTHS), {}),
    "lengths, causal": ((None, None, None, LENGTHS), {"is_causal": 1}),
    "lengths, mask": ((floats(S, L), None, None, LENGTHS), {}),
}
# onnxruntime 1.31 has neither windows nor shorter masks, and wants a mask of 2 axes or more.
OWN = {
    "shorter mask": ((floats(B, 1, S, L - 1),), {}),
    "shorter boolean mask": ((ALLOWED[..., :4], None, None, LENGTHS), {"is_causal": 1}),
    "mask of 1 axis": ((floats(L),), {}),
    "mask of keys": ((floats(B, 1, 1, L),), {}),
    **{
        f"window {left} {right} {causal}": ((None, *cache), window)
        for left, right, causal in [*itertools.product((-1, 0, 1), (-1, 1), (0,)), (1, -1, 1), (-1, 2, 1), (0, 0, 0)]
        for cache in [PAST if left else (None, None, LENGTHS)]
        for window in [{"left_window_size": left, "right_window_size": right, "is_causal": causal}]
    },
}


@pytest.mark.grid
@pytest.mark.parametrize("case", [*CASES, *OWN])
def test_formula(case):
    more, attributes = (CASES | OWN)[case]
    y, *present, scores = formula(Q, K, VALUE, *more, **attributes)
    for mode in range(4):
        given = {**attributes, "qk_matmul_output_mode": mode}
        with jax.disable_jit():  # operator by operator, which share their compilations
            found = jo.attention(Q, K, VALUE, *more, **given, return_present=True, return_scores=True)
        for ours, expected in zip(found, (y, *present, scores[mode]), strict=True):
            close(ours, expected)


@pytest.mark.grid
@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime(case):
    more, attributes = CASES[case]
    opset = 24 if len(more) == 4 else 23
    for mode in (0, 1, 3):  # mode 2 has the least float32 there, where the text says -inf
        given = {**attributes, "qk_matmul_output_mode": mode}
        theirs = runtime("Attention", (Q, K, VALUE, *more), opset, 4, **given)
        with jax.disable_jit():
            found = at_opset("Attention", opset, Q, K, VALUE, *more, n_outputs=4, **given)
        for ours, expected in zip(found, theirs, strict=True):
            close(ours, expected)
    assert len(at_opset("Attention", opset, Q, K, VALUE, *more, **attributes)) == 1


def test_packed_heads():
    packed = [x.swapaxes(1, 2).reshape(B, x.shape[2], -1) for x in (Q, K, VALUE)]
    given = {"q_num_heads": HEADS, "kv_num_heads": KV}
    found = at_opset("Attention", 23, *packed, None, *PAST, n_outputs=4, **given)
    theirs = runtime("Attention", (*packed, None, *PAST), 23, 4, **given)
    whole = jo.attention(Q, K, VALUE, None, *PAST, return_present=True, return_scores=True, **given)
    for ours, expected in zip(found, theirs, strict=True):
        close(ours, expected)
    for ours, expected in zip(found[1:], whole[1:], strict=True):
        assert (ours == expected).all()
    close(found[0], whole[0].swapaxes(1, 2).reshape(B, S, -1))


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, np.float64])
def test_element_types(dtype, x64):
    q, k, v = (x.astype(dtype) for x in (Q, K, VALUE))
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[np.dtype(dtype).name]
    for mask in (None, ALLOWED, EXCLUDED.astype(dtype)):
        found = jax.jit(jo.attention)(q, k, v, mask)
        assert found.dtype == dtype
        close(found, formula(q, k, v, mask)[0], tolerance)
    mixed = jo.attention(q, k, VALUE, return_present=True)
    assert [x.dtype for x in mixed] == [dtype, dtype, np.float32]
    close(mixed[0], formula(q, k, VALUE)[0], tolerance)


@pytest.mark.parametrize("precision", [1, 10, 11, 16])
def test_softmax_precision(precision):
    """The probabilities are numbers of that type; with x64 off, float64 is float32."""
    dtype = {1: np.float32, 10: np.float16, 11: np.float64, 16: jnp.bfloat16}[precision]
    given = {"softmax_precision": precision, "qk_matmul_output_mode": 3}
    y, _, _, weights = at_opset("Attention", 24, Q, K, VALUE, n_outputs=4, **given)
    assert y.dtype == weights.dtype == np.float32
    weights = np.asarray(weights)
    assert (weights.astype(dtype).astype(np.float32) == weights).all()
    tolerance = {10: 1e-3, 16: 1e-2}.get(precision, 2e-6)
    close(y, formula(Q, K, VALUE)[0], tolerance)
    close(y, runtime("Attention", (Q, K, VALUE), 24, softmax_precision=precision)[0], tolerance)


@pytest.mark.optimized
def test_thousands_of_elements_compiled():
    q, k, v = floats(2, 6, 130, 16), floats(2, 2, 200, 16), floats(2, 2, 200, 24)
    mask = RNG.random((2, 1, 130, 200)) < 0.5
    found = jax.jit(lambda *a: jo.attention(*a, is_causal=1, softcap=3.0))(q, k, v, mask)
    close(found, formula(q, k, v, mask, is_causal=1, softcap=3.0)[0])
    close(found, runtime("Attention", (q, k, v, mask), 23, is_causal=1, softcap=3.0)[0])


def test_huge_scores_stay_exact():
    """The largest score takes all of the weight, also where XLA computes a product twice."""
    run = jax.jit(lambda q, k, v, c, mask: jo.attention(q * c, k * c, v, mask, scale=1.0))
    for scale in (1e3, 1e6, 1e12):
        close(run(Q, K, np.ones_like(VALUE), np.float32(scale), floats(S, L)), 1, 1e-5)


def test_an_excluded_key_may_hold_anything():
    k, v = K.copy(), VALUE.copy()
    k[..., 4, :] = np.inf
    for mask in (np.arange(L) < 4, np.where(np.arange(L) < 4, 0, -np.inf).astype(np.float32)):
        close(jo.attention(np.abs(Q), k, v, mask), formula(np.abs(Q), K, VALUE, mask)[0])
    assert np.isnan(jo.attention(Q, k * np.nan, v)).all()


def test_without_keys_or_queries():
    assert (jo.attention(Q, K[:, :, :0], VALUE[:, :, :0]) == np.zeros((B, HEADS, S, V))).all()
    assert jo.attention(Q[:, :, :0], K, VALUE).shape == (B, HEADS, 0, V)


def test_gradients():
    mask = floats(B, 1, S, L)
    run = jax.jit(lambda *a: jo.attention(*a, is_causal=1, softcap=2.0))
    check_grads(run, (Q, K, VALUE, mask), 1, modes=["rev"], rtol=2e-2, atol=2e-2)
    grads = jax.jit(jax.grad(lambda *a: jo.attention(*a, EXCLUDED).sum(), (0, 1, 2)))(Q, K, VALUE)
    chex.assert_tree_all_finite(grads)
    assert (grads[0][0, :, 1] == 0).all()  # the query without a key


def test_vmap():
    pairs = [np.stack([x, 2 * x]) for x in (Q, K, VALUE)]
    found = jax.jit(jax.vmap(lambda q, k, v, n: jo.attention(q, k, v, None, None, None, n, is_causal=1)))(
        *pairs, np.stack([LENGTHS, LENGTHS + 1]).astype(np.int32)
    )
    for i in range(2):
        close(found[i], formula(*(p[i] for p in pairs), lengths=LENGTHS + i, is_causal=1)[0])


def test_symbolic_sizes():
    shapes = ("b,4,s,8", "b,2,t,8", "b,2,t,6", "b,1,s,p+t", "b,2,p,8", "b,2,p,6")
    given = (Q, K, VALUE, floats(B, 1, S, L + P), *PAST)
    run = jax.jit(lambda *a: jo.attention(*a, is_causal=1, return_present=True))
    found = export(run)(*symbolic_args_specs(given, shapes)).call(*given)
    for ours, expected in zip(found, formula(*given, is_causal=1), strict=False):
        close(ours, expected)


ERRORS = [
    (lambda: jo.attention(Q[0, 0], K, VALUE), ShapeError, r"`q` of \(3, 8\) must be \(batch, sequence, heads"),
    (lambda: jo.attention(Q[0], K, VALUE), SignatureError, r"`q` of \(4, 3, 8\) has 3 axes, so `q_num_heads` must"),
    (lambda: jo.attention(Q, K, VALUE, q_num_heads=2), ShapeError, r"has 4 heads, but `q_num_heads` is 2"),
    (
        lambda: jo.attention(Q[0], K, VALUE, q_num_heads=3),
        ShapeError,
        "8 elements of `q` .* do not divide into 3",
    ),
    (lambda: jo.attention(Q[0], K, VALUE, q_num_heads=0), ArgumentError, "`q_num_heads` is 0; it must be at least 1"),
    (lambda: jo.attention(Q[..., :7], K, VALUE), ShapeError, "differ in batch size or head size"),
    (lambda: jo.attention(Q, K, VALUE[:, :, 1:]), ShapeError, "must agree in all but the head size"),
    (lambda: jo.attention(Q[:, :3], K, VALUE), ShapeError, "the 3 heads of the query are not a multiple of the 2"),
    (lambda: jo.attention(Q, K, VALUE, None, PAST[0]), SignatureError, "must be given together"),
    (lambda: jo.attention(Q, K, VALUE, None, *PAST, LENGTHS), SignatureError, "give no `past_key`"),
    (lambda: jo.attention(Q, K, VALUE, None, PAST[1], PAST[1]), ShapeError, r"`past_key` of .* must be \(2, 2, past"),
    (lambda: jo.attention(Q, K, VALUE, floats(S, L + 1)), ShapeError, r"`attn_mask` of \(3, 6\) does not broadcast"),
    (lambda: jo.attention(Q, K, VALUE, floats(1, B, 1, S, L)), ShapeError, "does not broadcast to the scores"),
    (lambda: jo.attention(Q, K, VALUE, None, None, None, LENGTHS[:1]), ShapeError, r"must be \(2,\), one number per"),
    (lambda: jo.attention(Q, K, VALUE, None, None, None, floats(B)), DTypeError, "`nonpad_kv_seqlen` must be integers"),
    (lambda: jo.attention(Q, K.astype(np.float16), VALUE), DTypeError, "q float32, k float16"),
    (lambda: jo.attention(Q, K, VALUE.astype(int)), DTypeError, "`v` must be floating-point"),
    (lambda: jo.attention(Q, K, VALUE, left_window_size=-2), ArgumentError, "is -2; it must be at least 0, or -1 for"),
    (lambda: jo.attention(Q, K, VALUE, qk_matmul_output_mode=4), ArgumentError, "is 4; it must be one of 0, 1, 2, 3"),
    (
        lambda: jo.attention(Q, K, VALUE, softmax_precision="int8"),
        DTypeError,
        "`softmax_precision` is int8",
    ),
]


@pytest.mark.parametrize(("call", "error", "match"), ERRORS)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_a_wrong_formula_is_caught():
    with pytest.raises(AssertionError):
        close(jo.attention(Q, K, VALUE), formula(Q, K, VALUE, is_causal=1)[0])
