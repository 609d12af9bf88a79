"""Cumulative sums and products along an axis."""

__all__ = ["cumprod", "cumsum"]

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, flag, integer
from jaxops.dtypes import accumulation_type, is_float
from jaxops.ops.common.elementwise import one_of_kind
from jaxops.ops.common.prefix_products import cumulative_product
from jaxops.signature import SizesKept, Static, Traits
from jaxops.static import A, Array, Operand, jit_if_concrete

TRAITS = Traits(foldable=True, grows=True)


def cumsum(x: SizesKept[Operand[A]], axis: Static, *, exclusive: int = 0, reverse: int = 0) -> A:
    """The cumulative sum along an axis.

    x: at least one axis, numbers. axis: static, an integer in [-n, n-1]. Returns the shape and dtype of x.
    exclusive: 1 excludes the element itself, so the first sum is 0. reverse: 1 starts at the end.
    Raises AxisError, StaticError when `axis` is traced.
    Source: ONNX CumSum, opsets 11–14.

    >>> cumsum(np.array([1, 2, 3]), 0), cumsum(np.array([1, 2, 3]), 0, exclusive=1, reverse=1)
    (array([1, 3, 6]), array([5, 3, 0]))
    """
    return _run(x, axis, exclusive, reverse, is_product=False)


def cumprod(x: SizesKept[Operand[A]], axis: Static, *, exclusive: int = 0, reverse: int = 0) -> A:
    """The cumulative product along an axis.

    x: at least one axis, numbers. axis: static, an integer in [-n, n-1]. Returns the shape and dtype of x.
    exclusive: 1 excludes the element itself, so the first product is 1. reverse: 1 starts at the end.
    Raises AxisError, StaticError when `axis` is traced.
    Source: ONNX CumProd, opset 26.

    >>> cumprod(np.array([1, 2, 3]), 0), cumprod(np.array([1, 2, 3]), 0, exclusive=1, reverse=1)
    (array([1, 2, 6]), array([6, 3, 1]))
    """
    return _run(x, axis, exclusive, reverse, is_product=True)


def _run(x: Any, axis: Any, exclusive: int, reverse: int, *, is_product: bool) -> Any:
    data = one_of_kind("numbers", x)
    resolved = resolve_axis(integer("axis", axis), data.ndim)
    return _cumulate(data, resolved, flag("exclusive", exclusive), flag("reverse", reverse), is_product)


@jit_if_concrete
def _cumulate(data: Array, axis: int, exclusive: bool, reverse: bool, is_product: bool) -> Array:
    start = 1 if is_product else 0
    x = data.astype(accumulation_type(data.dtype), copy=False)
    if isinstance(x, np.ndarray):
        x = np.flip(x, axis) if reverse else x
        if exclusive and x.shape[axis] != 0:
            first = np.full_like(x.take([0], axis), start)
            x = np.concatenate([first, x.take(range(x.shape[axis] - 1), axis)], axis)
        with np.errstate(all="ignore"):
            x = (np.cumprod if is_product else np.cumsum)(x, axis=axis, dtype=x.dtype)
        return (np.flip(x, axis) if reverse else x).astype(data.dtype, copy=False)
    if exclusive:
        # Shift by one: pad one element at the start and crop one (-1) at the end.
        edges = (-1, 1, 0) if reverse else (1, -1, 0)
        x = lax.pad(x, np.asarray(start, x.dtype), [edges if i == axis else (0, 0, 0) for i in range(x.ndim)])
    run: Callable[..., jax.Array] = lax.cumprod if is_product else lax.cumsum
    if is_product and is_float(x.dtype) and isinstance(x.shape[axis], int):
        run = cumulative_product
    return lax.convert_element_type(run(x, axis, reverse), data.dtype)
