"""The last layer of SSD networks: decodes boxes from deltas of prior boxes, and drops overlapping ones per class."""

__all__ = ["detection_output"]

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, integer, ints, one_of
from jaxops.dtypes import accumulation_type, floats_of_one_type
from jaxops.errors import ArgumentError, ShapeError, SignatureError, shape_text
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.openvino.box_overlaps import below, compacted, ended, overlap, survivors
from jaxops.shapes.arithmetic import agree, divided, must_fit
from jaxops.signature import Traits
from jaxops.static import ArrayLike, Dim, Ints, Sizes, jit_if_concrete

TRAITS = Traits(precision="exact")
CodeType = Literal["caffe.PriorBoxParameter.CORNER", "caffe.PriorBoxParameter.CENTER_SIZE"]


class _How(NamedTuple):
    background: int
    top_k: int
    keep_top_k: int
    encoded: bool
    centred: bool
    shared: bool
    threshold: float
    least: float
    clipped: tuple[bool, bool]
    decreased: bool
    image: tuple[int, int] | None
    objectness: float
    classes: int | None


def detection_output(
    box_logits: ArrayLike,
    class_preds: ArrayLike,
    proposals: ArrayLike,
    aux_class_preds: ArrayLike | None = None,
    aux_box_preds: ArrayLike | None = None,
    *,
    keep_top_k: Ints,
    nms_threshold: float,
    background_label_id: int = 0,
    top_k: int = -1,
    variance_encoded_in_target: bool = False,
    code_type: CodeType = "caffe.PriorBoxParameter.CORNER",
    share_location: bool = True,
    confidence_threshold: float = 0,
    clip_after_nms: bool = False,
    clip_before_nms: bool = False,
    decrease_label_id: bool = False,
    normalized: bool = False,
    input_height: int = 1,
    input_width: int = 1,
    objectness_score: float = 0,
    num_classes: int | None = None,
) -> jax.Array:
    """Decodes boxes from prior boxes, and returns for each image the boxes of high scores that overlap little.

    box_logits: (N, P·L·4), for P prior boxes and L classes, or L = 1 with `share_location`. class_preds: (N, P·C), the
    scores of C classes. proposals: (N or 1, 2, P·4): x1, y1, x2, y2 of the prior boxes, then four variances each;
    (…, 1, P·4) with `variance_encoded_in_target`. Without `normalized` there are P·5 numbers, the first of each box is
    skipped, and boxes are in pixels of an image of input_height × input_width. aux_class_preds: (N, P·2); if the second
    number of a box is below `objectness_score`, its scores are 0, and 1 for the background. aux_box_preds: like
    box_logits; it moves the prior boxes first. Floats of one dtype.
    Returns (1, 1, rows, 7), same dtype: image, class, score, x1, y1, x2, y2, sorted by image, class and falling score.
    A row with image -1 ends them, and zeros follow. rows: N · keep_top_k[0] if that is positive, else N · C · top_k if
    that is positive, else N · C · P.
    code_type: 'CORNER' adds logit · variance to the corners; 'CENTER_SIZE' moves the centre by logit · variance · size,
    and multiplies the size by exp(logit · variance).
    For each class except `background_label_id`, the `top_k` (-1: all) boxes of the highest scores above
    `confidence_threshold` are taken, and boxes that overlap a better one by more than `nms_threshold` are dropped; then
    the `keep_top_k` (-1: all) best of an image remain. decrease_label_id: a box counts only for its best class, class 0
    is the background, `top_k` is for all classes together, and the classes returned begin with 0. Boxes with equal
    scores keep their order. num_classes: C, an attribute of version 1.
    Raises ShapeError, ArgumentError, SignatureError, DTypeError. Source: OpenVINO DetectionOutput-1 and 8.

    >>> detection_output(
    ...     jnp.zeros((1, 4)), jnp.array([[0.1, 0.9]]), jnp.array([[[0.0, 0.0, 1.0, 0.5], [0.1, 0.1, 0.1, 0.1]]]),
    ...     keep_top_k=(1,), nms_threshold=0.5, normalized=True).tolist()
    [[[[0.0, 1.0, 0.8999999761581421, 0.0, 0.0, 1.0, 0.5]]]]
    """
    if (aux_class_preds is None) != (aux_box_preds is None):
        raise SignatureError("`aux_class_preds` and `aux_box_preds` must be given together")
    operands = floats_of_one_type(
        box_logits=box_logits,
        class_preds=class_preds,
        proposals=proposals,
        aux_class_preds=aux_class_preds,
        aux_box_preds=aux_box_preds,
    )
    limits = ints("keep_top_k", keep_top_k, single=True)
    if not limits:
        raise ArgumentError("`keep_top_k` is empty; it must have a number, which may be -1 for all")
    image = (integer("input_height", input_height, least=1), integer("input_width", input_width, least=1))
    how = _How(
        integer("background_label_id", background_label_id),
        integer("top_k", top_k, least=-1),
        limits[0],
        flag("variance_encoded_in_target", variance_encoded_in_target),
        one_of("code_type", code_type, CodeType).endswith("CENTER_SIZE"),
        flag("share_location", share_location),
        nms_threshold,
        confidence_threshold,
        (flag("clip_before_nms", clip_before_nms), flag("clip_after_nms", clip_after_nms)),
        flag("decrease_label_id", decrease_label_id),
        None if flag("normalized", normalized) else image,
        objectness_score,
        None if num_classes is None else integer("num_classes", num_classes, least=1),
    )
    return _detection_output(operands, how)


def _detected_sizes(operands: tuple[Sizes | None, ...], how: _How) -> tuple[Dim, Dim, Dim]:
    """Returns the numbers of prior boxes, classes and rows."""
    numbers = 4 if how.image is None else 5
    boxes, scores, priors, aux_scores, aux_boxes = operands
    if boxes is None or scores is None or priors is None or len(priors) != 3 or len(boxes) != 2 or len(scores) != 2:
        raise ShapeError(
            f"`box_logits` {shape_text(boxes or ())} and `class_preds` {shape_text(scores or ())} must have two "
            f"axes, `proposals` {shape_text(priors or ())} three"
        )
    n, parts = boxes[0], 1 if how.encoded else 2
    must_fit("proposals", priors, (1, parts, priors[2]), (n, parts, priors[2]))
    problem = f"`proposals` of {shape_text(priors)} must have {numbers} numbers for each box on its last axis"
    count = divided(problem, priors[2], numbers)
    problem = f"`class_preds` of {shape_text(scores)} must have a number for each class and each of {count} boxes"
    classes = divided(problem, scores[1], count)
    if how.classes is not None and not agree(f"`num_classes` is {how.classes}", classes, how.classes):
        raise ShapeError(f"`num_classes` is {how.classes}, but `class_preds` has {classes} for each box")
    must_fit("class_preds", scores, (n, scores[1]))
    must_fit("box_logits", boxes, (n, count * 4 * (1 if how.shared else classes)))
    must_fit("aux_class_preds", aux_scores, (n, count * 2))
    must_fit("aux_box_preds", aux_boxes, boxes)
    if how.keep_top_k > 0:
        return count, classes, n * how.keep_top_k
    return count, classes, n * classes * (how.top_k if how.top_k > 0 else count)


@jit_if_concrete
def _detection_output(operands: tuple[Any, ...], how: _How) -> Any:
    dtype = operands[0].dtype
    number, classes, rows = _detected_sizes(tuple(None if x is None else x.shape for x in operands), how)
    bounded_like((1, 1, rows, 7), operands[0])
    work = accumulation_type(dtype)
    wide: list[Any] = [None if x is None else x.astype(work) for x in operands]
    moves, scores, priors, objects, first_moves = wide
    n, locations = moves.shape[0], 1 if how.shared else classes
    boxes = priors[:, 0].reshape(priors.shape[0], 1, number, -1)[..., -4:]
    variances = priors[:, -1, : number * 4].reshape(-1, 1, number, 4)
    variances = jnp.ones_like(variances) if how.encoded else variances
    for deltas in (first_moves, moves):
        if deltas is not None:
            deltas = deltas.reshape(n, number, locations, 4).transpose(0, 2, 1, 3)
            boxes = _decoded(boxes, variances, deltas, how)
    scores = scores.reshape(n, number, classes).transpose(0, 2, 1)
    if objects is not None:
        absent = objects.reshape(n, 1, number, 2)[..., 1] < how.objectness
        background = (lax.iota(np.int32, classes) == how.background)[:, None]
        scores = jnp.where(absent, below(background, scores).astype(work), scores)
    boxes = jnp.broadcast_to(boxes, (n, classes, number, 4))
    found = jax.vmap(lambda b, s: _of_image(b, s, how))(boxes, scores)
    label = jnp.broadcast_to(lax.iota(work, classes)[:, None], (n, *found[1].shape[1:])) - (1 if how.decreased else 0)
    image = jnp.broadcast_to(lax.iota(work, n)[:, None, None], label.shape)
    corners = jnp.clip(found[0], 0, 1) if how.clipped[1] else found[0]
    table = jnp.concatenate([jnp.stack([image, label, found[1]], -1), corners], -1).reshape(-1, 7)
    table, total = compacted(table, found[2].reshape(-1), rows)
    y = ended(table, total)[None, None].astype(dtype)
    return assert_sizes(y, (1, 1, rows, 7), dtype)


def _decoded(priors: Any, variances: Any, moves: Any, how: _How) -> Any:
    if how.image is not None:
        height, width = how.image
        priors = priors / below(np.asarray([width, height] * 2, priors.dtype), priors)
    moves = variances * moves
    if how.centred:
        side = priors[..., 2:] - priors[..., :2]
        centre = moves[..., :2] * side + (priors[..., :2] + priors[..., 2:]) / 2
        half = jnp.exp(moves[..., 2:]) * side / 2
        boxes = jnp.concatenate([centre - half, centre + half], -1)
    else:
        boxes = priors + moves
    return jnp.clip(boxes, 0, 1) if how.clipped[0] else boxes


def _of_image(boxes: Any, scores: Any, how: _How) -> tuple[Any, Any, Any]:
    """Returns the boxes (C, P, 4) of an image by falling score per class, their scores, and which of them remain."""
    classes, number = scores.shape
    kinds = lax.iota(np.int32, classes)[:, None]
    if how.decreased:
        real = jnp.where((kinds > 0) & (kinds != how.background), scores, -jnp.inf)
        best = real.max(0)
        candidates = (jnp.argmax(real, 0)[None] == kinds) & ((best > -1) & (best >= how.least))[None]
    else:
        candidates = (scores > how.least) & (kinds != how.background)
    order = jnp.argsort(jnp.where(candidates, -scores, jnp.inf), stable=True)
    if how.decreased and how.top_k >= 0:
        candidates = candidates & _among_best(jnp.where(candidates, scores, -jnp.inf), how.top_k)
    elif how.top_k >= 0:
        order = order[:, : how.top_k]
    take = jax.vmap(lambda x, i: x[i])
    boxes, scores, candidates = take(boxes, order), take(scores, order), take(candidates, order)
    fixed = lax.stop_gradient(boxes)
    chosen = jax.vmap(lambda b, c: survivors(lambda i: overlap(b[i], b), c, how.threshold))(fixed, candidates)
    if how.keep_top_k >= 0:
        # Among equal scores the first box remains.
        at_box = jnp.full((classes, number), -jnp.inf, scores.dtype)
        at_box = at_box.at[kinds, order].set(jnp.where(chosen, scores, -jnp.inf))
        chosen = chosen & take(_among_best(at_box, how.keep_top_k), order)
    return boxes, scores, chosen


def _among_best(scores: Any, most: int) -> Any:
    """Returns (C, P), boolean: which scores are among the `most` highest; among equal ones the first boxes win."""
    flat = scores.T.reshape(-1)
    rank = jnp.zeros(flat.shape, np.int32)
    rank = rank.at[jnp.argsort(-flat, stable=True)].set(lax.iota(np.int32, flat.shape[0]))
    return (rank < most).reshape(scores.T.shape).T
