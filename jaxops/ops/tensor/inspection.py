"""Operators on the shape of an array alone; their results are static."""

__all__ = ["shape", "size"]

import math
from typing import Any

import numpy as np

from jaxops.attributes import integer
from jaxops.opaque import ChosenStrings
from jaxops.signature import ShapeOnly, Traits
from jaxops.static import Dim, Sizes, array, is_symbolic

TRAITS = Traits(foldable=True)


def dims(sizes: list[Dim] | Dim) -> np.ndarray:
    """Sizes as a static value: int64, or dtype object when one is symbolic."""
    symbolic = any(map(is_symbolic, sizes)) if isinstance(sizes, list) else is_symbolic(sizes)
    return np.array(sizes, dtype=object if symbolic else np.int64)


def _sizes(data: Any) -> Sizes:
    """The sizes of an array, or of strings that traced numbers choose."""
    return data.shape if isinstance(data, ChosenStrings) else array(data).shape


def shape(data: ShapeOnly, *, start: int = 0, end: int | None = None) -> np.ndarray:
    """The sizes of `data`, as a static 1-D int64 array.

    data: any shape and dtype; only its shape is used. start, end: static, the range of axes; they count from the
    end when negative and are clamped to the rank. Symbolic sizes give an array of dtype object.
    Source: ONNX Shape, opsets 1–25.

    >>> shape(np.zeros((2, 3, 4)), start=1)
    array([3, 4])
    """
    first = integer("start", start)
    last = None if end is None else integer("end", end)
    return dims(list(_sizes(data)[first:last]))


def size(data: ShapeOnly) -> np.ndarray:
    """The number of elements of `data`, as a static int64 scalar.

    data: any shape and dtype; only its shape is used.
    Source: ONNX Size, opsets 1–25.

    >>> size(np.zeros((2, 3, 4)))
    array(24)
    """
    return dims(math.prod(_sizes(data)))
