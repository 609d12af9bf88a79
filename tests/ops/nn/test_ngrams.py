"""Counts of n-grams against a loop over windows, and against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from graphs import at_opset
from jax.export import export, symbolic_args_specs
from peer import runtime

import jaxops as jo
from jaxops.errors import ArgumentError, DTypeError, ShapeError, StaticError

RNG = np.random.default_rng(5)


def formula(x, pool, ngram_counts, ngram_indexes, mode, lengths, max_skip_count, weights=None):
    """The text of the standard: each window of each distance is looked for in the pool."""
    grams, i = [], 0
    for n, end in enumerate([*ngram_counts[1:], len(pool)], 1):
        while i < end:
            grams.append(tuple(pool[i : i + n]))
            i += n
    rows = np.atleast_2d(x)
    y = np.zeros((len(rows), max(ngram_indexes) + 1))
    for row, out in zip(rows.tolist(), y, strict=True):
        for k, gram in enumerate(grams):
            n, count = len(gram), 0
            if lengths[0] <= n <= lengths[1]:
                for step in range(1, max_skip_count + 2 if n > 1 else 2):
                    for start in range(len(row) - step * (n - 1)):
                        count += tuple(row[start : start + step * (n - 1) + 1 : step]) == gram
            factor = 1 if mode == "TF" or weights is None else weights[k]
            out[ngram_indexes[k]] += factor * (min(count, 1) if mode == "IDF" else count)
    return y.reshape(*np.shape(x)[:-1], -1)


def made(tokens, counts, weighted):
    """A pool of distinct n-grams, so many of each length, and the attributes that go with it."""
    pool, starts = [], []
    for n, count in enumerate(counts, 1):
        starts.append(len(pool))
        grams = set()
        while len(grams) < count:
            grams.add(tuple(RNG.choice(tokens, n).tolist()))
        pool += [token for gram in sorted(grams, key=lambda g: RNG.uniform()) for token in gram]
    total = sum(counts)
    given = {"ngram_counts": starts, "ngram_indexes": RNG.permutation(total).tolist()}
    return pool, given | ({"weights": RNG.uniform(0.5, 2, total).round(2).tolist()} if weighted else {})


HOW = [((1, 1), 2, "TF"), ((1, 2), 5, "IDF"), ((2, 3), 1, "TFIDF")]


@pytest.mark.parametrize(("lengths", "skips", "mode"), HOW, ids=str)
def test_formula(lengths, skips, mode):
    tokens = np.array([3, -7, 8, 2**31 - 1])
    pool, given = made(tokens, (3, 5, 9, 12), weighted=skips < 5)
    how = {"mode": mode, "min_gram_length": lengths[0], "max_gram_length": lengths[1], "max_skip_count": skips, **given}
    x = RNG.choice([*tokens, 99], (3, 9))
    expected = formula(x, pool, given.pop("ngram_counts"), given.pop("ngram_indexes"), mode, lengths, skips, **given)
    np.testing.assert_allclose(jo.tf_idf_vectorizer(x, pool_int64s=pool, **how), expected, rtol=1e-6)
    np.testing.assert_allclose(at_opset("TfIdfVectorizer", 9, x, pool_int64s=pool, **how)[0], expected, rtol=1e-6)
    found = jo.tf_idf_vectorizer(jnp.asarray(x[0]), pool_int64s=pool, **how)
    np.testing.assert_allclose(found, expected[0], rtol=1e-6)
    np.testing.assert_allclose(runtime("TfIdfVectorizer", [x], 9, pool_int64s=pool, **how)[0], expected, rtol=1e-6)
    words = np.array([f"w{v}" for v in x.flat], object).reshape(x.shape)
    found = jo.tf_idf_vectorizer(words, pool_strings=[f"w{v}" for v in pool], **how)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("skips", [15, 16, 40, 2**31 - 1])
def test_many_skips(skips):
    tokens = np.array([3, -7, 8])
    pool, given = made(tokens, (3, 5, 9), weighted=True)
    how = {"mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 3, "max_skip_count": skips}
    x = RNG.choice([*tokens, 99], (2, 50))
    expected = formula(
        x, pool, given["ngram_counts"], given["ngram_indexes"], "TFIDF", (1, 3), min(skips, 60), given["weights"]
    )
    fn = jax.jit(lambda x: jo.tf_idf_vectorizer(x, pool_int64s=pool, **how, **given))
    np.testing.assert_allclose(fn(x), expected, rtol=1e-6)
    if skips != 15:
        exported = export(fn)(*symbolic_args_specs((x.astype(np.int32),), "b, n"))
        np.testing.assert_allclose(exported.call(x.astype(np.int32)), expected, rtol=1e-6)


@pytest.mark.optimized
def test_large_and_compiled():
    pool, given = made(np.arange(60), (50, 500), True)
    how = {"mode": "TFIDF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 2}
    x = RNG.integers(0, 60, (20, 150))
    fn = jax.jit(lambda x: jo.tf_idf_vectorizer(x, pool_int64s=pool, **how, **given))
    expected = runtime("TfIdfVectorizer", [x], 9, pool_int64s=pool, **how, **given)[0]
    assert expected.any()
    np.testing.assert_allclose(fn(x), expected, rtol=1e-6)
    symbolic = export(fn)(*symbolic_args_specs((jnp.asarray(x),), ("n, 150",)))
    np.testing.assert_allclose(symbolic.call(jnp.asarray(x[:3])), expected[:3], rtol=1e-6)


TF = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
PAIR = {"ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [5, 2**40, 5, 2**40]}


def test_numbers_of_64_bits():
    """With x64 off a traced number is never one that needs 64 bits; a static one may be."""
    x = np.array([5, 2**40, 5])
    assert jo.tf_idf_vectorizer(x, **TF, **PAIR).tolist() == [2, 1, 1]
    assert jax.jit(lambda x: jo.tf_idf_vectorizer(x, **TF, **PAIR))(np.array([5, 0, 5])).tolist() == [2, 0, 0]
    with jax.enable_x64(True):
        assert jax.jit(lambda x: jo.tf_idf_vectorizer(x, **TF, **PAIR))(x).tolist() == [2, 1, 1]
    only = {**PAIR, "pool_int64s": [2**40, 2**41, 2**40, 2**41]}
    assert jo.tf_idf_vectorizer(jnp.array([5]), **TF, **only).tolist() == [0, 0, 0]


def test_short_sequences_and_shared_columns():
    assert jo.tf_idf_vectorizer(np.zeros((2, 0), int), **TF, **PAIR).tolist() == [[0, 0, 0]] * 2
    assert jo.tf_idf_vectorizer(np.zeros((0, 4), int), **TF, **PAIR).shape == (0, 3)
    shared = {**PAIR, "ngram_indexes": [1, 0, 1]}
    assert jo.tf_idf_vectorizer(np.array([5, 2**40]), **TF, **shared).tolist() == [1, 2]


ERRORS = [
    ({"min_gram_length": 3}, ArgumentError, r"`min_gram_length` 3 must be in \[1, 2\]"),
    ({"max_skip_count": -1}, ArgumentError, "`max_skip_count` -1 must not be negative"),
    ({"mode": "tf"}, ArgumentError, "`mode` is 'tf'; it must be one of 'TF'"),
    ({"ngram_counts": [1, 2]}, ArgumentError, r"`ngram_counts` \(1, 2\) must ascend from 0 to at most 4"),
    ({"ngram_counts": [0, 5]}, ArgumentError, r"must ascend from 0 to at most 4, the size of the pool"),
    ({"ngram_counts": [0, 1]}, ArgumentError, "the pool has 3 items of 2-grams, which 2 does not divide"),
    ({"ngram_indexes": [0, 1]}, ArgumentError, "`ngram_indexes` has 2 items, .* must have 3, one for each n-gram"),
    ({"ngram_indexes": [0, 1, -1]}, ArgumentError, "the least -1; .* none negative"),
    ({"weights": [1.0]}, ArgumentError, "`weights` has 1 item; the pool has 3 n-grams"),
    ({"pool_strings": ["a"]}, ArgumentError, "exactly one of `pool_int64s` and `pool_strings`"),
    ({"pool_int64s": None}, ArgumentError, "exactly one of"),
    ({"x": np.array(["a"], object)}, DTypeError, "`x` must be integers, as the pool is, got"),
    ({"x": np.zeros(3)}, DTypeError, "`x` must be integers"),
    ({"x": np.zeros((1, 1, 1), int)}, ShapeError, r"`x` of \(1, 1, 1\) must be \(C,\) or \(N, C\)"),
]


@pytest.mark.parametrize(("changed", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(changed, kind, match):
    given = {"x": np.array([5]), **TF, **PAIR, **changed}
    with pytest.raises(kind, match=match):
        jo.tf_idf_vectorizer(given.pop("x"), **given)


def test_a_pool_of_strings_needs_strings():
    given = {**PAIR, "pool_int64s": None, "pool_strings": ["a", "b", "a", "b"]}
    assert jo.tf_idf_vectorizer(np.array(["a", "b"]), **TF, **given).tolist() == [1, 1, 1]
    with pytest.raises((DTypeError, StaticError), match="`x` must be strings, as the pool is, got"):
        jo.tf_idf_vectorizer(jnp.array([1]), **TF, **given)
