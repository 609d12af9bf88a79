"""Linear models against NumPy formulas and onnxruntime; labels that are strings, under jit and in models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from ml_peer import in_all_ways, model, ours, runtime

import jaxops.onnx
from jaxops.errors import ArgumentError, ShapeError, SignatureError
from jaxops.ml import linear_classifier, linear_regressor
from jaxops.opaque import ChosenStrings

RNG = np.random.default_rng(1)
X = RNG.normal(size=(5, 3)).astype(np.float32)
LARGE = RNG.normal(size=(2000, 3)).astype(np.float32)
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]
WEIGHTS = [0.5, -0.25, 1.0, 0.125, 0.0, -0.75, 0.3, 0.2, 0.1]
ADDED = [0.1, 0.0, -0.2]
STRINGS, INTS = ["no", "yes", "ä"], [7, -1, 3]


@pytest.mark.grid
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_regressor(transform):
    given = {"coefficients": WEIGHTS, "intercepts": ADDED, "targets": 3, "post_transform": transform}
    for x in (X, LARGE, X[0]):
        in_all_ways("LinearRegressor", x, **given, atol=5e-4)  # float32 in onnxruntime loses PROBIT near 1/2
    np.testing.assert_allclose(
        linear_regressor(X.astype(np.int32), **given),
        linear_regressor(X.astype(np.int32).astype(np.float32), **given),
        rtol=1e-6,
    )


def test_regressor_of_one_target():
    given = {"coefficients": WEIGHTS[:3], "intercepts": ADDED[:1]}
    (plain,) = in_all_ways("LinearRegressor", X, **given)
    in_all_ways("LinearRegressor", X, **given, post_transform="PROBIT")
    # The standard applies every transform; onnxruntime 1.31 only PROBIT.
    logistic = linear_regressor(X, **given, post_transform="LOGISTIC")
    np.testing.assert_allclose(logistic, 1 / (1 + np.exp(-plain)), rtol=1e-6)
    in_all_ways("LinearRegressor", X, coefficients=WEIGHTS[:3])
    check_grads(lambda x: linear_regressor(x, **given), (X,), order=1, modes=["rev"])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("labels", [{"classlabels_ints": INTS}, {"classlabels_strings": STRINGS}], ids=["int", "str"])
def test_classifier(labels, transform):
    given = {"coefficients": WEIGHTS, "intercepts": ADDED, "post_transform": transform, **labels}
    kinds = (X, LARGE, X[0], (X * 4).astype(np.int64)) if transform == "NONE" else (X,)
    for x in kinds:
        theirs = runtime("LinearClassifier", x, n_outputs=2, **given)
        names, scores = ours("LinearClassifier", jnp.asarray(x), n_outputs=2, **given)
        assert names.tolist() == theirs[0].tolist()
        assert names.shape == theirs[0].shape
        np.testing.assert_allclose(scores, theirs[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("labels", [{"classlabels_ints": [7, 9]}, {"classlabels_strings": ["no", "yes"]}])
def test_one_row_for_two_labels(labels, transform):
    given = {"coefficients": WEIGHTS[:3], "intercepts": ADDED[:1], "post_transform": transform, **labels}
    theirs = runtime("LinearClassifier", X, n_outputs=2, **given)
    found = linear_classifier(jnp.asarray(X), **given)
    assert found[0].tolist() == theirs[0].tolist()
    if transform != "PROBIT":  # where onnxruntime leaves a column undefined
        np.testing.assert_allclose(found[1], theirs[1], rtol=1e-5, atol=1e-6)


def test_one_row_for_one_label():
    found = linear_classifier(X, coefficients=WEIGHTS[:3], classlabels_ints=[5], post_transform="LOGISTIC")
    raw = X @ np.float32(WEIGHTS[:3])
    assert found[0].tolist() == (raw > 0).astype(int).tolist()
    np.testing.assert_allclose(found[1][:, 0], 1 / (1 + np.exp(-raw)), rtol=1e-5)
    found = linear_classifier(X, coefficients=WEIGHTS[:3], classlabels_strings=["a"])
    assert found[0].tolist() == [str(int(v > 0)) for v in raw]


STRING_LABELS = {"coefficients": WEIGHTS, "intercepts": ADDED, "classlabels_strings": STRINGS}


def test_string_labels_under_jit():
    expected = linear_classifier(X, **STRING_LABELS)[0]
    assert isinstance(expected, np.ndarray)
    labels, scores = jax.jit(lambda x: linear_classifier(x, **STRING_LABELS))(X)
    assert isinstance(labels, ChosenStrings)
    assert (labels.shape, labels.ndim, labels.array.tolist()) == ((5,), 1, np.argmax(scores, 1).tolist())
    assert np.asarray(labels).tolist() == labels.value.tolist() == expected.tolist()
    assert jax.jit(lambda x: linear_classifier(x, **STRING_LABELS)[1])(X).shape == (5, 3)
    rows = jax.vmap(lambda x: linear_classifier(x, **STRING_LABELS)[0])(X)
    assert np.asarray(rows)[:, 0].tolist() == expected.tolist()
    encoded = jax.jit(lambda x: jaxops.ml.label_encoder(linear_classifier(x, **STRING_LABELS)[0], **NUMBERS))(X)
    np.testing.assert_array_equal(encoded, labels.array)
    assert jaxops.ml.label_encoder(labels, **NUMBERS).tolist() == labels.array.tolist()


NUMBERS = {"keys_strings": STRINGS, "values_int64s": [0, 1, 2]}


def test_string_labels_of_a_model():
    loaded = jaxops.onnx.load(model("LinearClassifier", X, n_outputs=2, **STRING_LABELS))
    theirs = runtime("LinearClassifier", X, n_outputs=2, **STRING_LABELS)
    for labels, scores in (loaded(X), loaded.apply(loaded.params, X)):
        assert isinstance(labels, np.ndarray)
        assert labels.tolist() == theirs[0].tolist()
        np.testing.assert_allclose(scores, theirs[1], rtol=1e-5, atol=1e-6)
    for call in (loaded, lambda x: loaded.apply({}, x)):
        labels, scores = jax.jit(call)(X)
        assert np.asarray(labels).tolist() == theirs[0].tolist()
        np.testing.assert_allclose(scores, theirs[1], rtol=1e-5, atol=1e-6)
        assert jax.grad(lambda x, call=call: call(x)[1].sum())(jnp.asarray(X)).shape == X.shape


LABELS = {"classlabels_ints": [1, 2]}
ERRORS = [
    (lambda: linear_classifier(X, coefficients=WEIGHTS), SignatureError, "classlabels_strings are both missing"),
    (
        lambda: linear_classifier(X, coefficients=WEIGHTS, **LABELS, classlabels_strings=["a"]),
        SignatureError,
        "exclude each other",
    ),
    (
        lambda: linear_classifier(X, coefficients=WEIGHTS, **LABELS),
        ShapeError,
        "`classlabels` has 2 .* 3, one per target",
    ),
    (
        lambda: linear_classifier(X, coefficients=[1.0], **LABELS),
        ShapeError,
        r"1 coefficients do not fit x of \(5, 3\)",
    ),
    (lambda: linear_regressor(X, coefficients=WEIGHTS, targets=2), ShapeError, "each of the 2 targets and the 3 feat"),
    (
        lambda: linear_regressor(X, coefficients=WEIGHTS, targets=3, intercepts=[1.0]),
        ShapeError,
        "`intercepts` has 1 value; it must have 3, one per target",
    ),
    (lambda: linear_regressor(X, coefficients=WEIGHTS[:3], post_transform="EXP"), ArgumentError, "`post_transform` is"),
    (lambda: linear_regressor(X[None], coefficients=WEIGHTS[:3]), ShapeError, r"must be \(rows, features\)"),
]


@pytest.mark.parametrize(("call", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(call, kind, match):
    with pytest.raises(kind, match=match):
        call()
