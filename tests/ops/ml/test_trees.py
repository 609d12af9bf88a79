"""Tree ensembles against onnxruntime and a walk written in Python."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_peer import in_all_ways, ours, runtime

from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, UnsupportedError
from jaxops.ml import tree_ensemble, tree_ensemble_classifier, tree_ensemble_regressor
from jaxops.onnx import registry
from jaxops.opaque import ChosenStrings

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


def forest(
    rng,
    trees,
    depth,
    classes,
    features=4,
    modes=("BRANCH_LEQ",),
    positive=False,
    votes_for=None,
    all_votes=False,
    prefix="class",
    dup=False,
):
    n = {
        k: []
        for k in (
            "nodes_nodeids",
            "nodes_treeids",
            "nodes_featureids",
            "nodes_values",
            "nodes_modes",
            "nodes_truenodeids",
            "nodes_falsenodeids",
            "nodes_missing_value_tracks_true",
        )
    }
    v = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def add(t, d, numbers):
        me, i = next(numbers), len(n["nodes_nodeids"])
        for column in n.values():
            column.append(0)
        n["nodes_nodeids"][i], n["nodes_treeids"][i], n["nodes_modes"][i] = me, t, "LEAF"
        n["nodes_values"][i] = 0.0
        if d < depth and (d == 0 or rng.random() < 0.8):
            n["nodes_featureids"][i], n["nodes_values"][i] = int(rng.integers(features)), float(rng.integers(-3, 4) / 2)
            n["nodes_modes"][i], n["nodes_missing_value_tracks_true"][i] = str(rng.choice(modes)), int(rng.integers(2))
            n["nodes_truenodeids"][i] = add(t, d + 1, numbers)
            n["nodes_falsenodeids"][i] = add(t, d + 1, numbers)
        else:
            pool = range(classes) if votes_for is None else votes_for
            for c in pool if all_votes else [int(rng.choice(list(pool)))]:
                w = float(rng.normal())
                row = (t, me, c, abs(w) / trees if positive else w)
                for column, value in zip(v.values(), row, strict=True):
                    column.append(value)
        return me

    for t in range(trees):
        add(t, 0, itertools.count())
    return n | {f"{prefix}_{k}": val for k, val in v.items()}


def points(rng, rows, dtype=np.float32, features=4):
    """Halves, so that thresholds are met, and NaNs among floats."""
    x = (rng.integers(-4, 5, (rows, features)) / 2).astype(dtype)
    if x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


def close(found, theirs, atol=1e-5):
    assert found.shape == theirs.shape
    np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=atol)


@pytest.mark.optimized
@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("modes", [[mode] for mode in MODES] + [MODES], ids=lambda m: m[0] if len(m) == 1 else "all")
def test_regressor_of_each_mode(modes, dtype):
    rng = np.random.default_rng(5)
    given = {**forest(rng, 6, 4, 2, modes=modes, all_votes=True, prefix="target"), "n_targets": 2}
    x = points(rng, 60, dtype)
    # onnxruntime has no integers here.
    (theirs,) = runtime("TreeEnsembleRegressor", x.astype(np.float32), **given)
    close(jax.jit(lambda x: tree_ensemble_regressor(x, **given))(x), theirs)


@pytest.mark.grid
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_regressor_of_each_aggregate(targets, aggregate):
    rng = np.random.default_rng(6)
    given = forest(rng, 7, 3, targets, prefix="target", all_votes=True)
    given |= {"n_targets": targets, "aggregate_function": aggregate}
    x = points(rng, 40)
    (plain,) = in_all_ways("TreeEnsembleRegressor", x, **given)
    base = [0.5, -0.25, 0.125][:targets]
    close(tree_ensemble_regressor(x, **given, base_values=base), plain + np.float32(base))
    for transform in TRANSFORMS:
        if targets == 3 or transform in ("NONE", "PROBIT"):
            full = {**given, "base_values": base, "post_transform": transform}
            close(tree_ensemble_regressor(x, **full), runtime("TreeEnsembleRegressor", x, **full)[0], 2e-3)
    one = {**given, "target_ids": [0] * len(given["target_ids"]), "n_targets": 1, "post_transform": "LOGISTIC"}
    raw = tree_ensemble_regressor(x, **{**one, "post_transform": "NONE"})
    close(tree_ensemble_regressor(x, **one), 1 / (1 + np.exp(-raw)))  # onnxruntime leaves one target as it is


def test_a_target_without_a_vote():
    """It has 0, and its base value, as the standard says; onnxruntime leaves the base value out."""
    rng = np.random.default_rng(7)
    given = {**forest(rng, 3, 2, 3, prefix="target"), "n_targets": 3}
    x = points(rng, 30)
    for aggregate in ("SUM", "MIN", "MAX", "AVERAGE"):
        full = {**given, "aggregate_function": aggregate}
        close(tree_ensemble_regressor(x, **full), runtime("TreeEnsembleRegressor", x, **full)[0])
    full = tree_ensemble_regressor(x, **given, base_values=[1.0, 2.0, 3.0])
    close(full, np.asarray(tree_ensemble_regressor(x, **given)) + np.float32([1, 2, 3]))


STUMP = {"nodes_treeids": [0, 0, 0, 1], "nodes_nodeids": [0, 1, 2, 0], "nodes_featureids": [0] * 4}
STUMP |= {"nodes_values": [0.0] * 4, "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "LEAF"]}
STUMP |= {"nodes_truenodeids": [1, 0, 0, 0], "nodes_falsenodeids": [2, 0, 0, 0]}


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_several_weights_of_a_leaf_for_one_target(targets, aggregate):
    """With one target, the first counts, in the order of the file."""
    votes = {"target_nodeids": [1, 2, 1, 0, 1], "target_treeids": [0, 0, 0, 1, 0], "target_ids": [0] * 5}
    given = {**STUMP, **votes, "target_weights": [14.0, 5.0, 3.0, 10.0, 25.0]}
    given |= {"n_targets": targets, "aggregate_function": aggregate}
    x = np.array([[-1], [1]], np.float32)
    (found,) = in_all_ways("TreeEnsembleRegressor", x, **given)
    if aggregate == "SUM":
        assert found[:, 0].tolist() == ([24, 15] if targets == 1 else [52, 15])


def test_several_weights_of_a_leaf_for_one_class():
    votes = {
        "class_nodeids": [1, 2, 1],
        "class_treeids": [0] * 3,
        "class_ids": [0] * 3,
        "class_weights": [-0.5, 0.9, 0.7],
    }
    given = {**STUMP, **votes, "classlabels_int64s": [5]}
    labels, scores = in_all_ways("TreeEnsembleClassifier", np.array([[-1], [1]], np.float32), n_outputs=2, **given)
    assert labels.tolist() == [0, 1]
    assert scores.tolist() == [[-0.5], [np.float32(0.9)]]


def test_a_target_a_tree():
    """As in boosting with many classes: each tree votes for one target."""
    rng = np.random.default_rng(8)
    given = forest(rng, 30, 4, 1, prefix="target")
    given |= {"target_ids": [t % 5 for t in given["target_treeids"]], "n_targets": 5}
    in_all_ways("TreeEnsembleRegressor", points(rng, 50), **given)


def test_many_trees_are_few_operations():
    rng = np.random.default_rng(9)
    given = {**forest(rng, 500, 6, 1, prefix="target"), "n_targets": 1}
    x = rng.normal(size=(300, 4)).astype(np.float32)
    close(
        jax.jit(lambda x: tree_ensemble_regressor(x, **given))(x), runtime("TreeEnsembleRegressor", x, **given)[0], 1e-4
    )
    jaxpr = jax.make_jaxpr(lambda x: tree_ensemble_regressor(x, **given))(x)
    assert len(jaxpr.eqns) < 30
    assert not jax.grad(lambda x: tree_ensemble_regressor(x, **given).sum())(x).any()


@pytest.mark.grid
@pytest.mark.parametrize("as_tensor", [False, True])
def test_thresholds_between_two_numbers(as_tensor):
    """Comparisons are exact: of float32 with float64, and of integers with fractions."""
    cuts = [0.1, 0.5, 2.0, -3e9, 3e9, float("inf"), float("-inf"), float("nan")]
    cuts = np.array(cuts, np.float64 if as_tensor else np.float32)
    trees, n = len(cuts), 3  # a tree and a target for each cut, of three nodes
    given = {"nodes_nodeids": [0, 1, 2] * trees, "nodes_treeids": np.repeat(range(trees), n).tolist()}
    given |= {"nodes_featureids": [0] * trees * n, "n_targets": trees}
    given |= {"nodes_truenodeids": [1, 0, 0] * trees, "nodes_falsenodeids": [2, 0, 0] * trees}
    given |= {"target_nodeids": [1] * trees, "target_treeids": [*range(trees)], "target_ids": [*range(trees)]}
    given |= {"target_weights": [1.0] * trees}
    values = np.stack([cuts, np.zeros_like(cuts), np.zeros_like(cuts)], 1).ravel()
    given |= {"nodes_values_as_tensor": values} if as_tensor else {"nodes_values": values.tolist()}
    compare = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
    for mode, fn in zip(MODES, compare, strict=True):
        for x in (np.float32([0.1, 0.5, 2, np.nan, np.inf]), np.int32([0, 1, 2, -(2**31), 2**31 - 1])):
            found = tree_ensemble_regressor(x[:, None], **given, nodes_modes=[mode, "LEAF", "LEAF"] * trees)
            assert found.tolist() == fn(x.astype(np.float64)[:, None], cuts.astype(np.float64)).tolist(), (mode, x)


@pytest.mark.grid
@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("votes", ["one", "all"])
def test_classifier_of_many_classes(votes, base, transform):
    rng = np.random.default_rng(10)
    given = {**forest(rng, 6, 4, 4, all_votes=votes == "all"), "post_transform": transform}
    given |= {"classlabels_int64s": [10, 11, 12, 13]} | ({"base_values": [0.5, -0.25, 0.0, 1.0]} if base else {})
    x = points(rng, 60)
    theirs = runtime("TreeEnsembleClassifier", x, n_outputs=2, **given)
    for found in (
        ours("TreeEnsembleClassifier", x, n_outputs=2, **given),
        jax.jit(lambda x: tree_ensemble_classifier(x, **given))(x),
    ):
        assert found[0].tolist() == theirs[0].tolist()
        close(found[1], theirs[1])


@pytest.mark.grid
@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize(("voter", "base"), [(0, []), (0, [0.25]), (1, []), (1, [0.25])])
def test_classifier_of_two_classes_with_votes_for_one(voter, base, positive, transform):
    rng = np.random.default_rng(11)
    given = {**forest(rng, 5, 3, 2, positive=positive, votes_for=[voter]), "post_transform": transform}
    given |= {"base_values": base} if base else {}
    x = points(rng, 40)
    for labels in ({"classlabels_int64s": [5, 9]}, {"classlabels_strings": ["no", "yes"]}):
        theirs = runtime("TreeEnsembleClassifier", x, n_outputs=2, **given, **labels)
        found = tree_ensemble_classifier(jnp.asarray(x), **given, **labels)
        assert found[0].tolist() == theirs[0].tolist()
        close(found[1], theirs[1])


def test_classifier_of_two_classes_with_votes_for_both():
    """The greatest score decides, as the standard says; onnxruntime asks whether that of the second is positive."""
    rng = np.random.default_rng(12)
    given = {**forest(rng, 5, 3, 2, positive=True, all_votes=True), "classlabels_strings": ["a", "b"]}
    x = points(rng, 40)
    found = tree_ensemble_classifier(x, **given)
    close(found[1], runtime("TreeEnsembleClassifier", x, n_outputs=2, **given)[1])
    assert found[0].tolist() == ["ab"[i] for i in np.argmax(found[1], 1)]
    assert set(found[0]) == {"a", "b"}
    more = tree_ensemble_classifier(x, **given, base_values=[0.5, 1.0])
    close(more[1], np.asarray(found[1]) + np.float32([0.5, 1.0]))
    labels, _ = jax.jit(lambda x: tree_ensemble_classifier(x, **given))(x)
    assert isinstance(labels, ChosenStrings)
    assert labels.value.tolist() == found[0].tolist()


def test_classifier_of_one_class():
    rng = np.random.default_rng(13)
    given = {**forest(rng, 3, 2, 1), "classlabels_int64s": [1]}
    x = points(rng, 30)
    theirs = runtime("TreeEnsembleClassifier", x, n_outputs=2, **given)
    found = tree_ensemble_classifier(x, **given)
    assert found[0].tolist() == theirs[0].tolist()
    close(found[1], theirs[1])


def apart(given, rng, dtype=np.float32):
    """A forest of target weights as TreeEnsemble has it."""
    leaf = [mode == "LEAF" for mode in given["nodes_modes"]]
    ids = list(zip(given["nodes_treeids"], given["nodes_nodeids"], strict=True))
    place = {pair: sum(other == leaf[i] for other in leaf[:i]) for i, pair in enumerate(ids)}
    inner = [i for i in range(len(leaf)) if not leaf[i]]
    found = {"nodes_featureids": [given["nodes_featureids"][i] for i in inner]}
    found["nodes_splits"] = np.array([given["nodes_values"][i] for i in inner], dtype)
    found["nodes_modes"] = np.uint8([MODES.index(given["nodes_modes"][i]) for i in inner])
    found["nodes_missing_value_tracks_true"] = [given["nodes_missing_value_tracks_true"][i] for i in inner]
    for side in ("true", "false"):
        child = [(ids[i][0], given[f"nodes_{side}nodeids"][i]) for i in inner]
        found[f"nodes_{side}nodeids"] = [place[c] for c in child]
        found[f"nodes_{side}leafs"] = [int(leaf[ids.index(c)]) for c in child]
    found["tree_roots"] = [place[t, 0] for t in sorted(set(given["nodes_treeids"]))]
    found["leaf_targetids"] = given["target_ids"]
    found["leaf_weights"] = np.array(given["target_weights"], dtype)
    return found


@pytest.mark.optimized
@pytest.mark.grid
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", range(4))
def test_ensemble(aggregate, dtype):
    rng = np.random.default_rng(14)
    given = {**apart(forest(rng, 5, 3, 2, modes=MODES, prefix="target"), rng, dtype), "n_targets": 2}
    x = points(rng, 40, dtype)
    for transform in range(5):
        full = {**given, "aggregate_function": aggregate, "post_transform": transform}
        # onnxruntime 1.31 takes 1 for LOGISTIC and 2 for SOFTMAX; the standard has them the other way round.
        swapped = {**full, "post_transform": {1: 2, 2: 1}.get(transform, transform)}
        (theirs,) = runtime("TreeEnsemble", x, opset=5, **swapped)
        close(ours("TreeEnsemble", jnp.asarray(x), opset=5, **full)[0], theirs, 2e-3)
    half = tree_ensemble(jnp.asarray(x, jnp.float16), **apart(forest(rng, 5, 3, 2, prefix="target"), rng, np.float16))
    assert half.dtype == np.float16


MEMBER = {
    "nodes_featureids": [0, 0, 1],
    "nodes_modes": np.uint8([6, 0, 6]),
    "nodes_splits": np.float32([0, 2.0, 0]),
    "nodes_truenodeids": [0, 1, 3],
    "nodes_falsenodeids": [1, 2, 4],
    "nodes_trueleafs": [1, 1, 1],
    "nodes_falseleafs": [0, 0, 1],
    "tree_roots": [0],
    "leaf_targetids": [0] * 5,
    "leaf_weights": np.float32([1, 2, 3, 4, 5]),
}
MEMBER = {**MEMBER, "nodes_falsenodeids": [1, 2, 4], "nodes_missing_value_tracks_true": [0, 0, 1]}


@pytest.mark.parametrize("first", [[1.2, 3.7, 8, 9, 0.5], [7.0], [4, 4, 4], [0.5, 1, 1.5, 2, 2.5, 3, 3.5]])
def test_ensemble_of_members(first):
    second = [12.0, 7.0]
    given = {**MEMBER, "membership_values": np.float32([*first, np.nan, *second])}
    x = np.float32([[a, b] for a in [*first, 0, 1, 2, 2.25, np.nan] for b in (7, 8, 12, np.nan)])
    expected = [1 if a in np.float32(first) else 2 if a <= 2 else 4 if b in second or np.isnan(b) else 5 for a, b in x]
    (found,) = ours("TreeEnsemble", x, opset=5, **given)
    assert found[:, 0].tolist() == expected
    assert jax.jit(lambda x: tree_ensemble(x, **given))(x)[:, 0].tolist() == expected


def test_versions():
    for op in ("TreeEnsembleRegressor", "TreeEnsembleClassifier"):
        for opset in (1, 3, 4):
            assert registry.find(op, "ai.onnx.ml", opset).fn is not None
        with pytest.raises(UnsupportedError, match="deprecated since opset 5"):
            registry.find(op, "ai.onnx.ml", 5)
    rng = np.random.default_rng(15)
    given = {**forest(rng, 3, 3, 1, prefix="target"), "n_targets": 1}
    tensors = {f"{k}_as_tensor": np.array(given.pop(k), np.float64) for k in ("nodes_values", "target_weights")}
    x = points(rng, 20, np.float64)
    (theirs,) = runtime("TreeEnsembleRegressor", x, opset=3, **given, **tensors)
    with jax.enable_x64(True):
        close(ours("TreeEnsembleRegressor", jnp.asarray(x), opset=3, **given, **tensors)[0], theirs)


X = np.zeros((2, 4), np.float32)
TREE = {
    "nodes_nodeids": [0, 1, 2],
    "nodes_treeids": [0, 0, 0],
    "nodes_featureids": [3, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}
ERRORS = [
    ({"nodes_featureids": [4, 0, 0]}, ArgumentError, "`nodes_featureids` holds 4, but there are 4 features"),
    ({"nodes_featureids": [0, 0]}, ShapeError, "must be equally long, .*`nodes_featureids` 2"),
    ({"nodes_nodeids": [0, 1, 1]}, ArgumentError, "node 1 of tree 0 is listed twice"),
    (
        {"nodes_truenodeids": [7, 0, 0]},
        ArgumentError,
        "`nodes_truenodeids` names node 7 of tree 0, which does not exist",
    ),
    ({"target_treeids": [0, 9]}, ArgumentError, "`target_nodeids` names node 2 of tree 9, which does not exist"),
    ({"nodes_truenodeids": [0, 0, 0]}, ArgumentError, "the nodes of tree 0 form a cycle"),
    ({"nodes_modes": ["SPLIT", "LEAF", "LEAF"]}, ArgumentError, "holds 'SPLIT'; each must be one of LEAF, BRANCH_"),
    ({"target_ids": [0, 1], "n_targets": 1}, ArgumentError, "`target_ids` holds 1, but there are 1 targets"),
    ({"base_values": [1.0, 2.0]}, ShapeError, "`base_values` has 2 values; it must have 1, one per target"),
    ({"nodes_values_as_tensor": np.ones(3)}, SignatureError, "`nodes_values` and `nodes_values_as_tensor` exclude"),
    ({"aggregate_function": "PRODUCT"}, ArgumentError, "`aggregate_function` is 'PRODUCT'"),
]


@pytest.mark.parametrize(("change", "kind", "match"), ERRORS, ids=[m[:30] for *_, m in ERRORS])
def test_error(change, kind, match):
    assert tree_ensemble_regressor(X, **TREE).tolist() == [[1], [1]]
    with pytest.raises(kind, match=match):
        tree_ensemble_regressor(X, **{**TREE, **change})


SETS = {"membership_values": np.float32([1, np.nan, 2])}
ENSEMBLE_ERRORS = [
    ({}, ArgumentError, "`membership_values` holds 0 sets, but 2 nodes have mode BRANCH_MEMBER"),
    ({**SETS, "nodes_modes": np.uint8([6, 7, 6])}, ArgumentError, "`nodes_modes` holds 7, but there are 7 modes"),
    ({**SETS, "aggregate_function": 4}, ArgumentError, r"`aggregate_function` is 4; it must be one of 0 \(AVERAGE\)"),
    ({**SETS, "leaf_weights": np.arange(5)}, DTypeError, "`leaf_weights` must be floats, got int64"),
    ({**SETS, "tree_roots": [3]}, ArgumentError, "`tree_roots` holds 3, but there are 3 nodes"),
]


@pytest.mark.parametrize(("change", "kind", "match"), ENSEMBLE_ERRORS, ids=[m[:30] for *_, m in ENSEMBLE_ERRORS])
def test_error_of_ensemble(change, kind, match):
    with pytest.raises(kind, match=match):
        tree_ensemble(X, **{**MEMBER, **change})
    with pytest.raises(DTypeError, match="x must be floats, got int32"):
        tree_ensemble(X.astype(np.int32), **MEMBER)
