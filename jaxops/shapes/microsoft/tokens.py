"""Sizes of sequences of tokens and of matrices of costs."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Sizes


def ngrams(op: str, ids: Sizes, scores: Sizes, size: int) -> None:
    """ids is (N, S), scores (N, V), and size positive."""
    if size < 1:
        raise ArgumentError(f"{op}: `ngram_size` is {size}; it must be at least 1")
    problem = (
        f"{op}: `input_ids` of {shape_text(ids)} and `scores` of {shape_text(scores)} must be matrices of as many rows"
    )
    if len(ids) != 2 or not one_of(problem, scores, (ids[0], None)):
        raise ShapeError(problem)


def costs(op: str, sizes: Sizes) -> None:
    """A matrix, perhaps with a leading axis of size 1; it has an element."""
    if len(sizes) not in (2, 3) or (len(sizes) == 3 and sizes[0] != 1) or 0 in sizes:
        raise ShapeError(f"{op}: `input` of {shape_text(sizes)} must be (M, N) or (1, M, N), not empty")
