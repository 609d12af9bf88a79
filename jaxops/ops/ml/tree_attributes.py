"""From the lists that describe trees in a model to their tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.attributes import ints
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, DTypeError, SignatureError
from jaxops.ops.ml.tree_tables import MODES, Branches, Trees, Votes, build
from jaxops.shapes.ml import trees as sizes_of
from jaxops.static import known

NUMBERED = (*MODES, "BRANCH_MEMBER")


def either(op: str, name: str, values: Sequence[float] | None, tensor: Any) -> np.ndarray:
    """A list of floats, given as such or as a tensor, which may be of float64; empty without both."""
    tensor = None if tensor is None else known(op, f"{name}_as_tensor", tensor)
    if values is not None and tensor is not None and len(values) and tensor.size:
        raise SignatureError(f"{op}: `{name}` and `{name}_as_tensor` exclude each other; give one of them")
    if tensor is not None and tensor.size:
        return floats(op, f"{name}_as_tensor", tensor)
    return np.asarray(known(op, name, () if values is None else values), np.float32).reshape(-1)


def floats(op: str, name: str, tensor: Any) -> np.ndarray:
    """A static tensor of floats as a vector."""
    found = known(op, name, tensor).reshape(-1)
    if not is_float(found.dtype):
        raise DTypeError(f"{op}: `{name}` must be floats, got {found.dtype.name}")
    return found


def in_range(op: str, name: str, values: np.ndarray, limit: Any, what: str) -> None:
    """Raises ArgumentError unless all numbers are in [0, limit)."""
    if values.size:
        sizes_of.in_range(op, name, int(values.min()), int(values.max()), limit, what)


def joined(
    op: str, x: jax.Array, nodes: Mapping[str, Any], splits: Any, members: Any, leaves: Mapping[str, Any], roots: Any
) -> tuple[Trees, Votes]:
    """Trees whose nodes and leaves are apart, as in TreeEnsemble."""
    given = {name: _ints(op, name, v) for name, v in nodes.items() if v is not None}
    given["nodes_splits"] = floats(op, "nodes_splits", splits)
    count = sizes_of.same_length(op, given)
    targets = _ints(op, "leaf_targetids", leaves["leaf_targetids"])
    weights = floats(op, "leaf_weights", leaves["leaf_weights"])
    size = sizes_of.same_length(op, {"leaf_targetids": targets, "leaf_weights": weights})
    first = _ints(op, "tree_roots", roots)
    in_range(op, "tree_roots", first, count, "nodes")
    in_range(op, "nodes_modes", given["nodes_modes"], len(NUMBERED), "modes")
    children = []
    for side in ("true", "false"):
        ids, ends = given[f"nodes_{side}nodeids"], given[f"nodes_{side}leafs"] == 1
        in_range(op, f"nodes_{side}nodeids", ids[ends], size, "leaves")
        in_range(op, f"nodes_{side}nodeids", ids[~ends], count, "nodes")
        children.append(np.where(ends, ids, ids + size))
    modes = [NUMBERED[mode] for mode in given["nodes_modes"]]
    missing = given.get("nodes_missing_value_tracks_true", np.zeros(count)) == 1
    sets = _sets(op, members, modes.count("BRANCH_MEMBER"))
    branches = Branches(
        given["nodes_featureids"], given["nodes_splits"], modes, children[0], children[1], missing, sets
    )
    trees = build(op, branches, first + size, size, np.dtype(x.dtype), x.shape[1])
    return trees, Votes(np.arange(size), targets, weights)


def numbered(
    op: str,
    x: jax.Array,
    nodes: Mapping[str, Any],
    modes: Sequence[str] | None,
    values: np.ndarray,
    leaves: Mapping[str, Any],
    weights: np.ndarray,
) -> tuple[Trees, Votes]:
    """Trees whose nodes have the number of a tree and one of their own, as in TreeEnsembleRegressor."""
    given = {name: _ints(op, name, () if v is None else v) for name, v in nodes.items()}
    missing = given.pop("nodes_missing_value_tracks_true")
    kinds = np.asarray(() if modes is None else modes, object)
    lists = {**given, "nodes_modes": kinds, "nodes_values": values}
    sizes_of.same_length(op, {**lists, "nodes_missing_value_tracks_true": missing} if missing.size else lists)
    wrong = set(kinds) - {"LEAF", *MODES}
    if wrong:
        raise ArgumentError(f"{op}: `nodes_modes` holds {min(wrong)!r}; a mode is LEAF, {', '.join(MODES)}")
    tree, own = given["nodes_treeids"], given["nodes_nodeids"]
    is_leaf = kinds == "LEAF"
    count = int(is_leaf.sum())
    # Leaves get the first numbers.
    place = np.where(is_leaf, np.cumsum(is_leaf) - 1, count + np.cumsum(~is_leaf) - 1)
    find = _Finder(op, tree, own, place)
    inner = ~is_leaf
    true, false = (
        find(f"nodes_{side}nodeids", tree[inner], given[f"nodes_{side}nodeids"][inner]) for side in ("true", "false")
    )
    _, first = np.unique(tree, return_index=True)
    branches = Branches(
        given["nodes_featureids"][inner],
        values[inner],
        list(kinds[inner]),
        true,
        false,
        missing[inner] == 1 if missing.size else np.zeros(len(true), bool),
    )
    trees = build(op, branches, place[np.sort(first)], count, np.dtype(x.dtype), x.shape[1])
    ids, node, at = (_ints(op, name, () if v is None else v) for name, v in leaves.items())
    names = list(leaves)
    sizes_of.same_length(
        op, {names[0]: ids, names[1]: node, names[2]: at, names[0].split("_")[0] + "_weights": weights}
    )
    voter = find(names[1], at, node)
    held = voter < count  # what stands at a node that is no leaf is not reached
    return trees, Votes(voter[held], ids[held], weights[held])


class _Finder:
    """The places of nodes by the number of their tree and their own."""

    def __init__(self, op: str, tree: np.ndarray, own: np.ndarray, place: np.ndarray) -> None:
        self.op, self.trees, self.numbers = op, np.unique(tree), np.unique(own)
        keys, _ = self._keys(tree, own)
        order = np.argsort(keys, kind="stable")
        self.keys, self.places = keys[order], place[order]
        again = order[1:][self.keys[1:] == self.keys[:-1]]
        if again.size:
            twice = again.min()
            raise ArgumentError(f"{op}: node {own[twice]} of tree {tree[twice]} is there twice")

    def _keys(self, tree: np.ndarray, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A number for each pair, and whether there is such a tree, and such a number."""
        a, b = (np.searchsorted(known[:-1], given) for known, given in ((self.trees, tree), (self.numbers, own)))
        return a * len(self.numbers) + b, (self.trees[a] == tree) & (self.numbers[b] == own)

    def __call__(self, name: str, tree: np.ndarray, own: np.ndarray) -> np.ndarray:
        keys, there = self._keys(tree, own) if self.keys.size else (tree, np.zeros(len(tree), bool))
        at = np.searchsorted(self.keys[:-1], keys)
        there = there & (self.keys[at] == keys) if self.keys.size else there
        if not there.all():
            k = there.argmin()
            raise ArgumentError(f"{self.op}: `{name}` names node {own[k]} of tree {tree[k]}, which is not there")
        return self.places[at]


def _ints(op: str, name: str, values: Any) -> np.ndarray:
    found = known(op, name, values)
    if found.ndim == 1 and found.dtype in (np.int32, np.int64):
        return found.astype(np.int64)
    return np.array(ints(op, name, found if found.size else ()), np.int64)


def _sets(op: str, members: Any, count: int) -> list[np.ndarray]:
    """The sets of members, which NaNs delimit."""
    values = np.zeros(0) if members is None else floats(op, "membership_values", members).astype(np.float64)
    found = np.split(values, np.flatnonzero(np.isnan(values)))
    found = [part[~np.isnan(part)] for part in found]
    if not values.size or (len(found) == count + 1 and not found[-1].size):
        found.pop()  # no sets at all, or a NaN at the end
    if len(found) != count:
        raise ArgumentError(
            f"{op}: `membership_values` holds {len(found)} sets, but {count} nodes have mode BRANCH_MEMBER"
        )
    return found
