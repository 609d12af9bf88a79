"""Sizes of matrices that a model holds as lists of numbers."""

from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.static import Dim, Sizes


def weights(count: int, targets: int | None, features: Dim, x: Sizes) -> tuple[int, int]:
    """(targets, features) of a matrix of `count` numbers; if targets is None, x gives their number."""
    if not isinstance(features, int) and targets is None:
        raise ArgumentError("the number of features of x is symbolic; give `intercepts`, one per target")
    rows = count // features if targets is None and features else targets
    columns = count // rows if rows else 0
    if not rows or rows * columns != count or not count or (isinstance(features, int) and columns != features):
        rows_text = "targets" if targets is None else f"{targets} targets"
        raise ShapeError(
            f"{count} coefficients do not fit x of {shape_text(x)}; there must be one for each of the "
            f"{rows_text} and the {features} features"
        )
    return rows, columns


def at_least(name: str, count: int, least: int) -> None:
    """Raises ShapeError for fewer than `least` values."""
    if count < least:
        raise ShapeError(f"`{name}` has {count} values; it needs at least {least}")


def one_each(name: str, count: int, number: int, noun: str) -> None:
    """Raises ShapeError unless there are `number` values, one for each of what the noun names in the message."""
    if count != number:
        raise ShapeError(f"`{name}` has {amount(count, 'value')}; it must have {number}, one per {noun}")
