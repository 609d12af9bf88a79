"""Sums of votes: exact, so that ties are ties in any order of the trees."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from jaxops.ml import tree_ensemble_classifier, tree_ensemble_regressor
from jaxops.ops.ml.vote_sums import vote_sum

HUNDRED = 100


def stumps(weights):
    """Trees of one comparison each, x ≤ 0: `weights[tree, outcome, class]`, 0 no vote."""
    trees = len(weights)
    tree, place, of = np.nonzero(weights)
    return {
        "nodes_treeids": np.repeat(np.arange(trees), 3).tolist(),
        "nodes_nodeids": [0, 1, 2] * trees,
        "nodes_featureids": np.repeat(np.arange(trees), 3).tolist(),
        "nodes_values": [0.0] * 3 * trees,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * trees,
        "nodes_truenodeids": [1, 0, 0] * trees,
        "nodes_falsenodeids": [2, 0, 0] * trees,
    }, {
        "treeids": tree.tolist(),
        "nodeids": (place + 1).tolist(),
        "ids": of.tolist(),
        "weights": weights[tree, place, of].tolist(),
    }


def exact(weights, leaf):
    """The sums as the nearest numbers of their type, by fractions."""
    rows = [[[Fraction(float(w)) for w in weights[i]] for i in row] for row in leaf]
    return np.array([[float(sum(column)) for column in zip(*row, strict=True)] for row in rows])


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_ties_choose_the_first_class(classes):
    """Each of a hundred trees has a vote of 0.01."""
    rng = np.random.default_rng(classes)
    votes = rng.integers(0, classes, (HUNDRED, 2))
    nodes, leaves = stumps(np.eye(classes)[votes] / HUNDRED)
    x = rng.choice([-1.0, 1.0], (4000, HUNDRED)).astype(np.float32)
    cast = np.where(x <= 0, votes[:, 0], votes[:, 1])
    count = (cast[:, :, None] == np.arange(classes)).sum(1)
    given = nodes | {f"class_{k}": v for k, v in leaves.items()}
    call = jax.jit(lambda x: tree_ensemble_classifier(x, classlabels_int64s=list(range(classes)), **given))
    labels, scores = call(x)
    ordered = np.sort(count, 1)
    assert (ordered[:, -1] == ordered[:, -2]).sum() > 100
    np.testing.assert_array_equal(labels, count.argmax(1))
    np.testing.assert_allclose(scores, count / HUNDRED, rtol=1e-7)


@pytest.mark.parametrize("trees", [10, 50, 100, 300])
def test_half_of_the_votes_is_not_more_than_half(trees):
    """Two classes with votes for the second only: it is chosen above 0.5."""
    weights = np.zeros((trees, 2, 2))
    weights[:, 1, 1] = 1 / trees
    nodes, leaves = stumps(weights)
    x = np.where(np.arange(trees) < np.arange(trees + 1)[:, None], 1.0, -1.0).astype(np.float32)
    given = nodes | {f"class_{k}": v for k, v in leaves.items()}
    labels, scores = tree_ensemble_classifier(x, classlabels_int64s=[0, 1], **given)
    np.testing.assert_array_equal(labels, np.arange(trees + 1) > trees / 2)
    np.testing.assert_allclose(scores[:, 1], np.arange(trees + 1) / trees, rtol=1e-7)


@pytest.mark.parametrize("counts", [[4], [2, 3], [1, 40, 2], [7, 7, 7]])
def test_trees_of_one_target_each(counts):
    """The trees of a target in any places, and targets without any."""
    rng = np.random.default_rng(len(counts))
    target = rng.permutation(np.repeat(np.arange(len(counts)), counts)) * 2
    weights = np.zeros((len(target), 2, 2 * len(counts)))
    weights[np.arange(len(target)), :, target] = rng.normal(size=(len(target), 2)).astype(np.float32)
    nodes, leaves = stumps(weights)
    x = rng.choice([-1.0, 1.0], (3000, len(target))).astype(np.float32)
    chosen = np.where((x <= 0)[:, :, None], weights[:, 0], weights[:, 1])
    given = nodes | {f"target_{k}": v for k, v in leaves.items()}
    y = jax.jit(lambda x: tree_ensemble_regressor(x, n_targets=2 * len(counts), **given))(x)
    np.testing.assert_allclose(y, chosen.sum(1), rtol=3e-7, atol=1e-7)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 200),
    st.integers(1, 3),
    st.integers(0, 30),
    st.integers(0, 2**32 - 1),
)
def test_sums_are_the_nearest_numbers(dtype, trees, targets, spread, seed):
    """Weights of up to 2**spread times one another, and zeros."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(50, targets)) * 2.0 ** rng.uniform(-spread, 0, (50, targets))
    weights = np.where(rng.random(weights.shape) < 0.2, 0, weights).astype(dtype)
    leaf = rng.integers(0, 50, (20, trees)).astype(np.int32)
    with jax.enable_x64(dtype == np.float64):
        found = np.asarray(jax.jit(lambda leaf: vote_sum(weights, leaf))(leaf))
        other = np.asarray(jax.jit(lambda leaf: vote_sum(weights, leaf))(rng.permuted(leaf, axis=1)))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, other)
    np.testing.assert_allclose(found, exact(weights, leaf), rtol=1.01 * np.finfo(dtype).eps)


@pytest.mark.parametrize("odd", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_stays(odd):
    weights = np.array([[1.0, 2.0], [odd, 3.0]], np.float32)
    y = vote_sum(weights, jnp.array([[0, 1, 1], [0, 0, 0]], jnp.int32))
    np.testing.assert_array_equal(y, np.array([[odd, 8.0], [3.0, 6.0]], np.float32))


@pytest.mark.parametrize("scale", [3e38, 1e-37, 0.0])
def test_ends_of_the_range(scale):
    weights = np.array([[1.0], [-0.5]], np.float32) * np.float32(scale)
    y = vote_sum(weights, jnp.array([[0, 1, 1, 0, 1]], jnp.int32))
    np.testing.assert_allclose(y, np.float32(scale) / 2, rtol=1e-6)
