"""Versions of NonMaxSuppression whose result has a size that does not depend on data."""

from typing import Any, Literal, TypeAlias

import numpy as np

from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import single, with_axes
from jaxops.ops import openvino
from jaxops.signature import ElementType, Static
from jaxops.static import Array

BoxEncoding: TypeAlias = Literal["corner", "center"]


@version("NonMaxSuppression", 1, of=openvino.non_max_suppression)
def non_max_suppression_1(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Static = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    box_encoding: BoxEncoding,
    sort_result_descending: bool,
) -> Array:
    """Returns int64; the rest is as in version 3."""
    limits = (max_output_boxes_per_class, iou_threshold, score_threshold)
    return non_max_suppression_3(
        *(boxes, scores, *limits),
        box_encoding=box_encoding,
        sort_result_descending=sort_result_descending,
        output_type=np.dtype(np.int64),
    )


@version("NonMaxSuppression", 3, of=openvino.non_max_suppression)
def non_max_suppression_3(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Static = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    box_encoding: BoxEncoding,
    sort_result_descending: bool,
    output_type: ElementType,
) -> Array:
    """Returns min(boxes, max_output_boxes_per_class · classes) rows, whatever the number of images."""
    most = _most(max_output_boxes_per_class)
    number = with_axes("NonMaxSuppression", "boxes", boxes, 2).shape[1]
    classes = with_axes("NonMaxSuppression", "scores", scores, 2).shape[1]
    return openvino.non_max_suppression(
        *(boxes, scores, np.int64(most), iou_threshold, score_threshold),
        box_encoding=box_encoding,
        sort_result_descending=sort_result_descending,
        output_type=output_type,
        size=min(number, most * classes),
    )[0]


@version("NonMaxSuppression", 4, of=openvino.non_max_suppression)
def non_max_suppression_4(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: Static = None,
    iou_threshold: Any = None,
    score_threshold: Any = None,
    *,
    box_encoding: BoxEncoding,
    sort_result_descending: bool,
    output_type: ElementType,
) -> Array:
    """Returns as many rows as all classes of all images may have boxes at most."""
    most = _most(max_output_boxes_per_class)
    images, classes, number = with_axes("NonMaxSuppression", "scores", scores, 3).shape[:3]
    return openvino.non_max_suppression(
        *(boxes, scores, np.int64(most), iou_threshold, score_threshold),
        box_encoding=box_encoding,
        sort_result_descending=sort_result_descending,
        output_type=output_type,
        size=min(number, most) * images * classes,
    )[0]


def _most(value: Any) -> int:
    return 0 if value is None else max(single("NonMaxSuppression", "max_output_boxes_per_class", value), 0)


version("NonMaxSuppression", 5)(openvino.non_max_suppression)
