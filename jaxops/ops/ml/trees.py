"""Ensembles of decision trees: each row falls to one leaf of every tree, and the weights of the leaves are combined."""

__all__ = ["tree_ensemble", "tree_ensemble_classifier", "tree_ensemble_regressor"]

from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer, one_of
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, DTypeError, describe
from jaxops.ops.ml.scores import PostTransform, choose, class_labels, decided, rows, transformed, two_scores
from jaxops.ops.ml.tree_attributes import either, in_range, joined, numbered
from jaxops.ops.ml.tree_tables import combined
from jaxops.shapes.ml import linear
from jaxops.static import ArrayLike, Ints

Aggregate = Literal["AVERAGE", "SUM", "MIN", "MAX"]
AGGREGATES: tuple[Aggregate, ...] = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS: tuple[PostTransform, ...] = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def tree_ensemble(
    x: ArrayLike,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Ints,
    leaf_weights: Any,
    membership_values: Any = None,
    n_targets: int | None = None,
    nodes_falseleafs: Ints,
    nodes_falsenodeids: Ints,
    nodes_featureids: Ints,
    nodes_hitrates: Any = None,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Any,
    nodes_splits: Any,
    nodes_trueleafs: Ints,
    nodes_truenodeids: Ints,
    post_transform: int = 0,
    tree_roots: Ints,
) -> jax.Array:
    """For each row and target the sum, average, least or greatest weight of the leaves that the row falls to.

    x: (rows, features), or (features,) for one row; floats. Returns (rows, n_targets) in x's dtype. All attributes are
    static. aggregate_function: 0 average, 1 sum, 2 least, 3 greatest. post_transform: 0 NONE, 1 SOFTMAX, 2 LOGISTIC
    (onnxruntime 1.31 takes 1 and 2 for each other), 3 SOFTMAX_ZERO, 4 PROBIT.
    nodes_…: lists of equal length, with an entry for each comparison: the feature, its threshold, the mode (0 to 6:
    LEQ, LT, GTE, GT, EQ, NEQ, MEMBER), and for either outcome the next entry, or a leaf where …leafs is 1. NaN follows
    the true branch where missing_value_tracks_true is 1, else the outcome of the comparison. hitrates: without effect.
    tree_roots: the entry where each tree begins. leaf_…: for each leaf a weight and a target in [0, n_targets).
    n_targets: None is one more than the greatest target. membership_values: the sets of the MEMBER entries in their
    order, separated by NaN. A target without a leaf has 0; AVERAGE divides by the number of trees.
    Comparisons are exact, whatever the dtypes of x and the splits.
    Raises ShapeError, ArgumentError for attributes that do not fit each other, DTypeError.
    Source: ONNX ai.onnx.ml.TreeEnsemble, opset 5. onnxruntime applies a transform to one target only if it is PROBIT.

    >>> tree_ensemble(  # x[0] <= 0.5 gives 1, else 2
    ...     jnp.array([[0.2], [0.9]]),
    ...     nodes_featureids=[0], nodes_splits=np.float32([0.5]), nodes_modes=np.uint8([0]), tree_roots=[0],
    ...     nodes_truenodeids=[0], nodes_trueleafs=[1], nodes_falsenodeids=[1], nodes_falseleafs=[1],
    ...     leaf_targetids=[0, 0], leaf_weights=np.float32([1, 2]),
    ... ).tolist()
    [[1.0], [2.0]]
    """
    aggregate = _choice("aggregate_function", aggregate_function, AGGREGATES)
    how = _choice("post_transform", post_transform, TRANSFORMS)
    x = rows(x)
    if not is_float(x.dtype):
        raise DTypeError(f"x must be floats, got {describe(x)}; convert with jaxops.cast")
    nodes = {
        "nodes_featureids": nodes_featureids,
        "nodes_modes": nodes_modes,
        "nodes_truenodeids": nodes_truenodeids,
        "nodes_falsenodeids": nodes_falsenodeids,
        "nodes_trueleafs": nodes_trueleafs,
        "nodes_falseleafs": nodes_falseleafs,
        "nodes_missing_value_tracks_true": nodes_missing_value_tracks_true,
    }
    leaves = {"leaf_targetids": leaf_targetids, "leaf_weights": leaf_weights}
    trees, votes = joined(x, nodes, nodes_splits, membership_values, leaves, tree_roots)
    outputs = _outputs("leaf_targetids", votes.targets, n_targets)
    totals, _ = combined(trees, votes, x, outputs, aggregate)
    return transformed(totals, how).astype(x.dtype)


def _choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """An enumerated attribute that is a number."""
    number = integer(name, value)
    if not 0 <= number < len(allowed):
        listing = ", ".join(f"{i} ({word})" for i, word in enumerate(allowed))
        raise ArgumentError(f"`{name}` is {number}; it must be one of {listing}")
    return allowed[number]


def _outputs(name: str, targets: np.ndarray, declared: int | None) -> int:
    """The number of targets; without one, as many as there are votes for."""
    count = int(targets.max(initial=-1)) + 1 if declared is None else integer("n_targets", declared, least=0)
    in_range(name, targets, count, "targets")
    return count


def tree_ensemble_regressor(
    x: ArrayLike,
    *,
    aggregate_function: Aggregate = "SUM",
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: Any = None,
    n_targets: int | None = None,
    nodes_falsenodeids: Ints | None = None,
    nodes_featureids: Ints | None = None,
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Ints | None = None,
    nodes_treeids: Ints | None = None,
    nodes_truenodeids: Ints | None = None,
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: Any = None,
    post_transform: PostTransform = "NONE",
    target_ids: Ints | None = None,
    target_nodeids: Ints | None = None,
    target_treeids: Ints | None = None,
    target_weights: Sequence[float] | None = None,
    target_weights_as_tensor: Any = None,
) -> jax.Array:
    """For each row and target the sum, average, least or greatest weight of the row's leaves, plus base values.

    x: (rows, features), or (features,) for one row; real numbers. Returns float32 (rows, n_targets), transformed. All
    attributes are static; those that end with _as_tensor stand for those without it.
    nodes_…: lists of equal length, with an entry for each node: the number of its tree (treeids), its own number, its
    mode (BRANCH_LEQ, …, or LEAF), the feature, its threshold, and the numbers of the nodes of the same tree for either
    outcome. The first node of a tree is its root. NaN follows the true branch where missing_value_tracks_true is 1,
    else the outcome of the comparison. target_…: the weights of leaves, each with its tree, its node and a target in
    [0, n_targets). n_targets: None is one more than the greatest target. A target without a leaf has 0; AVERAGE divides
    by the number of trees. The standard does not say what several weights of a leaf for one target mean: they are
    combined, but with n_targets = 1 the first one counts, as in onnxruntime.
    Comparisons are exact, whatever the dtypes of x and the values.
    Raises ShapeError, ArgumentError for attributes that do not fit each other.
    Source: ONNX ai.onnx.ml.TreeEnsembleRegressor, opsets 1–3. onnxruntime applies a transform to one target only if it
    is PROBIT.

    >>> tree_ensemble_regressor(  # x[0] <= 0.5 gives 1, else 2
    ...     jnp.array([[0.2], [0.9]]),
    ...     nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
    ...     nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
    ...     target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0], target_weights=[1.0, 2.0], n_targets=1,
    ... ).tolist()
    [[1.0], [2.0]]
    """
    how = one_of("post_transform", post_transform, PostTransform)
    aggregate = one_of("aggregate_function", aggregate_function, Aggregate)
    x = rows(x)
    nodes = {
        "nodes_nodeids": nodes_nodeids,
        "nodes_treeids": nodes_treeids,
        "nodes_featureids": nodes_featureids,
        "nodes_truenodeids": nodes_truenodeids,
        "nodes_falsenodeids": nodes_falsenodeids,
        "nodes_missing_value_tracks_true": nodes_missing_value_tracks_true,
    }
    leaves = {"target_ids": target_ids, "target_nodeids": target_nodeids, "target_treeids": target_treeids}
    values = either("nodes_values", nodes_values, nodes_values_as_tensor)
    weights = either("target_weights", target_weights, target_weights_as_tensor)
    trees, votes = numbered(x, nodes, nodes_modes, values, leaves, weights)
    outputs = _outputs("target_ids", votes.targets, n_targets)
    totals, _ = combined(trees, votes, x, outputs, aggregate)
    base = either("base_values", base_values, base_values_as_tensor)
    if base.size:
        linear.one_each("base_values", base.size, outputs, "target")
        totals = totals + jnp.broadcast_to(base.astype(totals.dtype), totals.shape)
    return transformed(totals, how).astype(np.float32)


def tree_ensemble_classifier(
    x: ArrayLike,
    *,
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: Any = None,
    class_ids: Ints | None = None,
    class_nodeids: Ints | None = None,
    class_treeids: Ints | None = None,
    class_weights: Sequence[float] | None = None,
    class_weights_as_tensor: Any = None,
    classlabels_int64s: Ints | None = None,
    classlabels_strings: Sequence[str] | None = None,
    nodes_falsenodeids: Ints | None = None,
    nodes_featureids: Ints | None = None,
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: Any = None,
    nodes_missing_value_tracks_true: Ints | None = None,
    nodes_modes: Sequence[str] | None = None,
    nodes_nodeids: Ints | None = None,
    nodes_treeids: Ints | None = None,
    nodes_truenodeids: Ints | None = None,
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: Any = None,
    post_transform: PostTransform = "NONE",
) -> tuple[Any, jax.Array]:
    """(label of the class with the greatest score, scores) of each row; a score is a sum over the leaves of the row.

    x and nodes_… as in `tree_ensemble_regressor`. class_…: the weights of leaves, each with its tree, its node and the
    position of a class. classlabels_…: one of both. base_values: one for each class, added to the scores.
    Returns labels (rows,) and float32 scores (rows, classes), transformed. String labels are NumPy strings outside of
    `jit`; inside they are `ChosenStrings`, which a function can move, compare and return.
    Scores do not depend on the order of the trees, so that equal votes tie, and the first class of a tie is chosen.
    The standard leaves the following cases open; they are as in onnxruntime:
    - A class that has no vote from the leaves of a row, and no base value, is not chosen.
    - Two classes, and votes for the first only: their sum and the base value are the score s of the second. If no
      weight is negative, the second is chosen where s > 0.5, and the scores are (1 - s, s); else it is chosen where
      s > 0, and they are (-s, s). LOGISTIC gives the logistic of (-s, s) in both cases; SOFTMAX is not applied.
    - Two classes, and votes for the second only: the scores are (0, s), and the same bounds of s choose the second.
    - One class: the label is 1 where the score is above 0, else 0, as an integer or a string; of several weights of a
      leaf the first one counts.
    If both of two classes have votes, the greatest score decides, as with more classes and as the standard says;
    onnxruntime only checks if the score of the second is above 0.
    Raises SignatureError without labels, ShapeError, ArgumentError for attributes that do not fit each other.
    Source: ONNX ai.onnx.ml.TreeEnsembleClassifier, opsets 1–3.

    >>> labels, scores = tree_ensemble_classifier(  # x[0] <= 0.5 is class 3, else class 7
    ...     jnp.array([[0.2], [0.9]]),
    ...     nodes_treeids=[0, 0, 0], nodes_nodeids=[0, 1, 2], nodes_featureids=[0, 0, 0], nodes_values=[0.5, 0.0, 0.0],
    ...     nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0],
    ...     class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 1], class_weights=[1.0, 1.0],
    ...     classlabels_int64s=[3, 7],
    ... )
    >>> labels.tolist(), scores.tolist()
    ([3, 7], [[1.0, 0.0], [0.0, 1.0]])
    """
    how = one_of("post_transform", post_transform, PostTransform)
    labels = class_labels(classlabels_int64s=classlabels_int64s, classlabels_strings=classlabels_strings)
    x = rows(x)
    nodes = {
        "nodes_nodeids": nodes_nodeids,
        "nodes_treeids": nodes_treeids,
        "nodes_featureids": nodes_featureids,
        "nodes_truenodeids": nodes_truenodeids,
        "nodes_falsenodeids": nodes_falsenodeids,
        "nodes_missing_value_tracks_true": nodes_missing_value_tracks_true,
    }
    leaves = {"class_ids": class_ids, "class_nodeids": class_nodeids, "class_treeids": class_treeids}
    values = either("nodes_values", nodes_values, nodes_values_as_tensor)
    weights = either("class_weights", class_weights, class_weights_as_tensor)
    trees, votes = numbered(x, nodes, nodes_modes, values, leaves, weights)
    classes = labels.size
    in_range("class_ids", votes.targets, classes, "classes")
    scores, voted = combined(trees, votes, x, classes, "SUM")
    base = either("base_values", base_values, base_values_as_tensor).astype(scores.dtype)
    voters = np.unique(votes.targets)
    if classes <= 2 and len(voters) <= 1 and base.size <= 1:
        chosen, scores = _of_two(scores, base, how, int(voters.sum()), not (votes.weights < 0).any())
        return choose(decided(labels), chosen.astype(np.int32)), scores.astype(np.float32)
    if base.size:
        linear.one_each("base_values", base.size, classes, "class")
        scores, voted = scores + jnp.broadcast_to(base, scores.shape), jnp.ones_like(voted)
    position = jnp.argmax(jnp.where(voted, scores, jnp.full_like(scores, -np.inf)), 1)
    return choose(labels, position.astype(np.int32)), transformed(scores, how).astype(np.float32)


def _of_two(scores: Any, base: np.ndarray, how: PostTransform, voter: int, positive: bool) -> tuple[Any, Any]:
    """(True if the second label is chosen, the scores), for one or two classes with votes for one, as in onnxruntime.

    voter: the class with the votes. positive: no weight is negative.
    """
    score = scores[:, voter]
    if base.size and voter == 0:
        score = score + base[0]
    above = score > (0.5 if positive and scores.shape[1] == 2 else 0)
    if scores.shape[1] == 1:
        return above, transformed(score[:, None], how)
    if voter == 1:
        return above, transformed(jnp.stack([jnp.zeros_like(score), score], 1), how)
    return above, two_scores(score, how, opposite=not positive)
