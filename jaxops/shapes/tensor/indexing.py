"""Sizes of the operators that gather and scatter by index."""

from collections.abc import Iterable

from jaxops.errors import ArgumentError, BoundsError, ShapeError, SizeError, shape_text
from jaxops.shapes.arithmetic import at_least, must_agree, must_fit
from jaxops.static import Sizes


def check_inhabited(subject: str, sizes: Sizes, axes: Iterable[int], read: Sizes) -> None:
    """Raises BoundsError if elements are read along one of `axes`, and that axis has none.

    subject: begins the message. read: the sizes of the result of reading; if one is 0, nothing is read.
    """
    empty = [i for i in axes if isinstance(sizes[i], int) and sizes[i] == 0]
    if empty and not any(isinstance(d, int) and d == 0 for d in read):
        raise BoundsError(
            f"{subject} of {shape_text(sizes)} is empty along axis {empty[0]}, but elements are read from it"
        )


def elements(sizes: Sizes, indices: Sizes, axis: int) -> None:
    """Raises ShapeError unless `indices` has the rank of `sizes` and exceeds it only along `axis`."""
    problem = (
        f"`indices` of {shape_text(indices)} must have the rank of data of {shape_text(sizes)} "
        f"and may exceed its sizes only along axis {axis}"
    )
    fits = len(sizes) == len(indices) and all(
        i == axis or a == b or at_least(problem, a, b) for i, (a, b) in enumerate(zip(sizes, indices, strict=True))
    )
    if not fits:
        raise ShapeError(problem)


def tuples(sizes: Sizes, indices: Sizes, batch_dims: int = 0) -> int:
    """The length of the index tuples on the last axis of `indices`."""
    if not sizes or not indices:
        raise ShapeError(f"data of {shape_text(sizes)} and `indices` of {shape_text(indices)} must not be scalars")
    if not 0 <= batch_dims < min(len(sizes), len(indices)):
        raise ArgumentError(
            f"`batch_dims` is {batch_dims}; data of {shape_text(sizes)} and `indices` of {shape_text(indices)} "
            f"allow 0 to {min(len(sizes), len(indices)) - 1}"
        )
    problem = (
        f"the first {batch_dims} sizes of data, {shape_text(sizes)}, "
        f"and `indices`, {shape_text(indices)}, must be equal"
    )
    must_agree(problem, sizes[:batch_dims], indices[:batch_dims])
    length, most = indices[-1], len(sizes) - batch_dims
    if not isinstance(length, int):
        raise SizeError(f"the last size of `indices`, {length}, must be a number, not symbolic", length, fix=most)
    if not 1 <= length <= most:
        raise ShapeError(
            f"`indices` of {shape_text(indices)} holds tuples of {length}; data of {shape_text(sizes)} "
            f"needs 1 to {most}"
        )
    return length


def updates(expected: Sizes, sizes: Sizes) -> None:
    """Raises ShapeError unless `updates` has the expected sizes."""
    must_fit("updates", tuple(sizes), tuple(expected), reason=" for these operands")
