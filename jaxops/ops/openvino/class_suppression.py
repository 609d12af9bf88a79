"""Operators that choose boxes for each class, and keep the best of each image. The number of boxes depends on data."""

__all__ = ["matrix_nms", "multiclass_nms"]

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, one_of
from jaxops.dtypes import accumulation_type, floats_of_one_type, integral
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.result_sizes import bounded_like, check_counts, rows_that_are_counted, unbounded
from jaxops.ops.openvino.box_overlaps import overlap, survivors
from jaxops.ops.openvino.suppression import index_type, resized
from jaxops.shapes.arithmetic import all_agree
from jaxops.signature import DataSize, ElementType, Static, Traits, operator
from jaxops.static import ArrayLike, Tracer, jit_if_concrete

TRAITS = Traits(precision="exact")
SortResult = Literal["classid", "score", "none"]
Decay = Literal["gaussian", "linear"]


class _Common(NamedTuple):
    """The attributes that both operators share."""

    order: SortResult
    across: bool
    least: float
    top_k: int
    keep_top_k: int
    background: int
    one: int


@operator(data_size=DataSize(rows_that_are_counted))
def matrix_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    *,
    sort_result_type: SortResult = "none",
    sort_result_across_batch: bool = False,
    output_type: ElementType = "int64",
    score_threshold: float = 0,
    nms_top_k: int = -1,
    keep_top_k: int = -1,
    background_class: int = -1,
    normalized: bool = True,
    decay_function: Decay = "linear",
    gaussian_sigma: float = 2.0,
    post_threshold: float = 0,
    size: Static = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Lowers the score of each box by its overlap with better ones of its class, and returns the best boxes.

    boxes: (N, P, 4), floats: x1, y1, x2, y2. scores: (N, C, P), same dtype. Returns (count, 6), same dtype: class,
    score, box; (count, 1), of output_type: image · P + box; (N,), of output_type: the number of boxes of each image.
    For each class except `background_class`, the `nms_top_k` (-1: all) best boxes with scores above `score_threshold`
    are taken. The score of a box is multiplied by the least f(overlap) / f(m) over the better boxes. Here m is the
    largest overlap of a better box with a box that is better still, and f(v) is 1 - v for `decay_function` 'linear', or
    exp(-gaussian_sigma · v²) for 'gaussian'. Of the boxes with new scores above `post_threshold`, the `keep_top_k`
    (-1: all) best of each image remain.
    sort_result_type: 'classid' sorts by class, then by falling score; 'score' and 'none' sort by falling score; in each
    image, or over all with `sort_result_across_batch`. Boxes with equal scores keep their order. normalized: False if a
    box includes its last pixel.
    size: static, the number of rows, which are cropped or padded with -1. It is needed if an operand is traced.
    Raises StaticError for a traced operand without `size`, ShapeError, DTypeError, ArgumentError.
    Source: OpenVINO MatrixNms-8.

    >>> boxes = jnp.array([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.5], [2.0, 2.0, 3.0, 3.0]]])
    >>> matrix_nms(boxes, jnp.array([[[0.9, 0.8, 0.5]]]))[0][:, 1].tolist()
    [0.8999999761581421, 0.5, 0.4000000059604645]
    """
    gaussian = one_of("decay_function", decay_function, Decay) == "gaussian"
    how = _common(sort_result_type, sort_result_across_batch, score_threshold, nms_top_k, keep_top_k)
    how = how._replace(background=background_class, one=0 if flag("normalized", normalized) else 1)
    operands = _operands(boxes, scores, None, size)
    kind = index_type(output_type)
    return _sized(_matrix_nms(operands, how, gaussian_sigma if gaussian else None, post_threshold), how, kind, size)


@operator(data_size=DataSize(rows_that_are_counted))
def multiclass_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    roisnum: ArrayLike | None = None,
    *,
    sort_result_type: SortResult = "none",
    sort_result_across_batch: bool = False,
    output_type: ElementType = "int64",
    iou_threshold: float = 0,
    score_threshold: float = 0,
    nms_top_k: int = -1,
    keep_top_k: int = -1,
    background_class: int = -1,
    normalized: bool = True,
    nms_eta: float = 1.0,
    size: Static = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Selects boxes for each class, drops those that overlap a better one too much, and returns the best of each image.

    boxes: (N, P, 4), floats: x1, y1, x2, y2. scores: (N, C, P), same dtype. With `roisnum` (N,), integers, the
    images share boxes (C, P, 4) and scores (C, P): the first roisnum[0] boxes are those of the first image, and so on.
    Returns (count, 6), same dtype: class, score, box; (count, 1), of output_type: image · P + box, or with `roisnum`
    box · C + class; (N,), of output_type: the number of boxes of each image.
    For each class except `background_class`, the `nms_top_k` (-1: all) best boxes with scores of at least
    `score_threshold` are taken. Of these, boxes that overlap a better one by more than `iou_threshold` are dropped.
    Whenever a box is selected, that threshold is multiplied by `nms_eta`, as long as it exceeds 0.5. The remaining
    attributes are as in `matrix_nms`.
    Raises StaticError for a traced operand without `size`, ShapeError, DTypeError, ArgumentError.
    Source: OpenVINO MulticlassNms-8 (without `roisnum`) and 9.

    >>> boxes = jnp.array([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9], [2.0, 2.0, 3.0, 3.0]]])
    >>> multiclass_nms(boxes, jnp.array([[[0.9, 0.8, 0.5]]]), iou_threshold=0.5)[1].tolist()
    [[0], [2]]
    """
    how = _common(sort_result_type, sort_result_across_batch, score_threshold, nms_top_k, keep_top_k)
    how = how._replace(background=background_class, one=0 if flag("normalized", normalized) else 1)
    operands = _operands(boxes, scores, roisnum, size)
    kind = index_type(output_type)
    return _sized(_multiclass_nms(operands, how, iou_threshold, nms_eta), how, kind, size)


def _common(order: Any, across: Any, least: float, top_k: Any, keep_top_k: Any) -> _Common:
    return _Common(
        one_of("sort_result_type", order, SortResult),
        flag("sort_result_across_batch", across),
        least,
        integer("nms_top_k", top_k, least=-1),
        integer("keep_top_k", keep_top_k, least=-1),
        -1,
        0,
    )


def _operands(boxes: Any, scores: Any, roisnum: Any, size: Any) -> tuple[Any, ...]:
    if size is None and any(isinstance(v, Tracer) for v in (boxes, scores, roisnum)):
        problem = "the number of selected boxes depends on operands that are traced"
        raise unbounded(problem, "n rows, cropped or filled up with -1", boxes=boxes, scores=scores)
    places, marks = floats_of_one_type(boxes=boxes, scores=scores)
    (counts,) = integral(roisnum=roisnum)
    a, b = places.shape, marks.shape
    form = (
        "(N, P, 4), and `scores` of {} must be (N, C, P)"
        if roisnum is None
        else "(C, P, 4), and `scores` of {} must be (C, P)"
    )
    problem = f"`boxes` of {shape_text(a)} must be {form.format(shape_text(b))}"
    if len(a) != 3 or len(b) != (3 if roisnum is None else 2) or not all_agree(problem, a, (b[0], b[-1], 4)):
        raise ShapeError(problem)
    if counts is not None and counts.ndim != 1:
        raise ShapeError(f"`roisnum` of {shape_text(counts.shape)} must be (N,)")
    return places, marks, counts


class _Table(NamedTuple):
    """Candidates of all images and classes: class, score and box; which image, box and which of them remain."""

    rows: Any
    image: Any
    index: Any
    chosen: Any


def _candidates(boxes: Any, scores: Any, allowed: Any, top_k: int) -> tuple[Any, Any, Any, Any]:
    """Of one class the best boxes, their scores and indices, and whether they are candidates, by falling score."""
    order = jnp.argsort(jnp.where(allowed, -scores, jnp.inf), stable=True)
    order = order[:top_k] if top_k >= 0 else order
    return boxes[order], scores[order], order.astype(np.int32), allowed[order]


@jit_if_concrete
def _matrix_nms(operands: tuple[Any, ...], how: _Common, sigma: float | None, least_after: float) -> tuple[Any, ...]:
    boxes, scores, _ = operands
    work = accumulation_type(boxes.dtype)

    def of_class(boxes: Any, scores: Any) -> Any:
        boxes, scores, index, allowed = _candidates(boxes, scores, scores > how.least, how.top_k)
        overlaps = jax.vmap(lambda box: overlap(box, boxes, how.one))(boxes)
        overlaps = jnp.triu(jnp.where(allowed[:, None] & allowed[None], overlaps, jnp.zeros_like(overlaps)), 1)
        worst = overlaps.max(0, initial=0)[:, None]
        if sigma is None:
            factor = (1 - overlaps) / jnp.maximum(1 - worst, 1e-10)
        else:
            factor = jnp.exp((worst * worst - overlaps * overlaps) * sigma)
        better = jnp.triu(jnp.ones(factor.shape, bool), 1) & allowed[:, None]
        scores = scores * jnp.where(better, factor, jnp.ones_like(factor)).min(0, initial=1)
        return boxes, scores, index, allowed & (scores > least_after)

    found = jax.vmap(jax.vmap(of_class, (None, 0)))(boxes.astype(work), scores.astype(work))
    return _ordered(_table(found, how, scores.shape[1]), how, scores.shape[0], scores.shape[2], boxes.dtype)


@jit_if_concrete
def _multiclass_nms(operands: tuple[Any, ...], how: _Common, threshold: float, eta: float) -> tuple[Any, ...]:
    boxes, scores, counts = operands
    work = accumulation_type(boxes.dtype)
    dtype, (boxes, scores) = boxes.dtype, (boxes.astype(work), scores.astype(work))

    def of_class(boxes: Any, scores: Any, exists: Any) -> Any:
        allowed = exists & (scores >= how.least)
        boxes, scores, index, allowed = _candidates(boxes, scores, allowed, how.top_k)
        fixed = lax.stop_gradient(boxes)
        chosen = survivors(lambda i: overlap(fixed[i], fixed, how.one, gap=how.one), allowed, threshold, eta=eta)
        return boxes, scores, index, chosen

    if counts is None:
        n, classes, number = scores.shape
        exists = jnp.ones((n, number), bool)
        found = jax.vmap(jax.vmap(of_class, (None, 0, None)))(boxes, scores, exists)
        return _ordered(_table(found, how, classes), how, n, number, dtype)
    classes, number = scores.shape
    ends = jnp.cumsum(counts.astype(np.int32))
    place = jnp.arange(number, dtype=np.int32)[None]
    exists = (place >= (ends - counts.astype(np.int32))[:, None]) & (place < ends[:, None])
    by_class = jax.vmap(of_class, (0, 0, None))
    found = jax.vmap(lambda exists: by_class(boxes, scores, exists))(exists)
    table = _table(found, how, classes)
    flat = table.index * classes + table.rows[:, 0].astype(np.int32)
    return _ordered(table._replace(index=flat), how, counts.shape[0], 0, dtype)


def _table(found: Any, how: _Common, classes: Any) -> _Table:
    boxes, scores, index, chosen = found
    image, kind = (lax.broadcasted_iota(np.int32, scores.shape, axis) for axis in (0, 1))
    rows = jnp.concatenate([jnp.stack([kind.astype(boxes.dtype), scores], -1), boxes], -1).reshape(-1, 6)
    chosen = chosen & (kind != how.background)
    return _Table(rows, image.reshape(-1), index.reshape(-1), chosen.reshape(-1))


def _ordered(table: _Table, how: _Common, images: Any, per_image: Any, dtype: Any) -> tuple[Any, ...]:
    """The rows that remain, then -1; likewise their indices; the number of rows of each image."""
    rows, image, index, chosen = table
    kind, score = rows[:, 0], -rows[:, 1]
    if how.keep_top_k >= 0:
        order = jnp.lexsort((index, kind, score, ~chosen, image))
        first = jnp.searchsorted(image[order], image[order], side="left").astype(np.int32)
        rank = jnp.arange(image.shape[0], dtype=np.int32) - first
        chosen = chosen & jnp.zeros_like(chosen).at[order].set(rank < how.keep_top_k)
    keys = (index, score, kind) if how.order == "classid" else (index, kind, score)
    if not how.across or how.order == "none":
        keys = (*keys, image)
    elif how.order == "classid":
        keys = (index, score, image, kind)
    else:
        keys = (index, kind, image, score)
    order = jnp.lexsort((*keys, ~chosen))
    counts = jnp.zeros(images, np.int32).at[image].add(chosen.astype(np.int32))
    chosen = chosen[order][:, None]
    rows = jnp.where(chosen, rows[order], jnp.full_like(rows, -1)).astype(dtype)
    index = (index + image * per_image)[order][:, None]
    return rows, jnp.where(chosen, index, jnp.full_like(index, -1)), counts


def _sized(found: tuple[Any, ...], how: _Common, kind: np.dtype, size: Any) -> tuple[Any, ...]:
    rows, index, counts = found
    if size is None:
        total = int(counts.sum())
        return rows[:total], index[:total].astype(kind), counts.astype(kind)
    total = integer("size", size, least=0)
    check_counts("size", total)
    bounded_like((total, 6), rows)
    return resized(rows, total), resized(index, total).astype(kind), counts.astype(kind)
