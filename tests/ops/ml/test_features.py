"""Selecting features and putting them side by side, against NumPy and onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_peer import runtime, same

from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, SignatureError
from jaxops.ml import array_feature_extractor, feature_vectorizer

RNG = np.random.default_rng(2)
X = RNG.normal(size=(3, 4)).astype(np.float32)
WORDS = np.array([["a", "b", "c", "d"], ["e", "f", "g", "h"], ["i", "j", "k", "l"]], object)


@pytest.mark.grid
@pytest.mark.parametrize("x", [X, X.astype(np.float64), (X * 9).astype(np.int64), (X * 9).astype(np.int32), WORDS])
def test_extractor(x):
    for data in (x, x[0], x[None], x[:0]):
        for y in ([3, 0, 0], [[1], [2]], [[0, 1, 2]]):
            y = np.int64(y)
            (theirs,) = runtime("ArrayFeatureExtractor", data, y)
            found = array_feature_extractor(data, y)
            assert isinstance(found, np.ndarray)
            same(found, theirs)
            traced = jax.jit(lambda y, data=data: array_feature_extractor(data, y))(y)
            same(np.asarray(traced), theirs)
    assert array_feature_extractor(x, np.int64([-1])).tolist() == x[:, 3:].tolist()
    large = np.arange(40000).reshape(100, 400)
    assert jax.jit(array_feature_extractor)(large, np.arange(0, 400, 3)).tolist() == large[:, ::3].tolist()


@pytest.mark.parametrize("shape", [(5,), (2000, 5), (2, 3, 5)])
@pytest.mark.parametrize(
    "y", [[3], [-1, 0], [1, 2, 3], [4, 4, 0, 1], [0, -4, 2, 4], range(5), [2] * 8, [[0, 2], [3, 1]]]
)
@pytest.mark.parametrize("dtype", [np.int64, np.int8])
def test_few_known_columns_are_slices(shape, y, dtype):
    x, y = RNG.normal(size=shape).astype(np.float32), np.array(y, dtype)
    run = jax.jit(lambda x: array_feature_extractor(x, y))
    np.testing.assert_array_equal(run(x), np.atleast_2d(x)[..., y.ravel()])
    assert "gather" not in str(jax.make_jaxpr(run)(x))


def test_unsigned_indices_and_many():
    np.testing.assert_array_equal(array_feature_extractor(jnp.asarray(X), np.uint64([3, 0])), X[:, [3, 0]])
    y = np.int64([0, 2, 1] * 3)
    assert "gather" in str(jax.make_jaxpr(lambda x: array_feature_extractor(x, y))(X))
    np.testing.assert_array_equal(array_feature_extractor(jnp.asarray(X), y), X[:, y])


@pytest.mark.parametrize("y", [[4], [0, -5], np.uint64([2**63])])
def test_a_known_column_outside(y):
    with pytest.raises(BoundsError, match="is outside axis 1 of size 4"):
        jax.jit(lambda x: array_feature_extractor(x, np.asarray(y)))(X)


def test_gradient_of_columns():
    grad = jax.grad(lambda x: (array_feature_extractor(x, np.int64([1, 1, 3])) ** 2).sum())(jnp.asarray(X))
    np.testing.assert_allclose(grad, 2 * X * np.array([0, 2, 0, 1], np.float32), rtol=1e-6)


def test_extractor_of_a_batch():
    found = jax.vmap(lambda x: array_feature_extractor(x, np.int64([2])))(X)
    assert found.tolist() == X[:, None, 2:3].tolist()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("widths", [(4, 2), (2, 2), (5, 3), (0, 2)])
def test_vectorizer(widths, dtype):
    one, other = (X * 9).astype(dtype), (X[:, :2] * 9).astype(dtype)
    for pair in ((one, other), (one[0], other[0])):
        (theirs,) = runtime("FeatureVectorizer", *pair, inputdimensions=widths)
        same(feature_vectorizer(pair, inputdimensions=widths), theirs)
        same(jax.jit(lambda *x: feature_vectorizer(x, inputdimensions=widths))(*pair), theirs)
    same(feature_vectorizer([one, other]), np.concatenate([one, other], 1).astype(np.float32))


ERRORS = [
    (lambda: array_feature_extractor(X, np.int64([4])), BoundsError, "4"),
    (lambda: array_feature_extractor(X[0, 0], np.int64([0])), ShapeError, "x must have at least one axis"),
    (lambda: array_feature_extractor(WORDS, jnp.ones(1)), DTypeError, "the indices must be integers"),
    (lambda: feature_vectorizer([]), SignatureError, "there are no inputs"),
    (lambda: feature_vectorizer([X, X[:2]]), ShapeError, r"input 1 of \(2, 4\) has 2 rows, but the first has 3"),
    (lambda: feature_vectorizer([X], inputdimensions=[1, 2]), ShapeError, "has 2 values; it must have 1, one per"),
    (lambda: feature_vectorizer([X], inputdimensions=[-1]), ArgumentError, "numbers of columns must not be negative"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()


@pytest.mark.parametrize("shape", [(2, 3, 2), (2, 1, 2, 2)])
@pytest.mark.parametrize("width", [4, 3, 7])
def test_vectorizer_of_more_axes(shape, width):
    """The axes from 1 on are columns, as in onnxruntime."""
    x = RNG.normal(size=shape).astype(np.float32)
    flat = x.reshape(shape[0], int(np.prod(shape[1:])))
    (theirs,) = runtime("FeatureVectorizer", x, flat[:, :2], inputdimensions=[width, 2])
    for found in (feature_vectorizer, jax.jit(feature_vectorizer, static_argnames="inputdimensions")):
        same(np.asarray(found([x, flat[:, :2]], inputdimensions=(width, 2))), theirs)
