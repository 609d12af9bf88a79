"""Random nodes of ai.onnx.ml; see `random_nodes`."""

from typing import Any

import numpy as np
from onnx import numpy_helper
from random_nodes import Made, data, maker, one, some

F32 = (np.float32,)
NUMBERS = (np.float32, np.float32, np.float64, np.int64)
FEATURES = 3


def numbers(rng: Any, count: int) -> list[float]:
    return data(rng, np.float32, count).tolist()


def rows(rng: Any, dtype: Any) -> np.ndarray:
    return data(rng, dtype, (int(rng.integers(1, 6)), FEATURES))


def transform(rng: Any, columns: int) -> dict[str, Any]:
    # onnxruntime leaves a single target as it is, unlike the text.
    return {} if columns == 1 else some(rng, post_transform=one(rng, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"))


@maker("ai.onnx.ml.LinearRegressor", F32)
def linear_regressor(rng: Any, dtype: Any) -> Made:
    targets = int(rng.integers(1, 4))
    how = {"coefficients": numbers(rng, targets * FEATURES), "targets": targets}
    return [rows(rng, dtype)], how | some(rng, intercepts=numbers(rng, targets)) | transform(rng, targets)


@maker("ai.onnx.ml.LinearClassifier", NUMBERS)
def linear_classifier(rng: Any, dtype: Any) -> Made:
    classes = int(rng.integers(3, 5))
    how = {"coefficients": numbers(rng, classes * FEATURES), "intercepts": numbers(rng, classes)}
    how["classlabels_ints"] = (rng.permutation(classes) * 3).tolist()
    return [rows(rng, dtype)], how | some(rng, multi_class=one(rng, 0, 1)) | transform(rng, classes), 2


def forest(rng: Any, trees: int) -> dict[str, Any]:
    """Full trees of 3 nodes and 4 leaves."""
    names = ["treeids", "nodeids", "featureids", "values", "modes"]
    names += ["truenodeids", "falsenodeids", "missing_value_tracks_true"]
    how: dict[str, Any] = {f"nodes_{name}": [] for name in names}
    for tree in range(trees):
        for node in range(7):
            inner = node < 3
            modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
            row = {
                "treeids": tree,
                "nodeids": node,
                "featureids": int(rng.integers(0, FEATURES)) if inner else 0,
                "values": float(data(rng, np.float32, ())) if inner else 0.0,
                "modes": one(rng, modes[0], modes[0], *modes) if inner else "LEAF",
                "truenodeids": 2 * node + 1 if inner else 0,
                "falsenodeids": 2 * node + 2 if inner else 0,
                "missing_value_tracks_true": int(rng.integers(0, 2)) if inner else 0,
            }
            for name, value in row.items():
                how[f"nodes_{name}"].append(value)
    return how


def leaves(rng: Any, kind: str, trees: int, columns: int) -> dict[str, list[Any]]:
    places = [(tree, node) for tree in range(trees) for node in range(3, 7)]
    return {
        f"{kind}_treeids": [tree for tree, _ in places],
        f"{kind}_nodeids": [node for _, node in places],
        f"{kind}_ids": rng.integers(0, columns, len(places)).tolist(),
        f"{kind}_weights": numbers(rng, len(places)),
    }


def holed(rng: Any, dtype: Any) -> np.ndarray:
    x = rows(rng, dtype)
    if np.dtype(dtype).kind == "f" and rng.uniform() < 0.4:
        x[0, 0] = np.nan
    return x


@maker("ai.onnx.ml.TreeEnsembleRegressor", (np.float32, np.float64))
def tree_regressor(rng: Any, dtype: Any) -> Made:
    trees, targets = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    how = forest(rng, trees) | leaves(rng, "target", trees, targets) | {"n_targets": targets}
    how |= some(rng, aggregate_function=one(rng, "SUM", "AVERAGE", "MIN", "MAX"))
    if targets == 1:  # onnxruntime forgets the base value of a target without a leaf
        how |= some(rng, base_values=numbers(rng, 1))
    return [holed(rng, dtype)], how | transform(rng, targets)


@maker("ai.onnx.ml.TreeEnsembleClassifier", NUMBERS)
def tree_classifier(rng: Any, dtype: Any) -> Made:
    trees, classes = int(rng.integers(1, 4)), int(rng.integers(3, 5))
    how = forest(rng, trees) | leaves(rng, "class", trees, classes)
    how["classlabels_int64s"] = (rng.permutation(classes) * 3).tolist()
    return [holed(rng, dtype)], how | some(rng, base_values=numbers(rng, classes)) | transform(rng, classes), 2


@maker("ai.onnx.ml.TreeEnsemble", (np.float32, np.float64))
def tree_ensemble(rng: Any, dtype: Any) -> Made:
    trees, targets = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    inner, outer = 3 * trees, 4 * trees
    side = rng.permutation([1, 2])
    how: dict[str, Any] = {
        "tree_roots": list(range(0, inner, 3)),
        "nodes_featureids": rng.integers(0, FEATURES, inner).tolist(),
        "nodes_splits": numpy_helper.from_array(data(rng, dtype, inner)),
        "nodes_modes": numpy_helper.from_array(np.uint8(rng.integers(0, 6, inner))),
        "nodes_missing_value_tracks_true": rng.integers(0, 2, inner).tolist(),
        "leaf_targetids": rng.integers(0, targets, outer).tolist(),
        "leaf_weights": numpy_helper.from_array(data(rng, dtype, outer)),
        "n_targets": targets,
    }
    for name, child, first in (("true", side[0], 0), ("false", side[1], 2)):
        how[f"nodes_{name}nodeids"] = [
            v for t in range(trees) for v in (3 * t + int(child), 4 * t + first, 4 * t + first + 1)
        ]
        how[f"nodes_{name}leafs"] = [0, 1, 1] * trees
    return [holed(rng, dtype)], how | some(rng, aggregate_function=int(rng.integers(4)))


@maker("ai.onnx.ml.CategoryMapper", (np.int64,))
def category_mapper(rng: Any, dtype: Any) -> Made:
    how = {"cats_int64s": [0, 2, 5, 3], "cats_strings": ["a", "b", "c", "d"]}
    return [rng.integers(0, 6, (2, 3)).astype(dtype)], how | some(rng, default_string="none")


@maker("ai.onnx.ml.SVMRegressor", F32)
def svm_regressor(rng: Any, dtype: Any) -> Made:
    count = int(rng.integers(1, 4))
    how = {"coefficients": numbers(rng, count), "support_vectors": numbers(rng, count * FEATURES), "n_supports": count}
    how |= {"kernel_type": one(rng, "LINEAR", "RBF", "POLY", "SIGMOID"), "kernel_params": [0.5, 0.1, 2.0]}
    return [rows(rng, dtype)], how | {"rho": numbers(rng, 1)} | some(rng, one_class=1)


@maker("ai.onnx.ml.LabelEncoder", (np.int64,))
def label_encoder(rng: Any, dtype: Any) -> Made:
    values = one(rng, {"values_floats": numbers(rng, 4)}, {"values_int64s": rng.integers(0, 99, 4).tolist()})
    return [rows(rng, dtype)], {"keys_int64s": [-1, 0, 3, 5]} | values | some(rng, default_float=0.5, default_int64=7)


@maker("ai.onnx.ml.OneHotEncoder", (np.int64, np.float32))
def one_hot_encoder(rng: Any, dtype: Any) -> Made:
    return [rows(rng, dtype).round()], {"cats_int64s": [-1, 0, 3, 5], "zeros": 1}


@maker("ai.onnx.ml.ArrayFeatureExtractor", (np.float32, np.int64, np.float64))
def array_feature_extractor(rng: Any, dtype: Any) -> Made:
    return [rows(rng, dtype), rng.integers(0, FEATURES, int(rng.integers(1, 5)))], {}


@maker("ai.onnx.ml.FeatureVectorizer", F32)
def feature_vectorizer(rng: Any, dtype: Any) -> Made:
    first, second = rows(rng, dtype), rows(rng, dtype)
    second = np.resize(second, (len(first), FEATURES))
    return [first, second], {"inputdimensions": [FEATURES, FEATURES]}
