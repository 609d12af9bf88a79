"""Operators that choose among overlapping boxes. Their size depends on the data; see `ops.tensor.selection`."""

__all__ = ["non_max_suppression"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import flag, integer
from jaxops.dtypes import as_traced, canonical, floating
from jaxops.errors import ShapeError, describe, shape_text
from jaxops.ops.common.greedy_choice import choose_boxes, ordered_corners, overlap_of
from jaxops.ops.common.result_sizes import bounded_like, check_counts, rows_that_begin, unbounded
from jaxops.shapes.arithmetic import all_agree
from jaxops.signature import DataSize, Static, Traits, UpperBound, operator
from jaxops.static import ArrayLike, Sizes, Tracer, is_static, is_symbolic, jit_if_concrete

TRAITS = Traits(precision="exact")


def _check_scores(boxes: Sizes, scores: Sizes) -> None:
    """Raises ShapeError unless boxes are (B, S, 4) and scores (B, C, S) (ONNX NonMaxSuppression-11)."""
    problem = (
        f"`boxes` of {shape_text(boxes)} must be (B, S, 4), and `scores` of {shape_text(scores)} must be (B, C, S)"
    )
    if len(scores) != 3 or not all_agree(problem, boxes, (scores[0], scores[2], 4)):
        raise ShapeError(problem)


@operator(data_size=DataSize(rows_that_begin, lambda inputs, attributes: inputs[1].size))
def non_max_suppression(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: UpperBound[Any] = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    center_point_box: int = 0,
    size: Static = None,
) -> jax.Array:
    """Selects boxes by descending score for each batch and class, without those that overlap a selected one too much.

    boxes: (B, S, 4), floats: two opposite corners y1, x1, y2, x2, or with center_point_box the centre x, y and width,
    height. scores: (B, C, S). Returns (count, 3), int64: batch, class, box; classes in order, then by score; of equal
    scores the first box comes first.
    max_output_boxes_per_class: one integer; None is 0, which selects nothing. iou_threshold: boxes with a larger
    intersection over union are suppressed; None is 0. score_threshold: boxes with a smaller score are removed
    (onnxruntime removes those with an equal one too); None removes only boxes whose score is NaN.
    size: static, the number of rows; rows are cropped, or filled up with -1. Needed when an operand is traced.
    Raises StaticError for a traced operand without `size`, ShapeError, DTypeError, ArgumentError.
    Source: ONNX NonMaxSuppression, opsets 10–11.

    >>> corners = jnp.array([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 1.1], [0.0, 5.0, 1.0, 6.0]]])
    >>> non_max_suppression(corners, jnp.array([[[0.9, 0.8, 0.7]]]), 3, 0.5).tolist()
    [[0, 0, 0], [0, 0, 2]]
    """
    operands = (boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold)
    if size is None and any(isinstance(v, Tracer) for v in operands):
        problem = "the number of selected boxes depends on operands that are traced"
        raise unbounded(problem, "n rows, cropped or filled up with -1", boxes=boxes, scores=scores)
    areas, marks = floating(boxes=boxes, scores=scores)
    _check_scores(areas.shape, marks.shape)
    most = one_number("max_output_boxes_per_class", _limit(max_output_boxes_per_class, areas.shape[1]))
    overlap = one_number("iou_threshold", np.float32(0) if iou_threshold is None else iou_threshold)
    least = one_number("score_threshold", np.float32(-np.inf) if score_threshold is None else score_threshold)
    if size is None:
        areas, marks = _rounded_up(areas, marks)
    chosen = _select((areas, marks, most, overlap, least), flag("center_point_box", center_point_box))
    if size is None:
        positions = np.stack(np.nonzero(np.asarray(chosen) >= 0), 1)
        rows = np.concatenate([positions[:, :2], np.asarray(chosen)[tuple(positions.T)][:, None]], 1)
        return as_traced(rows.astype(np.int64))
    count = integer("size", size, least=0)
    check_counts("size", count)
    bounded_like((count, 3), areas, np.int64)
    if 0 in chosen.shape:
        return jnp.full((count, 3), -1, canonical(np.int64))
    # JAX counts in int64 if it does not know that a symbolic size is small.
    batch, kind, rank = (v.astype(np.int32) for v in jnp.nonzero(chosen >= 0, size=count, fill_value=-1))
    box = jnp.where(batch < 0, -1, chosen[batch, kind, rank])
    return jnp.stack([batch, kind, box], 1).astype(canonical(np.int64))


def _rounded_up(boxes: jax.Array, scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rounds the number of boxes up to the next power of two, by boxes with a score of NaN, which are never selected.

    The number of boxes often depends on data. Rounded up, a few compiled programs serve all numbers.
    """
    number = boxes.shape[1]
    more = (1 << (number - 1).bit_length()) - number if number else 0
    return (
        as_traced(np.pad(np.asarray(boxes), ((0, 0), (0, more), (0, 0)))),
        as_traced(np.pad(np.asarray(scores), ((0, 0), (0, 0), (0, more)), constant_values=np.nan)),
    )


def _limit(value: Any, boxes: Any) -> Any:
    """The most boxes to select; a static limit beyond their number, such as INT64_MAX, has no effect."""
    if value is None:
        return 0
    if not is_static(value) or is_symbolic(np.asarray(value)):
        return value
    # The number of boxes may be symbolic, but fits the indices. A narrow type may not hold it.
    most = boxes if isinstance(boxes, int) else np.iinfo(np.int32).max
    return np.minimum(np.asarray(value), np.asarray(most))


def one_number(name: str, value: Any) -> jax.Array:
    """Returns a scalar as an array of rank 0; raises ShapeError for more than one number."""
    number = as_traced(value)
    if number.size != 1:
        raise ShapeError(f"`{name}` must be one number, got {describe(number)}")
    return number.reshape(())


@jit_if_concrete
def _select(operands: tuple[Any, ...], centred: bool) -> Any:
    """The indices (B, C, S) of the selected boxes in the order of selection, then -1."""
    boxes, scores, most, overlap, least = operands
    if 0 in scores.shape:
        return jnp.full(scores.shape, -1, np.int32)
    low, high = ordered_corners(boxes, centred)

    def of_class(low: Any, high: Any, scores: Any) -> Any:
        return choose_boxes(overlap_of(low, high), scores, most, overlap, least)[0]

    return jax.vmap(jax.vmap(of_class, (None, None, 0)))(low, high, scores)
