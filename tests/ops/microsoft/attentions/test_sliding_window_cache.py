"""GroupQueryAttention with a sliding cache, and with chunks of which a part counts, beside onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from microsoft_peer import ours, runtime

from jaxops.errors import ArgumentError, ShapeError, SignatureError, UnsupportedError
from jaxops.microsoft import group_query_attention

OP = "GroupQueryAttention"
RNG = np.random.default_rng(11)
N, K, H, POSITIONS = 4, 2, 16, 48
HEADS = {"num_heads": N, "kv_num_heads": K}
ANGLES = RNG.uniform(0, 6, (POSITIONS, H // 2))
TABLES = [np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)]


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def tokens(batch, count):
    return [floats(batch, count, heads * H) for heads in (N, K, K)]


def kept(count, rows, window):
    """How many of `count` tokens are held, by the formula of the operator's text."""
    step = rows - window + 1
    return count if count <= rows else count - step * -(-(count - rows) // step)


def integers(values):
    return np.asarray(values, np.int32)


ROTARY = {"do_rotary": 1}
OPTIONS = {
    "plain": ({}, lambda batch, total, new: []),
    "rotary": ({**ROTARY, "softcap": 2.0}, lambda batch, total, new: TABLES),
    "sinks": ({**ROTARY, "rotary_interleaved": 1}, lambda *_: [*TABLES, None, None, floats(N)]),
    "bias": ({"smooth_softmax": 1}, lambda batch, total, new: [None, None, None, floats(batch, 1, new, total)]),
}


SPLITS = {
    "a prompt, then one by one": ("rotary", 4, 4, (3, *[1] * 7)),
    "forgets three at once": ("plain", 4, 6, (3, *[1] * 7)),
    "a prompt longer than the cache": ("sinks", 5, 12, (14, 1, 3)),
    "more tokens than rows behind a past": ("bias", 4, 6, (2, 20, 5)),
    "one key": ("plain", 1, 3, (1, 1, 9, 1, 1)),
    "all are kept": ("bias", 3, 40, (1, 1, 9, 1, 1)),
}


@pytest.mark.parametrize("name", SPLITS)
def test_tokens_in_steps(name):
    """The outputs are those of a cache that keeps all; the cache is that of onnxruntime, for any way to split."""
    option, window, rows, steps = SPLITS[name]
    attributes, more = OPTIONS[option]
    attributes = {**HEADS, **attributes, "local_window_size": window}
    total, whole = sum(steps), tokens(1, sum(steps))
    sinks = more(1, total, total)
    caches = [[floats(1, K, rows, H)] * 2, [floats(1, K, rows, H)] * 2]
    full = [np.zeros((1, K, 0, H), np.float32)] * 2
    done = 0
    for new in steps:
        part, done = [x[:, done : done + new] for x in whole], done + new
        lengths = [integers([done - 1]), integers(done)]
        given = sinks if option != "bias" else [None, None, None, sinks[3][:, :, done - new : done, :done]]
        expected = runtime(OP, [*part, *caches[0], *lengths, *given], [True] * 3, sliding_window_cache=1, **attributes)
        operands = [*map(jnp.asarray, [*part, *caches[1]]), *lengths, *given]
        found = ours(OP, operands, 3, sliding_window_cache=1, **attributes)
        wide = ours(OP, [*map(jnp.asarray, [*part, *full]), *lengths, *given], 3, **attributes)
        np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(found[0], wide[0], rtol=2e-5, atol=2e-5)
        count = kept(done, rows, window)
        for mine, other, all_of_them in zip(found[1:], expected[1:], wide[1:], strict=True):
            assert mine.shape == (1, K, rows, H)
            np.testing.assert_allclose(mine[:, :, :count], other[:, :, :count], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(mine[:, :, :count], all_of_them[:, :, done - count :], rtol=1e-5, atol=1e-5)
        caches, full = [expected[1:], found[1:]], wide[1:]


def test_samples_of_different_lengths():
    """A prompt with padding, which onnxruntime has only in a cache that keeps all; then each forgets at its time."""
    rows, attributes = 6, {**HEADS, **ROTARY, "local_window_size": 4}
    lengths, part = np.array([9, 3, 6]), tokens(3, 9)
    given = [integers(lengths - 1), integers(9), *TABLES]
    nothing = [np.zeros((3, K, 0, H), np.float32)] * 2
    expected = runtime(OP, [*part, *nothing, *given], [True] * 3, **attributes)
    attributes["sliding_window_cache"] = 1
    found = ours(
        OP, [*map(jnp.asarray, [*part, *[np.zeros((3, K, rows, H), np.float32)] * 2]), *given], 3, **attributes
    )
    for b, length in enumerate(lengths):
        count = kept(length, rows, 4)
        np.testing.assert_allclose(found[0][b, :length], expected[0][b, :length], rtol=2e-5, atol=2e-5)
        for mine, other in zip(found[1:], expected[1:], strict=True):
            np.testing.assert_allclose(mine[b, :, :count], other[b, :, length - count : length], rtol=1e-5, atol=1e-5)
    for _ in range(5):
        lengths, part, caches = lengths + 1, tokens(3, 1), found[1:]
        given = [integers(lengths - 1), integers(lengths.max()), *TABLES]
        expected = runtime(OP, [*part, *map(np.asarray, caches), *given], [True] * 3, **attributes)
        found = ours(OP, [*map(jnp.asarray, part), *caches, *given], 3, **attributes)
        np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5)
        for b, length in enumerate(lengths):
            count = kept(length, rows, 4)
            for mine, other in zip(found[1:], expected[1:], strict=True):
                np.testing.assert_allclose(mine[b, :, :count], other[b, :, :count], rtol=1e-5, atol=1e-5)


def test_thousands_of_tokens_under_one_jit():
    """A scan whose state has a fixed shape goes on forever; NaN in a forgotten key does not matter."""
    window, rows, count = 64, 80, 1500
    attributes = {**HEADS, "local_window_size": window, "sliding_window_cache": 1}
    whole = [jnp.asarray(x) for x in tokens(2, count)]
    whole[1] = whole[1].at[0, 100].set(np.nan)

    @jax.jit
    def outputs(whole):
        def step(cache, at):
            part = [jax.lax.dynamic_slice_in_dim(x, at, 1, 1) for x in whole]
            output, *cache = group_query_attention(*part, *cache, jnp.full(2, at), rows, **attributes)
            return tuple(cache), output[:, 0]

        return jax.lax.scan(step, (jnp.zeros((2, K, rows, H)),) * 2, jnp.arange(count))[1].swapaxes(0, 1)

    found = outputs(whole)
    places = np.arange(count)
    mask = (places <= places[:, None]) & (places > places[:, None] - window)
    q, k, v = (np.asarray(x, np.float64).reshape(2, count, -1, H).transpose(0, 2, 1, 3) for x in whole)
    k, v = np.repeat(k, N // K, 1), np.repeat(v, N // K, 1)
    for at in (0, 50, 99, 100, 130, 163, 164, 400, 1499):
        seen = np.flatnonzero(mask[at])
        power = np.exp(np.einsum("bnh,bnth->bnt", q[:, :, at], k[:, :, seen]) * H**-0.5)
        expected = np.einsum("bnt,bnth->bnh", power / power.sum(-1, keepdims=True), v[:, :, seen]).reshape(2, N * H)
        assert np.isnan(expected[0]).all() == (100 <= at < 164)
        np.testing.assert_allclose(found[:, at], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("window", [-1, 4])
def test_chunks_of_which_a_part_counts(window):
    """Each sample has its own number of new tokens; one has none."""
    attributes = {**HEADS, **ROTARY, "local_window_size": window}
    attributes |= {"sliding_window_cache": 1} if window > 0 else {}
    rows = 7 if window > 0 else 40
    lengths = np.zeros(3, np.int64)
    caches = [[np.zeros((3, K, rows, H), np.float32)] * 2] * 2
    for counts in ([5, 2, 4], [5, 5, 1], [0, 3, 4], [1, 0, 5], [1, 1, 0]):
        lengths = lengths + counts
        size = max(counts) if max(counts) == 1 else 5
        part = tokens(3, size)
        given = [integers(lengths - 1), integers(40), *TABLES, *[None] * 7, integers(counts)]
        expected = runtime(OP, [*part, *caches[0], *given], [True] * 3, **attributes)
        operands = [*map(jnp.asarray, [*part, *caches[1]]), *given]
        found = ours(OP, operands, 3, **attributes)
        for b, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            np.testing.assert_allclose(found[0][b, :count], expected[0][b, :count], rtol=2e-5, atol=2e-5)
            held = kept(length, rows, window) if window > 0 else length
            for mine, other in zip(found[1:], expected[1:], strict=True):
                np.testing.assert_allclose(mine[b, :, :held], other[b, :, :held], rtol=1e-5, atol=1e-5)
        caches = [expected[1:], found[1:]]


@pytest.mark.parametrize(("total", "rows"), [(9, 9), (20, 20), (6, 6)])
def test_a_cache_that_grows_by_a_chunk(total, rows):
    """Room for the whole chunk, and for more; without it, NaN."""
    past = [floats(1, K, 5, H)] * 2 if rows > 6 else [floats(1, K, 6, H)] * 2
    operands = [*tokens(1, 4), *past, integers([5]), integers(total), *[None] * 9, integers([2])]
    found = ours(OP, [*map(jnp.asarray, operands[:5]), *operands[5:]], 3, **HEADS)
    assert found[1].shape == (1, K, rows, H)
    if rows == 6:  # onnxruntime raises an error for values, which a program cannot
        assert np.isnan(found[0]).all()
        return
    expected = runtime(OP, operands, [True] * 3, **HEADS)
    np.testing.assert_allclose(found[0][:, :2], expected[0][:, :2], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found[1][:, :, :6], expected[1][:, :, :6], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantized_cache(bits):
    cell = [np.uint8, np.int8][bits == 8]
    past = [RNG.integers(0, 100, (1, K, 6, 32 if bits == 8 else 16)).astype(cell) for _ in "kv"]
    kind = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits}
    attributes = {**HEADS, **kind, "local_window_size": 4, "sliding_window_cache": 1}
    scale = np.array([0.03 if bits == 8 else 0.5], np.float32)
    new = [floats(1, 3, heads * 32) for heads in (N, K, K)]
    operands = [*new, *past, integers([10]), integers(11), *[None] * 5, scale, 2 * scale]
    expected = runtime(OP, operands, [np.float32, cell, cell], **attributes)
    found = ours(OP, operands, 3, **attributes)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for mine, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(mine[:, :, : kept(11, 6, 4)], other[:, :, : kept(11, 6, 4)])


def test_gradients():
    attributes = {**HEADS, "local_window_size": 3, "sliding_window_cache": 1}
    given = [jnp.asarray(x) for x in (*tokens(1, 3), floats(1, K, 4, H), floats(1, K, 4, H))]

    @jax.jit
    def outputs(*given):
        return group_query_attention(*given, np.array([7]), 8, **attributes)

    check_grads(outputs, given, order=1, modes=("rev",), rtol=1e-2)


def test_a_wrong_number_of_kept_tokens_is_caught():
    operands = [*tokens(1, 1), *[floats(1, K, 6, H)] * 2, integers([10]), integers(11)]
    expected = runtime(OP, operands, [True] * 3, **HEADS, local_window_size=4, sliding_window_cache=1)
    found = ours(OP, operands, 3, **HEADS, local_window_size=3, sliding_window_cache=1)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-5)


SLIDES = {"local_window_size": 4, "sliding_window_cache": 1}
PAST = [np.zeros((1, K, 6, H), np.float32)] * 2


@pytest.mark.parametrize(
    ("past", "attributes", "error", "match"),
    [
        (PAST, {**SLIDES, "local_window_size": 7}, ShapeError, "`past_key` has 6 rows; .* it needs 7, the window"),
        (PAST, {"sliding_window_cache": 1}, ArgumentError, "`local_window_size` is -1 and `causal` 1; .* at least 1"),
        (PAST, {**SLIDES, "causal": 0}, ArgumentError, "`local_window_size` is 4 and `causal` 0; .* `causal` 1"),
        (PAST, {**SLIDES, "qk_output": 1}, UnsupportedError, "`qk_output` is 1; with .* it must be 0"),
        (PAST, {"sliding_window_cache": 2}, ArgumentError, "`sliding_window_cache` is 2"),
        ([None] * 2, SLIDES, SignatureError, "`sliding_window_cache` is 1, so `past_key` and `past_value` must be"),
    ],
)
def test_errors_of_a_sliding_cache(past, attributes, error, match):
    with pytest.raises(error, match=match):
        group_query_attention(*tokens(1, 1), *past, np.array([1]), 2, **HEADS, **attributes)


@pytest.mark.parametrize(
    ("past", "counts", "attributes", "error", "match"),
    [
        ([None] * 2, [1], {}, SignatureError, "`query_seqlens` needs `past_key` and `past_value`"),
        (PAST, [1], {"causal": 0}, SignatureError, "`query_seqlens` needs `causal` = 1"),
        (PAST, [1, 1], {}, ShapeError, r"`query_seqlens` of \(2,\) must be \(1,\)"),
    ],
)
def test_errors_of_chunks(past, counts, attributes, error, match):
    operands = [*tokens(1, 2), *past, np.array([1]), 2]
    with pytest.raises(error, match=match):
        group_query_attention(*operands, query_seqlens=np.array(counts), **HEADS, **attributes)


def test_a_bound_below_the_chunk():
    with pytest.raises(ShapeError, match="`total_sequence_length` is 2; it must be at least 4, the new tokens"):
        group_query_attention(*tokens(1, 4), *PAST, np.array([1]), 2, query_seqlens=np.array([2]), **HEADS)
