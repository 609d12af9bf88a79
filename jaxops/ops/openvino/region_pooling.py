"""Pooling of regions: ROIPooling, and PSROIPooling, whose bins read channels of their own."""

__all__ = ["deformable_psroi_pooling", "psroi_pooling", "roi_pooling"]

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, ints, one_of
from jaxops.dtypes import accumulation_type, floats_of_one_type
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.nn.region_pooling import max_roi_pool
from jaxops.shapes.arithmetic import must_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import Traits
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="pooling")
Method = Literal["max", "bilinear"]
Mode = Literal["average", "bilinear"]
DeformableMode = Literal["bilinear_deformable"]


def roi_pooling(
    input: ArrayLike,
    coords: ArrayLike,
    *,
    spatial_scale: float,
    pooled_h: int = 0,
    pooled_w: int = 0,
    output_size: Ints | None = None,
    output_roi: Ints | None = None,
    method: Method = "max",
) -> jax.Array:
    """Divides each region into bins, and returns the largest element of each bin, or an interpolated one.

    input: (N, C, H, W), floats. coords: (R, 5), same dtype: the image, then x1, y1, x2, y2. Returns
    (R, C, pooled_h, pooled_w), same dtype. output_roi, output_size: the numbers of bins along both axes, which newer
    files have instead.
    method: 'max', as in `max_roi_pool`, of coordinates multiplied by `spatial_scale`; 'bilinear': coordinates are
    fractions of the image; bins are points from one corner to the other, or a single one in the middle; a point outside
    of the image gives 0.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO ROIPooling-2.

    >>> x = jnp.arange(4.0).reshape(1, 1, 2, 2)
    >>> box = jnp.array([[0.0, 0.0, 0.0, 1.0, 0.5]])
    >>> roi_pooling(x, box, pooled_h=2, pooled_w=1, spatial_scale=1.0, method="bilinear").tolist()
    [[[[0.5], [1.5]]]]
    """
    bins = output_size if output_roi is None else output_roi
    height, width = (pooled_h, pooled_w) if bins is None else _two(ints("output_roi", bins))
    shape = (integer("pooled_h", height, least=1), integer("pooled_w", width, least=1))
    operands = floats_of_one_type(input=input, coords=coords)
    _region_sizes(operands[0].shape, operands[1].shape)
    if one_of("method", method, Method) == "max":
        return max_roi_pool(*operands, pooled_shape=shape, spatial_scale=spatial_scale)
    return _bilinear_pooling(operands, shape)


def psroi_pooling(
    input: ArrayLike,
    coords: ArrayLike,
    *,
    output_dim: int,
    spatial_scale: float,
    group_size: int = 1,
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    mode: Mode = "average",
) -> jax.Array:
    """Divides each region into bins, each of which reads channels of its own.

    coords: (R, 5): the image, then x1, y1, x2, y2, of the dtype of input. Returns
    (R, output_dim, group_size, group_size), same dtype.
    mode: 'average', of input (N, output_dim·group_size², H, W): each bin is the mean of the elements that it touches;
    for each channel, row and column of the result it reads a channel of its own. Regions are rounded, include their
    last element, and are multiplied by `spatial_scale`. 'bilinear', of input (N,
    spatial_bins_y·spatial_bins_x·output_dim, H, W): the region is divided into these bins; each reads one of its
    channels at group_size² points from its first to its last corner, and the result is the mean over the bins.
    Coordinates times `spatial_scale` are fractions of the image.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO PSROIPooling-1.

    >>> x = jnp.arange(8.0).reshape(1, 2, 2, 2)
    >>> psroi_pooling(x, jnp.array([[0.0, 0.0, 0.0, 1.0, 1.0]]), output_dim=2, spatial_scale=1.0).tolist()
    [[[[1.5]], [[5.5]]]]
    """
    operands = floats_of_one_type(input=input, coords=coords)
    _region_sizes(operands[0].shape, operands[1].shape)
    how = _grouped(output_dim, group_size, spatial_scale, spatial_bins_y, spatial_bins_x)
    average = one_of("mode", mode, Mode) == "average"
    per_channel = how.group**2 if average else math.prod(how.bins)
    must_fit("input", operands[0].shape, ("N", how.channels * per_channel, "H", "W"))
    return (_average_of_bins if average else _points_of_bins)(operands, how)


def deformable_psroi_pooling(
    feature_maps: ArrayLike,
    coords: ArrayLike,
    offsets: ArrayLike | None = None,
    *,
    output_dim: int,
    spatial_scale: float,
    group_size: int = 1,
    mode: DeformableMode = "bilinear_deformable",
    spatial_bins_x: int = 1,
    spatial_bins_y: int = 1,
    trans_std: float = 1.0,
    part_size: int = 1,
) -> jax.Array:
    """Pools as `psroi_pooling` does, with bins that are moved by offsets and are means of interpolated samples.

    feature_maps: (N, output_dim·group_size², H, W). coords: (R, 5): the image, x1, y1, x2, y2; a negative image gives
    zeros. offsets: (R, 2·K, part_size, part_size), or None: for each of K groups of channels and each part of the
    region, the shift along x and y; it is multiplied by `trans_std` and the size of the region. Floats of one dtype.
    Returns (R, output_dim, group_size, group_size), same dtype.
    Corners are rounded and multiplied by `spatial_scale`; the last element is included. A bin is the mean of
    spatial_bins_y·spatial_bins_x samples, without samples more than half an element outside of the image.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO DeformablePSROIPooling-1.

    >>> x = jnp.arange(4.0).reshape(1, 1, 2, 2)
    >>> box = jnp.array([[0.0, 0.0, 0.0, 1.0, 1.0]])
    >>> deformable_psroi_pooling(x, box, output_dim=1, spatial_scale=1.0, spatial_bins_x=2, spatial_bins_y=2).tolist()
    [[[[0.75]]]]
    """
    one_of("mode", mode, DeformableMode)
    operands = floats_of_one_type(feature_maps=feature_maps, coords=coords, offsets=offsets)
    _region_sizes(operands[0].shape, operands[1].shape, "feature_maps")
    how = _grouped(output_dim, group_size, spatial_scale, spatial_bins_y, spatial_bins_x)
    must_fit("feature_maps", operands[0].shape, ("N", how.channels * how.group**2, "H", "W"))
    parts = integer("part_size", part_size, least=1)
    if offsets is not None:
        sizes = operands[2].shape
        must_fit("offsets", sizes, (operands[1].shape[0], "2·K", parts, parts))
        if sizes[1] % 2 or sizes[1] == 0 or how.channels % (sizes[1] // 2):
            raise ShapeError(
                f"`offsets` of {shape_text(sizes)} must have two channels for each group of the "
                f"{how.channels} output channels"
            )
    return _deformable_pooling(operands, how, trans_std)


def _two(numbers: Sizes) -> Sizes:
    if len(numbers) != 2:
        raise ShapeError(f"`output_roi` {shape_text(numbers)} must be two numbers, a height and a width")
    return numbers


class _Grouped(NamedTuple):
    channels: int
    group: int
    scale: float
    bins: tuple[int, int]


def _grouped(output_dim: int, group_size: int, spatial_scale: float, bins_y: int, bins_x: int) -> _Grouped:
    bins = integer("spatial_bins_y", bins_y, least=1), integer("spatial_bins_x", bins_x, least=1)
    channels, group = integer("output_dim", output_dim, least=1), integer("group_size", group_size, least=1)
    return _Grouped(channels, group, spatial_scale, bins)


def _region_sizes(x: Sizes, coords: Sizes, name: str = "input") -> None:
    must_fit(name, x, ("N", "C", "H", "W"))
    must_fit("coords", coords, ("R", 5), reason=": image, x1, y1, x2, y2")
    check_inhabited(f"`{name}`", x, (0, 2, 3), coords[:1])


def interpolated(rows: Any, image: Any, y: Any, x: Any, channel: Any = None) -> Any:
    """Reads images (N, H, W, C) at coordinates between their elements, which are clipped to the image.

    image, y, x, channel: of one shape, or broadcast to it; without `channel` the result has all channels on a last
    axis.
    """
    total: Any = None
    index = () if channel is None else (channel,)
    for i, wy in _around(y, rows.shape[1]):
        for j, wx in _around(x, rows.shape[2]):
            weight = wy * wx
            value = rows.at[(image, i, j, *index)].get(mode="clip", wrap_negative_indices=False)
            term = value * (weight[..., None] if channel is None else weight)
            total = term if total is None else total + term
    return total


def _around(coordinates: Any, size: Any) -> list[tuple[Any, Any]]:
    """Returns the two elements around each coordinate, and their weights."""
    limit = jnp.asarray(size, coordinates.dtype) - 1
    coordinates = jnp.clip(coordinates, jnp.zeros_like(limit), limit)
    low = jnp.floor(coordinates)
    index = low.astype(np.int32)
    return [(index, 1 - (coordinates - low)), (index + 1, coordinates - low)]


def _channels_last(x: Any, work: Any) -> Any:
    return jnp.moveaxis(lax.convert_element_type(x, work), 1, -1)


def _whole(x: Any) -> Any:
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


@jit_if_concrete
def _bilinear_pooling(operands: tuple[Any, Any], shape: tuple[int, int]) -> Any:
    x, coords = operands
    sizes = (coords.shape[0], x.shape[1], *shape)
    bounded_like(sizes, x)
    work = accumulation_type(x.dtype)
    boxes = coords.astype(work)
    axes = []
    for axis, number in enumerate(shape):
        last = jnp.asarray(x.shape[2 + axis], work) - 1
        low, high = boxes[:, 2 - axis, None], boxes[:, 4 - axis, None]
        part = jnp.arange(number, dtype=work)[None] / (number - 1) if number > 1 else jnp.full((1, 1), 0.5, work)
        places = (low + (high - low) * part) * last
        # The last point is the corner itself, not a rounded sum of steps.
        places = places.at[:, -1].set(high[:, 0] * last) if number > 1 else places
        axes.append((places, (places >= 0) & (places <= last)))
    (y, y_inside), (z, z_inside) = axes
    image = coords[:, 0].astype(np.int32)[:, None, None]
    read = interpolated(_channels_last(x, work), image, y[:, :, None], z[:, None])
    inside = (y_inside[:, :, None] & z_inside[:, None])[..., None]
    y = jnp.moveaxis(jnp.where(inside, read, jnp.zeros_like(read)), -1, 1)
    return assert_sizes(y.astype(x.dtype), sizes, x.dtype)


@jit_if_concrete
def _average_of_bins(operands: tuple[Any, Any], how: _Grouped) -> Any:
    x, coords = operands
    n, _, height, width = x.shape
    sizes = (coords.shape[0], how.channels, how.group, how.group)
    bounded_like(sizes, x)
    if isinstance(sizes[0], int) and sizes[0] == 0:
        return jnp.zeros(sizes, x.dtype)
    work = accumulation_type(x.dtype)
    corners = _whole(coords[:, 1:].astype(work))
    low, high = corners[:, :2] * how.scale, (corners[:, 2:] + 1) * how.scale
    maps = x.astype(work).reshape(n, how.channels, how.group, how.group, height, width)

    def bins(axis: int, size: Any) -> Any:
        step = (high[:, axis] - low[:, axis])[:, None] / how.group
        number = jnp.arange(how.group, dtype=work)[None]
        limit = jnp.asarray(size, work)
        first = jnp.clip(jnp.floor(low[:, axis, None] + number * step), jnp.zeros_like(limit), limit - 1)
        last = jnp.clip(jnp.ceil(low[:, axis, None] + (number + 1) * step), first, limit)
        place = lax.iota(work, size)[None, None]
        return (place >= first[..., None]) & (place < last[..., None])

    def region(bins: tuple[Any, Any, Any]) -> Any:
        image, row, column = bins
        read = maps.at[image].get(mode="clip", wrap_negative_indices=False)
        counts = row.sum(1, dtype=work)[:, None] * column.sum(1, dtype=work)[None]
        row, column = row.astype(work), column.astype(work)
        total = jnp.einsum("ph,qw,dpqhw->dpq", row, column, read, precision=lax.Precision.HIGHEST)
        return total / jnp.maximum(counts, 1)[None]

    y = lax.map(region, (coords[:, 0].astype(np.int32), bins(1, height), bins(0, width)))
    return assert_sizes(y.astype(x.dtype), sizes, x.dtype)


@jit_if_concrete
def _points_of_bins(operands: tuple[Any, Any], how: _Grouped) -> Any:
    x, coords = operands
    sizes = (coords.shape[0], how.channels, how.group, how.group)
    bounded_like(sizes, x)
    work = accumulation_type(x.dtype)
    rows = _channels_last(x, work)
    boxes = coords[:, 1:].astype(work) * how.scale
    image = coords[:, 0].astype(np.int32)[:, None, None, None]
    channel = jnp.arange(how.channels, dtype=np.int32)[None, :, None, None]
    total: Any = None
    for number, bin in enumerate(np.ndindex(*how.bins)):
        axes = []
        for axis in (0, 1):
            size = jnp.asarray(x.shape[2 + axis], work)
            low, high = boxes[:, 1 - axis, None], boxes[:, 3 - axis, None]
            extent = (high - low) / how.bins[axis]
            part = np.arange(how.group) / (how.group - 1) if how.group > 1 else np.full(1, 0.5)
            place = (low + extent * (bin[axis] + jnp.asarray(part, work)[None])) * (size - 1)
            axes.append((place, place < size))
        (y, y_counts), (z, z_counts) = axes
        counted = y_counts[:, None, :, None] & z_counts[:, None, None]
        place = channel + number * how.channels
        read = interpolated(rows, image, y[:, None, :, None], z[:, None, None], place)
        term = jnp.where(counted, read, jnp.zeros_like(read))
        total = term if total is None else total + term
    y = (total / (how.bins[0] * how.bins[1])).astype(x.dtype)
    return assert_sizes(y, sizes, x.dtype)


@jit_if_concrete
def _deformable_pooling(operands: tuple[Any, Any, Any], how: _Grouped, strength: float) -> Any:
    x, coords, offsets = operands
    group = how.group
    sizes = (coords.shape[0], how.channels, group, group)
    bounded_like(sizes, x)
    work = accumulation_type(x.dtype)
    rows = _channels_last(x, work)
    corners = _whole(coords[:, 1:].astype(work))
    low = corners[:, :2] * how.scale - 0.5
    extent = jnp.maximum((corners[:, 2:] + 1) * how.scale - 0.5 - low, 0.1)
    channel = jnp.arange(how.channels * group * group, dtype=np.int32).reshape(1, how.channels, group, group)
    image = coords[:, 0].astype(np.int32)[:, None, None, None]
    firsts = []
    for axis in (0, 1):  # y, x
        form = (1, 1, group, 1) if axis == 0 else (1, 1, 1, group)
        side = extent[:, 1 - axis][:, None, None, None]
        first = low[:, 1 - axis][:, None, None, None] + side / group * jnp.arange(group, dtype=work).reshape(form)
        if offsets is not None:
            kinds, parts = offsets.shape[1] // 2, offsets.shape[2]
            moved = offsets.astype(work).reshape(sizes[0], kinds, 2, parts, parts)[:, :, 1 - axis]
            part = np.arange(group) * parts // group
            moved = jnp.repeat(moved[:, :, part][..., part], how.channels // kinds, 1)
            first = first + moved * strength * side
        firsts.append(jnp.broadcast_to(first, sizes))
    total, count = jnp.zeros(sizes, work), jnp.zeros(sizes, work)
    for sample in np.ndindex(*how.bins):
        counted, places = jnp.ones(sizes, bool), []
        for axis in (0, 1):
            step = extent[:, 1 - axis][:, None, None, None] / group / how.bins[axis]
            place = firsts[axis] + sample[axis] * step
            counted = counted & (place >= -0.5) & (place <= jnp.asarray(x.shape[2 + axis], work) - 0.5)
            places.append(place)
        read = interpolated(rows, image, places[0], places[1], channel)
        total = total + jnp.where(counted, read, jnp.zeros_like(read))
        count = count + counted.astype(work)
    y = jnp.where(image >= 0, total / jnp.maximum(count, 1), jnp.zeros_like(total))
    return assert_sizes(y.astype(x.dtype), sizes, x.dtype)
