"""Hashes, tokens, repeated n-grams and warped time of com.microsoft against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from microsoft_peer import agree, ours, runtime

from jaxops import microsoft as ms
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(14)


def f32(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def strings(*texts):
    return np.array(texts, object)


HASHED = [
    np.array([[1, 2, -3]], np.int32),
    np.array([1, 2**31], np.uint32),
    np.array([1, 2**40]),
    np.array([1, 2**63], np.uint64),
    np.array([1.5, -2], np.float32),
    np.array([1.5, -2]),
    strings("", "a", "abc", "abcd", "hello wörld"),
    np.asarray(7, np.int32),
]


@pytest.mark.parametrize("x", HASHED, ids=lambda x: str(x.dtype))
def test_murmur_hash(x, x64):
    agree("MurmurHash3", [x], static=[0], positive=0, seed=42)
    agree("MurmurHash3", [x], static=[0])
    if x.dtype.kind != "O":
        agree("MurmurHash3", [x], seed=2**32 - 1, compiled=x.dtype == np.float64)


def test_hashes_of_a_model_with_32_bits():
    assert isinstance(ms.murmur_hash3(np.array([2**40])), np.ndarray)
    words = ms.murmur_hash3(np.array([2**40]))
    assert words.tolist() == runtime("MurmurHash3", [np.array([2**40])])[0].tolist()
    mapped = jax.vmap(ms.murmur_hash3)(jnp.arange(6, dtype=np.int32).reshape(2, 3))
    np.testing.assert_array_equal(mapped.reshape(-1), ms.murmur_hash3(np.arange(6, dtype=np.int32)))


TEXTS = strings("Hello World", "I love  computer science !", "")
CUTS = [
    {"separators": [" "]},
    {"separators": [" ", "o"], "mincharnum": 2},
    {"separators": ["[ r]"]},
    {"separators": [""]},
    {"separators": ["lo", "o"]},
    {"separators": ["a|c"]},
    {"tokenexp": "."},
    {"tokenexp": "[a-z]+"},
    {"tokenexp": "[a-z]*", "mincharnum": 2},
    {"tokenexp": "l|lo|lov"},
]


@pytest.mark.parametrize("mark", [0, 1])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_tokenizer(cut, mark):
    agree("Tokenizer", [TEXTS], static=[0], **({"mark": mark, "pad_value": "#", "mincharnum": 1} | cut))


@pytest.mark.parametrize(
    "x",
    [strings("a b", "c", "", "dé f g").reshape(2, 2), strings(" ", ""), np.empty((2, 0), object)],
    ids=["two axes", "no tokens", "empty"],
)
def test_tokenizer_shapes(x):
    agree("Tokenizer", [x], static=[0], mark=1, pad_value="", mincharnum=1, separators=[" "])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 13])
def test_n_gram_repeat_block(size):
    agree("NGramRepeatBlock", [RNG.integers(0, 4, (3, 12)), f32(3, 5)], ngram_size=size, compiled=size == 2)


def test_n_grams_of_symbolic_length():
    ids, scores = RNG.integers(0, 4, (3, 12)).astype(np.int32), f32(3, 5)

    def fn(ids, scores):
        return ms.n_gram_repeat_block(ids, scores, ngram_size=2)

    made = export(jax.jit(fn))(*symbolic_args_specs([ids, scores], ["n, s", "n, 5"], constraints=["s >= 2"]))
    np.testing.assert_array_equal(made.call(ids, scores), fn(ids, scores))
    assert np.isneginf(fn(ids, scores)).any()


@pytest.mark.parametrize("shape", [(4, 6), (1, 7, 3), (1, 1), (9, 2)], ids=str)
def test_dynamic_time_warping(shape):
    for cost in (f32(*shape), np.round(f32(*shape))):
        (path,) = agree("DynamicTimeWarping", [cost])
        length = path.shape[1]
        bounded = ms.dynamic_time_warping(cost, size=length + 2)
        np.testing.assert_array_equal(bounded[:, :length], path)
        assert (np.asarray(bounded)[:, length:] == -1).all()


def test_a_long_warped_path_under_jit():
    cost = f32(60, 80)
    (path,) = runtime("DynamicTimeWarping", [cost])
    found = jax.jit(lambda c: ms.dynamic_time_warping(c, size=139))(cost)
    np.testing.assert_array_equal(found[:, : path.shape[1]], path)


def cut(x=TEXTS, mincharnum=1, separators=None, tokenexp=None):
    return ms.tokenizer(x, mark=0, mincharnum=mincharnum, pad_value="", separators=separators, tokenexp=tokenexp)


IDS = np.ones((2, 3), int)
ERRORS = [
    (lambda: ms.murmur_hash3(np.ones(3, np.int8)), DTypeError, r"x must be strings or of int32, .* got int8\[3\]"),
    (lambda: ms.murmur_hash3(IDS, positive=2), ArgumentError, "`positive` is 2; it must be 0 or 1"),
    (lambda: cut(x=IDS, separators=[" "]), DTypeError, "`x` must be strings, in a NumPy array"),
    (lambda: cut(x=TEXTS.reshape(1, 1, 3), separators=[" "]), ShapeError, r"`x` must be \(C,\) or \(N, C\)"),
    (cut, ArgumentError, "one of `separators` and `tokenexp` must be given"),
    (lambda: cut(mincharnum=0, tokenexp="a"), ArgumentError, "`mincharnum` is 0; it must be at least 1"),
    (lambda: cut(separators=[" ", ""]), ArgumentError, "has an empty string; then it must have no other strings"),
    (lambda: ms.n_gram_repeat_block(IDS, f32(2, 3), ngram_size=0), ArgumentError, "`ngram_size` is 0"),
    (
        lambda: ms.n_gram_repeat_block(IDS, f32(3, 3), ngram_size=1),
        ShapeError,
        r"`scores` of \(3, 3\) must be \(2, V\)",
    ),
    (lambda: ms.dynamic_time_warping(f32(2, 2, 2)), ShapeError, r"`input` of \(2, 2, 2\) must be \(M, N\) or \(1, M"),
    (lambda: ms.dynamic_time_warping(f32(0, 2)), ShapeError, r"`input` of \(0, 2\) is empty"),
    (lambda: jax.jit(ms.dynamic_time_warping)(f32(2, 2)), StaticError, "the length of the path depends on `input`"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


def test_a_wrong_hash_is_caught(monkeypatch):
    monkeypatch.setattr("microsoft_peer.ours", lambda op, inputs, *_, **__: (np.zeros(3, np.uint32),))
    with pytest.raises(AssertionError):
        agree("MurmurHash3", [np.arange(3, dtype=np.int32)])
    assert ours("MurmurHash3", [np.arange(3, dtype=np.int32)])[0].any()
