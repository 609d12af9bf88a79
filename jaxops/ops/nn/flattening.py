"""Flattening to a matrix."""

__all__ = ["flatten"]

import math

import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, integer
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.signature import Traits
from jaxops.static import A, Array, Operand, Sizes, jit_if_concrete

TRAITS = Traits(kind="form", foldable=True)


@moves_strings(0)
def flatten(input: Operand[A], *, axis: int = 1) -> A:
    """Joins the axes before `axis` into one, and those from `axis` on into another.

    input: (d0, …, dn-1), any dtype. Returns (d0·…·d[axis-1], d[axis]·…·dn-1), same dtype; an empty product is 1.
    axis: static, in [-n, n]; n is allowed and gives a last axis of size 1.
    Raises AxisError when `axis` is out of range.
    Source: ONNX Flatten, opsets 1–25 (a negative axis from 11).

    >>> flatten(np.zeros((2, 0, 4))).shape
    (2, 0)
    """
    return _flatten(input, integer("axis", axis))


def flattened_sizes(sizes: Sizes, axis: int) -> Sizes:
    """Two sizes: the product before `axis` and the product from `axis` on; `axis` is in [0, rank]."""
    return math.prod(sizes[:axis]), math.prod(sizes[axis:])


@jit_if_concrete
def _flatten(input: Array, axis: int) -> Array:
    sizes = flattened_sizes(input.shape, resolve_axis(axis, input.ndim, end=True))
    y = input.reshape(sizes) if isinstance(input, np.ndarray) else lax.reshape(input, sizes)
    return assert_sizes(y, sizes, input.dtype)
