"""Sizes of Engram memories: hashes of n-grams, and the gate of what is looked up by them."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import one_of
from jaxops.static import Sizes


def heads(op: str, longest: int, each: int) -> tuple[int, int]:
    """The number of tokens before one that an n-gram reaches, and of the hashes of all n-grams."""
    if longest < 2:
        raise ArgumentError(f"{op}: `max_ngram_size` is {longest}; it must be at least 2")
    if each < 1:
        raise ArgumentError(f"{op}: `n_head_per_ngram` is {each}; it must be at least 1")
    return longest - 1, (longest - 1) * each


def tokens(op: str, sizes: Sizes, rank: int) -> None:
    """Checks `input_ids`, (T,) or (B, L)."""
    if len(sizes) != rank:
        raise ShapeError(f"{op}: `input_ids` of {shape_text(sizes)} must be {'(B, L)' if rank == 2 else '(T,)'}")


def factors(op: str, sizes: Sizes, longest: int) -> None:
    """Checks `multipliers`, at least one for each token of an n-gram."""
    if len(sizes) != 1 or (isinstance(sizes[0], int) and sizes[0] < longest):
        raise ShapeError(
            f"{op}: `multipliers` of {shape_text(sizes)} must be (n,), with n at least {longest}, the max_ngram_size"
        )


def gate(op: str, key: Sizes, others: dict[str, Sizes | None]) -> None:
    """Checks the operands of a gate, of which the key is (B, L, G, H)."""
    if len(key) != 4:
        raise ShapeError(f"{op}: `key` of {shape_text(key)} must be (B, L, G, H)")
    wanted = {"query": key, "value": (*key[:2], key[3])}
    for name, sizes in others.items():
        expected = wanted.get(name, key[2:])
        problem = f"{op}: `{name}` of {shape_text(sizes or ())} must be {shape_text(expected)}"
        if not one_of(problem, sizes, expected):
            raise ShapeError(problem)
