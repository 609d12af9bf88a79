"""Sizes of n-gram counts, and of the pool that says which n-grams are counted."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.static import Sizes


class Segment(NamedTuple):
    """The n-grams of one length in the pool: where they begin, the number of the first one, how many there are."""

    n: int
    start: int
    number: int
    total: int


def counted(x: Sizes, columns: int) -> Sizes:
    """(columns,) of one sequence (C,), (N, columns) of N sequences (N, C) (ONNX TfIdfVectorizer-9)."""
    if len(x) not in (1, 2):
        raise ShapeError(f"tf_idf_vectorizer: `x` of {shape_text(x)} must be (C,) or (N, C)")
    return (*x[:-1], columns)


def segments(pool: int, starts: Sequence[int]) -> list[Segment]:
    """The 1-grams, the 2-grams, … of a pool of so many items, from where each of them begins."""
    op = "tf_idf_vectorizer"
    if not starts or starts[0] != 0 or list(starts) != sorted(starts) or starts[-1] > pool:
        raise ArgumentError(
            f"{op}: `ngram_counts` {shape_text(starts)} must ascend from 0 to at most {pool}, the size of the pool"
        )
    found, number = [], 0
    for n, (start, end) in enumerate(zip(starts, [*starts[1:], pool], strict=True), 1):
        if (end - start) % n:
            raise ArgumentError(f"{op}: the pool has {end - start} items of {n}-grams, which {n} does not divide")
        found.append(Segment(n, start, number, (end - start) // n))
        number += found[-1].total
    return found
