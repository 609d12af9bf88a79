"""Groups of rows against loops in NumPy and against OpenVINO."""

import jax
import numpy as np
import pytest
from jax.test_util import check_grads
from openvino_peer import agree

from jaxops.errors import ArgumentError, BoundsError, DTypeError, ShapeError, StaticError
from jaxops.openvino import ops

RNG = np.random.default_rng(2)
TABLE = RNG.normal(size=(5, 2, 3)).astype(np.float32)
ROWS, STARTS = np.array([0, 2, 3, 4]), np.array([0, 2, 2])
WEIGHTS = RNG.normal(size=4).astype(np.float32)


def bags(table, rows, starts, default=None, weights=None, mean=False):
    weights = np.ones(len(rows)) if weights is None else weights
    read = [table[r] * w for r, w in zip(rows, weights, strict=True)]
    ends = [*starts[1:], len(rows)]
    out = []
    for a, b in zip(starts, ends, strict=True):
        empty = np.zeros(table.shape[1:]) if default in (None, -1) else table[default]
        out.append(np.sum(read[a:b], 0) / (b - a if mean else 1) if b > a else empty)
    return np.stack(out)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("default", [None, 1, -1])
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_by_offsets(weighted, default, reduction):
    if weighted and reduction == "mean":
        with pytest.raises(ArgumentError, match="permitted only with the reduction 'sum'"):
            ops.embedding_bag_offsets(TABLE, ROWS, STARTS, default, WEIGHTS, reduction=reduction)
        return
    weights = WEIGHTS if weighted else None
    expected = bags(TABLE, ROWS, STARTS, default, weights, reduction == "mean")
    y = jax.jit(lambda *v: ops.embedding_bag_offsets(*v, default, weights, reduction=reduction))(TABLE, ROWS, STARTS)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    inputs = [TABLE, ROWS, STARTS]
    inputs += [np.array(-1 if default is None else default)] if default is not None or weighted else []
    inputs += [WEIGHTS] if weighted else []
    agree(15, "EmbeddingBagOffsets", inputs, {"reduction": reduction}, y)
    if reduction == "sum":
        agree(3, "EmbeddingBagOffsetsSum", inputs, {}, ops.embedding_bag_offsets_sum(*inputs))


def test_offsets_of_a_type_that_does_not_hold_the_number_of_rows():
    rows = np.repeat([0, 1], [250, 50])
    found = ops.embedding_bag_offsets(np.eye(2, dtype=np.float32), rows, np.array([0, 250], np.uint8))
    np.testing.assert_array_equal(found, [[250, 0], [0, 50]])


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_bags_of_one_size(reduction):
    rows = ROWS.reshape(2, 2)
    expected = TABLE[rows].mean(1) if reduction == "mean" else TABLE[rows].sum(1)
    y = ops.embedding_bag_packed(TABLE, rows, reduction=reduction)
    np.testing.assert_allclose(y, expected, atol=1e-6)
    agree(15, "EmbeddingBagPacked", [TABLE, rows], {"reduction": reduction}, y)
    inputs = [TABLE, rows, WEIGHTS.reshape(2, 2)]
    weighted = ops.embedding_bag_packed_sum(*inputs)
    np.testing.assert_allclose(weighted, (TABLE[rows] * inputs[2][..., None, None]).sum(1), atol=1e-6)
    agree(3, "EmbeddingBagPackedSum", inputs, {}, weighted)


def test_the_segments_of_the_text():
    table = np.array([[-0.2, -0.6], [-0.1, -0.4], [-1.9, -1.8], [-1.0, 1.5], [0.8, -0.7]], np.float32)
    segments, half = np.array([0, 0, 2, 2]), np.full(4, 0.5, np.float32)
    y = ops.embedding_segments_sum(table, ROWS, segments, 3, 0, half)
    np.testing.assert_allclose(y, [[-1.05, -1.2], [-0.2, -0.6], [-0.1, 0.4]], atol=1e-6)
    more = ops.embedding_segments_sum(table, ROWS, segments, 4)
    np.testing.assert_allclose(more[3], 0)
    inputs = [table, ROWS, segments, np.array(4), np.array(0), half]
    agree(3, "EmbeddingSegmentsSum", inputs, {}, ops.embedding_segments_sum(*inputs), constants=(3,))
    assert ops.embedding_segments_sum(ROWS, ROWS[:2], segments[:2], 1).tolist() == [ROWS[0] + ROWS[2]]


def test_gradients_and_rows_that_do_not_exist():
    check_grads(lambda t, w: ops.embedding_bag_offsets(t, ROWS, STARTS, 1, w), (TABLE, WEIGHTS), 1, ["rev"], 1e-2, 1e-2)
    y = ops.embedding_bag_offsets(TABLE, np.array([0, 9]), np.array([0, 1]))
    assert np.isnan(y[1]).all()
    assert not np.isnan(y[0]).any()


@pytest.mark.parametrize("mode", ["ZERO", "LOWEST"])
def test_segment_max(mode):
    segments = np.array([0, 0, 2, 3, 3])
    empty = 0 if mode == "ZERO" else np.finfo(np.float32).min
    expected = [TABLE[:2].max(0), np.full((2, 3), empty), TABLE[2], TABLE[3:].max(0)]
    y = ops.segment_max(TABLE, segments, fill_mode=mode)
    np.testing.assert_array_equal(y, np.array(expected, np.float32))
    agree(16, "SegmentMax", [TABLE, segments], {"fill_mode": mode}, y, constants=(1,))
    more = jax.jit(lambda x, s: ops.segment_max(x, s, 6, fill_mode=mode))(TABLE, segments)
    np.testing.assert_array_equal(more[4:], np.full((2, 2, 3), empty, np.float32))
    agree(16, "SegmentMax", [TABLE, segments, np.array(6)], {"fill_mode": mode}, more, constants=(1, 2))
    assert ops.segment_max(np.array([-3, -5]), [1, 1], fill_mode=mode, size=3).tolist()[1:] in (
        [-3, 0],
        [-3, np.iinfo(np.int32).min],
    )


def test_empty_rows():
    places, values = np.array([[0, 1], [0, 3], [2, 0], [3, 1]]), np.array([1, 2, 3, 4], np.float32)
    inputs = [values, np.array([5, 6]), places, np.array(42, np.float32)]
    found = ops.sparse_fill_empty_rows(*inputs)
    assert found[0].tolist() == [[0, 1], [0, 3], [1, 0], [2, 0], [3, 1], [4, 0]]
    assert found[1].tolist() == [1, 2, 42, 3, 4, 42]
    assert found[2].tolist() == [False, True, False, False, True]
    agree(16, "SparseFillEmptyRows", inputs, {}, found)
    fn = jax.jit(lambda v, p: ops.sparse_fill_empty_rows(v, (5, 6), p, inputs[3], size=7))
    sized = fn(values[::-1], places[::-1])
    assert sized[0].tolist() == [*found[0].tolist(), [-1, -1]]
    assert sized[1].tolist() == [*found[1].tolist(), -1]


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (
            ShapeError,
            r"`indices` of \(2, 2\) must be \(I,\)",
            lambda: ops.embedding_bag_offsets(TABLE, ROWS.reshape(2, 2), STARTS),
        ),
        *(
            (BoundsError, r"`emb_table` of \(0, 2, 3\) is empty along axis 0", call)
            for call in (
                lambda: ops.embedding_bag_offsets(TABLE[:0], ROWS, STARTS),
                lambda: ops.embedding_bag_offsets(TABLE[:0], ROWS[:0], STARTS * 0, np.int64(0)),
                lambda: ops.embedding_bag_packed(TABLE[:0], ROWS.reshape(2, 2)),
                lambda: ops.embedding_segments_sum(TABLE[:0], ROWS, ROWS, 2),
            )
        ),
        (DTypeError, "`indices` must be integers", lambda: ops.embedding_bag_offsets(TABLE, ROWS * 1.0, STARTS)),
        (
            ShapeError,
            r"`per_sample_weights` of \(3,\) must be \(4,\)",
            lambda: ops.embedding_bag_offsets(TABLE, ROWS, STARTS, None, WEIGHTS[:3]),
        ),
        (
            StaticError,
            "`num_segments` must be known",
            lambda: jax.jit(lambda n: ops.embedding_segments_sum(TABLE, ROWS, ROWS, n))(3),
        ),
        (
            StaticError,
            "the number of segments depends on `segment_ids`",
            lambda: jax.jit(lambda s: ops.segment_max(TABLE, s, fill_mode="ZERO"))(np.zeros(5, int)),
        ),
        (ArgumentError, "`fill_mode` is 'zero'", lambda: ops.segment_max(TABLE, [0] * 5, fill_mode="zero")),
        (
            StaticError,
            "the number of elements depends on `indices`",
            lambda: jax.jit(lambda p: ops.sparse_fill_empty_rows(WEIGHTS[:1], (2, 2), p, WEIGHTS[0]))(
                np.array([[0, 0]])
            ),
        ),
        (
            ShapeError,
            r"`dense_shape` \(2,\) must be \(rows, columns\)",
            lambda: ops.sparse_fill_empty_rows(WEIGHTS[:1], (2,), [[0, 0]], WEIGHTS[0]),
        ),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
