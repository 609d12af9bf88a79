"""Sizes of Reshape, Squeeze and Unsqueeze, which give the same elements another shape."""

import math

from jaxops.errors import ShapeError, amount, shape_text
from jaxops.shapes.arithmetic import agree, at_least, divided, equal
from jaxops.static import Dim, Sizes

_INT64_MAX = 2**63 - 1


def countable(sizes: Sizes) -> Sizes:
    """The sizes, after a check that an int64 can count the elements (zero sizes aside).

    NumPy raises an error of its own here, and XLA of jaxlib 0.10.2 ends the process.
    """
    count = math.prod(d for d in sizes if isinstance(d, int) and d > 0)
    if count > _INT64_MAX:
        raise ShapeError(f"{shape_text(sizes)} has more elements than an int64 can count")
    return sizes


def reshape(sizes: Sizes, shape: Sizes, allowzero: bool) -> Sizes:
    """Resolves 0 (copy; with `allowzero` a size of zero) and -1 (the remaining elements) in the target of a Reshape."""
    problem = f"`shape` {shape_text(shape)} does not fit data of {shape_text(sizes)}"
    target, free = [], None
    for i, size in enumerate(shape):
        if isinstance(size, int) and size < 0:
            if size < -1:
                raise ShapeError(f"{problem}: {size} at position {i} is negative; only -1 (inferred) may be")
            if free is not None:
                raise ShapeError(f"{problem}: -1 is at positions {free} and {i}; only one can be inferred")
            free = i
        elif isinstance(size, int) and size == 0 and not allowzero:
            if i >= len(sizes):
                raise ShapeError(
                    f"{problem}: 0 at position {i} copies a size, but data has {amount(len(sizes), 'axis', 'axes')}; "
                    f"for a size of zero pass allowzero=1"
                )
            target.append(sizes[i])
            continue
        target.append(size)
    if free is None:
        before, after = math.prod(sizes), math.prod(target)
        problem = f"{problem}: data has {before} elements, {shape_text(target)} has {after}"
        if not agree(problem, after, before):
            raise ShapeError(problem)
        return countable(tuple(target))
    if allowzero and any(isinstance(size, int) and size == 0 for size in shape):
        raise ShapeError(f"{problem}: with allowzero=1 it cannot have both 0 and -1")
    product = math.prod(size for i, size in enumerate(target) if i != free)
    if isinstance(product, int) and product == 0:
        raise ShapeError(f"{problem}: the other sizes have the product 0, so -1 cannot be inferred")
    target[free] = _quotient(problem, math.prod(sizes), product)
    return tuple(target)


def _quotient(problem: str, total: Dim, part: Dim) -> Dim:
    return divided(f"{problem}: {total} elements are not a multiple of {part}, so -1 cannot be inferred", total, part)


def squeeze(sizes: Sizes, axes: tuple[int, ...] | None) -> Sizes:
    """Drops the `axes`, which must have size 1; None drops all axes of size 1."""
    if axes is None:
        # The rank of the result depends on every size. The error proposes a program for sizes of 2 and above.
        problem = f"{{}} of {shape_text(sizes)} may be 1 or larger; name the `axes`"
        return tuple(d for d in sizes if at_least(problem.format(d), d, 2) or not equal(d, 1))
    for i in axes:
        problem = f"axis {i} of {shape_text(sizes)} has size {sizes[i]}, only size 1 can be dropped"
        if not agree(problem, sizes[i], 1):
            raise ShapeError(problem)
    return tuple(d for i, d in enumerate(sizes) if i not in axes)


def unsqueeze(sizes: Sizes, axes: tuple[int, ...]) -> Sizes:
    """Sizes with a 1 at each of the `axes`, which are positions in the result."""
    remaining = iter(sizes)
    return tuple(1 if i in axes else next(remaining) for i in range(len(sizes) + len(axes)))
