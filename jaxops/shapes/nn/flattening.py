"""Sizes of a flattened array."""

import math

from jaxops.static import Sizes


def flatten(sizes: Sizes, axis: int) -> Sizes:
    """Two sizes: the product before `axis` and the product from `axis` on; `axis` is in [0, rank]."""
    return math.prod(sizes[:axis]), math.prod(sizes[axis:])
