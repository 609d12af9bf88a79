"""Connectionist temporal classification: the likeliest labels of a sequence, and the loss."""

__all__ = ["ctc_greedy_decoder", "ctc_greedy_decoder_seq_len", "ctc_loss"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag
from jaxops.dtypes import accumulation_type, floating, floats_of_one_type, integral
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.openvino.suppression import index_type
from jaxops.shapes.arithmetic import must_fit
from jaxops.signature import ElementType, Traits, operator
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(precision="exact", differentiable=False)


def ctc_greedy_decoder(data: ArrayLike, sequence_mask: ArrayLike, *, ctc_merge_repeated: bool = True) -> jax.Array:
    """Returns the likeliest class of each step, without blanks and repetitions.

    data: (T, N, C), floats, the last class is the blank. sequence_mask: (T, N), same dtype: 0 from the end of a
    sequence on. Returns (N, T, 1, 1), same dtype: the classes, padded with -1. ctc_merge_repeated: True drops a
    class that directly follows itself.
    Raises ShapeError, DTypeError. Source: OpenVINO CTCGreedyDecoder-1.

    >>> scores = jax.nn.one_hot(jnp.array([[0], [0], [2], [0], [1]]), 3)
    >>> ctc_greedy_decoder(scores, jnp.ones((5, 1)))[0, :, 0, 0].tolist()
    [0.0, 0.0, 1.0, -1.0, -1.0]
    """
    scores, mask = floats_of_one_type(data=data, sequence_mask=sequence_mask)
    must_fit("data", scores.shape, ("T", "N", "C"))
    must_fit("sequence_mask", mask.shape, scores.shape[:2])
    return _by_mask((scores, mask), flag("ctc_merge_repeated", ctc_merge_repeated))


def ctc_greedy_decoder_seq_len(
    data: ArrayLike,
    sequence_length: ArrayLike,
    blank_index: ArrayLike | None = None,
    *,
    merge_repeated: bool = True,
    classes_index_type: ElementType = "int32",
    sequence_length_type: ElementType = "int32",
) -> tuple[jax.Array, jax.Array]:
    """Returns the likeliest class of each step, without blanks and repetitions, and the number of these classes.

    data: (N, T, C), floats. sequence_length: (N,), integers. blank_index: one integer; None: C - 1. Returns (N, T), of
    classes_index_type: the classes, padded with -1; and (N,), of sequence_length_type. merge_repeated: as in
    `ctc_greedy_decoder`.
    Raises ShapeError, DTypeError. Source: OpenVINO CTCGreedyDecoderSeqLen-6.

    >>> scores = jax.nn.one_hot(jnp.array([[0, 0, 2, 0, 1]]), 3)
    >>> ctc_greedy_decoder_seq_len(scores, jnp.array([4]))[0].tolist()
    [[0, 0, -1, -1, -1]]
    """
    (scores,), lengths = floating(data=data), integral(sequence_length=sequence_length, blank_index=blank_index)
    must_fit("data", scores.shape, ("N", "T", "C"))
    must_fit("sequence_length", lengths[0].shape, scores.shape[:1])
    if lengths[1] is not None:
        must_fit("blank_index", lengths[1].shape, (), (1,))
    kinds = (
        index_type(classes_index_type, "classes_index_type"),
        index_type(sequence_length_type, "sequence_length_type"),
    )
    classes, counts = _by_length((scores, *lengths), flag("merge_repeated", merge_repeated))
    return classes.astype(kinds[0]), counts.astype(kinds[1])


def _decoded(best: Any, exists: Any, blank: Any, merged: bool) -> tuple[Any, Any]:
    """Returns the classes that remain of the best classes (N, T), padded with -1, and how many there are."""
    keep = exists & (best != blank)
    if merged:
        before = jnp.concatenate([jnp.full_like(best[:, :1], -1), best[:, :-1]], 1)
        keep = keep & (best != before)
    return _compacted(best, keep)


def _compacted(x: Any, keep: Any) -> tuple[Any, Any]:
    """Returns the kept elements of each row, (N, T), padded with -1, and how many there are."""
    place = jnp.where(keep, jnp.cumsum(keep.astype(np.int32), 1) - 1, x.shape[1])
    row = lax.broadcasted_iota(np.int32, x.shape, 0)
    return jnp.full_like(x, -1).at[row, place].set(x, mode="drop"), keep.sum(1, dtype=np.int32)


@jit_if_concrete
def _by_mask(operands: tuple[Any, Any], merged: bool) -> Any:
    scores, mask = operands
    time, count, classes = scores.shape
    best = jnp.argmax(scores, -1).astype(np.int32).T
    # A sequence ends at its first zero.
    exists = jnp.cumsum((mask.T == 0).astype(np.int32), 1) == 0
    found, _ = _decoded(best, exists, jnp.asarray(classes, np.int32) - 1, merged)
    y = found.astype(scores.dtype)[..., None, None]
    return assert_sizes(y, (count, time, 1, 1), scores.dtype)


@jit_if_concrete
def _by_length(operands: tuple[Any, ...], merged: bool) -> tuple[Any, Any]:
    scores, lengths, blank = operands
    best = jnp.argmax(scores, -1).astype(np.int32)
    exists = lax.broadcasted_iota(np.int32, best.shape, 1) < lengths.astype(np.int32)[:, None]
    last = jnp.asarray(scores.shape[2], np.int32) - 1
    return _decoded(best, exists, last if blank is None else blank.reshape(()).astype(np.int32), merged)


@operator(differentiable=True)
def ctc_loss(
    logits: ArrayLike,
    logit_length: ArrayLike,
    labels: ArrayLike,
    label_length: ArrayLike,
    blank_index: ArrayLike | None = None,
    *,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    unique: bool = False,
) -> jax.Array:
    """Returns the negative logarithm of the probability of labels, summed over all paths that decode to them.

    logits: (N, T, C), floats. logit_length: (N,), integers: the steps of each sequence. labels: (N, T), integers in
    [0, C) without the blank. label_length: (N,), integers. blank_index: one integer; None: C - 1. Returns (N,), the
    dtype of logits; infinity if there is no path.
    A path has a class for each step. With `ctc_merge_repeated` its repetitions are merged; then its blanks are dropped,
    and it must equal the labels. preprocess_collapse_repeated: directly repeated labels count once. unique: each label
    counts once, at its first place.
    Raises ShapeError, DTypeError. Source: OpenVINO CTCLoss-4.

    >>> loss = ctc_loss(jnp.zeros((1, 2, 2)), jnp.array([2]), jnp.array([[0, 0]]), jnp.array([1]))
    >>> bool(jnp.allclose(loss, -jnp.log(3 / 4)))
    True
    """
    (scores,) = floating(logits=logits)
    others = integral(logit_length=logit_length, labels=labels, label_length=label_length, blank_index=blank_index)
    must_fit("logits", scores.shape, ("N", "T", "C"))
    n, time, _ = scores.shape
    must_fit("logit_length", others[0].shape, (n,))
    must_fit("labels", others[1].shape, (n, time))
    must_fit("label_length", others[2].shape, (n,))
    if others[3] is not None:
        must_fit("blank_index", others[3].shape, (), (1,))
    collapsed = flag("preprocess_collapse_repeated", preprocess_collapse_repeated)
    merged = flag("ctc_merge_repeated", ctc_merge_repeated)
    return _ctc_loss((scores, *others), collapsed, merged, flag("unique", unique))


# Stands for log(0): with -inf, the derivative of the sum of two probabilities of 0 would be NaN.
_NOTHING = -1e30


@jit_if_concrete
def _ctc_loss(operands: tuple[Any, ...], collapsed: bool, merged: bool, unique: bool) -> Any:
    scores, lengths, labels, label_lengths, blank = operands
    work = accumulation_type(scores.dtype)
    n, time, classes = scores.shape
    labels = labels.astype(np.int32)
    blank = jnp.asarray(classes, np.int32) - 1 if blank is None else blank.reshape(()).astype(np.int32)
    keep = lax.broadcasted_iota(np.int32, labels.shape, 1) < label_lengths.astype(np.int32)[:, None]
    if collapsed and time:
        before = jnp.concatenate([jnp.full_like(labels[:, :1], -1), labels[:, :-1]], 1)
        keep = keep & (labels != before)
    if unique:
        earlier = jnp.tril(jnp.ones((time, time), bool), -1)[None] & keep[:, None]
        keep = keep & ~((labels[:, :, None] == labels[:, None]) & earlier).any(2)
    labels, counts = _compacted(labels, keep)
    labels = jnp.where(labels < 0, blank, labels)
    logs = jax.nn.log_softmax(scores.astype(work), -1)
    exists = lax.iota(np.int32, time)[:, None] < lengths.astype(np.int32)[None]
    of_blank = jnp.take(logs, blank, 2, mode="clip")
    of_labels = jnp.take_along_axis(logs, jnp.broadcast_to(labels[:, None], (n, time, time)), 2, mode="clip")
    step, start, final = _merging(labels) if merged else _plain(labels)

    def advance(state: Any, now: Any) -> tuple[Any, None]:
        exists, of_blank, of_labels = now
        new = step(state, of_blank[:, None], of_labels)
        return jax.tree.map(lambda a, b: jnp.where(exists[:, None], a, b), new, state), None

    inputs = (exists, of_blank.T, jnp.moveaxis(of_labels, 1, 0))
    first = jax.tree.map(lambda v: v.astype(work), start)
    total = final(lax.scan(advance, first, inputs)[0], counts[:, None])[:, 0]
    loss = jnp.where(total <= _NOTHING / 2, jnp.inf, -total)
    return assert_sizes(loss.astype(scores.dtype), (n,), scores.dtype)


def _shifted(x: Any, first: Any) -> Any:
    return jnp.concatenate([first, x[:, :-1]], 1)


def _plain(labels: Any) -> tuple[Any, Any, Any]:
    """Returns the states of paths without merged repetitions: state k has the first k labels."""
    n, number = labels.shape
    nothing = jnp.full((n, 1), _NOTHING, np.float32)
    start = jnp.concatenate([jnp.zeros((n, 1), np.float32), jnp.full((n, number), _NOTHING, np.float32)], 1)

    def step(state: Any, of_blank: Any, of_labels: Any) -> Any:
        none = nothing.astype(state.dtype)
        return jnp.logaddexp(state + of_blank, jnp.concatenate([none, state[:, :-1] + of_labels], 1))

    return step, start, lambda state, counts: jnp.take_along_axis(state, counts, 1)


def _merging(labels: Any) -> tuple[Any, Any, Any]:
    """Returns the states of paths with merged repetitions: k labels that end with a blank, or with the last label."""
    n, number = labels.shape
    blanks = jnp.concatenate([jnp.zeros((n, 1), np.float32), jnp.full((n, number), _NOTHING, np.float32)], 1)
    ends = jnp.full((n, number), _NOTHING, np.float32)
    differs = labels != _shifted(labels, jnp.full((n, 1), -1, np.int32)) if number else labels != labels

    def step(state: Any, of_blank: Any, of_labels: Any) -> Any:
        blanks, ends = state
        none = jnp.full((n, 1), _NOTHING, ends.dtype)
        behind = jnp.logaddexp(blanks, jnp.concatenate([none, ends], 1)) + of_blank
        before = _shifted(ends, none) if number else ends
        from_label = jnp.where(differs, before, jnp.full_like(before, _NOTHING))
        return behind, jnp.logaddexp(jnp.logaddexp(ends, blanks[:, :-1]), from_label) + of_labels

    def final(state: Any, counts: Any) -> Any:
        blanks, ends = state
        last = jnp.concatenate([jnp.full((n, 1), _NOTHING, ends.dtype), ends], 1)
        return jnp.logaddexp(*(jnp.take_along_axis(v, counts, 1) for v in (blanks, last)))

    return step, (blanks, ends), final
