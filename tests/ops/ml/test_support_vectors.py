"""Support vector machines against onnxruntime and NumPy formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from ml_peer import in_all_ways, ours, runtime

from jaxops.errors import ArgumentError, ShapeError, SignatureError
from jaxops.ml import svm_classifier, svm_regressor
from jaxops.opaque import ChosenStrings

RNG = np.random.default_rng(20)
X = RNG.normal(size=(20, 3)).astype(np.float32)
LARGE = RNG.normal(size=(1000, 3)).astype(np.float32)
KERNELS = ["LINEAR", "POLY", "RBF", "SIGMOID"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def floats(rng, count):
    return [float(v) for v in rng.normal(size=count)]


def machine(rng, classes, kernel="RBF", probabilities=False):
    counts = [int(v) for v in rng.integers(1, 4, classes)]
    total, pairs = sum(counts), classes * (classes - 1) // 2
    found = {"vectors_per_class": counts, "support_vectors": floats(rng, 3 * total), "rho": floats(rng, pairs)}
    found |= {"coefficients": floats(rng, (classes - 1) * total), "kernel_type": kernel}
    found |= {"kernel_params": [0.3, 0.1, 3.0], "classlabels_ints": list(range(5, 5 + classes))}
    if probabilities:
        found |= {"prob_a": [-abs(v) for v in floats(rng, pairs)], "prob_b": floats(rng, pairs)}
    return found


def agree(x, given):
    theirs = runtime("SVMClassifier", x, n_outputs=2, **given)
    labels, scores = jax.jit(lambda x: svm_classifier(x, **given))(x)
    assert np.asarray(labels).tolist() == theirs[0].tolist()
    assert scores.shape == theirs[1].shape
    np.testing.assert_allclose(scores, theirs[1], rtol=1e-3, atol=1e-4)


@pytest.mark.grid
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifier(kernel, classes, probabilities):
    agree(X, machine(np.random.default_rng(21), classes, kernel, probabilities))


@pytest.mark.grid
@pytest.mark.parametrize("probabilities", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("transform", TRANSFORMS[1:])
def test_classifier_of_each_transform(transform, classes, probabilities):
    if (transform, classes, probabilities) == ("PROBIT", 2, False):
        pytest.skip("onnxruntime leaves a column undefined")
    agree(X, {**machine(np.random.default_rng(22), classes, "RBF", probabilities), "post_transform": transform})


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_classifier(transform, classes, positive):
    rng = np.random.default_rng(23)
    weights = [abs(v) if positive else v for v in floats(rng, 3 * classes)]
    given = {"coefficients": weights, "rho": [0.2], "kernel_params": [0.0] * 3, "post_transform": transform}
    agree(X, {**given, "classlabels_strings": ["a", "b", "c"][:classes]})


@pytest.mark.optimized
def test_classifier_of_many_rows():
    agree(LARGE, machine(np.random.default_rng(24), 4, "RBF", True))


def test_classifier_of_other_inputs():
    given = machine(np.random.default_rng(24), 4, "RBF", True)
    agree((X * 3).astype(np.int64), given)
    agree(X.astype(np.float64), given)
    assert ours("SVMClassifier", X[0], n_outputs=2, **given)[1].shape == (1, 4)
    strings = {**given, "classlabels_strings": list("abcd")}
    del strings["classlabels_ints"]
    labels, scores = jax.jit(lambda x: svm_classifier(x, **strings))(X)
    assert isinstance(labels, ChosenStrings)
    assert labels.value.tolist() == svm_classifier(X, **strings)[0].tolist()
    np.testing.assert_allclose(scores.sum(1), 1, rtol=1e-5)
    scored = jax.jit(lambda x: svm_classifier(x, **given)[1])
    check_grads(scored, (X[:2],), order=1, modes=["rev"], atol=2e-2, rtol=2e-2)


@pytest.mark.grid
@pytest.mark.parametrize("supports", [0, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_regressor(kernel, supports):
    rng = np.random.default_rng(25)
    given = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 3.0], "rho": [0.4], "n_supports": supports}
    given |= {"coefficients": floats(rng, supports or 3)}
    given |= {"support_vectors": floats(rng, 12)} if supports else {}
    (plain,) = in_all_ways("SVMRegressor", X, **given)
    in_all_ways("SVMRegressor", X, **given, one_class=1)
    # onnxruntime ignores the transform.
    np.testing.assert_allclose(
        svm_regressor(X, **given, post_transform="LOGISTIC"), 1 / (1 + np.exp(-plain)), rtol=1e-4
    )


def test_a_degree_that_is_no_integer():
    given = {"kernel_type": "POLY", "kernel_params": [0.5, 9.0, 1.5], "rho": [0.0], "n_supports": 1}
    found = svm_regressor(X, **given, coefficients=[2.0], support_vectors=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(found[:, 0], 2 * (0.5 * X @ np.float32([1, 2, 3]) + 9) ** 1.5, rtol=1e-5)


GIVEN = machine(np.random.default_rng(26), 3)
ERRORS = [
    ({"classlabels_ints": None}, SignatureError, "are both missing"),
    ({"rho": [1.0]}, ShapeError, "`rho` has 1 value; it must have 3, one per pair of classes"),
    ({"vectors_per_class": [1, 2]}, ShapeError, "`vectors_per_class` has 2 values; it must have 3, one per class"),
    ({"coefficients": [1.0]}, ShapeError, "`coefficients` has 1 value;"),
    ({"prob_a": [1.0], "prob_b": [1.0]}, ShapeError, "`prob_a` has 1 value; it must have 3, one per pair"),
    ({"support_vectors": [1.0]}, ShapeError, "1 coefficients do not fit x"),
    ({"kernel_params": [1.0]}, ShapeError, r"`kernel_params` has 1 value; it must have 3, one per parameter"),
    ({"kernel_type": "COSINE"}, ArgumentError, "`kernel_type` is 'COSINE'"),
    (
        {"vectors_per_class": None, "rho": None, "coefficients": [1.0] * 9},
        ShapeError,
        "`rho` has 0 values; it needs at",
    ),
]


@pytest.mark.parametrize(("change", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(change, kind, match):
    with pytest.raises(kind, match=match):
        svm_classifier(jnp.asarray(X), **{**GIVEN, **change})
