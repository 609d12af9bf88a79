"""Connectionist temporal classification against loops over all paths and against OpenVINO."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import DTypeError, ShapeError
from jaxops.openvino import ops

RNG = np.random.default_rng(2)
SCORES = RNG.normal(size=(5, 2, 4)).astype(np.float32)  # (T, N, C)
SCORES[2] = SCORES[1]
LENGTHS = np.array([5, 4], np.int32)


def decoded(path, blank, merged):
    path = [key for key, _ in itertools.groupby(path)] if merged else path
    return [c for c in path if c != blank]


@pytest.mark.parametrize("merged", [True, False])
def test_greedy_decoders(merged):
    mask = (np.arange(5)[:, None] < LENGTHS).astype(np.float32)
    expected = np.full((2, 2, 5), -1)
    counts = np.zeros((2, 2), int)
    for kind, n in np.ndindex(2, 2):
        found = decoded(SCORES[: LENGTHS[n], n].argmax(-1), [3, 1][kind], merged)
        expected[kind, n, : len(found)] = found
        counts[kind, n] = len(found)
    y = jax.jit(lambda *v: ops.ctc_greedy_decoder(*v, ctc_merge_repeated=merged))(SCORES, mask)
    np.testing.assert_array_equal(y[:, :, 0, 0], expected[0])
    agree(1, "CTCGreedyDecoder", [SCORES, mask], {"ctc_merge_repeated": merged}, y)
    rows = SCORES.transpose(1, 0, 2)
    for kind, blank in enumerate([[], [np.array(1, np.int32)]]):
        inputs = [rows, LENGTHS, *blank]
        found = ops.ctc_greedy_decoder_seq_len(*inputs, merge_repeated=merged)
        np.testing.assert_array_equal(found[0], expected[kind])
        np.testing.assert_array_equal(found[1], counts[kind])
        agree(6, "CTCGreedyDecoderSeqLen", inputs, {"merge_repeated": merged}, found)


LABELS = np.array([[0, 1, 1, 0, 3], [2, 2, 1, 3, 3]], np.int32)


@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("collapsed", [True, False])
@pytest.mark.parametrize("merged", [True, False])
def test_loss(merged, collapsed, unique):
    logits, label_lengths = SCORES.transpose(1, 0, 2), np.array([4, 2], np.int32)
    logs = logits - np.log(np.exp(logits.astype(float)).sum(-1, keepdims=True))
    expected = []
    for n in range(2):
        goal = list(LABELS[n, : label_lengths[n]])
        goal = [key for key, _ in itertools.groupby(goal)] if collapsed else goal
        goal = list(dict.fromkeys(goal)) if unique else goal
        total = 0.0
        for path in itertools.product(range(4), repeat=int(LENGTHS[n])):
            if decoded(list(path), 3, merged) == goal:
                total += np.exp(sum(logs[n, t, c] for t, c in enumerate(path)))
        expected.append(-np.log(total) if total else np.inf)
    how = {"preprocess_collapse_repeated": collapsed, "ctc_merge_repeated": merged, "unique": unique}
    inputs = [logits, LENGTHS, LABELS, label_lengths]
    y = jax.jit(lambda *v: ops.ctc_loss(*v, **how))(*inputs)
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    agree(4, "CTCLoss", inputs, how, y)
    if unique:  # else a sequence is too short for its labels
        check_grads(lambda x: ops.ctc_loss(x, *inputs[1:], **how), (jnp.asarray(logits),), 1, ["rev"], 1e-2, 1e-2)


def test_another_blank_and_no_labels():
    logits = SCORES.transpose(1, 0, 2)
    swapped = logits[..., [3, 1, 2, 0]]
    labels = np.array([[1, 2, 1, 0, 0]] * 2)
    counts = np.array([3, 0])
    first = ops.ctc_loss(logits, LENGTHS, labels, counts)
    np.testing.assert_allclose(ops.ctc_loss(swapped, LENGTHS, labels, counts, 0), first, rtol=1e-6)
    np.testing.assert_allclose(first[1], -jax.nn.log_softmax(logits[1, :4], -1)[:, 3].sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ShapeError,
            r"`sequence_mask` of \(5, 3\) must be \(5, 2\)",
            lambda: ops.ctc_greedy_decoder(SCORES, SCORES[:, 0, :3]),
        ),
        (
            ShapeError,
            r"`sequence_length` of \(2,\) must be \(5,\)",
            lambda: ops.ctc_greedy_decoder_seq_len(SCORES, LENGTHS),
        ),
        (
            DTypeError,
            "`classes_index_type` is int8",
            lambda: ops.ctc_greedy_decoder_seq_len(SCORES, [1] * 5, classes_index_type="int8"),
        ),
        (
            ShapeError,
            r"`labels` of \(2, 5\) must be \(5, 2\)",
            lambda: ops.ctc_loss(SCORES, [1] * 5, LABELS, [1] * 5),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
