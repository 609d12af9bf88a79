"""Attention of com.microsoft and the decoders that project their input, against onnxruntime and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import agree, ours, runtime

from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError
from jaxops.microsoft import attention, decoder_attention, decoder_masked_self_attention

RNG = np.random.default_rng(8)
OP = "Attention"


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def heads_of(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3).astype(np.float64)


def attended(q, k, v, bias=0.0):
    """softmax(q · kᵀ / sqrt(H) + bias) · v, heads side by side."""
    found = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias) @ v
    return found.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], -1)


X, W, B = floats(2, 4, 6), floats(6, 24), floats(24)
PAST = floats(2, 2, 2, 3, 4)
ONE = {"num_heads": 2}
BITS = RNG.integers(0, 2, (2, 4, 4)).astype(np.int32)
CASES = {
    "no mask": ([X, W, B], {}),
    "lengths": ([X, W, B, ints(4, 2)], {"unidirectional": 1}),
    "no key left": ([X, W, B, ints(4, 0)], {"mask_filter_value": -2.0}),
    "ends and starts": ([X, W, B, ints(4, 3, 2, 1)], {"unidirectional": 1, "scale": 0.3}),
    "lengths first": ([X, W, B, ints(4, 2, 0, 4, 8, 0, 4, 8)], {}),
    "left padding": ([X, W, B, ints([0, 0, 1, 1], [1, 1, 1, 0])], {"unidirectional": 1}),
    "one number a sample": ([X, W, B, ints([1], [0])], {}),
    "one number": ([X, W, B, ints([0])], {"unidirectional": 1}),
    "each pair": ([X, W, B, BITS], {"unidirectional": 1, "mask_filter_value": -3.0}),
    "past": ([X, W, B, RNG.integers(0, 2, (2, 7)).astype(np.int32), PAST], {}),
    "past, causal": ([X, W, B, RNG.integers(0, 2, (2, 4, 7)).astype(np.int32), PAST], {"unidirectional": 1}),
    "past, ends and starts": ([X, W, B, ints(7, 6, 1, 2), PAST], {"unidirectional": 1}),
    "bias": ([X, W, B, ints(4, 2), None, floats(1, 2, 4, 4)], {}),
    "bias of one head": ([X, W, B, None, None, floats(2, 1, 4, 4)], {"unidirectional": 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_attention(name):
    operands, attributes = CASES[name]
    agree(OP, operands, (True, True), compiled=name == "past", **ONE, **attributes)


def test_widths_of_values():
    operands = [X, floats(6, 28), floats(28), ints([1, 1, 0, 1], [1, 0, 0, 1])]
    agree(OP, operands, (True, False), num_heads=2, qkv_hidden_sizes=[8, 8, 12])


def test_16_bits():
    agree(OP, [v.astype(np.float16) for v in (X, W, B)], (True, True), rtol=2e-2, atol=2e-2, **ONE)


@pytest.mark.optimized
def test_thousands_of_elements():
    x, weights, lengths = floats(2, 128, 96), floats(96, 288) / 10, ints(128, 77)
    agree(OP, [x, weights, floats(288), lengths], (True, True), rtol=1e-4, atol=1e-4, compiled=True, num_heads=6)


def projected(x, weights, bias):
    return np.split(x.astype(np.float64) @ weights + bias, 3, -1)


def test_a_mask_for_each_position():  # onnxruntime has no kernel for a CPU
    mask = np.tril(RNG.integers(0, 2, (2, 1, 9, 9))).astype(np.int32)
    output, _ = attention(X, W, B, mask, PAST, **ONE)
    q, k, v = (heads_of(p, 2) for p in projected(X, W, B))
    k, v = np.concatenate([PAST[0], k], 2), np.concatenate([PAST[1], v], 2)
    np.testing.assert_allclose(output, attended(q, k, v, np.where(mask[:, :, 3:7, :7], 0, -1e4)), rtol=1e-4, atol=1e-5)


def test_without_a_bias_of_the_projection():  # onnxruntime 1.31 crashes
    np.testing.assert_allclose(attention(X, W, **ONE)[0], attention(X, W, 0 * B, **ONE)[0], rtol=1e-6)


def turned(x, first):
    angles = (np.arange(x.shape[2]) + first)[:, None] * 10000.0 ** (-np.arange(0, x.shape[3], 2) / x.shape[3])
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), a * np.sin(angles) + b * np.cos(angles)], -1)


def test_a_traced_length_that_leaves_no_room_in_a_buffer():
    """A program cannot raise, and the new tokens would overwrite old ones."""
    past = floats(2, 2, 2, 6, 4)
    attributes = {**ONE, "past_present_share_buffer": 1}
    fits = attention(X, W, B, None, past, None, 2, **attributes)[0]
    compiled = jax.jit(lambda count: attention(X, W, B, None, past, None, count, **attributes)[0])
    np.testing.assert_allclose(compiled(2), fits, rtol=1e-5, atol=1e-6)
    assert np.isnan(compiled(3)).all()


@pytest.mark.parametrize("traced", [False, True])
def test_a_buffer_and_rotary_embedding(traced):  # onnxruntime has no kernel for a CPU
    buffer, mask = floats(2, 2, 2, 9, 4), ints([1, 1, 0, 1, 1, 1, 0], [1] * 7)

    def fn(before):
        attributes = {"do_rotary": 1, "past_present_share_buffer": 1, "unidirectional": 1}
        return attention(X, W, B, mask, buffer, None, before, **ONE, **attributes)

    output, present = jax.jit(fn)(3) if traced else fn(ints(3))
    q, k, v = (heads_of(p, 2) for p in projected(X, W, B))
    keys = np.concatenate([buffer[0, :, :, :3], turned(k, 3)], 2)
    values = np.concatenate([buffer[1, :, :, :3], v], 2)
    bias = np.where(mask[:, None, None] > 0, 0, -1e4) + np.where(np.arange(7) > np.arange(4)[:, None] + 3, -np.inf, 0)
    np.testing.assert_allclose(output, attended(turned(q, 3), keys, values, bias), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(present[:, :, :, :7], np.stack([keys, values]), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(present[:, :, :, 7:], buffer[:, :, :, 7:])


def test_decoder_masked_self_attention():  # onnxruntime has no kernel for a CPU
    x, buffer = floats(4, 1, 6), floats(2, 4, 2, 5, 4)
    mask, beams = ints(*[[1, 1, 0, 1]] * 4), RNG.integers(0, 2, (2, 2, 5)).astype(np.int32)
    attributes = {"num_heads": 2, "past_present_share_buffer": 1, "scale": 0.5}
    output, present = ours(
        "DecoderMaskedSelfAttention", [x, W, B, mask, buffer, None, ints(3), ints(2), beams], 2, **attributes
    )
    q, k, v = (heads_of(p, 2) for p in projected(x, W, B))
    full = buffer.astype(np.float64)
    full[0, :, :, 3:4], full[1, :, :, 3:4] = k, v
    np.testing.assert_allclose(present, full, rtol=1e-5, atol=1e-5)
    rows = (np.arange(4) // 2 * 2)[:, None] + beams.reshape(4, 5)[:, :4]
    rows[:, 3] = np.arange(4)  # the new token comes from its own beam
    keys, values = (np.stack([full[i, rows[:, t], :, t] for t in range(4)], 2) for i in (0, 1))
    expected = attended(q, keys, values, np.where(mask[:, None, None] > 0, 0, -1e4))
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("static_kv", [False, True])
@pytest.mark.parametrize("use_past", [False, True])
def test_decoder_attention(static_kv, use_past):  # onnxruntime has no kernel for a CPU
    query, key = floats(3, 2, 8), floats(5, 2, 8)
    wq, wkv, bias = floats(8, 8), floats(8, 16), floats(24)
    caches = [floats(2, 2, 4, 4), floats(2, 2, 4, 4)]
    length = (4 if static_kv else 7) if use_past else 5 if static_kv else 3
    padding = RNG.integers(0, 2, (2, length)).astype(bool)
    flags = [np.array(v) for v in (static_kv, use_past, True, True)]
    found = ours("DecoderAttention", [query, key, wq, wkv, bias, padding, *caches, *flags], 3, **ONE)
    q = heads_of((query @ wq + bias[:8]).transpose(1, 0, 2), 2)
    source = key if static_kv else query
    k, v = (heads_of(p.transpose(1, 0, 2), 2) for p in np.split(source @ wkv + bias[8:], 2, -1))
    if use_past:
        k, v = caches if static_kv else [np.concatenate([c, x], 2) for c, x in zip(caches, (k, v), strict=True)]
    expected = attended(q, k, v, np.where(padding[:, None, None], -1e4, 0)).transpose(1, 0, 2)
    for x, y in zip(found, (expected, k, v), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_transformations():
    mask = ints([1, 1, 0, 1], [0, 1, 1, 1])

    @jax.jit
    def fn(x, w, b):
        return attention(x, w, b, mask, unidirectional=1, **ONE)[0]

    check_grads(fn, (X, W / 4, B), order=1, modes=("rev",), rtol=2e-2)
    stacked = np.stack([X, -X])
    found = jax.jit(jax.vmap(fn, (0, None, None)))(stacked, W, B)
    np.testing.assert_allclose(found, np.stack([fn(X, W, B), fn(-X, W, B)]), rtol=1e-5, atol=1e-5)
    args = [jnp.asarray(v) for v in (X, W, B, mask, PAST)]
    text = ["b, s, 6", "6, 24", "24", "b, p + s", "2, b, 2, p, 4"]
    args[3] = jnp.ones((2, 7), np.int32)
    made = export(jax.jit(lambda *v: attention(*v, **ONE)))(*symbolic_args_specs(args, text))
    for x, y in zip(made.call(*args), attention(*args, **ONE), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_a_mask_the_wrong_way_round_is_caught():
    mask = ints([1, 1, 0, 0], [0, 1, 1, 1])
    (expected,) = runtime(OP, [X, W, B, mask], **ONE)
    assert not np.allclose(attention(X, W, B, 1 - mask, **ONE)[0], expected, atol=1e-3)


Q = floats(3, 2, 8)
PARTS = (Q, Q, floats(8, 8), floats(8, 16), floats(24))
ERRORS = [
    (lambda: attention(X[0], W, B, **ONE), ShapeError, r"`input` of \(4, 6\) must be \(B, S, Di\)"),
    (lambda: attention(X, W, B[1:], **ONE), ShapeError, r"needs `weights` of \(6, D \+ D \+ Dv\) and a `bias`"),
    (lambda: attention(X, W[:, 1:], num_heads=1), ShapeError, r"`weights` of \(6, 23\) must have 3 · D columns"),
    (
        lambda: attention(X, W, num_heads=3),
        ArgumentError,
        "`num_heads` is 3; the 8 features of `weights` must be a mul",
    ),
    (
        lambda: attention(X, W, qkv_hidden_sizes=(8, 6, 10), **ONE),
        ArgumentError,
        r"`qkv_hidden_sizes` is \(8, 6, 10\); it must be D, D and Dv whose sum is 24",
    ),
    (lambda: attention(X, W, B, None, PAST[:, :1], **ONE), ShapeError, r"`past` of .* must be \(2, 2, 2, P, 4\)"),
    (lambda: attention(X, W, B, ints(1, 2, 3), **ONE), ShapeError, r"`mask_index` of \(3,\) must be \(2,\), \(4,\)"),
    (lambda: attention(X, W, B, ints([1, 1], [1, 1]), **ONE), ShapeError, r"`mask_index` of \(2, 2\) must be"),
    (lambda: attention(X, W, B, BITS[:, None, :3, :3], **ONE), ShapeError, r"or \(2, 1, M, M\)"),
    (lambda: attention(X, W.astype(np.float16), **ONE), DTypeError, "one element type, got input float32, weights fl"),
    (lambda: attention(X, W, B, floats(2), **ONE), DTypeError, "`mask_index` must be integers"),
    (
        lambda: attention(X, W, B, None, None, floats(1, 2, 4, 5), **ONE),
        ShapeError,
        r"`attention_bias` of \(1, 2, 4, 5\) must be \(1 or 2, 1 or 2, 4, 4\)",
    ),
    (
        lambda: attention(X, W, B, None, PAST, past_present_share_buffer=1, **ONE),
        ArgumentError,
        "with a shared buffer `past_sequence_length` must be given",
    ),
    (
        lambda: attention(X, W, B, None, PAST, None, 2, past_present_share_buffer=1, **ONE),
        ShapeError,
        "`past_sequence_length` is 2; a buffer of 3 rows has no room for 4 more tokens",
    ),
    (
        lambda: attention(X, W, B, do_rotary=1, rotary_embedding_dim=6, **ONE),
        ArgumentError,
        "`rotary_embedding_dim` is 6; it must be even and at most 4",
    ),
    (
        lambda: decoder_masked_self_attention(X, W, B, **ONE),
        ShapeError,
        r"must be \(B, 1, Di\), one token",
    ),
    (
        lambda: decoder_masked_self_attention(X[:, :1], W, B, beam_width=2, **ONE),
        ArgumentError,
        "`beam_width` is more than 1, so `cache_indirection` must be given",
    ),
    (
        lambda: decoder_masked_self_attention(X[:, :1], W, B, cache_indirection=ints([[0]]), **ONE),
        ShapeError,
        r"`cache_indirection` of \(1, 1, 1\) must be \(B / W, W, M\), for a batch of 2",
    ),
    (lambda: decoder_attention(*PARTS[:4], B[1:], **ONE), ShapeError, r"bias of .* must be \(S, B, D\), \(L, B, D\)"),
    (
        lambda: decoder_attention(*PARTS, None, PAST[0], None, False, True, True, **ONE),
        ShapeError,
        r"`value_cache` of None must be \(2, 2, P, 4\)",
    ),
    (
        lambda: decoder_attention(*PARTS, np.ones((2, 4), bool), has_key_padding_mask=True, **ONE),
        ShapeError,
        r"`key_padding_mask` of \(2, 4\) must be \(2, 3\)",
    ),
    (
        lambda: jax.jit(lambda flag: decoder_attention(*PARTS, static_kv=flag, **ONE))(True),
        StaticError,
        "`static_kv` must be known while tracing",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
