"""Tables of a tree ensemble, made by NumPy while tracing, and the descent of rows through its trees.

Nodes of all trees are numbered together, leaves first. Each node is a comparison of one feature, LEQ, LT or EQ, and has
three children: for true, false and NaN. A leaf is its own child, so all rows take as many steps as the deepest tree.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import canonical, is_float
from jaxops.errors import ArgumentError
from jaxops.memory import bounded
from jaxops.ops.common.words import from_words
from jaxops.ops.ml.vote_sums import at, vote_sum
from jaxops.shapes.ml import trees as sizes_of

LEQ, LT, EQ = range(3)
# For each mode of the standard: the comparison that stands for it, and True if its outcome is negated.
MODES = {
    "BRANCH_LEQ": (LEQ, False),
    "BRANCH_LT": (LT, False),
    "BRANCH_GTE": (LT, True),
    "BRANCH_GT": (LEQ, True),
    "BRANCH_EQ": (EQ, False),
    "BRANCH_NEQ": (EQ, True),
}
# The modes by the numbers that TreeEnsemble gives them.
NUMBERED = (*MODES, "BRANCH_MEMBER")
MEMBER = NUMBERED.index("BRANCH_MEMBER")
_KIND, _TURNED = np.array([*MODES.values()], np.int64).T


class Branches(NamedTuple):
    """The inner nodes, as the attributes list them; children are numbered with the leaves first.

    modes: indices into NUMBERED. members: the sets of the nodes with mode BRANCH_MEMBER, in their order.
    """

    features: np.ndarray
    splits: np.ndarray
    modes: np.ndarray
    true: np.ndarray
    false: np.ndarray
    missing_true: np.ndarray
    members: Sequence[np.ndarray] = ()


class Votes(NamedTuple):
    """The votes of leaves: at position i, leaf `leaves[i]` gives `weights[i]` to target `targets[i]`."""

    leaves: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


class Trees(NamedTuple):
    """The tables of an ensemble.

    table: a row of 32-bit words for each node, which a processor reads from one place of its memory: the feature, three
    children, the threshold (of `dtype`), and the kind of comparison if there are several. kinds: those that occur.
    depth: the greatest number of steps to a leaf.
    """

    table: np.ndarray
    dtype: np.dtype
    kinds: np.ndarray
    roots: np.ndarray
    depth: int
    leaves: int
    # All pairs of a tree and a leaf of it, in the order of the trees.
    leaf_trees: np.ndarray
    tree_leaves: np.ndarray


def build(branches: Branches, roots: np.ndarray, leaves: int, dtype: Any, features: Any) -> Trees:
    """The tables for rows of this dtype and number of features. Raises ArgumentError for nodes that do not form
    trees.
    """
    nodes = _plain(branches, leaves)
    if nodes.features.size:
        sizes_of.in_range("nodes_featureids", nodes.features.min(), nodes.features.max(), features, "features")
    kinds, turned = _KIND[nodes.modes], _TURNED[nodes.modes]
    # NaN is unequal to everything, and neither less nor greater.
    nan = np.where(nodes.missing_true | (turned.astype(bool) & (kinds == EQ)), nodes.true, nodes.false)
    never = np.isnan(nodes.splits)
    always = np.zeros(len(never), bool)
    splits = nodes.splits.astype(np.float64)
    # With a threshold of NaN, a negated comparison is false, too, except NEQ.
    nan_splits, turned = never & (kinds != EQ), turned.astype(bool)
    kinds, splits, more, all_true = _exact(kinds, np.where(never, 0, splits), dtype)
    never, always = never | more, always | all_true
    yes, no = np.where(turned, nodes.false, nodes.true), np.where(turned, nodes.true, nodes.false)
    no = np.where(nan_splits, nodes.false, no)
    yes, no = np.where(never, no, yes), np.where(always & ~never, yes, no)
    children = np.empty((leaves + len(yes), 3), np.int32)
    children[:leaves] = np.arange(leaves)[:, None]
    children[leaves:, 0], children[leaves:, 1], children[leaves:, 2] = yes, no, nan
    depth, trees, leaves_of_trees = _walk(children, roots, leaves)
    if dtype.itemsize < 4:
        splits = splits.astype(np.float32 if is_float(dtype) else np.int32)
    words = np.ascontiguousarray(splits).view(np.int32).reshape(len(kinds), splits.itemsize // 4)
    several = np.flatnonzero(np.bincount(kinds))
    columns = [*words.T, *([kinds] if len(several) > 1 else [])]
    table = np.zeros((len(children), 4 + len(columns)), np.int32)
    table[leaves:, 0] = nodes.features
    table[:, 1:4] = children
    for k, column in enumerate(columns, 4):
        table[leaves:, k] = column
    return Trees(
        table=table,
        dtype=splits.dtype,
        kinds=several,
        roots=roots.astype(np.int32),
        depth=depth,
        leaves=leaves,
        leaf_trees=trees,
        tree_leaves=leaves_of_trees,
    )


def _plain(nodes: Branches, leaves: int) -> Branches:
    """Replaces each BRANCH_MEMBER node by a binary search, which visits about log2(k) + 1 nodes for k members."""
    if not (nodes.modes == MEMBER).any():
        return nodes
    features, splits, modes = list(nodes.features), list(nodes.splits), list(nodes.modes)
    true, false, missing = list(nodes.true), list(nodes.false), list(nodes.missing_true)
    sets, less, equal = iter(nodes.members), NUMBERED.index("BRANCH_LT"), NUMBERED.index("BRANCH_EQ")

    def search(node: int, members: np.ndarray) -> None:
        if len(members) < 2:
            modes[node], splits[node] = equal, members[0] if len(members) else np.nan
            return
        middle = len(members) // 2
        modes[node], splits[node] = less, members[middle]
        halves = []
        for half in (members[:middle], members[middle:]):
            halves.append(leaves + len(modes))
            for column in (features, true, false, missing):
                column.append(column[node])
            modes.append(equal)
            splits.append(0)
            search(halves[-1] - leaves, half)
        # A NaN goes through the first half, whose outcome for it is that of the whole search.
        true[node], false[node] = halves
        missing[node] = True

    for node in np.flatnonzero(nodes.modes == MEMBER).tolist():
        search(node, np.unique(next(sets)))
    children = np.array(true), np.array(false)
    return Branches(np.array(features), np.array(splits, np.float64), np.array(modes), *children, np.array(missing))


def _exact(kinds: Any, splits: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Comparisons with thresholds of x's type `dtype` that have the same outcomes as with the float64 `splits`.

    Returns kinds, thresholds, and two masks: where the outcome is always false, and where it is always true.
    """
    if is_float(dtype):
        with np.errstate(over="ignore"):
            near = splits.astype(dtype)
        wide = near.astype(np.float64)
        high, low = np.nextafter(near, dtype.type(-np.inf)), np.nextafter(near, dtype.type(np.inf))
        exact = np.where((kinds == LEQ) & (wide > splits), high, np.where((kinds == LT) & (wide < splits), low, near))
        return kinds, exact.astype(dtype), (kinds == EQ) & (wide != splits), np.zeros(len(kinds), bool)
    limits = jnp.iinfo(dtype)
    bounds = np.where(kinds == LT, np.ceil(splits) - 1, np.floor(splits))
    equal = kinds == EQ
    # For int64, float(limits.max) is 2**63, one more than the greatest number.
    never = (bounds < float(limits.min)) | (equal & ((splits != bounds) | (bounds >= float(limits.max) + 1)))
    always = ~equal & (bounds >= float(limits.max))
    thresholds = np.where(never | always, 0, bounds).astype(dtype)
    return np.where(equal, EQ, LEQ), thresholds, never, always


def _walk(children: np.ndarray, roots: np.ndarray, leaves: int) -> tuple[int, np.ndarray, np.ndarray]:
    """The depth, and all pairs of a tree and a leaf that it may reach."""
    count, depth = len(children), 0
    yes, no, nan = children.T
    # Where the child for NaN differs from both other children; and whether two trees, or branches of one, share nodes.
    third = (nan != yes) & (nan != no)
    parents = np.concatenate([roots, yes[leaves:], no[yes != no], nan[third]])
    meet = np.bincount(parents, minlength=1).max() > 1
    tree, node = np.arange(len(roots)), roots
    leaf_trees, tree_leaves = [], []
    while node.size:
        ends = node < leaves
        leaf_trees.append(tree[ends])
        tree_leaves.append(node[ends])
        tree, node = tree[~ends], node[~ends]
        both, three = yes[node] != no[node], third[node]
        node = np.concatenate([yes[node], no[node[both]], nan[node[three]]]).astype(np.int64)
        tree = np.concatenate([tree, tree[both], tree[three]])
        if meet:
            tree, node = np.divmod(np.unique(tree * count + node), count)
        depth += node.size > 0
        if depth > count:
            raise ArgumentError(f"the nodes of tree {tree[0]} form a cycle")
    if not leaf_trees:
        return depth, tree, node
    tree, node = np.concatenate(leaf_trees), np.concatenate(tree_leaves)
    if meet:
        tree, node = np.divmod(np.unique(tree * count + node), count)
    return depth, tree, node


def leaves_of(trees: Trees, x: jax.Array) -> jax.Array:
    """The leaf of each row of x (rows, features) in each tree: (rows, trees)."""
    size, first, x = trees.table.shape[1], 4, x.astype(trees.dtype)
    kind = first + trees.dtype.itemsize // 4
    table = trees.table.reshape(-1)

    def step(_: Any, node: Any) -> Any:
        def word(k: Any) -> Any:
            return at(table, size * node + k)

        value = jnp.take_along_axis(x, word(0), 1, mode="promise_in_bounds")
        split = from_words([word(k) for k in range(first, kind)], trees.dtype)
        outcomes = [f(value, split) for k, f in ((LEQ, lax.le), (LT, lax.lt), (EQ, lax.eq)) if k in trees.kinds]
        true = outcomes[0]
        for k, outcome in zip(trees.kinds[1:], outcomes[1:], strict=True):
            true = lax.select(word(kind) == np.int32(k), outcome, true)
        child = jnp.where(true, jnp.int32(1), jnp.int32(2))
        if is_float(x.dtype):
            child = jnp.where(jnp.isnan(value), jnp.int32(3), child)
        return word(child)

    start = jnp.broadcast_to(jnp.asarray(trees.roots), (x.shape[0], len(trees.roots)))
    return lax.fori_loop(0, trees.depth, step, start) if trees.depth else start


def combined(trees: Trees, votes: Votes, x: jax.Array, targets: int, how: str) -> tuple[Any, Any]:
    """The weights of the leaves of each row, combined: (rows, targets); and where a leaf votes for a target.

    how: SUM, AVERAGE, MIN or MAX. A target without a vote has 0. They are float32, or float64 if x or a weight is.
    With one target, the first vote of a leaf counts, as in onnxruntime; with several, its votes for one are combined.
    """
    if targets == 1:
        _, first = np.unique(votes.leaves, return_index=True)
        votes = Votes(votes.leaves[first], votes.targets[first], votes.weights[first])
    wide = np.float64 in (x.dtype, votes.weights.dtype)
    dtype = canonical(np.float64 if wide else np.float32)
    start, ufunc = {"MIN": (np.inf, np.minimum), "MAX": (-np.inf, np.maximum)}.get(how, (0, np.add))
    bounded((max(trees.leaves, len(trees.roots)), targets), dtype.itemsize, "the table of leaves and targets")
    weights = np.full((trees.leaves, targets), start, dtype)
    ufunc.at(weights, (votes.leaves, votes.targets), votes.weights.astype(dtype))
    voting = np.zeros((trees.leaves, targets), bool)
    voting[votes.leaves, votes.targets] = True
    leaf = leaves_of(trees, x)
    voted = _voted(trees, voting, leaf)
    sums = how in ("SUM", "AVERAGE")
    target = _target_of_trees(trees, voting) if sums else None
    if not len(trees.roots):
        totals = jnp.zeros((x.shape[0], targets), dtype)
    elif not sums:
        totals = (jnp.min if how == "MIN" else jnp.max)(at(weights, leaf), 1)
    elif target is None:
        totals = vote_sum(weights, leaf)
    else:
        totals = _by_target(weights, leaf, target)
    if how == "AVERAGE":
        totals = totals / len(trees.roots)
    return (totals if sums else jnp.where(voted, totals, jnp.zeros_like(totals))), voted


def _by_target(weights: np.ndarray, leaf: jax.Array, target: np.ndarray) -> jax.Array:
    """The sums for trees that vote for one target each: one weight per leaf, and the trees of each target in a group.

    weights: (leaves, targets). leaf: (rows, trees). target: (trees,). Returns (rows, targets).
    """
    (rows, trees), (leaves, targets) = leaf.shape, weights.shape
    voted, group, counts = np.unique(target, return_inverse=True, return_counts=True)
    order = np.argsort(group, kind="stable")
    tree_numbers = np.full((len(voted), counts.max()), trees)
    tree_numbers[np.arange(counts.max()) < counts[:, None]] = order
    if not np.array_equal(tree_numbers.ravel(), np.arange(trees)):
        # A group with fewer trees than the largest is filled up with a leaf of weight 0.
        leaf = jnp.concatenate([leaf, jnp.full((rows, 1), leaves, leaf.dtype)], 1)
        leaf = leaf.at[:, tree_numbers].get(mode="promise_in_bounds")
    single = np.append(weights.sum(1, dtype=weights.dtype), weights.dtype.type(0))
    sums = vote_sum(single[:, None], leaf.reshape(-1, tree_numbers.shape[1])).reshape(rows, len(voted))
    return sums if len(voted) == targets else jnp.zeros((rows, targets), sums.dtype).at[:, voted].set(sums)


def _target_of_trees(trees: Trees, voting: np.ndarray) -> np.ndarray | None:
    """The only target of each tree; None if a tree has several."""
    per_tree = np.zeros((len(trees.roots), voting.shape[1]), bool)
    np.logical_or.at(per_tree, trees.leaf_trees, voting[trees.tree_leaves])
    return per_tree.argmax(1) if voting.shape[1] and (per_tree.sum(1) <= 1).all() else None


def _voted(trees: Trees, voting: np.ndarray, leaf: Any) -> Any:
    """True if one of the leaves of a row votes for a target: (rows, targets)."""
    # If all leaves of a tree vote for a target, every row has a vote for it.
    silent = np.zeros((len(trees.roots), voting.shape[1]), bool)
    np.logical_or.at(silent, trees.leaf_trees, ~voting[trees.tree_leaves])
    sizes = leaf.shape[0], voting.shape[1]
    if (~silent).any(0).all():
        return jnp.ones(sizes, bool)
    return jnp.any(at(voting, leaf), 1)
