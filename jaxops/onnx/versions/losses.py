"""Losses: the second output of SoftmaxCrossEntropyLoss."""

from typing import Any

from jaxops.onnx.registry import version
from jaxops.ops import softmax_cross_entropy_loss
from jaxops.ops.math.losses import LossReduction
from jaxops.static import Array


@version("SoftmaxCrossEntropyLoss", 12)
def softmax_cross_entropy_loss_12(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: LossReduction,
    n_outputs: int,
) -> Any:
    return softmax_cross_entropy_loss(
        scores, labels, weights, ignore_index=ignore_index, reduction=reduction, return_log_prob=n_outputs == 2
    )
