"""The operators of Detectron's networks: anchors on a grid, proposals made from them, and the final boxes."""

__all__ = [
    "experimental_detectron_detection_output",
    "experimental_detectron_generate_proposals_single_image",
    "experimental_detectron_prior_grid_generator",
    "experimental_detectron_topk_rois",
    "generate_proposals",
]

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer
from jaxops.dtypes import accumulation_type, as_traced, floating, floats_of_one_type
from jaxops.errors import ArgumentError
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts, rows_that_are_counted, unbounded
from jaxops.ops.openvino.box_overlaps import below, compacted, inside, overlap, survivors
from jaxops.ops.openvino.suppression import index_type, resized
from jaxops.shapes.arithmetic import must_fit, smaller
from jaxops.signature import DataSize, ElementType, ShapeOnly, Static, Traits, operator
from jaxops.static import ArrayLike, Tracer, jit_if_concrete

TRAITS = Traits(precision="exact")
_MOST_LOG = float(np.float32(math.log(1000 / 16)))  # of a box's growth


def experimental_detectron_prior_grid_generator(
    priors: ArrayLike,
    feature_map: ShapeOnly,
    im_data: ShapeOnly,
    *,
    flatten: bool = True,
    h: int = 0,
    w: int = 0,
    stride_x: float = 0,
    stride_y: float = 0,
) -> jax.Array:
    """Lays boxes around the centre of each cell of a grid.

    priors: (P, 4), floats: x1, y1, x2, y2 from the centre. feature_map: (1, C, H, W), im_data: (1, C, h, w), any dtype;
    only their sizes are used. Returns (H·W·P, 4), or with `flatten` False (H, W, P, 4), of the dtype of priors.
    h, w: size of the grid; 0: H and W. stride_x, stride_y: size of a cell; 0: size of the image / size of the
    grid. If the grid is smaller than H × W, the remaining boxes are zeros.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO ExperimentalDetectronPriorGridGenerator-6.

    >>> experimental_detectron_prior_grid_generator(
    ...     jnp.array([[-1.0, -1.0, 1.0, 1.0]]), jnp.zeros((1, 1, 1, 2)), jnp.zeros((1, 3, 4, 4))).tolist()
    [[0.0, 1.0, 2.0, 3.0], [2.0, 1.0, 4.0, 3.0]]
    """
    (boxes,) = floating(priors=priors)
    cells, image = as_traced(feature_map).shape, as_traced(im_data).shape
    must_fit("priors", boxes.shape, ("P", 4))
    must_fit("feature_map", cells, (1, "C", "H", "W"))
    must_fit("im_data", image, (1, "C", "h", "w"))
    grid = (integer("h", h, least=0) or cells[2], integer("w", w, least=0) or cells[3])
    for name, number, size in zip(("h", "w"), grid, cells[2:], strict=True):
        if isinstance(number, int) and isinstance(size, int) and number > size:
            raise ArgumentError(f"`{name}` is {number}, but the feature map has {size} cells along it")
    bounded_like((*cells[2:], *boxes.shape), boxes)
    work = accumulation_type(boxes.dtype)
    axes = []
    for size, number, step in zip(image[2:], grid, (stride_y, stride_x), strict=True):
        width = jnp.asarray(step, work) if step else jnp.asarray(size, work) / jnp.asarray(number, work)
        axes.append((lax.iota(work, number) + 0.5) * width)
    y, x = (jnp.broadcast_to(v, grid) for v in (axes[0][:, None], axes[1][None]))
    moved = jnp.stack([x, y, x, y], -1)[:, :, None] + boxes.astype(work)[None, None]
    flat = moved.reshape(-1, 4).astype(boxes.dtype)
    more = cells[2] * cells[3] * boxes.shape[0] - grid[0] * grid[1] * boxes.shape[0]
    flat = lax.pad(flat, jnp.zeros((), flat.dtype), [(0, more, 0), (0, 0, 0)])
    sizes = (cells[2] * cells[3] * boxes.shape[0], 4)
    sizes = sizes if flag("flatten", flatten) else (*cells[2:], *boxes.shape)
    return assert_sizes(flat.reshape(sizes), sizes, boxes.dtype)


def experimental_detectron_topk_rois(input_rois: ArrayLike, rois_probs: ArrayLike, *, max_rois: int = 0) -> jax.Array:
    """Returns the boxes of the highest scores.

    input_rois: (R, 4), rois_probs: (R,), floats of one dtype. Returns (max_rois, 4), same dtype, by falling score, and
    padded with zeros if there are fewer than max_rois. Boxes with equal scores keep their order.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO ExperimentalDetectronTopKROIs-6.

    >>> rois = jnp.arange(8.0).reshape(2, 4)
    >>> experimental_detectron_topk_rois(rois, jnp.array([0.1, 0.9]), max_rois=1).tolist()
    [[4.0, 5.0, 6.0, 7.0]]
    """
    boxes, scores = floats_of_one_type(input_rois=input_rois, rois_probs=rois_probs)
    must_fit("input_rois", boxes.shape, ("R", 4))
    must_fit("rois_probs", scores.shape, (boxes.shape[0],))
    return _best(boxes, scores, integer("max_rois", max_rois, least=0))


def _best(boxes: Any, scores: Any, most: int) -> Any:
    bounded_like((most, 4), boxes)
    order = jnp.argsort(-scores, stable=True)
    order = order[: smaller(order.shape[0], most)]
    best = boxes[order]
    return lax.pad(best, jnp.zeros((), best.dtype), [(0, most - best.shape[0], 0), (0, 0, 0)])


def experimental_detectron_generate_proposals_single_image(
    im_info: ArrayLike,
    anchors: ArrayLike,
    deltas: ArrayLike,
    scores: ArrayLike,
    *,
    min_size: float,
    nms_threshold: float,
    pre_nms_count: int,
    post_nms_count: int,
) -> tuple[jax.Array, jax.Array]:
    """Moves anchors by deltas, and returns the boxes of the highest scores that overlap little.

    im_info: (3,): height and width of the image, and a scale, which is ignored. anchors: (H·W·A, 4): x1, y1, x2,
    y2. deltas: (A·4, H, W): dx, dy, and the logarithms of width and height. scores: (A, H, W). Floats of one dtype.
    Returns (post_nms_count, 4) boxes and (post_nms_count,) scores, same dtype, padded with zeros.
    Boxes include their last pixel, and are cut at the image; boxes smaller than `min_size` are dropped. Of the
    `pre_nms_count` best boxes, those that overlap a better one by more than `nms_threshold` are dropped, where a box is
    x2 - x1 wide and y2 - y1 high. Boxes with equal scores keep their order.
    Raises ShapeError, ArgumentError, DTypeError.
    Source: OpenVINO ExperimentalDetectronGenerateProposalsSingleImage-6.

    >>> boxes, scores = experimental_detectron_generate_proposals_single_image(
    ...     jnp.array([9.0, 9.0, 1.0]), jnp.array([[1.0, 1.0, 4.0, 3.0]]), jnp.zeros((4, 1, 1)), jnp.ones((1, 1, 1)),
    ...     min_size=0.0, nms_threshold=0.5, pre_nms_count=1, post_nms_count=1)
    >>> boxes.tolist()
    [[1.0, 1.0, 4.0, 3.0]]
    """
    operands = floats_of_one_type(im_info=im_info, anchors=anchors, deltas=deltas, scores=scores)
    info, boxes, moves, marks = operands
    must_fit("scores", marks.shape, ("A", "H", "W"))
    number, height, width = marks.shape
    must_fit("im_info", info.shape, (3,))
    must_fit("anchors", boxes.shape, (height * width * number, 4))
    must_fit("deltas", moves.shape, (number * 4, height, width))
    how = _How(
        min_size,
        nms_threshold,
        integer("pre_nms_count", pre_nms_count, least=0),
        integer("post_nms_count", post_nms_count, least=0),
        1,
        0,
    )
    return _of_one_image(operands, how)


class _How(NamedTuple):
    least: float
    threshold: float
    most_before: int
    most: int
    one: int
    one_of_overlaps: int
    eta: float = 1.0


@jit_if_concrete
def _of_one_image(operands: tuple[Any, ...], how: _How) -> tuple[Any, Any]:
    info, anchors, deltas, scores = operands
    dtype = scores.dtype
    bounded_like((how.most, 4), scores)
    work = accumulation_type(dtype)
    info, anchors, deltas, scores = (v.astype(work) for v in operands)
    number, height, width = scores.shape
    grid = anchors.reshape(height, width, number, 4)
    boxes, marks = _moved(grid, deltas, scores, info[:2], how.one)
    large = _is_large(boxes, jnp.full(2, how.least, work), how.one)
    rows, chosen = _thinned(boxes, jnp.where(large, marks, -jnp.inf), large, how)
    rows, _ = compacted(rows, chosen, how.most)
    rows = rows.astype(dtype)
    return rows[:, :4], rows[:, 4]


@operator(data_size=DataSize(rows_that_are_counted))
def generate_proposals(
    im_info: ArrayLike,
    anchors: ArrayLike,
    boxesdeltas: ArrayLike,
    scores: ArrayLike,
    *,
    min_size: float,
    nms_threshold: float,
    pre_nms_count: int,
    post_nms_count: int,
    normalized: bool = True,
    nms_eta: float = 1.0,
    roi_num_type: ElementType = "int64",
    size: Static = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Moves anchors by deltas, and returns for each image the boxes of the highest scores that overlap little.

    im_info: (N, 3) or (N, 4): height and width of the image, and a scale of `min_size`, or one scale for
    heights and one for widths. anchors: (H, W, A, 4): x1, y1, x2, y2. boxesdeltas: (N, A·4, H, W): dx, dy, and the
    logarithms of width and height. scores: (N, A, H, W). Floats of one dtype. Returns (count, 4) boxes and (count,)
    scores, same dtype, image by image, and (N,), of roi_num_type: the number of boxes of each image.
    Boxes are cut at the image; without `normalized` they include their last pixel. Of the `pre_nms_count` best boxes,
    those smaller than `min_size` are dropped, and those that overlap a better one by more than `nms_threshold`; the
    `post_nms_count` best remain. Whenever a box is chosen, the threshold is multiplied by `nms_eta`, as long as it
    exceeds 0.5.
    size: static, the number of rows, which are cropped or padded with -1. It is needed if an operand is traced.
    Raises StaticError for a traced operand without `size`, ShapeError, ArgumentError, DTypeError.
    Source: OpenVINO GenerateProposals-9.

    >>> boxes, scores, counts = generate_proposals(
    ...     jnp.array([[9.0, 9.0, 1.0]]), jnp.array([1.0, 1.0, 4.0, 3.0]).reshape(1, 1, 1, 4), jnp.zeros((1, 4, 1, 1)),
    ...     jnp.ones((1, 1, 1, 1)), min_size=0.0, nms_threshold=0.5, pre_nms_count=1, post_nms_count=1)
    >>> boxes.tolist(), counts.tolist()
    ([[1.0, 1.0, 4.0, 3.0]], [1])
    """
    inputs = {"im_info": im_info, "anchors": anchors, "boxesdeltas": boxesdeltas, "scores": scores}
    if size is None and any(isinstance(v, Tracer) for v in inputs.values()):
        problem = "the number of proposals depends on operands that are traced"
        raise unbounded(problem, "n rows, cropped or filled up with -1", **inputs)
    operands = floats_of_one_type(**inputs)
    info, boxes, moves, marks = operands
    must_fit("scores", marks.shape, ("N", "A", "H", "W"))
    n, number, height, width = marks.shape
    must_fit("im_info", info.shape, (n, 3), (n, 4))
    must_fit("anchors", boxes.shape, (height, width, number, 4))
    must_fit("boxesdeltas", moves.shape, (n, number * 4, height, width))
    kind, one = index_type(roi_num_type, "roi_num_type"), 0 if flag("normalized", normalized) else 1
    how = _How(
        min_size,
        nms_threshold,
        integer("pre_nms_count", pre_nms_count, least=0),
        integer("post_nms_count", post_nms_count, least=0),
        one,
        one,
        nms_eta,
    )
    rows, counts = _of_images(operands, how)
    total = int(counts.sum()) if size is None else integer("size", size, least=0)
    check_counts("size", total)
    bounded_like((total, 4), rows)
    rows = resized(rows, total)
    return rows[:, :4], rows[:, 4], counts.astype(kind)


@jit_if_concrete
def _of_images(operands: tuple[Any, ...], how: _How) -> tuple[Any, Any]:
    """Returns (N·P, 5), boxes and scores of all images padded with -1, and (N,), the number of boxes per image."""
    dtype = operands[3].dtype
    work = accumulation_type(dtype)
    info, anchors, deltas, scores = (v.astype(work) for v in operands)

    def of_image(info: Any, deltas: Any, scores: Any) -> tuple[Any, Any]:
        boxes, marks = _moved(anchors, deltas, scores, info[:2], how.one)
        least = how.least * jnp.stack([info[-1], info[2]])
        return _thinned(boxes, marks, _is_large(boxes, least, how.one), how)

    rows, chosen = jax.vmap(of_image)(info, deltas, scores)
    counts, chosen = chosen.sum(1, dtype=np.int32), chosen.reshape(-1)
    order = jnp.argsort(~chosen, stable=True)
    rows, chosen = rows.reshape(-1, 5)[order], chosen[order][:, None]
    return jnp.where(chosen, rows, jnp.full_like(rows, -1)).astype(dtype), counts


def _moved(anchors: Any, deltas: Any, scores: Any, image: Any, one: int) -> tuple[Any, Any]:
    """Returns boxes (H·W·A, 4), cut at the image (height, width), and their scores."""
    height, width, number, _ = anchors.shape
    moves = deltas.reshape(number, 4, height, width).transpose(2, 3, 0, 1)
    boxes = refined(anchors.reshape(-1, 4), moves.reshape(-1, 4), _MOST_LOG, one)
    return inside(boxes, jnp.flip(image) - one), scores.transpose(1, 2, 0).reshape(-1)


def refined(boxes: Any, deltas: Any, most_log: float, one: int) -> Any:
    """Returns boxes (…, 4) with their centre moved by delta · size, and their size multiplied by exp(delta)."""
    side = boxes[..., 2:] - boxes[..., :2] + one
    centre = deltas[..., :2] * side + boxes[..., :2] + 0.5 * side
    half = 0.5 * jnp.exp(jnp.minimum(deltas[..., 2:], most_log)) * side
    return jnp.concatenate([centre - half, centre + half - one], -1)


def _is_large(boxes: Any, least: Any, one: int) -> Any:
    return (boxes[:, 2:] - boxes[:, :2] + one >= below(least, boxes)).all(-1)


def _thinned(boxes: Any, marks: Any, candidates: Any, how: _How) -> tuple[Any, Any]:
    """Returns boxes and scores (P, 5) by falling score, and which of them remain."""
    order = jnp.argsort(-marks, stable=True)[: smaller(marks.shape[0], how.most_before)]
    boxes, marks, candidates = boxes[order], marks[order], candidates[order]
    fixed = lax.stop_gradient(boxes)
    chosen = survivors(
        lambda i: overlap(fixed[i], fixed, how.one_of_overlaps), candidates, how.threshold, most=how.most, eta=how.eta
    )
    return jnp.concatenate([boxes, marks[:, None]], 1), chosen


def experimental_detectron_detection_output(
    rois: ArrayLike,
    deltas: ArrayLike,
    scores: ArrayLike,
    im_info: ArrayLike,
    *,
    score_threshold: float,
    nms_threshold: float,
    num_classes: int,
    post_nms_count: int,
    max_detections_per_image: int,
    max_delta_log_wh: float,
    deltas_weights: Sequence[float],
    class_agnostic_box_regression: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Moves boxes by the deltas of each class, and returns those of high scores that overlap little.

    rois: (R, 4): x1, y1, x2, y2, the last pixel included. deltas: (R, num_classes·4): dx, dy, and the logarithms of
    width and height, each multiplied by its weight in `deltas_weights`. scores: (R, num_classes). im_info: (1, 3):
    height and width of the image. Floats of one dtype. Returns (max_detections_per_image, 4) boxes, same dtype; the
    class of each, int32; and (max_detections_per_image,) scores, same dtype; all padded with zeros.
    Class 0 is the background and is never returned. A logarithm is at most `max_delta_log_wh`. As in OpenVINO, boxes
    are cut at 0, but not at the far edges of the image. For each class, of the boxes with scores above
    `score_threshold`, those that overlap a better one by more than `nms_threshold` are dropped, and the
    `post_nms_count` best remain. They are sorted by class and falling score, or only by falling score if there are more
    than `max_detections_per_image`. Boxes with equal scores keep their order.
    class_agnostic_box_regression: ignored.
    Raises ShapeError, ArgumentError, DTypeError. Source: OpenVINO ExperimentalDetectronDetectionOutput-6.

    >>> boxes, classes, scores = experimental_detectron_detection_output(
    ...     jnp.array([[1.0, 1.0, 4.0, 3.0]]), jnp.zeros((1, 8)), jnp.array([[0.3, 0.7]]), jnp.array([[9.0, 9.0, 1.0]]),
    ...     score_threshold=0.1, nms_threshold=0.5, num_classes=2, post_nms_count=1, max_detections_per_image=1,
    ...     max_delta_log_wh=4.0, deltas_weights=(10.0, 10.0, 5.0, 5.0))
    >>> boxes.tolist(), classes.tolist()
    ([[1.0, 1.0, 4.0, 3.0]], [1])
    """
    flag("class_agnostic_box_regression", class_agnostic_box_regression)
    operands = floats_of_one_type(rois=rois, deltas=deltas, scores=scores, im_info=im_info)
    boxes, moves, marks, info = operands
    classes = integer("num_classes", num_classes, least=1)
    must_fit("rois", boxes.shape, ("R", 4))
    must_fit("deltas", moves.shape, (boxes.shape[0], classes * 4))
    must_fit("scores", marks.shape, (boxes.shape[0], classes))
    must_fit("im_info", info.shape, (1, 3))
    if len(deltas_weights) != 4 or not all(deltas_weights):
        raise ArgumentError(f"`deltas_weights` {deltas_weights} must be four numbers other than 0")
    how = _Output(
        score_threshold,
        nms_threshold,
        integer("post_nms_count", post_nms_count, least=0),
        integer("max_detections_per_image", max_detections_per_image, least=0),
        max_delta_log_wh,
        tuple(deltas_weights),
    )
    return _detections((boxes, moves, marks), how)


class _Output(NamedTuple):
    least: float
    threshold: float
    most_of_class: int
    most: int
    most_log: float
    weights: tuple[float, ...]


@jit_if_concrete
def _detections(operands: tuple[Any, Any, Any], how: _Output) -> tuple[Any, Any, Any]:
    dtype = operands[0].dtype
    bounded_like((how.most, 4), operands[0])
    work = accumulation_type(dtype)
    rois, deltas, scores = (v.astype(work) for v in operands)
    number, classes = scores.shape
    moves = deltas.reshape(number, classes, 4) / np.asarray(how.weights, work)[None, None]
    boxes = jnp.maximum(refined(rois[:, None], moves, how.most_log, 1), 0)
    exists = (rois[:, 2:] - rois[:, :2] > 0).all(1)

    def of_class(boxes: Any, scores: Any) -> tuple[Any, Any, Any]:
        order = jnp.argsort(-scores, stable=True)
        boxes, scores, candidates = boxes[order], scores[order], (exists & (scores > how.least))[order]
        fixed = lax.stop_gradient(boxes)
        chosen = survivors(lambda i: overlap(fixed[i], fixed, 1), candidates, how.threshold, most=how.most_of_class)
        return jnp.concatenate([boxes, scores[:, None]], 1), chosen, order.astype(np.int32)

    rows, chosen, index = jax.vmap(of_class, (1, 1))(boxes[:, 1:], scores[:, 1:])
    kind = lax.broadcasted_iota(np.int32, chosen.shape, 0).reshape(-1) + 1
    rows, chosen, index = rows.reshape(-1, 5), chosen.reshape(-1), index.reshape(-1)
    total = chosen.sum(dtype=np.int32)
    best_first = jnp.lexsort((index, -rows[:, 4], ~chosen))
    order = jnp.where(total > how.most, best_first, jnp.argsort(~chosen, stable=True))
    table = jnp.concatenate([rows, kind.astype(work)[:, None]], 1)
    table = jnp.where(chosen[:, None], table, jnp.zeros_like(table))[order][: how.most]
    table = lax.pad(table, jnp.zeros((), work), [(0, how.most - table.shape[0], 0), (0, 0, 0)])
    return table[:, :4].astype(dtype), table[:, 5].astype(np.int32), table[:, 4].astype(dtype)
