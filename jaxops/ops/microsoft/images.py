"""Operators that read images between their pixels."""

__all__ = ["crop_and_resize", "grid_sample"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints, one_of
from jaxops.dtypes import accumulation_type, as_traced, floating
from jaxops.errors import ArgumentError
from jaxops.ops.common.elementwise import require
from jaxops.ops.tensor.grids import GridPadding, grid_sample as standard_grid_sample
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import Static
from jaxops.static import ArrayLike, Dim, jit_if_concrete

CropMode = Literal["bilinear", "nearest"]
Interpolation = Literal["bilinear", "nearest", "bicubic"]
_STANDARD: dict[str, Any] = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}


def grid_sample(
    x: ArrayLike,
    grid: ArrayLike,
    *,
    align_corners: int = 0,
    mode: Interpolation = "bilinear",
    padding_mode: GridPadding = "zeros",
) -> jax.Array:
    """Samples images at the places in `grid`, as the standard's `grid_sample` does, with its early names of modes.

    x: (N, C, H, W). grid: (N, H', W', 2). Returns (N, C, H', W'). The rest is as in the standard's `grid_sample`.
    Raises the same exceptions, and ShapeError for other ranks. Source: com.microsoft GridSample, opset 1.

    >>> grid_sample(jnp.array([[[[0.0, 4.0]]]]), jnp.zeros((1, 1, 1, 2))).tolist()
    [[[[2.0]]]]
    """
    how = one_of("mode", mode, Interpolation)
    image = as_traced(x)
    must_fit("x", image.shape, ("N", "C", "H", "W"))
    return standard_grid_sample(
        image, grid, align_corners=align_corners, mode=_STANDARD[how], padding_mode=padding_mode
    )


def crop_and_resize(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    crop_size: Static,
    *,
    extrapolation_value: float = 0.0,
    mode: CropMode = "bilinear",
) -> jax.Array:
    """Cuts regions out of images and resizes them, corners aligned.

    x: (N, C, H, W), floats. rois: (R, 4), of x's dtype: y1, x1, y2, x2, where 0 and 1 are the centres of the first and
    the last pixel. batch_indices: (R,), integers in [0, N). crop_size: static, height and width of a crop, positive.
    Returns (R, C, height, width), same dtype; 16-bit types are computed in float32. If a crop has one pixel along an
    axis, it is the middle of the region. Pixels outside the image are `extrapolation_value`. 'nearest' rounds halves
    away from 0.
    Raises ShapeError, ArgumentError, DTypeError. Source: com.microsoft CropAndResize, opset 1.

    >>> x, whole = jnp.array([[[[0.0, 1.0], [2.0, 3.0]]]]), jnp.array([[0.0, 0.0, 1.0, 1.0]])
    >>> crop_and_resize(x, whole, np.array([0]), (1, 3)).tolist()
    [[[[1.0, 1.5, 2.0]]]]
    """
    (image, regions), batch = floating(x=x, rois=rois), as_traced(batch_indices)
    require("integer", batch)
    how = one_of("mode", mode, CropMode)
    size = ints("crop_size", crop_size)
    if len(size) != 2 or any(isinstance(d, int) and d < 1 for d in size):
        raise ArgumentError(f"`crop_size` is {size}; it must be a height and a width, both positive")
    must_fit("x", image.shape, ("N", "C", "H", "W"))
    must_fit("rois", regions.shape, ("R", 4))
    must_fit("batch_indices", batch.shape, regions.shape[:1], reason=", one index for each region")
    check_inhabited("x", image.shape, (0, 2, 3), regions.shape[:1])
    return _crop_and_resize((image, regions, batch), size, float(extrapolation_value), how == "nearest")


@jit_if_concrete
def _crop_and_resize(operands: tuple[Any, ...], size: tuple[Dim, Dim], outside: float, nearest: bool) -> jax.Array:
    x, rois, batch = operands
    wide = accumulation_type(x.dtype, rois.dtype)
    rows = jnp.moveaxis(x, 1, -1)
    corners = rois.astype(wide)
    (rows_at, row_in), (columns_at, column_in) = (
        _places(corners[:, i], corners[:, i + 2], x.shape[2 + i], size[i]) for i in (0, 1)
    )
    pick = batch.astype(np.int32)[:, None, None]

    def read(row: Any, column: Any) -> Any:
        pixels = rows.at[pick, row.astype(np.int32)[:, :, None], column.astype(np.int32)[:, None, :]]
        return pixels.get(mode="clip", wrap_negative_indices=False).astype(wide)

    if nearest:
        y = read(_rounded(rows_at), _rounded(columns_at))
    else:
        top, left = jnp.floor(rows_at), jnp.floor(columns_at)
        bottom, right = jnp.ceil(rows_at), jnp.ceil(columns_at)
        down, along = (rows_at - top)[:, :, None, None], (columns_at - left)[:, None, :, None]
        above = read(top, left) + (read(top, right) - read(top, left)) * along
        below = read(bottom, left) + (read(bottom, right) - read(bottom, left)) * along
        y = above + (below - above) * down
    is_inside = (row_in[:, :, None] & column_in[:, None, :])[..., None]
    y = jnp.where(is_inside, y, jnp.asarray(outside, wide))
    return jnp.moveaxis(y, -1, 1).astype(x.dtype)


def _places(first: Any, last: Any, size: Dim, count: Dim) -> tuple[Any, Any]:
    """Returns the coordinates of `count` pixels from `first` to `last`, (R, count), and which lie in the image."""
    reach = jnp.asarray(size - 1, first.dtype)
    if isinstance(count, int) and count == 1:
        coordinates = (0.5 * (first + last) * reach)[:, None]
    else:
        step = (last - first) * reach / jnp.asarray(count - 1, first.dtype)
        steps = lax.iota(first.dtype, count)[None]
        coordinates = (first * reach)[:, None] + steps * step[:, None]
        # The last pixel is exactly at the edge of the region, which a sum of rounded steps may miss.
        coordinates = jnp.where(steps == jnp.asarray(count - 1, first.dtype), (last * reach)[:, None], coordinates)
    return coordinates, (coordinates >= 0) & (coordinates <= reach)


def _rounded(coordinates: Any) -> Any:
    return lax.round(coordinates, lax.RoundingMethod.AWAY_FROM_ZERO)
