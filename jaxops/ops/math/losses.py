"""Classification losses: minus the log-probability of the target class.

16-bit types are computed in float32.
"""

__all__ = ["negative_log_likelihood_loss", "softmax_cross_entropy_loss"]

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer, one_of
from jaxops.dtypes import accumulation_type, as_traced, at_least_int32, floating, require_integers
from jaxops.errors import BoundsError, ShapeError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.math.softmax_like import log_softmax
from jaxops.shapes.arithmetic import sizes_fit
from jaxops.shapes.tensor.indexing import check_inhabited
from jaxops.signature import SecondOutput, Traits
from jaxops.static import ArrayLike, Sizes, array, is_symbolic, jit_if_concrete

TRAITS = Traits(precision="float32")

LossReduction = Literal["mean", "sum", "none"]


def negative_log_likelihood_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    ignore_index: int | None = None,
    reduction: LossReduction = "mean",
) -> jax.Array:
    """Minus the log-probability of the target class of each sample.

    input: (N, C, d1, …), floats, the log-probabilities of C classes. target: (N, d1, …), integers in [0, C), the
    classes. weight: (C,), a factor for each class; None means 1. ignore_index: static, any integer; samples with this
    target are ignored. reduction: 'none' returns the loss of each sample, (N, d1, …); 'sum' returns one number; 'mean'
    returns the sum divided by the total weight of the samples that are not ignored, NaN if all are ignored.
    Returns the dtype of input.
    Raises BoundsError for an out-of-range static target; a traced one makes the loss NaN. Raises ShapeError,
    DTypeError, ArgumentError for another reduction.
    Source: ONNX NegativeLogLikelihoodLoss, opsets 12–22.

    >>> negative_log_likelihood_loss(jnp.array([[-1.0, -2.0], [-3.0, -4.0]]), np.array([1, 0])).item()
    2.5
    """
    x, factor = floating(input=input, weight=weight)
    how = one_of("reduction", reduction, LossReduction)
    labels, ignored = _labels(("input", "target", "weight"), x, target, factor, ignore_index)
    return _loss((x, labels, factor), ignored, how)


def softmax_cross_entropy_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    ignore_index: int | None = None,
    reduction: LossReduction = "mean",
    return_log_prob: SecondOutput = False,
) -> Any:
    """`negative_log_likelihood_loss` of the `log_softmax` of scores.

    scores: (N, C, d1, …), floats. labels, weights: `target` and `weight` of `negative_log_likelihood_loss`;
    ignore_index, reduction, errors: as there. Returns the loss; with `return_log_prob` (loss, log-probabilities), the
    second in the shape and dtype of scores.
    Source: ONNX SoftmaxCrossEntropyLoss, opsets 12–13.

    >>> softmax_cross_entropy_loss(jnp.array([[0.0, 1000.0]]), np.array([0])).item()
    1000.0
    """
    x, factor = floating(scores=scores, weights=weights)
    how = one_of("reduction", reduction, LossReduction)
    targets, ignored = _labels(("scores", "labels", "weights"), x, labels, factor, ignore_index)
    loss, log_prob = _cross_entropy((x, targets, factor), ignored, how)
    return (loss, log_prob) if return_log_prob else loss


def _check_samples(names: tuple[str, str, str], scores: Sizes, labels: Sizes, weights: Sizes | None) -> Sizes:
    """The sizes (N, d1, …) of the labels for scores (N, C, d1, …). names: of the three operands.

    Raises ShapeError for labels of other sizes, or for weights that are not (C,).
    """
    if len(scores) < 2:
        raise ShapeError(f"`{names[0]}` of {shape_text(scores)} must be (N, C) or (N, C, d1, …)")
    per_sample = (scores[0], *scores[2:])
    needed = [(names[1], labels, per_sample, "label per sample"), (names[2], weights, (scores[1],), "weight per class")]
    for name, actual, sizes, item in needed:
        problem = (
            f"`{name}` of {shape_text(actual or ())} does not fit `{names[0]}` of {shape_text(scores)}; "
            f"it must be {shape_text(sizes)}, one {item}"
        )
        if not sizes_fit(problem, actual, sizes):
            raise ShapeError(problem)
    return per_sample


def _labels(names: tuple[str, str, str], x: Any, labels: Any, weights: Any, ignore: Any) -> tuple[Any, Any]:
    """Traced labels, and the label to ignore or None.

    Static labels are checked here. Ignored ones become -1, since with x64 off they may not fit.
    """
    labels = array(labels)
    require_integers(names[1], labels)
    _check_samples(names, x.shape, labels.shape, None if weights is None else weights.shape)
    ignored = None if ignore is None else integer("ignore_index", ignore)
    if isinstance(labels, np.ndarray) and not is_symbolic(labels) and isinstance(x.shape[1], int):
        skipped = np.zeros(labels.shape, bool) if ignored is None else labels == ignored
        wrong = np.argwhere(~skipped & ((labels < 0) | (labels >= x.shape[1])))
        if len(wrong):
            index = tuple(map(int, wrong[0]))
            raise BoundsError(
                f"`{names[1]}` holds {labels[index]} at position {index}, outside the {x.shape[1]} classes; "
                f"set `ignore_index` to ignore a label"
            )
        return as_traced(np.where(skipped, -1, labels.astype(np.int64))), -1 if skipped.any() else None
    labels = as_traced(labels)
    limits = jnp.iinfo(labels.dtype)
    fits = ignored is not None and limits.min <= ignored <= limits.max
    return labels, ignored if fits else None


@jit_if_concrete
def _loss(operands: tuple[Any, Any, Any], ignored: int | None, reduction: LossReduction) -> Any:
    x, labels, weights = operands
    work = accumulation_type(*(v.dtype for v in (x, weights) if v is not None))
    counts = None if ignored is None else labels != jnp.asarray(ignored, labels.dtype)
    labels = at_least_int32(labels)
    # Out-of-range labels read NaN. Negative ones must not count from the end, so they become C, which is out of range.
    labels = jnp.where(labels < 0, jnp.asarray(x.shape[1], labels.dtype), labels)
    loss = -_pick(x, labels, work)
    if weights is not None:
        check_inhabited("`weights`", weights.shape, (0,), labels.shape)
    factor: Any = None if weights is None else jnp.take(weights.astype(work), labels, mode="fill")
    if counts is not None:
        # Ignored losses become 0 before the multiplication, so that neither NaN nor infinity reaches a gradient.
        loss = jnp.where(counts, loss, jnp.zeros_like(loss))
        factor = counts.astype(work) if factor is None else jnp.where(counts, factor, jnp.zeros_like(factor))
    if weights is not None:
        loss = loss * factor
    loss = assert_sizes(loss, labels.shape, work)
    if reduction == "none":
        return loss.astype(x.dtype)
    if reduction == "sum":
        return jnp.sum(loss).astype(x.dtype)
    return (jnp.mean(loss) if factor is None else jnp.sum(loss) / jnp.sum(factor)).astype(x.dtype)


def _pick(x: Any, labels: Any, work: Any) -> Any:
    """Each sample's element of axis 1."""
    picked = jnp.take_along_axis(x, jnp.expand_dims(labels, 1), 1, mode="fill", fill_value=np.nan)
    return jnp.squeeze(picked, 1).astype(work)


@jit_if_concrete
def _cross_entropy(operands: tuple[Any, Any, Any], ignored: int | None, reduction: LossReduction) -> Any:
    x, labels, weights = operands
    wider = log_softmax(x.astype(accumulation_type(x.dtype)), axis=1)
    return _loss((wider, labels, weights), ignored, reduction).astype(x.dtype), wider.astype(x.dtype)
