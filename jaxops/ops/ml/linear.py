"""Linear models: the score of each target is the sum of weighted features and an intercept.

Everything is computed in float32, the type of the scores.
"""

__all__ = ["linear_classifier", "linear_regressor"]

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, one_of
from jaxops.ops.ml.scores import PostTransform, choose, class_labels, decided, numbers, rows, transformed, two_scores
from jaxops.shapes.ml import linear as sizes_of
from jaxops.static import ArrayLike, Ints


def linear_regressor(
    x: ArrayLike,
    *,
    coefficients: Sequence[float] | None = None,
    intercepts: Sequence[float] | None = None,
    post_transform: PostTransform = "NONE",
    targets: int = 1,
) -> jax.Array:
    """x · coefficientsᵀ + intercepts, transformed.

    x: (rows, features), or (features,) for one row; real numbers. coefficients: static, targets·features numbers,
    target by target. intercepts: static, one for each target; None for none. Returns float32 (rows, targets).
    post_transform: a function of each row. onnxruntime applies it to a single target only if it is PROBIT.
    Raises ShapeError for other sizes, ArgumentError for another transform.
    Source: ONNX ai.onnx.ml.LinearRegressor, opset 1.

    >>> linear_regressor(jnp.array([[1.0, 2.0]]), coefficients=[10.0, 1.0], intercepts=[0.5]).tolist()
    [[12.5]]
    """
    how = one_of("post_transform", post_transform, PostTransform)
    return transformed(_scores(rows(x), coefficients, intercepts, integer("targets", targets)), how)


def linear_classifier(
    x: ArrayLike,
    *,
    coefficients: Sequence[float],
    classlabels_ints: Ints | None = None,
    classlabels_strings: Sequence[str] | None = None,
    intercepts: Sequence[float] | None = None,
    multi_class: int = 0,
    post_transform: PostTransform = "NONE",
) -> tuple[Any, jax.Array]:
    """(label of the greatest score, scores) of each row; scores are x · coefficientsᵀ + intercepts, transformed.

    x: (rows, features), or (features,) for one row; real numbers. coefficients: static, targets·features numbers,
    target by target. intercepts: static, one for each target; None for none. classlabels_…: static, one of both, a
    label for each target. Returns labels (rows,) and float32 scores (rows, targets). String labels are NumPy strings
    outside of `jit`; inside they are `ChosenStrings`, which a function can move, compare and return.
    With one target and two labels, the second label is chosen where the score s is above 0, and there are two scores:
    (1 - s, s), or with LOGISTIC the logistic of (-s, s). SOFTMAX is not applied, as in onnxruntime. With PROBIT, s is
    transformed first (onnxruntime leaves one of the two scores undefined).
    multi_class: how the model was trained; changes nothing.
    Raises SignatureError without labels, ShapeError for other sizes, ArgumentError for another transform.
    Source: ONNX ai.onnx.ml.LinearClassifier, opset 1.

    >>> linear_classifier(jnp.array([[2.0]]), coefficients=[1.0, -1.0], classlabels_ints=[7, 8])[0].tolist()
    [7]
    """
    how = one_of("post_transform", post_transform, PostTransform)
    labels = class_labels(classlabels_ints=classlabels_ints, classlabels_strings=classlabels_strings)
    x = rows(x)
    scores = _scores(x, coefficients, intercepts, None)
    targets = scores.shape[1]
    if targets == 1:
        chosen = choose(decided(labels), (scores[:, 0] > 0).astype(np.int32))
        return chosen, two_scores(scores[:, 0], how, opposite=False) if labels.size == 2 else transformed(scores, how)
    sizes_of.one_each("classlabels", labels.size, targets, "target")
    return choose(labels, jnp.argmax(scores, 1).astype(np.int32)), transformed(scores, how)


def _scores(x: jax.Array, coefficients: Any, intercepts: Any, targets: int | None) -> Any:
    weights, added = numbers("coefficients", coefficients), numbers("intercepts", intercepts)
    if targets is None and added.size:
        targets = added.size
    sizes = sizes_of.weights(weights.size, targets, x.shape[1], x.shape)
    if added.size:
        sizes_of.one_each("intercepts", added.size, sizes[0], "target")
    products = jnp.matmul(x.astype(np.float32), weights.reshape(sizes).T, precision=lax.Precision.HIGHEST)
    return products + jnp.broadcast_to(added, products.shape) if added.size else products
