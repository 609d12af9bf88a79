"""MultiHeadAttention of com.microsoft and its decoder, against onnxruntime and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, ours, runtime

from jaxops.errors import ArgumentError, ShapeError
from jaxops.microsoft import decoder_masked_multi_head_attention, multi_head_attention

RNG = np.random.default_rng(9)
OP, DECODER = "MultiHeadAttention", "DecoderMaskedMultiHeadAttention"
ONE = {"num_heads": 2}
ALL = (True, True, True)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def bits(*shape):
    """A mask that leaves every query a key: else -10000 rounds all scores."""
    found = RNG.integers(0, 2, shape).astype(np.int32)
    found[..., 0] = 1
    return found


def ints(*values):
    return np.array(values, np.int32)


Q, K, V, SAME = floats(2, 3, 8), floats(2, 5, 8), floats(2, 5, 12), floats(2, 3, 8)
PAST = [floats(2, 2, 4, 4), floats(2, 2, 4, 4)]
BUFFER = [floats(2, 2, 8, 4), floats(2, 2, 8, 4)]
STEP = [floats(2, 1, 8), floats(2, 1, 8), floats(2, 1, 8)]
CASES = {
    "cross": ([Q, K, V], {"scale": 0.3}),
    "bias of the projections": ([Q, K, V, floats(28)], {}),
    "lengths": ([Q, K, V, None, ints(4, 0)], {}),
    "lengths first": ([Q, K, V, None, ints(5, 4, 0, 3, 6, 0, 5, 10)], {"mask_filter_value": -2.0}),
    "padding": ([Q, K, V, None, ints([1, 1, 1, 1, 0], [0, 1, 0, 1, 1]), floats(2, 1, 3, 5)], {}),
    "each pair": ([Q, K, V, None, bits(2, 3, 5)], {}),
    "causal": ([Q, SAME, SAME, floats(24)], {"unidirectional": 1}),
    "causal, other lengths": ([Q, K, V], {"unidirectional": 1}),
    "past": ([Q, K, floats(2, 5, 8), floats(24), bits(2, 9), floats(1, 2, 3, 9), *PAST], {}),
    "past, causal": ([Q, SAME, SAME, None, bits(2, 7), None, *PAST], {"unidirectional": 1}),
    "buffer": ([*STEP, None, ints([1, 0, 1, 1], [0, 1, 1, 1]), floats(1, 2, 1, 4), *BUFFER, ints(3)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_multi_head_attention(name):
    operands, attributes = CASES[name]
    agree(OP, operands, ALL, compiled=name == "buffer", **ONE, **attributes)


def test_the_encoder_of_cross_attention():
    agree(OP, [Q, *BUFFER, floats(24), bits(2, 8)], (True, False, False), **ONE)


def test_packed_layouts():  # onnxruntime has no kernel for a CPU
    both = np.stack([K.reshape(2, 5, 2, 4), floats(2, 5, 2, 4)], 3)
    separate = [both[:, :, :, i].reshape(2, 5, 8) for i in (0, 1)]
    for found, expected in zip(ours(OP, [Q, both], 3, **ONE), ours(OP, [Q, *separate], 3, **ONE), strict=True):
        np.testing.assert_array_equal(found, expected)
    bias = floats(24)
    wide = np.concatenate([floats(2, 5, 2, 1, 4), both], 3)
    separate = [wide[:, :, :, i].reshape(2, 5, 8) for i in range(3)]
    expected = ours(OP, [*separate, bias], 3, **ONE)
    flat = np.concatenate(separate, -1)
    for packed in (wide, flat):
        found = ours(OP, [packed, None, None, bias], 3, **ONE)
        np.testing.assert_array_equal(found[0], expected[0])


def test_scores():
    types = [np.float32] * 4
    operands = [Q, K, V, None, ints([1, 0, 1, 1, 0], [1] * 5)]
    found = ours(OP, operands, 4, **ONE)[3]
    np.testing.assert_allclose(found, runtime(OP, operands, types, **ONE)[3], rtol=1e-5, atol=1e-5)
    operands = [*STEP, bits(2, 4), None, *BUFFER, ints(3)]
    attributes = {**ONE, "output_qk": 1, "past_present_share_buffer": 1}
    found = ours(DECODER, operands, 4, **attributes)[3]
    np.testing.assert_allclose(found, runtime(DECODER, operands, types, **attributes)[3], rtol=1e-5, atol=1e-5)


BEAMS = RNG.integers(0, 2, (1, 2, 8)).astype(np.int32)
SHARED = {**ONE, "past_present_share_buffer": 1}
DECODES = {
    "buffer": (
        [*STEP, ints([1, 0, 1, 1], [0, 1, 1, 1]), floats(1, 2, 1, 4), *BUFFER, ints(3), None, None, floats(24)],
        SHARED,
    ),
    "beams": ([*STEP, ints([1, 0, 1, 1], [1, 1, 1, 1]), None, *BUFFER, ints(3), ints(2), BEAMS], SHARED),
    "cross": ([STEP[0], *BUFFER, bits(2, 8)], ONE),
}


@pytest.mark.parametrize("name", DECODES)
def test_decoder(name):
    operands, attributes = DECODES[name]
    outputs = (True, False, False) if name == "cross" else ALL
    agree(DECODER, operands, outputs, static=(8,), **attributes)


def test_decoder_without_a_buffer():  # not in onnxruntime's kernel for a CPU
    expected = ours(OP, [*STEP, None, bits(2, 5), None, *PAST], 3, **ONE)
    found = ours(DECODER, [*STEP, None, None, *PAST], 3, **ONE)
    np.testing.assert_array_equal(found[1], expected[1])
    packed = ours(DECODER, [np.concatenate(STEP, -1), None, None, None, None, *PAST], 3, **ONE)
    np.testing.assert_array_equal(packed[0], found[0])


def test_a_traced_length_of_the_past():
    operands = [*STEP, None, ints([1, 0, 1, 1], [1] * 4), floats(1, 2, 1, 4), *BUFFER]
    expected = runtime(OP, [*operands, ints(3)], ALL, **ONE)
    found = jax.jit(lambda count: multi_head_attention(*operands, count, **ONE))(ints(3))
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("before", [-1, 8, 20])
def test_a_traced_length_that_leaves_no_room(before):
    """A program cannot raise, and the new token would overwrite an old one."""
    found = jax.jit(lambda count: multi_head_attention(*STEP, None, None, None, *BUFFER, count, **ONE))(ints(before))
    assert np.isnan(found[0]).all()


def test_unused_rows_of_a_buffer_may_hold_anything():
    buffer = [x.copy() for x in BUFFER]
    expected = multi_head_attention(*STEP, None, None, None, *buffer, 3, **ONE)[0]
    for cache in buffer:
        cache[:, :, 4:] = np.nan
    found = jax.jit(lambda count: multi_head_attention(*STEP, None, None, None, *buffer, count, **ONE))(ints(3))
    np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.optimized
def test_16_bits_and_thousands_of_elements():
    operands = [x.astype(np.float16) for x in (floats(2, 64, 96), floats(2, 80, 96), floats(2, 80, 96), floats(288))]
    agree(OP, operands, ALL, rtol=1e-2, atol=1e-2, compiled=True, num_heads=6)


def test_transformations():
    @jax.jit
    def fn(q, k, v):
        return multi_head_attention(q, k, v, **ONE)[0]

    check_grads(fn, (Q, K, V), order=1, modes=("rev",), rtol=2e-2)
    stacked = [np.stack([x, -x]) for x in (Q, K, V)]
    found = jax.jit(jax.vmap(fn))(*stacked)
    np.testing.assert_allclose(found, np.stack([fn(Q, K, V), fn(-Q, -K, -V)]), rtol=1e-5, atol=1e-5)
    args = [jnp.asarray(x) for x in (Q, K, V)]
    made = export(fn)(*symbolic_args_specs(args, ["b, s, 8", "b, t, 8", "b, t, 12"]))
    np.testing.assert_allclose(made.call(*args), fn(*args), rtol=1e-5, atol=1e-5)


def test_a_wrong_scale_is_caught():
    (expected,) = runtime(OP, [Q, K, V], scale=0.3, **ONE)
    assert not np.allclose(multi_head_attention(Q, K, V, **ONE)[0], expected, atol=1e-3)


def mha(*operands, **attributes):
    return lambda: multi_head_attention(*operands, **{**ONE, **attributes})


ERRORS = [
    (mha(Q, None, V), ShapeError, r"`query`, `key` and `value` are \(2, 3, 8\), none, .* alone if there is no key"),
    (mha(Q[0], K, V), ShapeError, r"must be \(B, S, N · H\) and keys of the same B"),
    (mha(Q, K, V[:, 1:]), ShapeError, r"\(B, S, N · H\) with \(B, L, N · H\) and \(B, L, N · Hv\), \(B, L, N, 2, H\)"),
    (mha(Q, K, V, num_heads=3), ArgumentError, "`num_heads` is 3; the 8 features of `query` must be a multiple"),
    (mha(Q, K, V, floats(24)), ShapeError, r"`bias` of \(24,\) must be \(28,\)"),
    (mha(Q, K, V, None, bits(2, 4)), ShapeError, r"`key_padding_mask` of \(2, 4\) must be \(2,\)"),
    (mha(Q, K, V, None, None, floats(1, 1, 3, 4)), ShapeError, r"`attention_bias` of .* \(1 or 2, 1 or 2, 3, 5\)"),
    (mha(Q, K, V, None, None, None, *PAST), ShapeError, r"they must be \(2, 2, P, 4\) and \(2, 2, P, 6\)"),
    (mha(Q, *BUFFER, None, None, None, *PAST), ShapeError, "comes from an encoder, so `past_key` must be left out"),
    (mha(*STEP, None, None, None, *BUFFER, 8), ShapeError, "a buffer of 8 rows has no room for 1 more tokens"),
    (
        lambda: decoder_masked_multi_head_attention(Q, K, V, **ONE),
        ShapeError,
        r"`query` of \(2, 3, 8\) must be \(B, 1, D\), one token",
    ),
    (
        lambda: decoder_masked_multi_head_attention(*STEP, None, None, *BUFFER, **SHARED),
        ArgumentError,
        "with a shared buffer `past_sequence_length` must be given",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
