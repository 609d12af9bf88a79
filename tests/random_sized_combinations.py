"""Steps of random models that combine elements: reductions, products, orders, windows and scatters."""

from typing import Any

import numpy as np
from random_sized_steps import (
    MOTIFS,
    NoStep,
    axis_of,
    dtype_of,
    floats,
    one,
    pick,
    scalar,
    size_of,
    small,
    some_of,
    step,
)

__all__ = ["MOTIFS"]


@step(4)
def reduce(m: Any) -> str:
    x = one(m, 1)
    axes = sorted({axis_of(m, x), *([axis_of(m, x)] if m.rng.random() < 0.4 else [])})
    op = pick(m, ["ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"])
    keep = int(m.rng.random() < 0.5)
    return (
        small(m, m.add(op, x, m.constant(axes), keepdims=keep))
        if m.rng.random() < 0.3
        else m.add(op, x, m.constant(axes), keepdims=keep)
    )


@step()
def reduce_all(m: Any) -> str:
    return m.add("ReduceSum", one(m, 1), keepdims=int(m.rng.random() < 0.5))


@step(2, rough=True)
def mean(m: Any) -> str:
    x = floats(m, one(m, 1))
    op = pick(m, ["ReduceMean", "ReduceMean", "ReduceL2", "ReduceLogSumExp"])
    return m.add(op, x, m.constant([axis_of(m, x)]), keepdims=0)


@step(2, rough=True)
def softmax(m: Any) -> str:
    x = floats(m, small(m, one(m, 1)))
    return m.add(pick(m, ["Softmax", "LogSoftmax"]), x, axis=axis_of(m, x))


@step(rough=True)
def normal(m: Any) -> str:
    x = floats(m, one(m, 3, 4))
    if m.varying(x) and min(m.varying(x)) < 2:
        x = _moved_last(m, x)
    channels = {shape[1] for shape in m.shapes(x)}
    if len(channels) > 1:
        raise NoStep
    ones = m.constant(np.ones(channels.pop()), np.float32)
    return m.add("InstanceNormalization", x, ones, ones)


@step(rough=True)
def product(m: Any) -> str:
    x = floats(m, small(m, one(m, 1)))
    half = m.add("Mul", x, m.constant(0.5, np.float32))
    return m.add("ReduceProd", half, m.constant([axis_of(m, x)]), keepdims=0)


@step()
def index_of_extreme(m: Any) -> str:
    x = one(m, 1)
    op, last = pick(m, ["ArgMax", "ArgMin"]), int(m.rng.random() < 0.5)
    return m.add(op, x, axis=axis_of(m, x), keepdims=int(m.rng.random() < 0.5), select_last_index=last)


@step(2)
def cumulative(m: Any) -> str:
    x = one(m, 1)
    flags = {"exclusive": int(m.rng.random() < 0.5), "reverse": int(m.rng.random() < 0.6)}
    return m.add("CumSum", x, m.constant(axis_of(m, x)), **flags)


@step(9)
def sum_of_part(m: Any) -> str:
    """Reduces a part of an early value, whose surplus elements may still be zero."""
    x = m.pool[m.rng.integers(min(4, len(m.pool)))]
    axis = axis_of(m, x)
    x = m.add(pick(m, ["Neg", "Identity", "Abs"]), x)
    end = m.constant([-1]) if m.rng.random() < 0.5 else some_of(m, x, axis)
    x = m.add("Slice", x, m.constant([0]), end, m.constant([axis]))
    return m.add(pick(m, ["ReduceSum", "ReduceSumSquare"]), x, m.constant([axis]), keepdims=0)


@step(3)
def matrix_product(m: Any) -> str:
    x = small(m, floats(m, one(m, 2, 3)))
    rank = len(m.shapes(x)[0])
    turned = m.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    if m.rng.random() < 0.3:
        pair = ("...ij,...ik->...jk", (x, x)) if m.rng.random() < 0.5 else ("...ij->...j", (x,))
        return m.add("Einsum", *pair[1], equation=pair[0])
    return m.add("MatMul", *((x, turned) if m.rng.random() < 0.5 else (turned, x)))


@step()
def product_with_constant(m: Any) -> str:
    x = small(m, floats(m, one(m, 2)))
    sizes = {shape[-1] for shape in m.shapes(x)}
    if len(sizes) > 1:
        raise NoStep
    return m.add("MatMul", x, m.constant(m.rng.integers(-2, 3, (sizes.pop(), 3)), np.float32))


@step(2)
def ranked(m: Any) -> str:
    x = one(m, 1)
    axis = axis_of(m, x)
    k = some_of(m, x, axis) if m.rng.random() < 0.5 else m.constant([int(m.rng.integers(1, 4))])
    values, at = m.add("TopK", x, k, axis=axis, largest=int(m.rng.random() < 0.5), count=2)
    return pick(m, [values, at])


@step(2)
def sorted_whole(m: Any) -> str:
    x = one(m, 1)
    axis = axis_of(m, x)
    values, at = m.add("TopK", x, size_of(m, x, axis), axis=axis, largest=int(m.rng.random() < 0.5), count=2)
    return m.add("GatherElements", x, at, axis=axis) if m.rng.random() < 0.3 else pick(m, [values, at])


@step(3)
def scattered(m: Any) -> str:
    x = one(m, 1)
    axis, kind = axis_of(m, x), m.rng.integers(3)
    if kind == 0:
        at = m.add("ArgMax", x, axis=axis, keepdims=1)
        updates = m.add("Add", m.add("GatherElements", x, at, axis=axis), scalar(m, x, 1))
        return m.add("ScatterElements", x, at, updates, axis=axis, reduction=pick(m, ["none", "add", "max"]))
    if kind == 1:
        rows = m.add("Gather", x, m.constant([0, 1]), axis=0)
        return m.add("ScatterND", x, m.constant([[1], [0]]), rows, reduction=pick(m, ["none", "add"]))
    # Sums of segments: rows are added to a table of fixed size.
    at = m.add("Mod", small(m, m.add("Cast", x, to=7)), m.constant(3))
    table = np.zeros([3 if k == axis else d for k, d in enumerate(m.shapes(x)[0])])
    if any(k != axis for k in m.varying(x)):
        raise NoStep
    reduction = pick(m, ["add", "max"])
    return m.add("ScatterElements", m.constant(table, dtype_of(m, x)), at, x, axis=axis, reduction=reduction)


@step()
def written_prefix(m: Any) -> str:
    """Writes the rows of one value over the first rows of a longer one."""
    x = one(m, 1, 2)
    size = m.add("Squeeze", size_of(m, x, 0), m.constant([0]))
    at = m.add("Unsqueeze", m.add("Range", m.constant(0), size, m.constant(1)), m.constant([1]))
    longer = m.add("Concat", x, x, axis=0)
    return m.add("ScatterND", m.add("Neg", longer), at, x)


def _moved_last(m: Any, x: str) -> str:
    """Returns a value with an axis whose size differs, if there is one, as the last one."""
    axes = list(range(len(m.shapes(x)[0])))
    axis = axis_of(m, x)
    return m.add("Transpose", x, perm=[*(k for k in axes if k != axis), axis])


def _signal(m: Any) -> str:
    x = _moved_last(m, small(m, floats(m, one(m, 1, 3))))
    missing = 3 - len(m.shapes(x)[0])
    return m.add("Unsqueeze", x, m.constant(list(range(missing)))) if missing else x


@step(2)
def convolution(m: Any) -> str:
    x = _signal(m)
    channels = {shape[1] for shape in m.shapes(x)}
    if len(channels) > 1:
        raise NoStep
    filters = m.constant(m.rng.integers(-1, 2, (2, channels.pop(), 3)), np.float32)
    pads, stride = list(map(int, m.rng.integers(0, 3, 2))), int(m.rng.integers(1, 3))
    return m.add("Conv", x, filters, kernel_shape=[3], pads=pads, strides=[stride])


@step()
def transposed_convolution(m: Any) -> str:
    x = _signal(m)
    channels = {shape[1] for shape in m.shapes(x)}
    if len(channels) > 1:
        raise NoStep
    filters = m.constant(m.rng.integers(-1, 2, (channels.pop(), 2, 3)), np.float32)
    stride = int(m.rng.integers(1, 3))
    return m.add("ConvTranspose", x, filters, kernel_shape=[3], pads=[int(m.rng.integers(2))] * 2, strides=[stride])


@step()
def pooled(m: Any) -> str:
    pads, stride = [1, int(m.rng.integers(2))], int(m.rng.integers(1, 3))
    return m.add("MaxPool", _signal(m), kernel_shape=[3], pads=pads, strides=[stride])


@step(rough=True)
def averaged(m: Any) -> str:
    pads, stride = [1, int(m.rng.integers(2))], int(m.rng.integers(1, 3))
    include = int(m.rng.random() < 0.5)
    x = _signal(m)
    return m.add("AveragePool", x, kernel_shape=[2], pads=pads[:1] * 2, strides=[stride], count_include_pad=include)


@step()
def one_hot(m: Any) -> str:
    x = m.add("Abs", small(m, m.add("Cast", one(m, 1, 2), to=7)))
    return m.add("OneHot", x, m.constant(5), m.constant([0, 1], np.float32), axis=-1)


@step()
def resized(m: Any) -> str:
    scales = m.constant([1, 1, 2], np.float32)
    return m.add(
        "Resize",
        _signal(m),
        "",
        scales,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
