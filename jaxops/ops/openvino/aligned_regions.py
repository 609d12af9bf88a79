"""RoIAlign: pools interpolated samples of upright or rotated regions, or of regions in a pyramid of feature maps."""

__all__ = ["experimental_detectron_roi_feature_extractor", "roi_align", "roi_align_rotated"]

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, ints, one_of
from jaxops.dtypes import accumulation_type, floats_of_one_type, integral
from jaxops.errors import ArgumentError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts
from jaxops.ops.common.sums_of_samples import largest, summed
from jaxops.ops.openvino.region_pooling import interpolated
from jaxops.shapes.arithmetic import all_agree, must_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import Traits
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="pooling")
Mode = Literal["avg", "max"]
AlignedMode = Literal["asymmetric", "half_pixel_for_nn", "half_pixel"]


class _How(NamedTuple):
    shape: tuple[int, int]
    samples: int
    scale: float
    mode: str
    largest: bool = False


def roi_align(
    data: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    spatial_scale: float,
    mode: Mode,
    aligned_mode: AlignedMode = "asymmetric",
) -> jax.Array:
    """Divides each region into bins and pools interpolated samples of each bin.

    data: (N, C, H, W), floats. rois: (R, 4), same dtype: x1, y1, x2, y2. batch_indices: (R,), integers in [0, N).
    Returns (R, C, pooled_h, pooled_w), same dtype; 16-bit types are computed in float32.
    sampling_ratio: number of samples of a bin along each axis; 0: the size of the bin, rounded up. mode: 'avg', the
    mean of the samples, or 'max'. A sample more than one element outside of the image is 0.
    aligned_mode: 'asymmetric' multiplies coordinates by `spatial_scale`, and regions are at least 1 wide and high;
    'half_pixel_for_nn' subtracts 0.5 from the product; 'half_pixel' also adds 0.5 before multiplying.
    Raises ShapeError, DTypeError, ArgumentError. Source: OpenVINO ROIAlign-3 and 9.

    >>> how = dict(pooled_h=1, pooled_w=1, sampling_ratio=1, spatial_scale=1.0, mode="avg")
    >>> roi_align(jnp.ones((1, 2, 4, 4)), jnp.array([[0.0, 0.0, 2.0, 2.0]]), jnp.array([0]), **how).tolist()
    [[[[1.0]], [[1.0]]]]
    """
    aligned = one_of("aligned_mode", aligned_mode, AlignedMode)
    how = _how({"pooled_h": pooled_h, "pooled_w": pooled_w}, sampling_ratio, spatial_scale, aligned)
    how = how._replace(largest=one_of("mode", mode, Mode) == "max")
    return _pooled(_operands(data, rois, batch_indices, 4), how)


def roi_align_rotated(
    data: ArrayLike,
    rois: ArrayLike,
    batch_indices: ArrayLike,
    *,
    pooled_h: int,
    pooled_w: int,
    sampling_ratio: int,
    spatial_scale: float,
    clockwise_mode: bool = False,
) -> jax.Array:
    """Divides rotated regions into bins, as `roi_align` does upright ones, and returns the mean of each bin.

    rois: (R, 5), of data's dtype: the centre x, y, width, height, and an angle in radians, counterclockwise in
    an image whose y axis points down, or clockwise with `clockwise_mode`. All lengths are multiplied by
    `spatial_scale`, and the centre is moved by -0.5. The rest is as in `roi_align`.
    Raises ShapeError, DTypeError, ArgumentError. Source: OpenVINO ROIAlignRotated-15.

    >>> how = dict(pooled_h=1, pooled_w=2, sampling_ratio=1, spatial_scale=1.0)
    >>> x = jnp.arange(16.0).reshape(1, 1, 4, 4)
    >>> roi_align_rotated(x, jnp.array([[2.0, 2.0, 2.0, 1.0, 0.0]]), jnp.array([0]), **how).tolist()
    [[[[7.0, 8.0]]]]
    """
    turn = "clockwise" if flag("clockwise_mode", clockwise_mode) else "counterclockwise"
    how = _how({"pooled_h": pooled_h, "pooled_w": pooled_w}, sampling_ratio, spatial_scale, turn)
    return _pooled(_operands(data, rois, batch_indices, 5), how)


def experimental_detectron_roi_feature_extractor(
    rois: ArrayLike,
    pyramid: Sequence[ArrayLike],
    *,
    output_size: int,
    sampling_ratio: int,
    pyramid_scales: Ints,
    aligned: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Pools each region as `roi_align` does, from the feature map that fits the size of the region.

    rois: (R, 4), floats: x1, y1, x2, y2. pyramid: arrays (1, C, Hi, Wi), same dtype. pyramid_scales: size of
    the image / size of each map. Returns (R, C, output_size, output_size), same dtype, and rois. A region of area a
    belongs to map floor(2 + log2(sqrt(a) / 224)), or to the nearest existing one. A region without area gives zeros.
    aligned: coordinates are moved by -0.5. Regions are at least 1 wide and high.
    Raises ShapeError, DTypeError, ArgumentError. Source: OpenVINO ExperimentalDetectronROIFeatureExtractor-6.

    >>> how = dict(output_size=1, sampling_ratio=1, pyramid_scales=(4,))
    >>> box = jnp.array([[0.0, 0.0, 8.0, 8.0]])
    >>> experimental_detectron_roi_feature_extractor(box, [jnp.ones((1, 1, 3, 3))], **how)[0]
    Array([[[[1.]]]], dtype=float32)
    """
    scales = ints("pyramid_scales", pyramid_scales)
    if not pyramid or len(scales) != len(pyramid):
        raise ArgumentError(f"`pyramid_scales` is {scales}; it must have one number per feature map, {len(pyramid)}")
    maps = {f"pyramid {i}": x for i, x in enumerate(pyramid)}
    boxes, *levels = floats_of_one_type(rois=rois, **maps)
    mode = "aligned" if flag("aligned", aligned) else "asymmetric"
    how = _how({"output_size": output_size}, sampling_ratio, 1.0, mode)
    must_fit("rois", boxes.shape, ("R", 4))
    for name, x in zip(maps, levels, strict=True):
        must_fit(name, x.shape, (1, levels[0].shape[1] if levels[0].ndim == 4 else "C", "H", "W"))
    return _of_levels((boxes, *levels), how, scales), boxes


def _how(sides: Mapping[str, Any], samples: Any, scale: float, mode: str) -> _How:
    """sides: height and width of the result by their names, or one number that is both."""
    number = integer("sampling_ratio", samples, least=0)
    check_counts("sampling_ratio", number**2)
    lengths = [integer(name, side, least=1) for name, side in sides.items()]
    return _How((lengths[0], lengths[-1]), number, scale, mode)


def _operands(data: Any, rois: Any, batch_indices: Any, numbers: int) -> tuple[Any, ...]:
    image, regions = floats_of_one_type(data=data, rois=rois)
    (batch,) = integral(batch_indices=batch_indices)
    _check_sizes(image.shape, regions.shape, batch.shape, numbers)
    return image, regions, batch


def _check_sizes(x: Sizes, rois: Sizes, batch: Sizes, numbers: int) -> None:
    must_fit("data", x, ("N", "C", "H", "W"))
    problem = (
        f"`rois` of {shape_text(rois)} must be (R, {numbers}), and `batch_indices` of {shape_text(batch)} must be (R,)"
    )
    if len(rois) != 2 or not all_agree(problem, (*batch, rois[1]), (rois[0], numbers)):
        raise ShapeError(problem)
    check_inhabited("`data`", x, (0, 2, 3), rois[:1])


class _Region(NamedTuple):
    """Corner and extent of each region along y and x: (R, 2). turn: centre, cosine and sine of a rotation."""

    start: Any
    extent: Any
    turn: tuple[Any, Any, Any] | None = None


def _regions(rois: Any, how: _How) -> _Region:
    if how.mode in ("clockwise", "counterclockwise"):
        centre, extent = rois[:, 1::-1] * how.scale - 0.5, rois[:, 3:1:-1] * how.scale
        angle = -rois[:, 4] if how.mode == "clockwise" else rois[:, 4]
        return _Region(-extent / 2, extent, (centre, jnp.cos(angle), jnp.sin(angle)))
    before = 0.5 if how.mode == "half_pixel" else 0.0
    after = 0.0 if how.mode == "asymmetric" else 0.5
    bounds = (rois + before) * how.scale - after
    extent = bounds[:, :1:-1] - bounds[:, 1::-1]
    extent = jnp.maximum(extent, 1) if how.mode in ("asymmetric", "aligned") else extent
    return _Region(bounds[:, 1::-1], extent)


@jit_if_concrete
def _pooled(operands: tuple[Any, Any, Any], how: _How) -> Any:
    x, rois, batch = operands
    sizes = (rois.shape[0], x.shape[1], *how.shape)
    bounded_like(sizes, x)
    work = accumulation_type(x.dtype)
    regions = _regions(lax.convert_element_type(rois, work), how)
    y = _samples(lax.convert_element_type(x, work), batch.astype(np.int32), regions, how, None)
    return assert_sizes(lax.convert_element_type(y, x.dtype), sizes, x.dtype)


@jit_if_concrete
def _of_levels(operands: tuple[Any, ...], how: _How, scales: Sizes) -> Any:
    rois, *levels = operands
    sizes = (rois.shape[0], levels[0].shape[1], *how.shape)
    bounded_like(sizes, rois)
    work = accumulation_type(rois.dtype)
    boxes = lax.convert_element_type(rois, work)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    positive = area > 0
    side = jnp.sqrt(jnp.where(positive, area, jnp.ones_like(area)))
    level = jnp.clip(jnp.floor(jnp.log2(side / 224 + 1e-6) + 2), 0, len(levels) - 1).astype(np.int32)
    image, total = jnp.zeros(sizes[:1], np.int32), jnp.zeros(sizes, work)
    for number, (x, scale) in enumerate(zip(levels, scales, strict=True)):
        belongs = positive & (level == number)
        regions = _regions(boxes, how._replace(scale=1 / scale))
        part = _samples(lax.convert_element_type(x, work), image, regions, how, belongs)
        total = jnp.where(belongs[:, None, None, None], part, total)
    return assert_sizes(lax.convert_element_type(total, rois.dtype), sizes, rois.dtype)


def _samples(x: Any, batch: Any, regions: _Region, how: _How, belongs: Any) -> Any:
    """Returns (R, C, height, width), the mean or largest of the samples. belongs: which regions to pool; None: all."""
    rows, work = jnp.moveaxis(x, 1, -1), x.dtype
    bins = regions.extent / np.asarray([how.shape], work)
    counts = jnp.ceil(bins).astype(np.int32) if how.samples == 0 else jnp.full(bins.shape, how.samples, np.int32)
    counts = jnp.maximum(counts, 0)
    if belongs is not None and how.samples == 0:
        counts = jnp.where(belongs[:, None], counts, 0)
    most: Any = jnp.max(counts, axis=0, initial=0) if how.samples == 0 else (how.samples, how.samples)
    where = batch[:, None, None]

    def sample(number: Any, moving: Any, fixed: Any) -> Any:
        (rows, regions, bins), (where, counts, most) = moving, fixed
        cell = jnp.stack([number // jnp.maximum(most[1], 1), number % jnp.maximum(most[1], 1)])
        part = (cell[None].astype(work) + 0.5) / jnp.maximum(counts, 1).astype(work)
        y, z = (
            regions.start[:, a, None]
            + (np.arange(how.shape[a])[None].astype(work) + part[:, a, None]) * bins[:, a, None]
            for a in (0, 1)
        )
        y, z = jnp.broadcast_arrays(y[:, :, None], z[:, None])
        if regions.turn is not None:
            centre, cosine, sine = (v[..., None, None] for v in regions.turn)
            y, z = y * cosine - z * sine + centre[:, 0], y * sine + z * cosine + centre[:, 1]
        height, width = (jnp.asarray(d, work) for d in x.shape[2:])
        counted = (y >= -1) & (y <= height) & (z >= -1) & (z <= width)
        drawn = (cell[None] < counts).all(1)[:, None, None]
        value = interpolated(rows, where, y, z)
        value = jnp.where((counted & drawn)[..., None], value, jnp.zeros_like(value))
        return jnp.where(drawn[..., None], value, jnp.full_like(value, -np.inf)) if how.largest else value

    moving, fixed, steps = (rows, regions, bins), (where, counts, most), most[0] * most[1]
    drawn = counts[:, 0] * counts[:, 1]
    if how.largest:
        empty = jnp.full((regions.start.shape[0], *how.shape, x.shape[1]), -np.inf, work)
        total = largest(sample, steps, moving, fixed, empty)
    else:
        total = summed(sample, steps, moving, fixed) / jnp.maximum(drawn, 1)[:, None, None, None].astype(work)
    return jnp.moveaxis(total, -1, 1)
