"""Support vector machines: weighted kernels between the rows and the support vectors. Computed in float32."""

__all__ = ["svm_classifier", "svm_regressor"]

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, ints, one_of
from jaxops.kernels.xla_workarounds import largest
from jaxops.ops.ml.scores import PostTransform, choose, class_labels, numbers, rows, transformed, two_scores
from jaxops.shapes.ml import linear as sizes_of
from jaxops.static import ArrayLike, Ints

Kernel = Literal["LINEAR", "POLY", "RBF", "SIGMOID"]


def svm_regressor(
    x: ArrayLike,
    *,
    coefficients: Sequence[float] | None = None,
    kernel_params: Sequence[float] | None = None,
    kernel_type: Kernel = "LINEAR",
    n_supports: int = 0,
    one_class: int = 0,
    post_transform: PostTransform = "NONE",
    rho: Sequence[float] | None = None,
    support_vectors: Sequence[float] | None = None,
) -> jax.Array:
    """The kernels between each row and the support vectors, times the coefficients, plus rho.

    x: (rows, features), or (features,) for one row; real numbers. All else is static. support_vectors: n_supports rows
    of features; coefficients: one for each. With n_supports 0 the kernel is LINEAR and the coefficients are the only
    vector. kernel_params: gamma, coef0 and degree. Kernels of x and v: LINEAR x·v, POLY (gamma x·v + coef0)^degree,
    RBF exp(-gamma |x - v|²), SIGMOID tanh(gamma x·v + coef0). rho: one number.
    one_class: 1 gives 1 where the result is above 0, else -1, and no transform. post_transform: applied as the standard
    says; onnxruntime applies none. Returns float32 (rows, 1).
    Raises ShapeError for lists that do not fit, ArgumentError for another kernel or transform.
    Source: ONNX ai.onnx.ml.SVMRegressor, opset 1.

    >>> svm_regressor(jnp.array([[1.0, 2.0]]), coefficients=[2.0, 3.0], rho=[0.5]).tolist()
    [[8.5]]
    """
    how = one_of("post_transform", post_transform, PostTransform)
    kernel = one_of("kernel_type", kernel_type, Kernel)
    single = flag("one_class", one_class)
    count = integer("n_supports", n_supports)
    table = rows(x).astype(np.float32)
    weights, added = numbers("coefficients", coefficients), numbers("rho", rho)
    sizes_of.one_each("rho", added.size, 1, "target")
    if count:
        sizes_of.one_each("coefficients", weights.size, count, "support vector")
        table = _kernel(table, _vectors(table, support_vectors, count), kernel, numbers("kernel_params", kernel_params))
    sizes = sizes_of.weights(weights.size, 1, table.shape[1], table.shape)
    scores = _matmul(table, weights.reshape(sizes).T) + added[0]
    if single:
        return jnp.where(scores > 0, jnp.ones_like(scores), -jnp.ones_like(scores))
    return transformed(scores, how)


def svm_classifier(
    x: ArrayLike,
    *,
    classlabels_ints: Ints | None = None,
    classlabels_strings: Sequence[str] | None = None,
    coefficients: Sequence[float] | None = None,
    kernel_params: Sequence[float] | None = None,
    kernel_type: Kernel = "LINEAR",
    post_transform: PostTransform = "NONE",
    prob_a: Sequence[float] | None = None,
    prob_b: Sequence[float] | None = None,
    rho: Sequence[float] | None = None,
    support_vectors: Sequence[float] | None = None,
    vectors_per_class: Ints | None = None,
) -> tuple[Any, jax.Array]:
    """(label, scores) of each row. A machine for each pair of classes votes for one of them.

    x: (rows, features), or (features,) for one row; real numbers. All else is static. classlabels_…: one of both.
    support_vectors: class by class. vectors_per_class: how many each class has. coefficients: (classes - 1, vectors);
    for a pair of classes i < j, row j - 1 has those of the vectors of i, and row i those of the vectors of j. rho,
    prob_a, prob_b: one number for each pair (0, 1), (0, 2), …. kernel_…: as in `svm_regressor`.
    Returns labels (rows,) and float32 scores, transformed: with prob_a and prob_b probabilities (rows, classes),
    coupled from the pairs by at most 100 iterations as in onnxruntime; else the results of the pairs (rows, pairs). A
    single pair has scores (-s, s), or with another transform than NONE and LOGISTIC (1 - s, s), as in onnxruntime.
    Without vectors_per_class the coefficients are (classes, features), the scores are x·coefficientsᵀ + rho[0], and the
    class of the greatest score is chosen. Of two classes, the second is also chosen if the greatest score is above 0
    (at least 0.5 if no coefficient is negative), as in onnxruntime. String labels are as in `linear_classifier`.
    Raises SignatureError without labels, ShapeError for lists that do not fit, ArgumentError.
    Source: ONNX ai.onnx.ml.SVMClassifier, opset 1.

    >>> x, rows = np.float32([[2, 1], [0, 3]]), [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
    >>> labels, scores = svm_classifier(x, classlabels_ints=[5, 6, 7], coefficients=sum(rows, []), rho=[0.0])
    >>> labels.tolist(), scores.tolist()
    ([5, 6], [[2.0, 1.0, -3.0], [0.0, 3.0, -3.0]])
    """
    how = one_of("post_transform", post_transform, PostTransform)
    kernel = one_of("kernel_type", kernel_type, Kernel)
    labels = class_labels(classlabels_ints=classlabels_ints, classlabels_strings=classlabels_strings)
    x = rows(x).astype(np.float32)
    classes, counts = labels.size, ints("vectors_per_class", () if vectors_per_class is None else vectors_per_class)
    weights, added = numbers("coefficients", coefficients), numbers("rho", rho)
    if not sum(counts):
        sizes = sizes_of.weights(weights.size, classes, x.shape[1], x.shape)
        sizes_of.at_least("rho", added.size, 1)
        scores = _matmul(x, weights.reshape(sizes).T) + added[0]
        return choose(labels, _greatest(scores, not (weights < 0).any())), transformed(scores, how)
    sizes_of.one_each("vectors_per_class", len(counts), classes, "class")
    total, first, second = sum(counts), *np.triu_indices(classes, 1)
    sizes_of.one_each("coefficients", weights.size, (classes - 1) * total, "support vector and other class")
    sizes_of.one_each("rho", added.size, len(first), "pair of classes")
    vectors = _vectors(x, support_vectors, total)
    kernels = _kernel(x, vectors, kernel, numbers("kernel_params", kernel_params))
    scores = _matmul(kernels, _pairs(weights.reshape(classes - 1, total), counts, first, second))
    scores = scores + jnp.broadcast_to(added, scores.shape)
    wins = (scores > 0).astype(np.int32)
    ayes, noes = (np.eye(classes, dtype=np.int32)[side] for side in (first, second))
    label = choose(labels, jnp.argmax(jnp.matmul(wins, ayes) + jnp.matmul(1 - wins, noes), 1).astype(np.int32))
    slope, shift = numbers("prob_a", prob_a), numbers("prob_b", prob_b)
    if slope.size or shift.size:
        for name, parameters in (("prob_a", slope), ("prob_b", shift)):
            sizes_of.one_each(name, parameters.size, len(first), "pair of classes")
        return label, transformed(_coupled(scores, slope, shift, classes, first, second), how)
    if len(first) == 1:
        return label, two_scores(scores[:, 0], how, opposite=how == "NONE")
    return label, transformed(scores, how)


def _matmul(x: Any, weights: Any) -> Any:
    return jnp.matmul(x, weights, precision=lax.Precision.HIGHEST)


def _vectors(x: jax.Array, values: Any, count: int) -> np.ndarray:
    """The support vectors as (vectors, features)."""
    numbers_of_vectors = numbers("support_vectors", values)
    return numbers_of_vectors.reshape(sizes_of.weights(numbers_of_vectors.size, count, x.shape[1], x.shape))


def _kernel(x: Any, vectors: np.ndarray, kernel: Kernel, params: np.ndarray) -> Any:
    """The kernels between rows and vectors: (rows, vectors)."""
    if params.size:
        sizes_of.one_each("kernel_params", params.size, 3, "parameter (gamma, coef0, degree)")
    gamma, shift, degree = params if params.size else np.zeros(3, np.float32)
    if kernel == "RBF":
        # From the differences: |x|² + |v|² - 2 x·v would lose digits by cancellation.
        sizes = (x.shape[0], *vectors.shape)
        difference = jnp.broadcast_to(x[:, None], sizes) - jnp.broadcast_to(jnp.asarray(vectors)[None], sizes)
        return jnp.exp(-gamma * jnp.sum(lax.square(difference), -1))
    products = _matmul(x, vectors.T)
    if kernel == "LINEAR":
        return products
    products = gamma * products + shift
    if kernel == "SIGMOID":
        return jnp.tanh(products)
    return lax.integer_pow(products, int(degree)) if degree == int(degree) else lax.pow(products, degree)


def _pairs(weights: np.ndarray, counts: Sequence[int], first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The coefficients as (vectors, pairs), 0 for the vectors of other classes."""
    owner = np.repeat(np.arange(len(counts)), counts)
    by_pair = np.zeros((len(owner), len(first)), np.float32)
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        by_pair[owner == i, pair] = weights[j - 1, owner == i]
        by_pair[owner == j, pair] = weights[i, owner == j]
    return by_pair


def _greatest(scores: Any, positive: bool) -> Any:
    """The position of the greatest score in each row; see `svm_classifier` for two classes."""
    position = jnp.argmax(scores, 1).astype(np.int32)
    if scores.shape[1] != 2:
        return position
    greatest = largest(scores, (1,))
    return jnp.where(greatest >= 0.5 if positive else greatest > 0, jnp.ones_like(position), position)


def _coupled(scores: Any, slope: Any, shift: Any, classes: int, first: np.ndarray, second: np.ndarray) -> Any:
    """Probabilities of the classes from those of the pairs: method 2 of Wu, Lin and Weng (2004), as libsvm has it."""
    wide = (scores.shape[0], len(first))
    pair = jax.nn.sigmoid(-(scores * jnp.broadcast_to(slope, wide) + jnp.broadcast_to(shift, wide)))
    pair = jnp.clip(pair, 1e-7, 1 - 1e-7)
    # r[:, i, j] is the probability of class i, given that it is i or j.
    r = jnp.zeros((wide[0], classes, classes), pair.dtype).at[:, first, second].set(pair)
    r = r.at[:, second, first].set(1 - pair)
    diagonal = jnp.sum(lax.square(r), 1)
    q = -jnp.swapaxes(r, 1, 2) * r
    q = q.at[:, np.arange(classes), np.arange(classes)].set(diagonal)

    def sweep(_: Any, p: Any) -> Any:
        qp = jnp.sum(q * jnp.broadcast_to(p[:, None], q.shape), 2)
        pqp = jnp.sum(p * qp, 1)
        error = largest(jnp.abs(qp - jnp.broadcast_to(pqp[:, None], qp.shape)), (1,))

        def update(t: Any, state: Any) -> Any:
            p, qp, pqp = state
            row = lax.dynamic_index_in_dim(q, t, 1, keepdims=False)
            diagonal_element = lax.dynamic_index_in_dim(row, t, 1, keepdims=False)
            gradient = lax.dynamic_index_in_dim(qp, t, 1, keepdims=False)
            step = (pqp - gradient) / diagonal_element
            here = jnp.broadcast_to(jnp.arange(classes) == t, p.shape)
            side = jnp.broadcast_to(step[:, None], p.shape)
            p = jnp.where(here, p + side, p) / (1 + side)
            pqp = (pqp + step * (step * diagonal_element + 2 * gradient)) / lax.square(1 + step)
            return p, (qp + side * row) / (1 + side), pqp

        moved, _, _ = lax.fori_loop(0, classes, update, (p, qp, pqp))
        settled = jnp.broadcast_to((error < 0.005 / classes)[:, None], p.shape)
        return jnp.where(settled, p, moved)

    return lax.fori_loop(0, 100, sweep, jnp.full((wide[0], classes), 1 / classes, pair.dtype))
