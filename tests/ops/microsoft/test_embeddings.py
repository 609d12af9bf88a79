"""Embeddings of com.microsoft against onnxruntime, and against NumPy where it has no kernel."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import agree, compare, ours

from jaxops import microsoft as ms
from jaxops.errors import DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(10)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def i32(high, *shape):
    return RNG.integers(0, high, shape).astype(np.int32)


IDS, SEGMENTS, POSITIONS = i32(9, 2, 5), i32(2, 2, 5), i32(7, 2, 5)
MASK = (np.arange(5) < [[3], [5]]).astype(np.int32)
WORDS, PLACES, KINDS, GAMMA, BETA = f32(9, 8), f32(7, 8), f32(2, 8), f32(8), f32(8)
EMBED = "EmbedLayerNormalization"


def test_embed_layer_normalization():
    full, all_of = [IDS, SEGMENTS, WORDS, PLACES, KINDS, GAMMA, BETA], (True, True, True)
    found = agree(EMBED, [*full, MASK], all_of, compiled=True)
    assert found[1].tolist() == [3, 5]
    total = WORDS[IDS] + PLACES[:5] + KINDS[SEGMENTS]
    normal = (total - total.mean(-1, keepdims=True)) / total.std(-1, keepdims=True)
    np.testing.assert_allclose(found[0], normal * GAMMA + BETA, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[2], total, rtol=1e-6)
    agree(EMBED, [IDS, None, WORDS, PLACES, None, GAMMA, BETA], all_of)
    agree(EMBED, [*full, None, POSITIONS], (True, True), epsilon=0.1)
    agree(EMBED, [*full, 2 * MASK, POSITIONS[:1]], all_of, mask_index_type=0)
    half = [v.astype(np.float16) if v.dtype == np.float32 else v for v in full]
    y, *_, summed = ours(EMBED, half, 3)
    assert y.dtype == summed.dtype == np.float16
    np.testing.assert_allclose(y.astype(np.float32), found[0], rtol=2e-2, atol=2e-2)


def test_torch_embedding():
    table, places = f32(6, 3), np.array([[1, 5], [1, 0]])
    compare(ours("TorchEmbedding", [table, places]), [table[places]], 0, 0)

    def gradient(*more):
        return jax.grad(lambda t: ms.torch_embedding(t, jnp.asarray(places), *more).sum())(jnp.asarray(table))[:, 0]

    assert gradient().tolist() == [1, 2, 0, 0, 0, 1]
    assert gradient(1).tolist() == [1, 0, 0, 0, 0, 1]
    assert gradient(np.int64(-1), True).tolist() == [1, 1, 0, 0, 0, 1]
    np.testing.assert_allclose(ms.torch_embedding(table, places, None, True), table[places], rtol=1e-6)


def test_word_conv_embedding():
    letters = np.array([[1, 2, 3, 0, 0], [4, 0, 0, 0, 0], [5, 4, 3, 2, 1], [3, 0, 2, 0, 0]], np.int32)
    w, b, c = f32(6, 1, 3, 4), f32(6), f32(8, 4)
    agree("WordConvEmbedding", [letters, w, b, c], compiled=True, conv_window_size=3, embedding_size=6)
    agree("WordConvEmbedding", [np.tile(letters, (50, 4)), w[:, :, :1].copy(), b, c], char_embedding_size=4)
    (empty,) = ours("WordConvEmbedding", [0 * letters, w, b, c])  # onnxruntime returns what was in memory
    assert not empty.any()


def test_vmap_and_symbolic_sizes():
    def fn(ids, mask):
        return ms.embed_layer_normalization(ids, None, WORDS, PLACES, None, GAMMA, BETA, mask, return_all=True)

    whole = fn(IDS, MASK)
    mapped = jax.vmap(fn)(IDS[:, None], MASK[:, None])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[:, 0], b, rtol=1e-5, atol=1e-6), mapped, whole)
    made = export(jax.jit(fn))(*symbolic_args_specs([IDS, MASK], ["n, s", "n, s"]))
    chex.assert_trees_all_close(made.call(IDS, MASK), whole, rtol=1e-5, atol=1e-6)


def embed(ids=IDS, segments=None, words=WORDS, places=PLACES, kinds=None, gamma=GAMMA, mask=None, positions=None):
    return ms.embed_layer_normalization(ids, segments, words, places, kinds, gamma, BETA, mask, positions)


LETTERS = np.ones((2, 3), np.int32)
ERRORS = [
    (lambda: embed(ids=IDS[0]), ShapeError, r"`input_ids` of \(5,\) must be \(N, S\)"),
    (lambda: embed(ids=WORDS), DTypeError, "operands must be integer"),
    (lambda: embed(segments=SEGMENTS), ShapeError, "`segment_ids` and `segment_embedding` must be given together"),
    (lambda: embed(words=GAMMA), ShapeError, r"`word_embedding` of \(8,\) must be \(rows, width\)"),
    (lambda: embed(places=f32(7, 3)), ShapeError, r"`position_embedding` of .* must be \(rows, 8\)"),
    (lambda: embed(gamma=f32(3)), ShapeError, r"`gamma` has the shape \(3,\)"),
    (lambda: embed(mask=MASK[:1]), ShapeError, r"`mask` of \(1, 5\) must be \(2, 5\), the shape of `input_ids`"),
    (lambda: embed(positions=POSITIONS[0]), ShapeError, r"`position_ids` of \(5,\) must be \(2, 5\) or \(1, 5\)"),
    (lambda: ms.torch_embedding(GAMMA, IDS), ShapeError, r"`weight` of \(8,\) must be \(rows, width\)"),
    (
        lambda: jax.jit(lambda p: ms.torch_embedding(WORDS, IDS, p))(1),
        StaticError,
        "`padding_idx` must be known while tracing",
    ),
    (
        lambda: ms.word_conv_embedding(IDS[0], f32(6, 1, 3, 8), f32(6), WORDS),
        ShapeError,
        r"`sequence` of \(5,\) must be \(words, letters\)",
    ),
    (
        lambda: ms.word_conv_embedding(LETTERS, f32(6, 2, 3, 8), f32(6), WORDS),
        ShapeError,
        r"`w` of \(6, 2, 3, 8\) must be \(filters, 1, width, size\)",
    ),
    (
        lambda: ms.word_conv_embedding(LETTERS, f32(6, 1, 3, 8), f32(5), WORDS),
        ShapeError,
        r"`b` of \(5,\) must be \(6,\)",
    ),
    (lambda: ms.word_conv_embedding(LETTERS, f32(6, 1, 3, 7), f32(6), WORDS), ShapeError, r"`c` of .* \(rows, 7\)"),
    (
        lambda: ms.word_conv_embedding(LETTERS, f32(6, 1, 4, 8), f32(6), WORDS),
        ShapeError,
        "words of 3 letters are shorter than the filters, which are 4 wide",
    ),
    (
        lambda: ms.word_conv_embedding(LETTERS, f32(6, 1, 3, 8), f32(6), WORDS, embedding_size=5),
        ShapeError,
        "`embedding_size` is 5, but w is float32",
    ),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
