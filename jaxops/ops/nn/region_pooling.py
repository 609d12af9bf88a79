"""Pooling of regions of interest, by whole elements; `roi_align` in `ops.object_detection.regions` interpolates."""

__all__ = ["max_roi_pool"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import accumulation_type, floating, unify
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.kernels.xla_workarounds import largest, quotient
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.shapes.arithmetic import agree
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import Traits
from jaxops.static import ArrayLike, Dim, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="pooling")


def max_roi_pool(x: ArrayLike, rois: ArrayLike, *, pooled_shape: Ints, spatial_scale: float = 1.0) -> jax.Array:
    """Divides each region into bins of whole elements and takes the largest element of each bin.

    x: (N, C, H, W), floats. rois: (R, 5), of x's dtype: the index of the image, then x1, y1, x2, y2. Multiplied by
    spatial_scale and rounded (halves away from zero, as in onnxruntime), these are the first and the last element.
    pooled_shape: the number of bins (height, width). Returns (R, C, height, width), same dtype. Bins are at least one
    element large and may overlap. A bin outside of the image gives 0, an index of an image that does not exist NaN.
    Raises ShapeError, ArgumentError, DTypeError.
    Source: ONNX MaxRoiPool, opsets 1–22.

    >>> x = jnp.arange(16.0).reshape(1, 1, 4, 4)
    >>> max_roi_pool(x, jnp.array([[0.0, 1.0, 1.0, 2.0, 3.0]]), pooled_shape=(1, 2)).tolist()
    [[[[13.0, 14.0]]]]
    """
    unify((x, rois), ("x ", "rois "))
    return _max_roi_pool(floating(x=x, rois=rois), ints("pooled_shape", pooled_shape), spatial_scale)


def _pooled_sizes(x: Sizes, rois: Sizes, shape: Sizes) -> Sizes:
    """The sizes (R, C, height, width) for R regions (R, 5) in images (N, C, H, W) (ONNX MaxRoiPool-22)."""
    problem = (
        f"`x` of {shape_text(x)} must be (N, C, H, W), and `rois` of {shape_text(rois)} (R, 5): image, x1, y1, x2, y2"
    )
    if len(x) != 4 or len(rois) != 2 or not agree(problem, rois[1], 5):
        raise ShapeError(problem)
    if len(shape) != 2 or min(shape) < 1:
        raise ArgumentError(f"`pooled_shape` {shape_text(shape)} must be two positive numbers")
    check_inhabited("`x`", x, (0,), rois[:1])
    return (rois[0], x[1], *shape)


@jit_if_concrete
def _max_roi_pool(operands: tuple[Any, Any], shape: Sizes, scale: float) -> Any:
    x, rois = operands
    sizes = _pooled_sizes(x.shape, rois.shape, shape)
    bounded_like(sizes, x)
    if isinstance(sizes[0], int) and sizes[0] == 0:
        return jnp.zeros(sizes, x.dtype)
    work = accumulation_type(rois.dtype)
    bounds = lax.convert_element_type(rois[:, 1:], work) * scale
    bounds = jnp.clip(lax.round(bounds, lax.RoundingMethod.AWAY_FROM_ZERO), -(2**30), 2**30)
    rows = _bins(bounds[:, 1], bounds[:, 3], shape[0], x.shape[2])
    columns = _bins(bounds[:, 0], bounds[:, 2], shape[1], x.shape[3])
    lowest = jnp.asarray(-np.inf, x.dtype)

    def region(bins: tuple[Any, Any, Any]) -> Any:
        # Bins are rectangles, so the maximum is taken over the height first, then over the width.
        number, row, column = bins
        image = x.at[number].get(mode="fill", fill_value=np.nan, wrap_negative_indices=False)
        pooled = largest(jnp.where(row[:, None, :, None], image[None], lowest), (2,))
        pooled = largest(jnp.where(column[:, None, None, :], pooled[None], lowest), (3,))
        filled = row.any(1)[None, :, None] & column.any(1)[:, None, None]
        return jnp.where(filled, pooled, jnp.zeros_like(pooled)).transpose(2, 1, 0)

    y = lax.map(region, (rois[:, 0].astype(np.int32), rows, columns))
    return assert_sizes(y, sizes, x.dtype)


def _bins(first: Any, last: Any, number: int, size: Dim) -> Any:
    """Booleans (R, number, size): True for each element of an axis that lies in the bin."""
    length = jnp.maximum(last - first + 1, 1)
    step = quotient(length, jnp.full_like(length, number))[:, None]
    index = jnp.arange(number, dtype=step.dtype)[None]
    low, high = (f(k * step) + first[:, None] for f, k in ((jnp.floor, index), (jnp.ceil, index + 1)))
    element = lax.iota(step.dtype, size)[None, None]
    return (element >= low[..., None]) & (element < high[..., None])
