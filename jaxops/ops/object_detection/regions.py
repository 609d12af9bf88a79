"""Pooling of the regions of interest of an image, with interpolation between its elements."""

__all__ = ["roi_align"]

import functools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, one_of
from jaxops.dtypes import floating, integral
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts
from jaxops.ops.common.sums_of_samples import largest, summed
from jaxops.shapes.arithmetic import all_agree, must_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.static import ArrayLike, Sizes, jit_if_concrete

RoiCoordinates = Literal["half_pixel", "output_half_pixel"]
RoiPooling = Literal["avg", "max"]


class _Pooling(NamedTuple):
    shape: tuple[int, int]
    samples: int
    scale: float
    half_pixel: bool
    largest: bool


def roi_align(
    x: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    coordinate_transformation_mode: RoiCoordinates = "half_pixel",
    mode: RoiPooling = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> jax.Array:
    """Divides each region into bins and pools samples of each bin, interpolated in the image.

    x: (N, C, H, W), floats. rois: (R, 4), of x's dtype: x1, y1, x2, y2. batch_indices: (R,), integers in [0, N).
    Returns (R, C, output_height, output_width), same dtype; 16-bit types are computed in float32.
    sampling_ratio: the number of samples of a bin along each axis; 0 takes the size of the bin, rounded up, in a loop
    whose length depends on the data. mode: 'avg', or 'max', which takes the largest of the weighted neighbours of all
    samples, as the standard's test suite and onnxruntime do.
    spatial_scale: a factor of the coordinates in rois. coordinate_transformation_mode: 'half_pixel' then moves regions
    by -0.5; 'output_half_pixel' does not, and makes regions at least 1 wide and high.
    Raises ShapeError, DTypeError, ArgumentError.
    Source: ONNX RoiAlign, opsets 10–22.

    >>> roi_align(jnp.ones((1, 2, 4, 4)), jnp.array([[0.0, 0.0, 2.0, 2.0]]), jnp.array([0])).tolist()
    [[[[1.0]], [[1.0]]]]
    """
    (image, regions), (batch,) = floating(x=x, rois=rois), integral(batch_indices=batch_indices)
    samples = integer("sampling_ratio", sampling_ratio, least=0)
    check_counts("sampling_ratio", samples**2)
    how = _Pooling(
        (integer("output_height", output_height, least=1), integer("output_width", output_width, least=1)),
        samples,
        spatial_scale,
        one_of("coordinate_transformation_mode", coordinate_transformation_mode, RoiCoordinates) == "half_pixel",
        one_of("mode", mode, RoiPooling) == "max",
    )
    return _roi_align((image, regions, batch), how)


def _aligned_sizes(x: Sizes, rois: Sizes, batch_indices: Sizes, height: int, width: int) -> Sizes:
    """The sizes (R, C, height, width) for R regions (R, 4) in images (N, C, H, W) (ONNX RoiAlign-22)."""
    must_fit("x", x, ("N", "C", "H", "W"))
    problem = (
        f"`rois` of {shape_text(rois)} must be (R, 4), and `batch_indices` of {shape_text(batch_indices)} must be (R,)"
    )
    if len(rois) != 2 or not all_agree(problem, (*batch_indices, rois[1]), (rois[0], 4)):
        raise ShapeError(problem)
    check_inhabited("`x`", x, (0, 2, 3), rois[:1])
    return (rois[0], x[1], height, width)


@jit_if_concrete
def _roi_align(operands: tuple[Any, Any, Any], how: _Pooling) -> Any:
    x, rois, batch = operands
    sizes = _aligned_sizes(x.shape, rois.shape, batch.shape, *how.shape)
    bounded_like(sizes, x)
    work = np.promote_types(np.promote_types(x.dtype, rois.dtype), np.float32)
    rows = jnp.moveaxis(lax.convert_element_type(x, work), 1, -1)
    bounds = lax.convert_element_type(rois, work) * how.scale - (0.5 if how.half_pixel else 0.0)
    # Rows of the regions are along y, columns along x.
    start, extent = bounds[:, 1::-1], bounds[:, :1:-1] - bounds[:, 1::-1]
    if not how.half_pixel:
        extent = jnp.maximum(extent, 1)
    bins = extent / np.asarray([how.shape], work)
    counts = jnp.ceil(bins).astype(np.int32) if how.samples == 0 else jnp.full(bins.shape, how.samples, np.int32)
    counts = jnp.maximum(counts, 0)
    most: Any = jnp.max(counts, axis=0, initial=0) if how.samples == 0 else (how.samples, how.samples)
    where = batch.astype(np.int32)[:, None, None]

    def sample(number: Any, moving: Any, fixed: Any) -> Any:
        (rows, start, bins), (where, counts, most) = moving, fixed
        cell = jnp.stack([number // jnp.maximum(most[1], 1), number % jnp.maximum(most[1], 1)])
        axes = [
            _neighbours(start[:, a], bins[:, a], counts[:, a], cell[a], how.shape[a], x.shape[2 + a]) for a in (0, 1)
        ]
        (ys, inside_y), (xs, inside_x) = axes
        counted = inside_y[:, :, None] & inside_x[:, None, :]
        terms = [
            jnp.where(
                counted[..., None],
                rows.at[where, iy[:, :, None], ix[:, None, :]].get(mode="clip")
                * (wy[:, :, None] * wx[:, None, :])[..., None],
                jnp.zeros((), work),
            )
            for iy, wy in ys
            for ix, wx in xs
        ]
        if not how.largest:
            return sum(terms[1:], terms[0])
        best = functools.reduce(jnp.maximum, terms)
        drawn = (cell[None] < counts).all(1)[:, None, None, None]
        return jnp.where(drawn, best, jnp.full_like(best, -np.inf))

    moving, fixed, steps = (rows, start, bins), (where, counts, most), most[0] * most[1]
    drawn = counts[:, 0] * counts[:, 1]
    if how.largest:
        empty = jnp.full((sizes[0], *how.shape, sizes[1]), -np.inf, work)
        total = largest(sample, steps, moving, fixed, empty)
    else:
        total = summed(sample, steps, moving, fixed) / jnp.maximum(drawn, 1)[:, None, None, None].astype(work)
    y = jnp.moveaxis(total, -1, 1)
    return assert_sizes(lax.convert_element_type(y, x.dtype), sizes, x.dtype)


def _neighbours(start: Any, width: Any, count: Any, sample: Any, number: int, size: Any) -> Any:
    """For each region and bin along one axis: the two elements around a sample, with their weights; and True if it
    counts.
    """
    limit = jnp.asarray(size, start.dtype)
    part = (sample.astype(start.dtype) + 0.5) / jnp.maximum(count, 1).astype(start.dtype)
    coordinates = start[:, None] + (np.arange(number)[None].astype(start.dtype) + part[:, None]) * width[:, None]
    counted = (coordinates >= -1) & (coordinates <= limit) & (sample < count)[:, None]
    coordinates = jnp.clip(coordinates, 0, limit - 1)
    low = jnp.floor(coordinates)
    index = low.astype(np.int32)
    return [(index, 1 - (coordinates - low)), (index + 1, coordinates - low)], counted
