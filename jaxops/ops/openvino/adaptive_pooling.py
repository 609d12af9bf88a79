"""Pooling into a given number of windows, which overlap if that number does not divide the size of an axis."""

__all__ = ["adaptive_avg_pool", "adaptive_max_pool"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import accumulation_type, canonical, floating
from jaxops.errors import ShapeError, SizeError, shape_text
from jaxops.memory import bounded
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.openvino.suppression import index_type
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import ElementType, Static, Traits
from jaxops.static import ArrayLike, Sizes, jit_if_concrete

TRAITS = Traits(kind="pooling")


def adaptive_avg_pool(data: ArrayLike, output_shape: Static) -> jax.Array:
    """Divides the spatial axes into a given number of windows, and returns the mean of each.

    data: (N, C, d1, …), one to three spatial axes, floats; 16-bit types are summed in float32. output_shape: static,
    (o1, …). Returns (N, C, o1, …), same dtype. Window i of an axis consists of elements floor(i·d/o) to
    ceil((i+1)·d/o) - 1.
    Raises ShapeError, DTypeError, StaticError. Source: OpenVINO AdaptiveAvgPool-8.

    >>> adaptive_avg_pool(jnp.arange(5.0).reshape(1, 1, 5), (2,)).tolist()
    [[[1.0, 3.0]]]
    """
    (x,) = floating(data=data)
    return _adaptive_avg_pool(x, _checked(x.shape, output_shape))


def adaptive_max_pool(
    data: ArrayLike, output_shape: Static, *, index_element_type: ElementType = "int64"
) -> tuple[jax.Array, jax.Array]:
    """Returns the largest element of each window of `adaptive_avg_pool`, and its index in the flattened spatial axes.

    Returns (N, C, o1, …), of the dtype of data, and of index_element_type. Among equal elements the first one is taken.
    Raises ShapeError, DTypeError, StaticError; SizeError for symbolic spatial sizes.
    Source: OpenVINO AdaptiveMaxPool-8.

    >>> values, indices = adaptive_max_pool(jnp.array([[[1.0, 3.0, 2.0]]]), (2,))
    >>> values.tolist(), indices.tolist()
    ([[[3.0, 3.0]]], [[[1, 1]]])
    """
    (x,) = floating(data=data)
    kind = index_type(index_element_type, "index_element_type")
    counts = _checked(x.shape, output_shape)
    if not all(isinstance(d, int) for d in (*x.shape[2:], *counts)):
        problem = f"the spatial sizes of `data` {shape_text(x.shape)} and `output_shape` must be numbers"
        raise SizeError(problem, *x.shape[2:], *counts, fix=128)
    values, indices = _adaptive_max_pool(x, counts)
    return values, indices.astype(kind)


def _checked(x: Sizes, output_shape: Any) -> Sizes:
    counts = ints("output_shape", output_shape)
    if not 3 <= len(x) <= 5 or len(counts) != len(x) - 2:
        raise ShapeError(
            f"`data` of {shape_text(x)} must have one to three spatial axes, and `output_shape` "
            f"{shape_text(counts)} must have one number for each"
        )
    if any(isinstance(n, int) and n < 0 for n in counts):
        raise ShapeError(f"`output_shape` {shape_text(counts)} must not be negative")
    check_inhabited("`data`", x, range(2, len(x)), counts)
    return counts


@jit_if_concrete
def _adaptive_avg_pool(x: jax.Array, counts: Sizes) -> jax.Array:
    sizes = (*x.shape[:2], *counts)
    bounded_like(sizes, x)
    y = x.astype(accumulation_type(x.dtype))
    for axis, count in enumerate(counts):
        # A window is a product of one window per axis, so the axes are summed one after another.
        size, number = (jnp.asarray(d, np.int32) for d in (x.shape[2 + axis], count))
        place = lax.iota(np.int32, count)[:, None]
        first, last = place * size // number, -((-(place + 1) * size) // number)
        element = lax.iota(np.int32, x.shape[2 + axis])[None]
        weights = ((element >= first) & (element < last)).astype(y.dtype) / (last - first).astype(y.dtype)
        moved = lax.dot_general(y, weights, (((2 + axis,), (1,)), ((), ())), precision=lax.Precision.HIGHEST)
        y = jnp.moveaxis(moved, -1, 2 + axis)
    return assert_sizes(y.astype(x.dtype), sizes, x.dtype)


@jit_if_concrete
def _adaptive_max_pool(x: jax.Array, counts: Sizes) -> tuple[Any, Any]:
    sizes = (*x.shape[:2], *counts)
    bounded_like(sizes, x)
    for count in (math.prod(x.shape[2:]), *(sum(pair) for pair in zip(counts, x.shape[2:], strict=True))):
        bounded((count,), np.dtype(np.int64).itemsize, "the list of indices")
    spatial = x.shape[2:]
    flat = np.arange(int(np.prod(spatial))).astype(canonical(np.int64)).reshape(1, 1, *spatial)
    pairs = x, jnp.broadcast_to(flat, x.shape)
    # Last axis first, so that ties go to the first element in row-major order.
    for axis in reversed(range(2, x.ndim)):
        size, count = x.shape[axis], counts[axis - 2]
        first = np.arange(count) * size // max(count, 1)
        last = -(-(np.arange(count) + 1) * size // max(count, 1))
        widest = int((last - first).max(initial=1))
        index = first[:, None] + np.arange(widest)
        exists = (index < last[:, None]).reshape(count, widest, *[1] * (x.ndim - 1 - axis))
        values, places = (jnp.take(v, np.minimum(index, size - 1), axis, mode="clip") for v in pairs)
        exists = jnp.broadcast_to(exists[(None,) * axis], values.shape)
        best = jnp.argmax(jnp.where(exists, values, jnp.full_like(values, -np.inf)), axis + 1, keepdims=True)
        pairs = tuple(jnp.take_along_axis(v, best, axis + 1).squeeze(axis + 1) for v in (values, places))
    return assert_sizes(pairs[0], sizes, x.dtype), pairs[1]
