"""The operators of OpenVINO's opset 1 that ONNX does not have, under OpenVINO's names and under Python's."""

import numpy as np  # noqa: F401 - the doctests use it

from jaxops import ops
from jaxops.signature import Static
from jaxops.static import Array

__all__ = ["VariadicSplit", "variadic_split"]


def variadic_split(data: Array, axis: Static, split_lengths: Static) -> tuple[Array, ...]:
    """Takes `data` apart along `axis` into pieces of the given lengths.

    data: at least one axis, any dtype. Returns a tuple, as many arrays as there are lengths.
    axis: static, any integer type, a scalar or one in a 1-D array, in [-n, n-1].
    split_lengths: static, 1-D, any integer type, each >= -1. One -1 stands for the rest of the axis, which may be
    empty; without it, the lengths must sum to the size of the axis. Lengths that exceed the axis are an error even
    beside a -1, for which OpenVINO's runtime reads out of bounds.
    Raises ShapeError when the lengths do not fill the axis, AxisError, DTypeError for anything but integers,
    StaticError when `axis` or `split_lengths` is traced.
    Source: OpenVINO VariadicSplit-1.

    >>> import numpy as np
    >>> x = np.zeros((6, 2))
    >>> [piece.shape for piece in VariadicSplit(x, axis=0, split_lengths=(1, -1, 3))]
    [(1, 2), (2, 2), (3, 2)]
    """
    return ops.variadic_split(data, axis, split_lengths)


VariadicSplit = variadic_split
