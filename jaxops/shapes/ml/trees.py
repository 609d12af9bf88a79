"""Lengths of the lists that describe trees."""

from collections.abc import Mapping, Sized
from typing import Any

from jaxops.errors import ArgumentError, ShapeError


def same_length(lists: Mapping[str, Sized]) -> int:
    """The length of all lists; raises ShapeError when they differ."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"`{name}` {length}" for name, length in lengths.items())
        raise ShapeError(f"these lists must be equally long, but have {listing} items")
    return next(iter(lengths.values()), 0)


def in_range(name: str, least: int, greatest: int, limit: Any, nouns: str) -> None:
    """Raises ArgumentError for a number outside of [0, limit); a symbolic limit is not looked at."""
    if least < 0 or (isinstance(limit, int) and greatest >= limit):
        wrong = least if least < 0 else greatest
        raise ArgumentError(f"`{name}` holds {wrong}, but there are {limit} {nouns}")
