"""Operators that move elements against NumPy and against OpenVINO."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.export import export, symbolic_args_specs
from openvino_peer import agree

from jaxops.errors import ArgumentError, AxisError, DTypeError, ShapeError, StaticError
from jaxops.openvino import ops

X = np.random.default_rng(1).normal(size=(2, 4, 7, 6)).astype(np.float32)
BLOCK, BEGIN, END = (1, 2, 3, 2), (0, 0, 1, 0), (0, 2, 1, 0)


def test_blocks_to_the_batch_and_back():
    y = ops.space_to_batch(X, BLOCK, BEGIN, END)
    padded = np.pad(X, list(zip(BEGIN, END, strict=True)))
    for place, (a, b, c) in enumerate(np.ndindex(*BLOCK[1:])):
        np.testing.assert_array_equal(y[2 * place : 2 * place + 2], padded[:, a::2, b::3, c::2])
    inputs = [X, *(np.array(v) for v in (BLOCK, BEGIN, END))]
    agree(2, "SpaceToBatch", inputs, {}, y, constants=(1, 2, 3))
    back = ops.batch_to_space(y, BLOCK, BEGIN, END)
    np.testing.assert_array_equal(back, X)
    agree(2, "BatchToSpace", [np.asarray(y), *inputs[1:]], {}, back, constants=(1, 2, 3))


@pytest.mark.parametrize(("axis", "group"), [(1, 2), (-1, 3), (0, 1)])
def test_shuffle_channels(axis, group):
    y = ops.shuffle_channels(X, axis=axis, group=group)
    size = X.shape[axis]
    order = [g * (size // group) + i for i in range(size // group) for g in range(group)]
    np.testing.assert_array_equal(y, np.take(X, order, axis))
    agree(1, "ShuffleChannels", [X], {"axis": axis, "group": group}, y)


ROWS = np.arange(1, 13).reshape(4, 3)


@pytest.mark.parametrize(
    ("shift", "axes", "expected"),
    [
        (1, 0, [[10, 11, 12], [1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        ([-1, 2], [0, 1], [[5, 6, 4], [8, 9, 7], [11, 12, 10], [2, 3, 1]]),
        ([1, 2, 1], [0, 1, 0], [[8, 9, 7], [11, 12, 10], [2, 3, 1], [5, 6, 4]]),
    ],
)
def test_the_rolls_of_the_text(shift, axes, expected):
    assert ops.roll(ROWS, shift, axes).tolist() == expected
    assert jax.jit(lambda x, s: ops.roll(x, s, axes))(ROWS, np.array(shift)).tolist() == expected
    inputs = [ROWS.astype(np.float32), np.atleast_1d(shift), np.atleast_1d(axes)]
    agree(7, "Roll", inputs, {}, ops.roll(*inputs), constants=(1, 2))


def test_roll_with_symbolic_sizes_and_narrow_types():
    specs = symbolic_args_specs((ROWS.astype(np.float32),), ("a, b",))
    y = export(jax.jit(lambda x: ops.roll(x, (5, -7), (0, -1))))(*specs).call(ROWS.astype(np.float32))
    np.testing.assert_array_equal(y, np.roll(ROWS, (5, -7), (0, 1)))
    assert ops.roll(np.zeros((0, 3)), 1, 0).shape == (0, 3)
    four = jnp.arange(6, dtype=jnp.int4)
    assert ops.roll(four, 1, 0).astype(np.int32).tolist() == [5, 0, 1, 2, 3, 4]
    assert ops.reverse(four, 0, mode="index").astype(np.int32).tolist() == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize(("axis", "mode"), [([1, -1], "index"), ([True, False, True, False], "mask"), ([], "index")])
def test_reverse(axis, mode):
    axes = np.flatnonzero(axis) if mode == "mask" else np.array(axis, int)
    operand = np.array(axis) if axis else np.zeros(0, np.int64)
    y = ops.reverse(X, operand, mode=mode)
    np.testing.assert_array_equal(y, np.flip(X, tuple(axes)))
    if axis:
        agree(1, "Reverse", [X, operand], {"mode": mode}, y, constants=(1,))


@pytest.mark.parametrize(
    ("start", "stop", "step", "axes"),
    [([0], [100], [3], [2]), ([1, -1], [-100, 0], [-1, -2], [0, 1]), ([1, 0], [2, 9], [1, 2], None)],
)
def test_slice_scatter(start, stop, step, axes):
    slices = [slice(None)] * 4
    for axis, *bounds in zip(axes or range(4), start, stop, step, strict=False):
        slices[axis] = slice(*bounds)
    expected = X.copy()
    updates = np.random.default_rng(2).normal(size=expected[tuple(slices)].shape).astype(np.float32)
    expected[tuple(slices)] = updates
    operands = [np.array(v) for v in (start, stop, step, axes) if v is not None]
    y = jax.jit(lambda x, u: ops.slice_scatter(x, u, *operands))(X, updates)
    np.testing.assert_array_equal(y, expected)
    agree(15, "SliceScatter", [X, updates, *operands], {}, y, constants=range(2, 2 + len(operands)))


def test_gather_tree():
    rng = np.random.default_rng(3)
    steps, parents = rng.integers(0, 5, (6, 2, 3)), rng.integers(0, 3, (6, 2, 3))
    lengths, end = np.array([4, 9]), 2
    expected = np.full(steps.shape, end)
    for n, beam in np.ndindex(2, 3):
        last = min(6, lengths[n]) - 1
        parent = parents[last, n, beam]
        expected[last, n, beam] = steps[last, n, beam]
        for level in reversed(range(last)):
            expected[level, n, beam] = steps[level, n, parent]
            parent = parents[level, n, parent]
        column = expected[: last + 1, n, beam]
        if end in column:
            column[list(column).index(end) :] = end
    inputs = [v.astype(np.int32) for v in (steps, parents, lengths, np.array(end))]
    y = jax.jit(ops.gather_tree)(*inputs)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(ops.gather_tree(*(v.astype(np.float32) for v in inputs)), expected)
    inputs[2] = np.array([4, 6], np.int32)
    agree(1, "GatherTree", inputs, {}, ops.gather_tree(*inputs))


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ShapeError, "must have one number for each axis", lambda: ops.space_to_batch(X, (1, 2), (0, 0), (0, 0))),
        (ArgumentError, r"`block_shape` \(2, 1\) must be", lambda: ops.space_to_batch(X[0, 0], (2, 1), (0, 0), (0, 0))),
        (ArgumentError, r"`crops_end` \(0, -1\)", lambda: ops.batch_to_space(X[0, 0], (1, 1), (0, 0), (0, -1))),
        (ShapeError, "does not divide the padded sizes", lambda: ops.space_to_batch(X[0, 0], (1, 4), (0, 0), (0, 0))),
        (ShapeError, "does not divide the batch of", lambda: ops.batch_to_space(X[0, 0], (1, 2), (0, 0), (0, 0))),
        (ShapeError, "exceed the size 6 of axis 1", lambda: ops.batch_to_space(X[0, 0], (1, 1), (0, 4), (0, 3))),
        (ShapeError, "`group` 3 does not divide axis 1", lambda: ops.shuffle_channels(X, group=3)),
        (ShapeError, r"`shift` of \(2,\) must be one", lambda: ops.roll(ROWS, (1, 2), (0, 1, 0))),
        (AxisError, "`axes` is 2", lambda: ops.roll(ROWS, 1, 2)),
        (DTypeError, "operands must be integer", lambda: ops.roll(ROWS, 1.5, 0)),
        (StaticError, "`axes` must be known", lambda: jax.jit(lambda a: ops.roll(ROWS, 1, a))(np.array(0))),
        (ShapeError, "must have 4 booleans, one per axis", lambda: ops.reverse(X, [True], mode="mask")),
        (ShapeError, "`start`, `stop`, `step` and `axes`", lambda: ops.slice_scatter(X, X, (0,), (1,), (1,), (0, 1))),
        (ShapeError, "the sizes of the slice", lambda: ops.slice_scatter(X, X, (0,), (1,), (1,))),
        (DTypeError, "one element type", lambda: ops.gather_tree(ROWS[None], ROWS[None] * 1.0, ROWS[0], 1)),
    ],
)
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
