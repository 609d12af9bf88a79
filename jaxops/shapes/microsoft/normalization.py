"""Sizes of residuals and parameters of normalizations."""

from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.shapes.arithmetic import divided, must_agree, must_fit
from jaxops.static import Sizes


def repeats(sizes: Sizes, skip: Sizes) -> Sizes:
    """Returns the sizes of `skip` with as many axes as input.

    input, skip: (N, S, C) with (N, S, C), (1, S, C) or (S, C); or (T, C) with (T, C).
    """
    full = (1,) * (len(sizes) - len(skip)) + tuple(skip)
    if len(sizes) == 3 and full == (1, *sizes[1:]):
        return full
    problem = f"`skip` of {shape_text(skip)} must have the shape of input, {shape_text(sizes)}" + (
        ", or that without the first axis" if len(sizes) == 3 else ""
    )
    must_agree(problem, tuple(skip), tuple(sizes))
    return tuple(sizes)


def heads(sizes: Sizes, scale: Sizes) -> Sizes:
    """x of (…, H·C) as (…, H, C), where scale is (C,)."""
    if len(scale) != 1 or not sizes:
        raise ShapeError(
            f"`scale` of {shape_text(scale)} must have one axis, and x of {shape_text(sizes)} at least one"
        )
    problem = (
        f"the last axis of x of {shape_text(sizes)} does not divide into heads of {scale[0]} elements, the size "
        f"of `scale`"
    )
    if scale[0] == 0:
        raise ShapeError(problem)
    return (*sizes[:-1], divided(problem, sizes[-1], scale[0]), scale[0])


def branches(sizes: Sizes, scale: Sizes | None, num_branches: int) -> tuple[Sizes, Sizes | None]:
    """x as (…, C, H), and scale as (C, H) or (1, H).

    num_branches: C of an x of (…, C·H); 0 for an x of (…, C, H).
    """
    if num_branches < 0:
        raise ArgumentError(f"`num_branches` is {num_branches}; it must not be negative")
    if len(sizes) < (1 if num_branches else 2):
        raise ShapeError(f"x of {shape_text(sizes)} has too few axes; give (…, C, H), or `num_branches`")
    count = num_branches or sizes[-2]
    problem = f"the last axis of x of {shape_text(sizes)} does not divide into {num_branches} branches"
    each = divided(problem, sizes[-1], num_branches) if num_branches else sizes[-1]
    full = (*(sizes[:-1] if num_branches else sizes[:-2]), count, each)
    if scale is None:
        return full, None
    if tuple(scale) == (each,):
        return full, (1, each)
    must_fit("scale", tuple(scale), (each,), (count, each), (count * each,))
    return full, (count, each)


def residual(sizes: Sizes, skip: Sizes) -> Sizes:
    """The sizes of `skip` as four axes: the shape of x (N, H, W, C), or (N, 1, 1, C), or (N, C)."""
    must_fit("x", sizes, ("N", "H", "W", "C"))
    short = (sizes[0], 1, 1, sizes[3])
    must_fit("skip", tuple(skip), tuple(sizes), short, (sizes[0], sizes[3]))
    return short if len(skip) == 2 else tuple(skip)
