"""GroupQueryAttention against onnxruntime and a loop over tokens in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from graphs import build, info, node, tensor
from jax.export import export, symbolic_args_specs
from jax.test_util import check_grads
from microsoft_peer import ours, runtime
from onnx import TensorProto

import jaxops.onnx
from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, StaticError
from jaxops.microsoft import group_query_attention

OP = "GroupQueryAttention"
RNG = np.random.default_rng(7)
N, K, H, POSITIONS = 4, 2, 16, 24
HEADS = {"num_heads": N, "kv_num_heads": K}
ANGLES = RNG.uniform(0, 6, (POSITIONS, H // 2))
TABLES = [np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)]
NONE = [None, None]


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def given(new, past, lengths, total, *, packed=False, extra=()):
    """The operands: `new` tokens behind a past of `past` rows, None for no past, `lengths` tokens of each sample."""
    batch = len(lengths)
    qkv = [floats(batch, new, heads * H) for heads in (N, K, K)]
    qkv = [np.concatenate(qkv, -1), None, None] if packed else qkv
    cache = NONE if past is None else [floats(batch, K, past, H), floats(batch, K, past, H)]
    return [*qkv, *cache, np.array(lengths, np.int32) - 1, np.array(total, np.int32), *extra]


def bias(batch, heads, new, total):
    return [*NONE, None, floats(batch, heads, new, total)]


def turned(x, position, interleaved):
    cos, sin = np.cos(ANGLES[position]), np.sin(ANGLES[position])
    a, b = (x[::2], x[1::2]) if interleaved else (x[: H // 2], x[H // 2 :])
    pair = [a * cos - b * sin, a * sin + b * cos]
    return np.stack(pair, -1).reshape(-1) if interleaved else np.concatenate(pair)


def formula(operands, attributes):
    """The outputs, one token after the other, and the scores before and after the softmax; NaN for padding."""
    operands = [*operands, *[None] * (16 - len(operands))]
    query, key, value, past_k, past_v, lengths, total, _, _, ids, extra, sinks, _, _, q_weight, k_weight = operands
    if key is None:
        query, key, value = np.split(query, [N * H, (N + K) * H], -1)
    batch, new = query.shape[:2]
    q, k, v = (x.reshape(batch, x.shape[1], x.shape[2] // H, H).astype(np.float64) for x in (query, key, value))
    for x, weight in ((q, q_weight), (k, k_weight)):
        if weight is not None:
            x *= weight / np.sqrt((x**2).mean(-1, keepdims=True) + attributes.get("qk_norm_epsilon", 1e-6))
    rows = max(int(total), 0 if past_k is None else past_k.shape[2])
    cache = [np.zeros((batch, K, rows, H)) for _ in range(2)]
    output, scores = np.full((batch, new, N, H), np.nan), np.zeros((2, batch, N, new, int(total)))
    scores[:] = np.nan
    for b in range(batch):
        count = lengths[b] + 1
        start = 0 if total == new or past_k is None else count - new
        for old, rest, fresh in ((past_k, cache[0], k), (past_v, cache[1], v)):
            kept = count if key.shape[1] == 0 else start
            if old is not None:
                rest[b, :, :kept] = old[b, :, :kept]
            for s in range(key.shape[1]):
                place = start + s
                if attributes.get("do_rotary") and fresh is k:
                    place = ids[b, s] if ids is not None and total != new else s + (start if ids is None else ids[0, 0])
                    turn = [turned(h, place, attributes.get("rotary_interleaved")) for h in k[b, s]]
                    rest[b, :, start + s] = turn
                else:
                    rest[b, :, start + s] = fresh[b, s]
        for s in range(min(new, count - start)):
            last = start + s if attributes.get("causal", 1) else count - 1
            window = attributes.get("local_window_size", -1)
            seen = np.arange(0 if window < 0 else max(0, last + 1 - window), last + 1)
            for n in range(N):
                x = q[b, s, n]
                if attributes.get("do_rotary"):
                    place = ids[b, s] if ids is not None and total != new else s + (start if ids is None else ids[0, 0])
                    x = turned(x, place, attributes.get("rotary_interleaved"))
                score = cache[0][b, n // (N // K), seen] @ x * (attributes.get("scale", 0) or H**-0.5)
                if attributes.get("softcap"):
                    score = attributes["softcap"] * np.tanh(score / attributes["softcap"])
                if extra is not None:
                    score = score + extra[b % extra.shape[0], n % extra.shape[1], s, seen]
                power = np.exp(score)
                more = 1.0 if attributes.get("smooth_softmax") == 1 else 0.0
                weight = power / (power.sum() + (more if sinks is None else np.exp(sinks[n])))
                output[b, s, n] = weight @ cache[1][b, n // (N // K), seen]
                scores[:, b, n, s, :count] = 0
                scores[0, b, n, s, seen], scores[1, b, n, s, seen] = score, weight
    return output.reshape(batch, new, N * H), *cache, *scores


ROTARY = {"do_rotary": 1}
CASES = {
    "prompt": (given(3, None, (3, 2), 3, extra=TABLES), ROTARY),
    "prompt, packed": (
        given(3, None, (3, 2), 3, packed=True, extra=TABLES),
        {**ROTARY, "rotary_interleaved": 1, "scale": 0.7},
    ),
    "prompt into a buffer": (given(3, 8, (3, 2), 3, extra=bias(1, N, 3, 3)), {"softcap": 1.5, "qk_output": 1}),
    "prompt behind a past of 0": (
        given(4, 0, (4, 4), 4, extra=[*TABLES, np.array([[2, 0, 0, 0]] * 2)]),
        {**ROTARY, "local_window_size": 2},
    ),
    "not causal": (given(3, None, (3, 2), 3), {"causal": 0}),
    "step": (
        given(1, 5, (6, 4), 6, extra=[*TABLES, np.array([[7], [3]]), None, floats(N)]),
        {**ROTARY, "qk_output": 2},
    ),
    "step in a buffer": (
        given(1, 9, (6, 4), 6, packed=True, extra=bias(2, 1, 1, 6)),
        {"smooth_softmax": 1, "qk_output": 1, "local_window_size": 3, "softcap": 2.0},
    ),
    "more tokens": (given(3, 5, (8,), 8, extra=TABLES), {**ROTARY, "local_window_size": 2, "qk_output": 2}),
    "more tokens in a buffer": (given(3, 9, (8,), 8), {"qk_output": 1}),
    "a cache of others": ([floats(2, 1, N * H), *[floats(2, 0, K * H)] * 2, *given(1, 8, (6, 5), 6)[3:]], {}),
    "window of nothing": (given(1, 5, (6, 4), 6), {"local_window_size": 0}),
}


def compare(found, expected, lengths, tolerance):
    """Outputs of tokens, rows of the cache that hold a token, and scores of these."""
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        assert x.shape == y.shape
        for b, count in enumerate(lengths):
            cut = (slice(None),) if i == 0 else (slice(None), slice(count)) if i < 3 else (..., slice(count))
            ours_, theirs = (np.asarray(v[b], np.float64)[cut] for v in (x, y))
            known = ~np.isnan(theirs)
            np.testing.assert_allclose(ours_[known], theirs[known], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    operands, attributes = CASES[name]
    lengths, new = operands[5] + 1, operands[0].shape[1]
    count = 4 if attributes.get("qk_output") else 3
    peer = runtime(OP, operands, [True] * count, **HEADS, **attributes)
    if int(operands[6]) == new:
        peer[0] = peer[0].copy()
        for b, length in enumerate(lengths):  # what stands at the padding is not defined
            peer[0][b, length:] = np.nan
            if count == 4:
                peer[3][b, :, length:] = np.nan
    expected = formula(operands, attributes)
    expected = expected[: 3 + (count == 4)] if attributes.get("qk_output") != 2 else (*expected[:3], expected[4])
    if operands[1] is not None and operands[1].shape[1] == 0:
        expected = (expected[0], *operands[3:5])
    found = ours(
        OP, [x if x is None or i == 6 else jnp.asarray(x) for i, x in enumerate(operands)], count, **HEADS, **attributes
    )
    compare(found, expected[:3] + tuple(expected[3:count]), lengths, 2e-5)
    compare(found, peer, lengths, 2e-5)


def test_the_norm_of_queries_and_keys():
    weights = [np.abs(floats(H)), np.abs(floats(H))]
    operands = given(3, None, (3, 2), 3, extra=[*TABLES, None, None, None, None, None, *weights])
    attributes = {"do_rotary": 1, "qk_norm_epsilon": 0.1}
    found = ours(OP, operands, 3, **HEADS, **attributes)  # no kernel for a CPU in onnxruntime
    compare(found, formula(operands, attributes)[:3], operands[5] + 1, 2e-5)


def test_no_number_is_no_cap():
    operands = given(3, None, (3, 2), 3)
    for _ in range(2):  # the second time the program is there already
        found = ours(OP, [*map(jnp.asarray, operands[:1]), *operands[1:]], 3, **HEADS, softcap=np.nan)
        compare(found, formula(operands, {})[:3], operands[5] + 1, 2e-5)


def test_16_bits():
    operands = [x.astype(np.float16) if x is not None and x.dtype == np.float32 else x for x in given(1, 5, (6, 4), 6)]
    found = ours(OP, operands, 3, **HEADS)
    assert found[0].dtype == np.float16
    compare(found, runtime(OP, operands, [True] * 3, **HEADS), (6, 4), 1e-2)


def test_steps_of_decoding_in_a_buffer_under_one_jit():
    rows, tokens = 32, [floats(2, 24, heads * 64) for heads in (8, 2, 2)]
    heads = {"num_heads": 8, "kv_num_heads": 2, "do_rotary": 1}
    angles = RNG.uniform(0, 6, (rows, 32)).astype(np.float32)
    tables = [np.cos(angles), np.sin(angles)]
    whole = runtime(
        OP, [*tokens, *NONE, np.array([23, 23], np.int32), np.array(24, np.int32), *tables], [True] * 3, **heads
    )
    start = group_query_attention(
        *(x[:, :20] for x in tokens),
        *[np.zeros((2, 2, rows, 64), np.float32)] * 2,
        np.array([19, 19]),
        20,
        *tables,
        **heads,
    )

    @jax.jit
    def steps(keys, values):
        def step(cache, at):
            part = [jax.lax.dynamic_slice_in_dim(x, at, 1, 1) for x in map(jnp.asarray, tokens)]
            lengths = jnp.full(2, at)
            output, *cache = group_query_attention(*part, *cache, lengths, rows, *tables, **heads)
            return tuple(cache), output[:, 0]

        return jax.lax.scan(step, (keys, values), jnp.arange(20, 24))

    (keys, _), outputs = steps(*start[1:])
    np.testing.assert_allclose(start[0], whole[0][:, :20], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(outputs.swapaxes(0, 1), whole[0][:, 20:], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(keys[:, :, :24], whole[1], rtol=1e-4, atol=1e-4)


def test_more_tokens_than_rows_give_nan():
    operands = given(1, 5, (6, 4), 5)
    output, keys, _ = jax.jit(lambda *x: group_query_attention(*x, 5, **HEADS))(*operands[:6])
    assert keys.shape == (2, K, 5, H)
    assert np.isnan(output[0]).all()
    second = [x if x is None or x.ndim == 0 else x[1:] for x in operands]
    np.testing.assert_allclose(output[1:], formula(second, {})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_unused_rows_of_a_buffer_may_hold_anything(compiled):
    operands = given(1, 9, (6, 4), 6)
    expected = formula(operands, {})[0]
    for cache in operands[3:5]:
        cache[0, :, 6:] = cache[1, :, 4:] = np.nan
    call = jax.jit(lambda *x: group_query_attention(*x, 6, **HEADS))
    found = (call if compiled else call.__wrapped__)(*operands[:6])
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)


def test_a_traced_total_is_refused():
    """It decides whether the cache grows."""
    with pytest.raises(StaticError, match=r"(?s)`total_sequence_length` must be known .* steps in a buffer may all"):
        jax.jit(lambda *x: group_query_attention(*x, **HEADS))(*given(1, 5, (6, 4), 6))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
def test_a_quantized_cache(kind, bits):
    operands = given(1, 6, (6, 4), 6, extra=[*TABLES, None, None, None])
    kept = (2, K, 6, H if bits == 8 else H // 2)
    operands[3:5] = [
        RNG.integers(-100 if bits == 8 else 0, 100, kept).astype([np.uint8, np.int8][bits == 8]) for _ in "kv"
    ]
    scale = np.abs(floats(*((1,) if kind == "PER_TENSOR" else (1, K, 1, H)))) / 2**bits + np.float32(0.01)
    attributes = {"do_rotary": 1, "k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits, **HEADS}
    operands += [scale, 2 * scale]
    cell = operands[3].dtype
    expected = runtime(OP, operands, [np.float32, cell, cell], **attributes)
    found = ours(OP, operands, 3, **attributes)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for x, y in zip(found[1:], expected[1:], strict=True):
        assert x.dtype == cell
        for b, count in enumerate((6, 4)):
            np.testing.assert_array_equal(x[b, :, :count], y[b, :, :count])


def test_with_x64_on():
    operands, attributes = CASES["step in a buffer"]
    with jax.enable_x64(True):
        found = ours(OP, operands, 4, **HEADS, **attributes)
    compare(found, runtime(OP, operands, [True] * 4, **HEADS, **attributes), operands[5] + 1, 2e-5)


def test_a_model_whose_mask_gives_the_lengths():
    """As exporters of decoders write it: the number of tokens is the width of a mask."""
    nodes = [
        node("Cast", ["mask"], ["mask32"], to=TensorProto.INT32),
        node("ReduceSum", ["mask32", "one"], ["sums"], keepdims=0),
        node("Sub", ["sums", "one32"], ["seqlens"]),
        node("Shape", ["mask"], ["sizes"]),
        node("Gather", ["sizes", "one_"], ["width"]),
        node("Cast", ["width"], ["total"], to=TensorProto.INT32),
        node(OP, ["q", "k", "v", "pk", "pv", "seqlens", "total"], ["y", "k2", "v2"], domain="com.microsoft", **HEADS),
    ]
    names, shapes = ["q", "k", "v", "pk", "pv"], [["B", "S", d] for d in (N * H, K * H, K * H)]
    shapes += [["B", K, "P", H]] * 2
    proto = build(
        *nodes,
        inputs=[*map(info, names, shapes), info("mask", ["B", "T"], TensorProto.INT64)],
        outputs=[info("y", None), info("k2", None), info("v2", None)],
        initializers=[
            tensor(np.array([1]), "one"),
            tensor(np.array(1, np.int32), "one32"),
            tensor(np.array(1), "one_"),
        ],
        opsets=(("", 17), ("com.microsoft", 1)),
    )
    model, session = jaxops.onnx.load(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    cache = [np.zeros((2, K, 0, H), np.float32)] * 2
    for new in (3, 1):
        operands = [*given(new, None, (1, 1), 1)[:3], *cache, np.ones((2, cache[0].shape[2] + new), np.int64)]
        expected = session.run(None, dict(zip([*names, "mask"], operands, strict=True)))
        for x, y in zip(model(*operands), expected, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
        cache = expected[1:]


def test_transformations():
    operands = [jnp.asarray(x) for x in given(2, 3, (5,), 5)]

    @jax.jit
    def fn(*floats_):
        return group_query_attention(*floats_, operands[5], 5, **HEADS)[0]

    check_grads(fn, operands[:5], order=1, modes=("rev",), rtol=1e-2)
    stacked = [jnp.stack([x, -x]) for x in operands[:5]]
    expected = [fn(*operands[:5]), fn(*(-x for x in operands[:5]))]
    np.testing.assert_allclose(jax.jit(jax.vmap(fn))(*stacked), jnp.stack(expected), rtol=1e-4, atol=1e-5)
    text = ["b, 1, 64", "b, 1, 32", "b, 1, 32", f"b, {K}, p, {H}", f"b, {K}, p, {H}", "b"]
    values = [jnp.asarray(x) for x in given(1, 5, (6, 4), 6)[:6]]
    made = export(jax.jit(lambda *x: group_query_attention(*x, x[3].shape[2] + 1, **HEADS)))(
        *symbolic_args_specs(values, text)
    )
    eager = group_query_attention(*values, 6, **HEADS)
    np.testing.assert_allclose(made.call(*values)[0], eager[0], rtol=1e-4, atol=1e-5)


def test_a_wrong_window_is_caught():
    operands = given(3, 5, (8,), 8)
    expected = runtime(OP, operands, [True] * 3, **HEADS, local_window_size=2)[0]
    assert not np.allclose(group_query_attention(*operands, **HEADS, local_window_size=3)[0], expected, atol=1e-3)


def call(operands=None, *, at=(), **attributes):
    operands = list(operands or given(1, 5, (6, 4), 6))
    for place, value in at:
        operands += [None] * (place + 1 - len(operands))
        operands[place] = value
    return lambda: group_query_attention(*operands, **{**HEADS, **attributes})


LONG = given(1, 5, (6, 4), 6)
EIGHT = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}
ERRORS = [
    (call(kv_num_heads=3), ArgumentError, "`num_heads` is 4; it must be a multiple of `kv_num_heads`, which is 3"),
    (call(at=[(2, None)]), ShapeError, "`key` and `value` must be given together"),
    (call(at=[(0, floats(2, 1, 63))]), ShapeError, r"`query` of \(2, 1, 63\) must be \(B, S, 4 · H\)"),
    (call(at=[(1, floats(2, 2, 32))]), ShapeError, r"`key` of \(2, 2, 32\) and .* must be \(2, 1, 32\), or hold no"),
    (call(at=[(3, None)]), ShapeError, r"`past_key` and `past_value` are none and .* must be \(2, 2, P, 16\)"),
    (call(at=[(6, 9)]), ShapeError, r"`total_sequence_length` is 9; with a past of 5 rows .* must be 6 .* at most 5"),
    (call(at=[(6, np.array([5, 6]))]), ArgumentError, "`total_sequence_length` must be one integer"),
    (call(at=[(5, np.array([1, 2, 3]))]), ShapeError, r"`seqlens_k` of \(3,\) must be \(2,\)"),
    (call(at=[(2, floats(2, 1, 32).astype(np.float16))]), DTypeError, "one element type, got .* value float16"),
    (call(at=[(5, floats(2))]), DTypeError, "`seqlens_k` must be integers"),
    (call(at=[(10, floats(1, 1, 1, 9))]), ShapeError, r"`attention_bias` of .* must be \(1 or 2, 1 or 4, 1, 6\)"),
    (call(at=[(11, floats(3))]), ShapeError, r"`head_sink` of \(3,\) must be \(4,\)"),
    (call(do_rotary=1), ArgumentError, "`do_rotary` is 1, so `cos_cache` and `sin_cache` must be given"),
    (
        call(LONG + TABLES + [np.array([[99], [1]])], do_rotary=1),
        BoundsError,
        "`position_ids` holds 99, but `cos_cache` has positions 0 to 23",
    ),
    (call(k_quant_type="PER_TENSOR"), ArgumentError, "`k_quant_type` is 'PER_TENSOR', `v_quant_type` 'NONE' and .* 0"),
    (call(**EIGHT), DTypeError, r"`past_key` must be int8 for 8 bits, got float32\[2,2,5,16\]"),
    (call(at=[(3, None), (4, None)], **EIGHT), ShapeError, r"`k_scale` is none; with the type .* must be \(1,\)"),
]


@pytest.mark.parametrize(("fn", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(fn, kind, match):
    with pytest.raises(kind, match=match):
        fn()
