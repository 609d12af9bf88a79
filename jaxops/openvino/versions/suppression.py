"""Versions of NonMaxSuppression whose result has a size that does not depend on data."""

from typing import Any

import numpy as np

from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import single, with_axes
from jaxops.ops import openvino
from jaxops.signature import Static, like
from jaxops.static import Array


@version("NonMaxSuppression", 3, of=openvino.non_max_suppression)
@like(openvino.non_max_suppression, without=["size"])
def non_max_suppression_3(
    boxes: Array, scores: Array, most: Static = None, iou: Any = None, score: Any = None, **attributes: Any
) -> Array:
    """Returns min(boxes, max_output_boxes_per_class · classes) rows, whatever the number of images."""
    number = with_axes("NonMaxSuppression", "boxes", boxes, 2).shape[1]
    classes = with_axes("NonMaxSuppression", "scores", scores, 2).shape[1]
    limit = _limit(most)
    size = min(number, limit * classes)
    return openvino.non_max_suppression(boxes, scores, np.int64(limit), iou, score, size=size, **attributes)[0]


@version("NonMaxSuppression", 1, of=openvino.non_max_suppression)
@like(non_max_suppression_3, without=["output_type"])
def non_max_suppression_1(*inputs: Any, **attributes: Any) -> Array:
    """Returns int64; the rest is as in version 3."""
    return non_max_suppression_3(*inputs, output_type=np.dtype(np.int64), **attributes)


@version("NonMaxSuppression", 4, of=openvino.non_max_suppression)
@like(non_max_suppression_3)
def non_max_suppression_4(
    boxes: Array, scores: Array, most: Static = None, iou: Any = None, score: Any = None, **attributes: Any
) -> Array:
    """Returns as many rows as all classes of all images may have boxes at most."""
    images, classes, number = with_axes("NonMaxSuppression", "scores", scores, 3).shape[:3]
    limit = _limit(most)
    size = min(number, limit) * images * classes
    return openvino.non_max_suppression(boxes, scores, np.int64(limit), iou, score, size=size, **attributes)[0]


def _limit(value: Any) -> int:
    """Returns the largest number of boxes per class; it is 0 if a node does not state it."""
    return 0 if value is None else max(single("NonMaxSuppression", "max_output_boxes_per_class", value), 0)


version("NonMaxSuppression", 5)(openvino.non_max_suppression)
