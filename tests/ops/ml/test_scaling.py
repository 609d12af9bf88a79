"""Rescaling and replacing, against NumPy formulas and onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from ml_peer import in_all_ways

from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError
from jaxops.ml import binarizer, imputer, normalizer, scaler

NAN = float("nan")
RNG = np.random.default_rng(0)
MATRIX = RNG.normal(size=(4, 3)).astype(np.float32)
LARGE = RNG.normal(size=(700, 9)).astype(np.float32)


STEPS = [([1.5], [2.0]), ([1.0, 2.0, 3.0], [0.5, -1.0, 2.0])]


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize(("offset", "scale"), STEPS)
def test_scaler(offset, scale, dtype):
    for x in (MATRIX, MATRIX[0]):
        x = (x * 5).astype(dtype)
        in_all_ways("Scaler", x, offset=offset, scale=scale)
        np.testing.assert_allclose(scaler(x, offset=offset), x - np.float32(offset), rtol=1e-6)
        np.testing.assert_allclose(scaler(x, scale=scale), x * np.float32(scale), rtol=1e-6)
    in_all_ways("Scaler", (LARGE * 9).astype(dtype), offset=[2.0] * 9, scale=[0.5] * 9)
    assert scaler(np.array(3, dtype), offset=[1.0], scale=[2.0]).tolist() == 4


def test_scaler_of_more_axes_and_of_large_integers():
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    expected = (x - np.float32([1, 2, 3])) * 2
    np.testing.assert_allclose(scaler(x, offset=[1, 2, 3], scale=[2]), expected)
    with jax.enable_x64(True):
        assert scaler(jnp.array([2**31 - 1]), offset=[2147483648.0]).tolist() == [-1]


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm, dtype):
    for x in (MATRIX[0], MATRIX[:0], LARGE, np.float32([[0, 0, 5], [0, -2, 0], [0, 0, 0]])):
        in_all_ways("Normalizer", (x * 5).astype(dtype), norm=norm)
    assert normalizer(jnp.zeros((2, 0)), norm=norm).shape == (2, 0)


def test_normalizer_of_extremes():
    assert normalizer(jnp.array([[3e30, 4e30]]), norm="L2").tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    assert normalizer(jnp.array([[3e-30, 4e-30]]), norm="L2").tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
    for norm in ("MAX", "L1", "L2"):
        assert np.isnan(normalizer(jnp.array([[NAN, 1.0]]), norm=norm)).all()
        zeros = jax.grad(lambda x, norm=norm: normalizer(x, norm=norm).sum())(jnp.zeros((1, 3)))
        assert np.isfinite(zeros).all()
        check_grads(
            lambda x, norm=norm: normalizer(x, norm=norm), (jnp.array([[0.3, -0.5, 1.2]]),), order=1, modes=["rev"]
        )


@pytest.mark.parametrize("replaced", [0.0, 2.5, NAN])
@pytest.mark.parametrize("imputed", [[7.0], [7.0, 8.0, 9.0]])
def test_imputer_of_floats(imputed, replaced):
    for x in (np.float32([[0, 2.5, NAN], [NAN, -0.0, 2.5]]), np.float32([NAN, 2.5, 0])):
        in_all_ways("Imputer", x, imputed_value_floats=imputed, replaced_value_float=replaced)
        found = imputer(jnp.asarray(x, jnp.float16), imputed_value_floats=imputed, replaced_value_float=replaced)
        assert found.dtype == np.float16


@pytest.mark.parametrize("imputed", [[7], [7, 8, 9]])
def test_imputer_of_integers(imputed):
    x = np.int64([[3, 0, 3], [-1, 3, 0]])
    for old in (3, 0):
        in_all_ways("Imputer", x, imputed_value_int64s=imputed, replaced_value_int64=old)
    found = imputer(x.astype(np.int32), imputed_value_int64s=imputed, replaced_value_int64=2**40)
    assert found.tolist() == x.tolist()
    with jax.enable_x64(True):
        large = jnp.array([2**40 + 1, 2**40])
        assert imputer(large, imputed_value_int64s=[2**50 + 1], replaced_value_int64=2**40 + 1).tolist() == [
            2**50 + 1,
            2**40,
        ]


@pytest.mark.grid
@pytest.mark.parametrize("threshold", [0.0, 1.5, -0.25, 1e30, -1e30, NAN])
def test_binarizer(threshold):
    for x in (np.float32([[1.5, 0, -0.25], [2, np.inf, -np.inf]]), LARGE):
        in_all_ways("Binarizer", x, threshold=threshold)
    assert binarizer(jnp.array([NAN, 2.0]), threshold=1.0).tolist() == [0, 1]  # onnxruntime refuses NaN
    for dtype in (np.int32, np.int64, np.float64):
        x = np.array([[-2, -1, 0], [1, 2, 2**30]], dtype)
        found = binarizer(jnp.asarray(x), threshold=threshold)
        assert found.dtype == jnp.asarray(x).dtype
        assert found.tolist() == (x > np.float32(threshold)).astype(int).tolist()


def test_binarizer_compares_integers_exactly():
    x = jnp.array([2**24 + 1, 2**24])
    assert binarizer(x, threshold=2.0**24).tolist() == [1, 0]


X = jnp.ones((2, 3))
ERRORS = [
    (lambda: scaler(X, offset=[1, 2]), ShapeError, r"`offset` has 2 values, but x of \(2, 3\) has 3 features"),
    (lambda: scaler(X, scale=[]), ShapeError, "`scale` has 0 values"),
    (lambda: scaler(jnp.ones((2, 3), bool)), DTypeError, "scaler: operands must be real numbers"),
    (lambda: normalizer(X[None]), ShapeError, r"x of \(1, 2, 3\) must be \(rows, features\)"),
    (lambda: normalizer(X, norm="L3"), ArgumentError, "`norm` is 'L3'; it must be one of 'MAX', 'L1', 'L2'"),
    (lambda: imputer(X), SignatureError, "x is float32, so give imputed_value_floats, and only that"),
    (lambda: imputer(X.astype(int), imputed_value_floats=[1.0]), SignatureError, "so give imputed_value_int64s"),
    (lambda: imputer(X, imputed_value_floats=[1.0], imputed_value_int64s=[1]), SignatureError, "and only that"),
    (lambda: imputer(X, imputed_value_floats=[1.0, 2.0]), ShapeError, "`imputed_value_floats` has 2 values"),
    (lambda: imputer(X.astype(int), imputed_value_int64s=[2**40]), ArgumentError, "int32 holds -2147483648 to"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
