"""Proposals of regions: anchors around the cells of a feature map, which are moved, scored and suppressed."""

__all__ = ["proposal"]

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import accumulation_type, floats_of_one_type
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.openvino.box_overlaps import below, compacted, ended, inside, overlap, survivors
from jaxops.shapes.arithmetic import must_fit, smaller
from jaxops.signature import Traits
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(precision="exact")
Framework = Literal["", "tensorflow"]


class _How(NamedTuple):
    anchors: tuple[tuple[float, ...], ...]
    most_before: int
    most: int
    threshold: float
    stride: int
    least: int
    clipped: tuple[bool, bool]
    normalized: bool
    scales: tuple[float, float]
    tensorflow: bool


def proposal(
    class_probs: ArrayLike,
    bbox_deltas: ArrayLike,
    image_shape: ArrayLike,
    *,
    base_size: int,
    pre_nms_topn: int,
    post_nms_topn: int,
    nms_thresh: float,
    feat_stride: int,
    min_size: int,
    ratio: Sequence[float],
    scale: Sequence[float],
    clip_before_nms: bool = True,
    clip_after_nms: bool = False,
    normalize: bool = False,
    box_size_scale: float = 1.0,
    box_coordinate_scale: float = 1.0,
    framework: Framework = "",
) -> tuple[jax.Array, jax.Array]:
    """Moves the anchors of each cell by deltas, and returns the boxes of the highest scores that overlap little.

    class_probs: (N, 2·K, H, W), the last K channels are the scores of K anchors. bbox_deltas: (N, 4·K, H, W): for each
    anchor dx, dy, log of width and height. image_shape: (3,) or (4,): height, width, and a scale of `min_size`, or one
    scale for heights and one for widths. Floats of one dtype. Returns (N·post_nms_topn, 5): image, x1, y1, x2, y2, and
    (N·post_nms_topn,), the scores, same dtype. If an image has fewer boxes, a row that begins with -1 and zeros follow.
    There is an anchor for each `ratio` of height to width and each `scale`, with the area (base_size · scale)².
    A box smaller than `min_size` has a score of 0. Of the `pre_nms_topn` best boxes, those that overlap a better
    one by more than `nms_thresh` are dropped. Boxes with equal scores keep their order.
    clip_before_nms, clip_after_nms: boxes are cut at the image. normalize: coordinates are fractions of the image.
    framework: 'tensorflow' takes rows for x and columns for y, does not round anchors and cuts them at the image;
    without it, a box includes its last pixel.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO Proposal-1 (which has no scores) and 4.

    >>> boxes, scores = proposal(
    ...     jnp.array([0.1, 0.9]).reshape(1, 2, 1, 1), jnp.zeros((1, 4, 1, 1)), jnp.array([20.0, 20.0, 1.0]),
    ...     base_size=4, pre_nms_topn=1, post_nms_topn=1, nms_thresh=0.5, feat_stride=4, min_size=1, ratio=(1.0,),
    ...     scale=(1.0,))
    >>> boxes.tolist()
    [[0.0, 0.0, 0.0, 4.0, 4.0]]
    """
    operands = floats_of_one_type(class_probs=class_probs, bbox_deltas=bbox_deltas, image_shape=image_shape)
    tensorflow = one_of("framework", framework, Framework) == "tensorflow"
    anchors = _anchors(integer("base_size", base_size, least=1), ratio, scale, tensorflow)
    number = len(anchors)
    must_fit("class_probs", operands[0].shape, ("N", 2 * number, "H", "W"))
    n, _, height, width = operands[0].shape
    must_fit("bbox_deltas", operands[1].shape, (n, 4 * number, height, width))
    must_fit("image_shape", operands[2].shape, (3,), (4,))
    how = _How(
        anchors,
        integer("pre_nms_topn", pre_nms_topn, least=1),
        integer("post_nms_topn", post_nms_topn, least=1),
        nms_thresh,
        integer("feat_stride", feat_stride, least=1),
        integer("min_size", min_size, least=0),
        (flag("clip_before_nms", clip_before_nms), flag("clip_after_nms", clip_after_nms)),
        flag("normalize", normalize),
        (box_coordinate_scale, box_size_scale),
        tensorflow,
    )
    return _proposal(operands, how)


def _anchors(base: int, ratios: Sequence[float], scales: Sequence[float], tensorflow: bool) -> tuple[Any, ...]:
    """Returns x1, y1, x2, y2 of the anchors of the first cell, computed in the steps and the precision of OpenVINO."""
    one, anchors = np.float32(0 if tensorflow else 1), []
    centre = np.float32(0.5) * (np.float32(base) - one) - (np.float32(base) / 2 if tensorflow else np.float32(0))
    for ratio in np.asarray(ratios, np.float32):
        width = np.sqrt(np.float32(base * base) / ratio)
        width = width if tensorflow else np.floor(width + np.float32(0.5))
        height = width * ratio if tensorflow else np.floor(width * ratio + np.float32(0.5))
        for scale in np.asarray(scales, np.float32):
            half = [np.float32(0.5) * (side * scale - one) for side in (width, height)]
            anchors.append(tuple(float(v) for v in (*(centre - h for h in half), *(centre + h for h in half))))
    return tuple(anchors)


@jit_if_concrete
def _proposal(operands: tuple[Any, ...], how: _How) -> Any:
    scores, deltas, image = operands
    n, _, height, width = scores.shape
    number, one = len(how.anchors), 0 if how.tensorflow else 1
    sizes = (n * how.most, 5)
    bounded_like(sizes, scores)
    work = accumulation_type(scores.dtype)
    image = image.astype(work)
    bounds = image[:2] if how.tensorflow else jnp.flip(image[:2])
    rows, columns = (lax.iota(work, d) * how.stride for d in (height, width))
    grid = jnp.stack(jnp.meshgrid(columns, rows), -1)  # x and y of each cell
    grid = jnp.flip(grid, -1) if how.tensorflow else grid
    anchors = jnp.asarray(np.asarray(how.anchors), work).reshape(number, 2, 2)
    corners = grid[:, :, None, None] + anchors[None, None]
    if how.tensorflow:
        corners = inside(corners, bounds)
    side = corners[..., 1, :] - corners[..., 0, :] + one
    centre = corners[..., 0, :] + 0.5 * side
    moves = deltas.astype(work).reshape(n, number, 2, 2, height, width).transpose(0, 4, 5, 1, 2, 3)
    centre = moves[..., 0, :] / how.scales[0] * side[None] + centre[None]
    half = 0.5 * jnp.exp(moves[..., 1, :] / how.scales[1]) * side[None]
    boxes = jnp.concatenate([centre - half, centre + half], -1)
    if how.clipped[0]:
        boxes = inside(boxes, bounds - one)
    least = how.least * jnp.stack([image[-1], image[2]])
    large = (boxes[..., 2:] - boxes[..., :2] + one >= below(least, boxes)).all(-1)
    marks = scores.astype(work)[:, number:].transpose(0, 2, 3, 1)
    marks = jnp.where(large, marks, jnp.zeros_like(marks))
    boxes, marks = boxes.reshape(n, -1, 4), marks.reshape(n, -1)
    count = smaller(marks.shape[1], how.most_before)

    def of_image(boxes: Any, marks: Any, number: Any) -> tuple[Any, Any]:
        order = jnp.argsort(-marks, stable=True)[:count]
        boxes, marks = boxes[order], marks[order]
        fixed = lax.stop_gradient(boxes)
        chosen = survivors(lambda i: overlap(fixed[i], fixed, one), marks == marks, how.threshold, most=how.most)
        if how.clipped[1]:
            boxes = inside(boxes, bounds)
        if how.normalized:
            boxes = boxes / jnp.tile(bounds, 2)[None]
        rows = jnp.concatenate([jnp.full_like(boxes[:, :1], number), boxes, marks[:, None]], 1)
        rows, total = compacted(rows, chosen, how.most)
        return ended(rows[:, :5], total), rows[:, 5]

    rows, marks = jax.vmap(of_image)(boxes, marks, lax.iota(work, n))
    y = rows.reshape(sizes).astype(scores.dtype)
    return assert_sizes(y, sizes, scores.dtype), marks.reshape(-1).astype(scores.dtype)
