"""Operators that choose, class by class, among overlapping boxes. The number of chosen boxes depends on data."""

__all__ = ["nms_rotated", "non_max_suppression"]

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import element_type, flag, integer, one_of
from jaxops.dtypes import canonical, floating
from jaxops.errors import DTypeError, ShapeError, shape_text
from jaxops.ops.common.greedy_choice import choose_boxes, ordered_corners, overlap_of
from jaxops.ops.common.result_sizes import bounded_like, check_counts, rows_that_are_counted, unbounded
from jaxops.ops.object_detection.suppression import one_number
from jaxops.ops.openvino.rotated_boxes import rotated_overlaps
from jaxops.shapes.arithmetic import all_agree
from jaxops.signature import DataSize, ElementType, Static, Traits, UpperBound, operator
from jaxops.static import ArrayLike, Sizes, Tracer, jit_if_concrete

TRAITS = Traits(precision="exact")
BoxEncoding = Literal["corner", "center"]


_DATA_SIZE = DataSize(rows_that_are_counted, lambda inputs, attributes: inputs[1].size)


@operator(data_size=_DATA_SIZE)
def non_max_suppression(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: UpperBound[Any] = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    soft_nms_sigma: Any = None,
    *,
    box_encoding: BoxEncoding = "corner",
    sort_result_descending: bool = True,
    output_type: ElementType = "int64",
    size: Static = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Selects boxes by falling score for each image and class; drops boxes that overlap a selected one too much.

    boxes: (N, P, 4), floats: two opposite corners y1, x1, y2, x2, or with box_encoding 'center' the centre x, y and
    width, height. scores: (N, C, P). Returns (count, 3), of output_type: image, class, box; (count, 3), of the type of
    scores: image, class, score; and (1,), of output_type, the count. sort_result_descending: True sorts by falling
    score across images and classes, False by image and class. Boxes with equal scores keep their order.
    max_output_boxes_per_class: one integer; None is 0, which selects nothing. iou_threshold: boxes with a larger
    intersection over union are dropped; None is 0. score_threshold: boxes with a smaller score are dropped; None is 0.
    soft_nms_sigma: if it is positive, the score of a box that overlaps a selected one is multiplied by
    exp(-overlap² / (2·sigma)), and `iou_threshold` is ignored; None is 0.
    size: static, the number of rows, which are cropped or padded with -1. It is needed if an operand is traced. The
    count is then at most `size`.
    Raises StaticError for a traced operand without `size`, ShapeError, DTypeError, ArgumentError.
    Source: OpenVINO NonMaxSuppression-5 and 9; versions 1 to 4 return only the boxes, with a fixed `size`.

    >>> corners = jnp.array([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [0.0, 5.0, 1.0, 6.0]]])
    >>> rows, marks, count = non_max_suppression(corners, jnp.array([[[0.9, 0.8, 0.7]]]), 3, 0.5)
    >>> rows.tolist(), count.tolist()
    ([[0, 0, 0], [0, 0, 2]], [2])
    """
    centred = one_of("box_encoding", box_encoding, BoxEncoding) == "center"
    limits = (max_output_boxes_per_class, iou_threshold, score_threshold, soft_nms_sigma)
    how = _How(4, _centred if centred else _cornered, flag("sort_result_descending", sort_result_descending))
    return _suppressed(boxes, scores, limits, how, output_type, size)


@operator(data_size=_DATA_SIZE)
def nms_rotated(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: UpperBound[Any],
    iou_threshold: Any,
    score_threshold: Any,
    *,
    sort_result_descending: bool = True,
    output_type: ElementType = "int64",
    clockwise: bool = True,
    size: Static = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Selects rotated boxes, as `non_max_suppression` does upright ones.

    boxes: (N, P, 5), floats: the centre x, y, width, height, and an angle in radians, clockwise in an image
    whose y axis points down, or counterclockwise with `clockwise` False. The rest is as in `non_max_suppression`.
    Raises StaticError for a traced operand without `size`, ShapeError, DTypeError, ArgumentError.
    Source: OpenVINO NMSRotated-13.

    >>> boxes = jnp.array([[[0.0, 0.0, 4.0, 2.0, 0.0], [0.0, 0.0, 4.0, 2.0, 1.5], [9.0, 9.0, 4.0, 2.0, 0.0]]])
    >>> nms_rotated(boxes, jnp.array([[[0.9, 0.8, 0.7]]]), 3, 0.5, 0.0)[0].tolist()
    [[0, 0, 0], [0, 0, 1], [0, 0, 2]]
    """
    limits = (max_output_boxes_per_class, iou_threshold, score_threshold, None)
    overlaps = _clockwise if flag("clockwise", clockwise) else _counterclockwise
    how = _How(5, overlaps, flag("sort_result_descending", sort_result_descending))
    return _suppressed(boxes, scores, limits, how, output_type, size)


class _How(NamedTuple):
    numbers: int
    overlaps: Callable[[Any], Callable[[Any], Any]]
    sorted: bool


def _cornered(boxes: Any) -> Any:
    return overlap_of(*ordered_corners(boxes, False))


def _centred(boxes: Any) -> Any:
    return overlap_of(*ordered_corners(boxes, True))


def _clockwise(boxes: Any) -> Any:
    return rotated_overlaps(boxes)


def _counterclockwise(boxes: Any) -> Any:
    return rotated_overlaps(boxes * np.asarray([1, 1, 1, 1, -1], boxes.dtype)[None])


def _suppressed(boxes: Any, scores: Any, limits: tuple[Any, ...], how: _How, output_type: Any, size: Any) -> Any:
    kind = index_type(output_type)
    if size is None and any(isinstance(v, Tracer) for v in (boxes, scores, *limits)):
        problem = "the number of selected boxes depends on operands that are traced"
        raise unbounded(problem, "n rows, cropped or filled up with -1", boxes=boxes, scores=scores)
    places, marks = floating(boxes=boxes, scores=scores)
    _check_scores(how, places.shape, marks.shape)
    most, *thresholds = limits
    count = places.shape[1]
    known = isinstance(most, int | np.integer | np.ndarray) and np.asarray(most).dtype.kind in "iu"
    if known:  # a limit beyond the number of boxes, which may be symbolic, has no effect: such as INT64_MAX
        most = np.minimum(most, count if isinstance(count, int) else np.iinfo(np.int32).max)
    numbers = (one_number("max_output_boxes_per_class", np.int32(0) if most is None else most),)
    for name, value in zip(("iou_threshold", "score_threshold", "soft_nms_sigma"), thresholds, strict=True):
        numbers += (one_number(name, np.float32(0) if value is None else value).astype(places.dtype),)
    table, values, total = _chosen((places, marks, *numbers), how)
    if size is None:
        rows = int(total)
        return table[:rows].astype(kind), values[:rows], total.reshape(1).astype(kind)
    rows = integer("size", size, least=0)
    check_counts("size", rows)
    bounded_like((rows, 3), places, kind)
    return (
        resized(table, rows).astype(kind),
        resized(values, rows),
        jnp.minimum(total, rows).reshape(1).astype(kind),
    )


def index_type(output_type: Any, name: str = "output_type") -> np.dtype:
    """Returns the type of indices; int64 becomes int32 while x64 is off."""
    kind = element_type(name, output_type)
    if kind not in (np.int32, np.int64):
        raise DTypeError(f"`{name}` is {kind.name}; it must be int64 or int32")
    return canonical(kind)


def resized(table: Any, rows: int) -> Any:
    """Returns a table cropped to a number of rows, or padded with -1."""
    table = table[:rows]
    more = rows - table.shape[0]
    return lax.pad(table, jnp.full((), -1, table.dtype), [(0, more, 0), *[(0, 0, 0)] * (table.ndim - 1)])


def _check_scores(how: _How, boxes: Sizes, scores: Sizes) -> None:
    problem = (
        f"`boxes` of {shape_text(boxes)} must be (N, P, {how.numbers}), and `scores` of "
        f"{shape_text(scores)} must be (N, C, P)"
    )
    if len(scores) != 3 or not all_agree(problem, boxes, (scores[0], scores[2], how.numbers)):
        raise ShapeError(problem)


@jit_if_concrete
def _chosen(operands: tuple[Any, ...], how: _How) -> tuple[Any, Any, Any]:
    """Returns the chosen boxes (N·C·P, 3), padded with -1; their scores likewise; and the number of chosen boxes."""
    boxes, scores, most, threshold, least, sigma = operands
    n, classes, number = scores.shape
    if 0 in scores.shape:
        empty = jnp.full((n * classes * number, 3), -1, np.int32)
        return empty, empty.astype(scores.dtype), jnp.zeros((), np.int32)

    def of_class(boxes: Any, scores: Any) -> Any:
        return choose_boxes(how.overlaps(boxes), scores, most, threshold, least, sigma)

    chosen, marks = jax.vmap(jax.vmap(of_class, (None, 0)))(boxes, scores)
    chosen, marks = chosen.reshape(-1), marks.reshape(-1)
    image, kind = (lax.broadcasted_iota(np.int32, (n, classes, number), axis).reshape(-1) for axis in (0, 1))
    absent = chosen < 0
    keys = (-marks, absent) if how.sorted else (absent,)
    order = jnp.lexsort(keys)
    rows = jnp.stack([image, kind, chosen], 1)
    values = jnp.concatenate([rows[:, :2].astype(scores.dtype), marks[:, None]], 1)
    rows, values = (jnp.where(absent[:, None], jnp.full_like(v, -1), v)[order] for v in (rows, values))
    return rows, values, (~absent).sum(dtype=np.int32)
