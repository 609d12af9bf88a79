"""CategoryMapper and OneHotEncoder against onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_peer import in_all_ways, runtime, same

from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError
from jaxops.ml import category_mapper, one_hot_encoder
from jaxops.opaque import ChosenStrings

WORDS = np.array([["a", "q"], ["c", "b"]], object)
CATS = {"cats_int64s": [4, 5, 2**40, 5], "cats_strings": ["a", "b", "c", "d"]}


@pytest.mark.parametrize("defaults", [{}, {"default_int64": 9, "default_string": "?"}])
def test_category_mapper(defaults):
    same(category_mapper(WORDS, **CATS, **defaults), runtime("CategoryMapper", WORDS, **CATS, **defaults)[0])
    x = np.int64([[4, 5], [2**40, 0]])
    (theirs,) = runtime("CategoryMapper", x, **CATS, **defaults)
    same(category_mapper(x, **CATS, **defaults), theirs)
    x = np.int32([4, 5, 0])
    assert category_mapper(jnp.asarray(x), **CATS).tolist() == ["a", "d", "_Unused"]
    found = jax.jit(lambda x: category_mapper(x, **CATS))(x)
    assert isinstance(found, ChosenStrings)
    assert found.value.tolist() == ["a", "d", "_Unused"]


def test_one_hot_encoder_of_numbers():
    for x in (np.float32([[4.5, -1.9], [0.9, 2]]), np.int64([4, 1]), np.float64([4.9, 1e30]), np.int64([[2**40, 5]])):
        (theirs,) = runtime("OneHotEncoder", x, cats_int64s=[4, -1, 5, 1, 1, 0, 2**40])
        same(
            one_hot_encoder(x if x.max() < 2**31 else x.clip(max=2**31 - 1), cats_int64s=[4, -1, 5, 1, 1, 0]),
            theirs[..., :6],
        )
    in_all_ways("OneHotEncoder", np.float32(np.arange(3000).reshape(1000, 3) % 7), cats_int64s=[1, 2, 6])
    found = one_hot_encoder(jnp.array([np.nan, np.inf, 2.0**24]), cats_int64s=[0, 2**24 + 1, 2**24])
    assert found.tolist() == [[0, 0, 0], [0, 0, 0], [0, 0, 1]]
    with jax.enable_x64(True):
        assert one_hot_encoder(jnp.array([2**40]), cats_int64s=[0, 2**40]).tolist() == [[0, 1]]
    assert one_hot_encoder(jnp.array([2], jnp.int8), cats_int64s=[300, 2]).tolist() == [[0, 1]]


def test_one_hot_encoder_of_strings():
    (theirs,) = runtime("OneHotEncoder", WORDS, cats_strings=["b", "a", "b"])
    same(one_hot_encoder(WORDS, cats_strings=["b", "a", "b"]), theirs)


def test_one_hot_encoder_of_unknown_categories():
    assert one_hot_encoder(np.int64([4]), cats_int64s=[4], zeros=0).tolist() == [[1]]
    found = jax.jit(lambda x: one_hot_encoder(x, cats_int64s=[4, 5], zeros=0))(np.int32([5, 6]))
    np.testing.assert_array_equal(found, [[0, 1], [np.nan, np.nan]])
    with pytest.raises(ArgumentError, match="'q' is not a category, and `zeros` is 0"):
        one_hot_encoder(WORDS, cats_strings=["a", "b", "c"], zeros=0)


ONE = np.int64([1])
ERRORS = [
    (lambda: category_mapper(ONE, cats_int64s=[1]), SignatureError, "give both `cats_int64s` and `cats_strings`"),
    (lambda: category_mapper(ONE, cats_int64s=[1], cats_strings=[]), ShapeError, "1 integer and 0 strings were given"),
    (lambda: category_mapper(np.float32([1]), **CATS), DTypeError, "it must be strings or int64"),
    (lambda: one_hot_encoder(ONE), SignatureError, "give either `cats_int64s` or `cats_strings`"),
    (lambda: one_hot_encoder(ONE, cats_strings=["a"]), DTypeError, "so give cats_int64s"),
    (lambda: one_hot_encoder(WORDS, cats_int64s=[1]), DTypeError, "so give cats_strings"),
    (lambda: one_hot_encoder(np.ones(1, bool), cats_int64s=[1]), DTypeError, "operands must be real numbers"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
