"""Turns the lists that describe trees in a model into tables."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.attributes import ints
from jaxops.dtypes import is_float
from jaxops.errors import ArgumentError, DTypeError, SignatureError
from jaxops.ops.ml.tree_tables import MEMBER, MODES, NUMBERED, Branches, Trees, Votes, build
from jaxops.shapes.ml import trees as sizes_of
from jaxops.static import known

_LEAF = len(NUMBERED)
_NUMBERS = {mode: number for number, mode in enumerate((*NUMBERED, "LEAF"))}


def either(name: str, values: Sequence[float] | None, tensor: Any) -> np.ndarray:
    """A vector of floats, given as a list or as a tensor, which may be float64; empty if neither is given."""
    tensor = None if tensor is None else known(f"{name}_as_tensor", tensor)
    if values is not None and tensor is not None and len(values) and tensor.size:
        raise SignatureError(f"`{name}` and `{name}_as_tensor` exclude each other; give one of them")
    if tensor is not None and tensor.size:
        return floats(f"{name}_as_tensor", tensor)
    return np.asarray(known(name, () if values is None else values), np.float32).reshape(-1)


def floats(name: str, tensor: Any) -> np.ndarray:
    """A static tensor of floats as a vector."""
    vector = known(name, tensor).reshape(-1)
    if not is_float(vector.dtype):
        raise DTypeError(f"`{name}` must be floats, got {vector.dtype.name}")
    return vector


def in_range(name: str, values: np.ndarray, limit: Any, nouns: str) -> None:
    """Raises ArgumentError unless all numbers are in [0, limit)."""
    if values.size:
        sizes_of.in_range(name, int(values.min()), int(values.max()), limit, nouns)


def joined(
    x: jax.Array, nodes: Mapping[str, Any], splits: Any, members: Any, leaves: Mapping[str, Any], roots: Any
) -> tuple[Trees, Votes]:
    """Trees with separate lists of nodes and of leaves, as in TreeEnsemble."""
    attributes = {name: _ints(name, v) for name, v in nodes.items() if v is not None}
    attributes["nodes_splits"] = floats("nodes_splits", splits)
    count = sizes_of.same_length(attributes)
    targets = _ints("leaf_targetids", leaves["leaf_targetids"])
    weights = floats("leaf_weights", leaves["leaf_weights"])
    size = sizes_of.same_length({"leaf_targetids": targets, "leaf_weights": weights})
    first = _ints("tree_roots", roots)
    in_range("tree_roots", first, count, "nodes")
    in_range("nodes_modes", attributes["nodes_modes"], len(NUMBERED), "modes")
    children = []
    for side in ("true", "false"):
        ids, ends = attributes[f"nodes_{side}nodeids"], attributes[f"nodes_{side}leafs"] == 1
        in_range(f"nodes_{side}nodeids", ids[ends], size, "leaves")
        in_range(f"nodes_{side}nodeids", ids[~ends], count, "nodes")
        children.append(np.where(ends, ids, ids + size))
    modes = attributes["nodes_modes"]
    missing = attributes.get("nodes_missing_value_tracks_true", np.zeros(count)) == 1
    sets = _sets(members, int(np.count_nonzero(modes == MEMBER)))
    branches = Branches(
        attributes["nodes_featureids"], attributes["nodes_splits"], modes, children[0], children[1], missing, sets
    )
    trees = build(branches, first + size, size, np.dtype(x.dtype), x.shape[1])
    return trees, Votes(np.arange(size), targets, weights)


def numbered(
    x: jax.Array,
    nodes: Mapping[str, Any],
    modes: Sequence[str] | None,
    values: np.ndarray,
    leaves: Mapping[str, Any],
    weights: np.ndarray,
) -> tuple[Trees, Votes]:
    """Trees whose nodes are identified by the number of a tree and their own number, as in TreeEnsembleRegressor."""
    columns = {name: _ints(name, () if v is None else v) for name, v in nodes.items()}
    missing = columns.pop("nodes_missing_value_tracks_true")
    modes = () if modes is None else modes
    lists = {**columns, "nodes_modes": modes, "nodes_values": values}
    sizes_of.same_length({**lists, "nodes_missing_value_tracks_true": missing} if missing.size else lists)
    wrong = set(modes) - {"LEAF", *MODES}
    if wrong:
        raise ArgumentError(f"`nodes_modes` holds {min(wrong)!r}; each must be one of LEAF, {', '.join(MODES)}")
    kinds = np.fromiter(map(_NUMBERS.__getitem__, modes), np.int64, len(modes))
    tree, number = columns["nodes_treeids"], columns["nodes_nodeids"]
    is_leaf = kinds == _LEAF
    count = int(is_leaf.sum())
    # Leaves get the first numbers.
    position = np.where(is_leaf, np.cumsum(is_leaf) - 1, count + np.cumsum(~is_leaf) - 1)
    find = _Finder(tree, number, position)
    inner = ~is_leaf
    true, false = (
        find(f"nodes_{side}nodeids", tree[inner], columns[f"nodes_{side}nodeids"][inner]) for side in ("true", "false")
    )
    branches = Branches(
        columns["nodes_featureids"][inner],
        values[inner],
        kinds[inner],
        true,
        false,
        missing[inner] == 1 if missing.size else np.zeros(len(true), bool),
    )
    trees = build(branches, position[_first_of_each(tree)], count, np.dtype(x.dtype), x.shape[1])
    ids, node, node_numbers = (_ints(name, () if v is None else v) for name, v in leaves.items())
    names = list(leaves)
    sizes_of.same_length(
        {names[0]: ids, names[1]: node, names[2]: node_numbers, names[0].split("_")[0] + "_weights": weights}
    )
    voter = find(names[1], node_numbers, node)
    is_on_leaf = voter < count  # the weights of inner nodes are never reached
    return trees, Votes(voter[is_on_leaf], ids[is_on_leaf], weights[is_on_leaf])


def _first_of_each(column: np.ndarray) -> np.ndarray:
    """The position of the first item of each value, in ascending order."""
    begins = np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])
    _, first = np.unique(column[begins], return_index=True)
    return begins[np.sort(first)]


class _Ranks:
    """Maps a number to its rank among the distinct numbers of a column."""

    def __init__(self, column: np.ndarray) -> None:
        low, high = (int(column.min()), int(column.max())) if column.size else (0, -1)
        # Nearly all files number nodes and trees from 0 without large gaps: then a difference serves as the rank.
        self.low = low if high - low < 4 * column.size else None
        self.values = None if self.low is not None else np.unique(column)
        self.count = high - low + 1 if self.values is None else len(self.values)

    def __call__(self, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ranks, True where a number has one)."""
        if self.values is not None:
            ranks = np.searchsorted(self.values[:-1], column)
            return ranks, self.values[ranks] == column
        ranks = column - self.low
        return ranks, (ranks >= 0) & (ranks < self.count)


class _Finder:
    """Finds the positions of nodes by the number of their tree and their own number."""

    def __init__(self, tree: np.ndarray, number: np.ndarray, position: np.ndarray) -> None:
        self.trees, self.numbers = _Ranks(tree), _Ranks(number)
        keys, _ = self._keys(tree, number)
        order = np.argsort(keys, kind="stable")
        self.keys, self.places = keys[order], position[order]
        again = order[1:][self.keys[1:] == self.keys[:-1]]
        if again.size:
            twice = again.min()
            raise ArgumentError(f"node {number[twice]} of tree {tree[twice]} is listed twice")

    def _keys(self, tree: np.ndarray, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(a number for each pair, True where there is such a tree and such a number)."""
        (a, is_tree), (b, is_number) = self.trees(tree), self.numbers(number)
        return a * self.numbers.count + b, is_tree & is_number

    def __call__(self, name: str, tree: np.ndarray, number: np.ndarray) -> np.ndarray:
        keys, there = self._keys(tree, number) if self.keys.size else (tree, np.zeros(len(tree), bool))
        index = np.searchsorted(self.keys[:-1], keys)
        there = there & (self.keys[index] == keys) if self.keys.size else there
        if not there.all():
            k = there.argmin()
            raise ArgumentError(f"`{name}` names node {number[k]} of tree {tree[k]}, which does not exist")
        return self.places[index]


def _ints(name: str, values: Any) -> np.ndarray:
    integers = known(name, values)
    if integers.ndim == 1 and integers.dtype in (np.int32, np.int64):
        return integers.astype(np.int64, copy=False)
    return np.array(ints(name, integers if integers.size else ()), np.int64)


def _sets(members: Any, count: int) -> list[np.ndarray]:
    """The sets of members, which are separated by NaN."""
    values = np.zeros(0) if members is None else floats("membership_values", members).astype(np.float64)
    parts = np.split(values, np.flatnonzero(np.isnan(values)))
    parts = [part[~np.isnan(part)] for part in parts]
    if not values.size or (len(parts) == count + 1 and not parts[-1].size):
        parts.pop()  # no sets at all, or a NaN at the end
    if len(parts) != count:
        raise ArgumentError(f"`membership_values` holds {len(parts)} sets, but {count} nodes have mode BRANCH_MEMBER")
    return parts
