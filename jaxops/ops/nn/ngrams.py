"""Counts of n-grams. Sequences of numbers may be traced; those of strings are static."""

__all__ = ["tf_idf_vectorizer"]

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, ints, one_of
from jaxops.dtypes import is_string
from jaxops.errors import ArgumentError, DTypeError, amount, describe, shape_text
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts
from jaxops.shapes.arithmetic import must_fit
from jaxops.static import ArrayLike, Ints, Sizes, array, jit_if_concrete

NgramMode = Literal["TF", "IDF", "TFIDF"]
# The gaps of more sizes are counted one after another, in a loop.
_AT_ONCE = 16


class _Segment(NamedTuple):
    """The n-grams of one length in the pool: where they begin, the number of the first one, how many there are."""

    n: int
    start: int
    number: int
    total: int


def _count_sizes(x: Sizes, columns: int) -> Sizes:
    """The sizes (columns,) for one sequence (C,), (N, columns) for N sequences (N, C) (ONNX TfIdfVectorizer-9)."""
    must_fit("x", x, ("C",), ("N", "C"))
    return (*x[:-1], columns)


def _segments(pool: int, starts: Sequence[int]) -> list[_Segment]:
    """The 1-grams, the 2-grams, … of a pool. pool: its number of items. starts: where the n-grams of a length begin."""
    if not starts or starts[0] != 0 or list(starts) != sorted(starts) or starts[-1] > pool:
        raise ArgumentError(
            f"`ngram_counts` {shape_text(starts)} must ascend from 0 to at most {pool}, the size of the pool"
        )
    segments, number = [], 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], pool], strict=True), 1):
        if (end - start) % n:
            raise ArgumentError(f"the pool has {amount(end - start, 'item')} of {n}-grams, which {n} does not divide")
        segments.append(_Segment(n, start, number, (end - start) // n))
        number += segments[-1].total
    return segments


def tf_idf_vectorizer(
    x: ArrayLike,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: NgramMode,
    ngram_counts: Ints,
    ngram_indexes: Ints,
    pool_int64s: Ints | None = None,
    pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> jax.Array:
    """Counts how often each n-gram of a pool occurs in each sequence.

    x: (C,) or (N, C), integers, which may be traced, or static strings. pool_int64s or pool_strings: the 1-grams, then
    the 2-grams, and so on; ngram_counts: where each of these begins. ngram_indexes: for each n-gram its column in the
    result. weights: for each n-gram a factor; None is 1. Returns (columns,) or (N, columns), float32; n-grams of one
    column are added.
    max_skip_count: how many items of the sequence may lie between two neighbours of an n-gram; the gaps of one
    occurrence are equal. min_gram_length, max_gram_length: the smallest and largest n that is counted. mode: 'TF'
    counts, 'TFIDF' multiplies the counts with weights, 'IDF' gives the weights of the n-grams that occur.
    Raises ArgumentError, ShapeError, DTypeError.
    Source: ONNX TfIdfVectorizer, opset 9.

    >>> options = dict(mode="TF", min_gram_length=2, max_gram_length=2, max_skip_count=0)
    >>> pool = dict(ngram_counts=(0, 0), ngram_indexes=(0, 1), pool_int64s=(5, 6, 7, 5))
    >>> tf_idf_vectorizer(np.array([5, 6, 5, 6, 7]), **options, **pool).tolist()
    [2.0, 0.0]
    """
    tokens = array(x)
    how = one_of("mode", mode, NgramMode)
    shortest, longest = (
        integer(name, v) for name, v in (("min_gram_length", min_gram_length), ("max_gram_length", max_gram_length))
    )
    skips = integer("max_skip_count", max_skip_count)
    if not 1 <= shortest <= longest or skips < 0:
        raise ArgumentError(
            f"`min_gram_length` {shortest} must be in [1, {longest}], the `max_gram_length`, and "
            f"`max_skip_count` {skips} must not be negative"
        )
    pool = _pool(tokens, pool_int64s, pool_strings)
    segments = _segments(len(pool), ints("ngram_counts", ngram_counts))
    columns = ints("ngram_indexes", ngram_indexes)
    total = sum(segment.total for segment in segments)
    if len(columns) != total or min(columns, default=0) < 0:
        raise ArgumentError(
            f"`ngram_indexes` has {amount(len(columns), 'item')}, the least {min(columns, default=0)}; it must "
            f"have {total}, one for each n-gram of the pool, none negative"
        )
    if weights is not None and len(weights) != total:
        raise ArgumentError(f"`weights` has {amount(len(weights), 'item')}; the pool has {total} n-grams")
    sizes = _count_sizes(tokens.shape, max(columns, default=-1) + 1)
    check_counts("ngram_indexes", max(columns, default=-1))
    bounded_like(sizes, tokens, np.float32)
    vocabulary, items = np.unique(pool, return_inverse=True)
    is_static_input = isinstance(tokens, np.ndarray)
    table = _Pool(
        None if is_static_input else tuple(vocabulary.tolist()),
        tuple(items.tolist()),
        tuple(s for s in segments if shortest <= s.n <= longest and s.total),
        columns,
        None if how == "TF" or weights is None else tuple(weights),
    )
    y = _counted(jnp.asarray(_places(tokens, vocabulary)) if is_static_input else tokens, table, skips, how == "IDF")
    return assert_sizes(y, sizes, np.float32)


class _Pool(NamedTuple):
    """The n-grams, hashable.

    vocabulary: the distinct items, ascending; None if the sequences hold indices into it. items: the pool as indices
    into the vocabulary. segments: of the lengths that are counted. columns, weights: of each n-gram.
    """

    vocabulary: tuple[int, ...] | None
    items: tuple[int, ...]
    segments: tuple[_Segment, ...]
    columns: Sizes
    weights: tuple[float, ...] | None


@jit_if_concrete
def _counted(x: Any, pool: _Pool, skips: int, once: bool) -> Any:
    codes = x if pool.vocabulary is None else _traced_places(x, np.asarray(pool.vocabulary))
    codes = codes[None] if codes.ndim == 1 else codes
    y = jnp.zeros((codes.shape[0], max(pool.columns, default=-1) + 1), np.float32)
    for n, start, number, count in pool.segments:
        grams = np.reshape(pool.items[start : start + n * count], (count, n))
        counts = _occurrences(codes, _levels(grams), n, count, skips)
        if once:
            counts = jnp.minimum(counts, 1)
        if pool.weights is not None:
            counts = counts * np.asarray(pool.weights[number : number + count], np.float32)[None]
        y = y.at[:, np.asarray(pool.columns[number : number + count])].add(counts)
    return y[0] if x.ndim == 1 else y


def _pool(x: Any, numbers: Ints | None, strings: Sequence[str] | None) -> np.ndarray:
    if (not strings) == (numbers is None or not len(ints("pool_int64s", numbers))):
        raise ArgumentError("exactly one of `pool_int64s` and `pool_strings` must hold n-grams")
    if is_string(x) != bool(strings) or not (is_string(x) or jnp.issubdtype(x.dtype, jnp.integer)):
        item_kind = "strings" if strings else "integers"
        raise DTypeError(f"`x` must be {item_kind}, as the pool is, got {describe(x)}")
    if strings:
        return np.array(list(strings), object)
    assert numbers is not None
    return np.asarray(ints("pool_int64s", numbers), np.int64)


def _places(x: np.ndarray, vocabulary: np.ndarray) -> np.ndarray:
    """The index of each item in the vocabulary, which is sorted; -1 for items that it lacks."""
    values = x.astype(vocabulary.dtype)
    index = np.searchsorted(vocabulary, values).clip(max=len(vocabulary) - 1)
    return np.where(vocabulary[index] == values, index, -1).astype(np.int32)


def _traced_places(x: Any, vocabulary: np.ndarray) -> Any:
    limits = jnp.iinfo(x.dtype)  # x cannot hold items outside of these
    low, high = (
        int(np.searchsorted(vocabulary, int(limits.min))),
        int(np.searchsorted(vocabulary, int(limits.max), "right")),
    )
    candidates = jnp.asarray(vocabulary[low:high].astype(x.dtype))
    if not candidates.size:
        return jnp.full(x.shape, -1, np.int32)
    index = jnp.minimum(jnp.searchsorted(candidates, x), candidates.size - 1)
    return jnp.where(candidates[index] == x, index + low, -1).astype(np.int32)


class _Level(NamedTuple):
    """The nodes of one depth in a prefix tree (trie), in the order of their parents, children of one parent ascending.

    items: the item of each node. first: for each node of the level above, the index of its first child; then the
    number of nodes.
    """

    items: np.ndarray
    first: np.ndarray


def _levels(grams: np.ndarray) -> tuple[list[_Level], np.ndarray]:
    """The prefix tree (trie) of n-grams (count, n), and for each of its leaves the index of the n-gram."""
    vocabulary = int(grams.max()) + 1
    levels, parents, above = [], np.zeros(len(grams), np.int64), 1
    leaves = parents
    for column in grams.T:
        keys, leaves, parents = np.unique(parents * vocabulary + column, return_index=True, return_inverse=True)
        first = np.searchsorted(keys // vocabulary, np.arange(above + 1))
        levels.append(_Level((keys % vocabulary).astype(np.int32), first.astype(np.int32)))
        above = len(keys)
    return levels, leaves


def _occurrences(codes: Any, tree: tuple[list[_Level], np.ndarray], n: int, count: int, skips: int) -> Any:
    """(N, count): how often each n-gram of a tree occurs in each row of (N, C)."""
    length = codes.shape[1]
    most = skips + 1 if n > 1 else 1
    if n > 1 and isinstance(length, int):
        most = min(most, (length - 1) // (n - 1))
    elif n > 1 and skips >= _AT_ONCE:
        fitting = jnp.asarray((length - 1) // (n - 1), np.int32)
        most = jnp.minimum(min(most, np.iinfo(np.int32).max), fitting)
    zeros = jnp.zeros((codes.shape[0], count), np.float32)
    if not isinstance(most, int) or most > _AT_ONCE:
        return lax.fori_loop(1, most + 1, lambda step, counts: counts + _at_step(codes, tree, n, count, step), zeros)
    starts = {step: length - step * (n - 1) for step in range(1, most + 1)}
    starts = {step: m for step, m in starts.items() if not (isinstance(m, int) and m <= 0)}
    if not starts:
        return zeros
    places = [
        lax.concatenate([lax.slice_in_dim(codes, i * step, i * step + m, axis=1) for step, m in starts.items()], 1)
        for i in range(n)
    ]
    return _found(places, tree, count)


def _at_step(codes: Any, tree: tuple[list[_Level], np.ndarray], n: int, count: int, step: Any) -> Any:
    """The occurrences whose items are `step` places apart, which may be traced; -1 follows the end of a row."""
    place = lax.broadcasted_iota(np.int32, codes.shape, 1)
    row = lax.broadcasted_iota(np.int32, codes.shape, 0)
    items = [codes.at[row, place + i * step].get(mode="fill", fill_value=-1) for i in range(n)]
    return _found(items, tree, count)


def _found(items: Sequence[Any], tree: tuple[list[_Level], np.ndarray], count: int) -> Any:
    """(N, count): how often each n-gram of a tree is among (N, M) candidates. items: the items of each, in order."""
    levels, leaves = tree
    node = jnp.zeros_like(items[0])
    for level, item in zip(levels, items, strict=True):
        node = _child(level, node, item)
    grams = jnp.where(node < 0, count, jnp.asarray(leaves.astype(np.int32))[node])
    rows = lax.broadcasted_iota(np.int32, grams.shape, 0)
    return jnp.zeros((grams.shape[0], count), np.float32).at[rows, grams].add(1.0, mode="drop")


def _child(level: _Level, parent: Any, item: Any) -> Any:
    """The child of node `parent` with this item, by bisection; -1 if there is none, or if `parent` is -1."""
    items, first = jnp.asarray(level.items), jnp.asarray(level.first)
    end = first[parent + 1]

    def halve(_: Any, bounds: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = bounds
        middle = (low + high) // 2
        smaller = (low < high) & (items[middle] < item)
        return jnp.where(smaller, middle + 1, low), jnp.where(smaller, high, jnp.minimum(middle, high))

    most = int(np.diff(level.first).max())
    low, _ = lax.fori_loop(0, most.bit_length(), halve, (first[parent], end))
    there = (parent >= 0) & (low < end) & (items[jnp.minimum(low, len(level.items) - 1)] == item)
    return jnp.where(there, low, -1)
