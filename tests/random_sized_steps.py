"""Steps of random models: each adds a node or a few to a `RandomModel`, and returns the name of the result."""

from collections.abc import Callable
from typing import Any

import numpy as np

Motif = Callable[[Any], str]
# (whether results are rounded, so that nothing may follow; the step)
MOTIFS: list[tuple[bool, Motif]] = []


class NoStep(Exception):
    """Says that a step does not apply to the values so far."""


def _step(weight: int = 1, rough: bool = False) -> Callable[[Motif], Motif]:
    def add(motif: Motif) -> Motif:
        MOTIFS.extend([(rough, motif)] * weight)
        return motif

    return add


def _pick(m: Any, items: Any) -> Any:
    return items[m.rng.integers(len(items))]


def _one(m: Any, axes: int = 0, most: int = 9, kinds: str = "fi") -> str:
    """Returns one of the last values with so many axes, most often one whose size differs."""
    found = [
        name for name in m.pool if axes <= m.samples[name][0].ndim <= most and m.samples[name][0].dtype.kind in kinds
    ]
    varying = [name for name in found if m.varying(name)]
    if varying and m.rng.random() < 0.9:
        found = varying
    if not found:
        raise NoStep
    return str(_pick(m, found[-6:]))


def _axis(m: Any, x: str) -> int:
    varying, rank = m.varying(x), len(m.shapes(x)[0])
    if rank == 0:
        raise NoStep
    return int(_pick(m, varying)) if varying and m.rng.random() < 0.8 else int(m.rng.integers(rank))


def _dtype(m: Any, x: str) -> Any:
    return m.samples[x][0].dtype


def _scalar(m: Any, x: str, value: float) -> str:
    return m.constant(value, _dtype(m, x))


def _small(m: Any, x: str) -> str:
    """Returns whole numbers from -4 to 4."""
    x = m.add("Clip", x, _scalar(m, x, -4), _scalar(m, x, 4))
    return m.add("Floor", x) if _dtype(m, x).kind == "f" else x


def _floats(m: Any, x: str) -> str:
    return x if _dtype(m, x) == np.float32 else m.add("Cast", x, to=1)


def _size(m: Any, x: str, axis: int) -> str:
    """Returns the size of an axis, an int64 of shape (1,)."""
    return m.add("Shape", x, start=axis, end=axis + 1)


def _some(m: Any, x: str, axis: int) -> str:
    """Returns a position or a number of elements of an axis, computed from its size."""
    size = _size(m, x, axis)
    kind = m.rng.integers(4)
    if kind == 0:
        return m.add("Div", size, m.constant([2]))
    if kind == 1:
        return m.add("Sub", size, m.constant([1]))
    if kind == 2:
        return m.add("Min", size, m.constant([int(m.rng.integers(1, 5))]))
    return m.add("Div", m.add("Add", size, m.constant([1])), m.constant([2]))


@_step(5)
def elementwise(m: Any) -> str:
    x = _one(m)
    number = _scalar(m, x, int(m.rng.integers(1, 4)))
    kind = m.rng.integers(7)
    if kind == 0:
        return _small(m, m.add("Add", x, number))
    if kind == 1:
        return _small(m, m.add("Sub", number, x))
    if kind == 2:
        return m.add("Neg", x)
    if kind == 3:
        return m.add("Abs", x)
    if kind == 4:
        return m.add("Where", m.add("Greater", x, number), x, number)
    if kind == 5:
        return m.add("Cast", x, to=int(_pick(m, [1, 6, 7])))
    return m.add("Max", x, number)


@_step(4)
def binary(m: Any) -> str:
    x = _one(m)
    same = [name for name in m.pool if _dtype(m, name) == _dtype(m, x)]
    y = _pick(m, same[-8:])
    if m.rng.random() < 0.3:
        return m.add("Where", m.add("LessOrEqual", x, y), x, y)
    return _small(m, m.add(_pick(m, ["Add", "Sub", "Mul", "Max", "Min"]), x, y))


@_step(4)
def reduce(m: Any) -> str:
    x = _one(m, 1)
    axes = sorted({_axis(m, x), *([_axis(m, x)] if m.rng.random() < 0.4 else [])})
    op = _pick(m, ["ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL1"])
    keep = int(m.rng.random() < 0.5)
    return (
        _small(m, m.add(op, x, m.constant(axes), keepdims=keep))
        if m.rng.random() < 0.3
        else m.add(op, x, m.constant(axes), keepdims=keep)
    )


@_step()
def reduce_all(m: Any) -> str:
    return m.add("ReduceSum", _one(m, 1), keepdims=int(m.rng.random() < 0.5))


@_step(2, rough=True)
def mean(m: Any) -> str:
    x = _floats(m, _one(m, 1))
    op = _pick(m, ["ReduceMean", "ReduceMean", "ReduceL2", "ReduceLogSumExp"])
    return m.add(op, x, m.constant([_axis(m, x)]), keepdims=0)


@_step(2, rough=True)
def softmax(m: Any) -> str:
    x = _floats(m, _small(m, _one(m, 1)))
    return m.add(_pick(m, ["Softmax", "LogSoftmax"]), x, axis=_axis(m, x))


@_step(rough=True)
def normal(m: Any) -> str:
    x = _floats(m, _one(m, 3, 4))
    if m.varying(x) and min(m.varying(x)) < 2:
        x = _moved_last(m, x)
    channels = {shape[1] for shape in m.shapes(x)}
    if len(channels) > 1:
        raise NoStep
    ones = m.constant(np.ones(channels.pop()), np.float32)
    return m.add("InstanceNormalization", x, ones, ones)


@_step(rough=True)
def product(m: Any) -> str:
    x = _floats(m, _small(m, _one(m, 1)))
    half = m.add("Mul", x, m.constant(0.5, np.float32))
    return m.add("ReduceProd", half, m.constant([_axis(m, x)]), keepdims=0)


@_step()
def index_of_extreme(m: Any) -> str:
    x = _one(m, 1)
    op, last = _pick(m, ["ArgMax", "ArgMin"]), int(m.rng.random() < 0.5)
    return m.add(op, x, axis=_axis(m, x), keepdims=int(m.rng.random() < 0.5), select_last_index=last)


@_step(2)
def cumulative(m: Any) -> str:
    x = _one(m, 1)
    flags = {"exclusive": int(m.rng.random() < 0.5), "reverse": int(m.rng.random() < 0.6)}
    return m.add("CumSum", x, m.constant(_axis(m, x)), **flags)


@_step(6)
def part(m: Any) -> str:
    x = _one(m, 1)
    axis, kind = _axis(m, x), m.rng.integers(8)
    at, huge = m.constant([axis]), m.constant([2**62])
    if kind == 0:
        return m.add("Slice", x, m.constant([0]), m.constant([-1]), at)
    if kind == 1:
        return m.add("Slice", x, m.constant([1]), huge, at)
    if kind == 2:
        return m.add("Slice", x, m.constant([-1]), m.constant([-(2**62)]), at, m.constant([-1]))
    if kind == 3:
        return m.add("Slice", x, m.constant([-2]), huge, at)
    if kind == 4:
        return m.add("Slice", x, m.constant([0]), huge, at, m.constant([2]))
    if kind == 5:
        return m.add("Slice", x, _some(m, x, axis), huge, at)
    if kind == 6:
        return m.add("Slice", x, m.constant([int(m.rng.integers(2))]), m.constant([int(m.rng.integers(2, 5))]), at)
    return m.add("Slice", x, m.constant([0]), _some(m, x, axis), at)


@_step(3)
def sum_of_part(m: Any) -> str:
    """Reduces a part of an early value, whose surplus elements may still be zero."""
    x = m.pool[m.rng.integers(min(4, len(m.pool)))]
    axis = _axis(m, x)
    x = m.add(_pick(m, ["Neg", "Identity", "Abs"]), x)
    end = m.constant([-1]) if m.rng.random() < 0.5 else _some(m, x, axis)
    x = m.add("Slice", x, m.constant([0]), end, m.constant([axis]))
    return m.add(_pick(m, ["ReduceSum", "ReduceSumSquare"]), x, m.constant([axis]), keepdims=0)


@_step()
def pieces(m: Any) -> str:
    x = _one(m, 1)
    axis = _axis(m, x)
    some = _some(m, x, axis)
    rest = m.add("Sub", _size(m, x, axis), some)
    if min(int(n.min()) for name in (some, rest) for n in m.samples[name]) < 0:
        raise NoStep
    return _pick(m, m.add("Split", x, m.add("Concat", some, rest, axis=0), axis=axis, count=2))


@_step(3)
def joined(m: Any) -> str:
    x = _one(m, 1)
    axis, rank = _axis(m, x), len(m.shapes(x)[0])
    kinds = [name for name in m.pool if _dtype(m, name) == _dtype(m, x) and m.samples[name][0].ndim == rank]
    other = _pick(m, [*kinds[-5:], x])
    if m.rng.random() < 0.4:
        size = [1 if k == axis else d for k, d in enumerate(m.shapes(x)[0])]
        if any(k != axis for k in m.varying(x)):
            raise NoStep
        other = m.constant(m.rng.integers(-3, 4, size), _dtype(m, x))
    return m.add("Concat", *((x, other) if m.rng.random() < 0.5 else (other, x)), axis=axis)


@_step(3)
def moved(m: Any) -> str:
    x = _one(m, 1)
    rank, kind = len(m.shapes(x)[0]), m.rng.integers(6)
    if kind == 0:
        return m.add("Transpose", x, perm=list(map(int, m.rng.permutation(rank))))
    if kind == 1:
        return m.add("Reshape", x, m.constant([-1]))
    if kind == 2:
        return m.add("Flatten", x, axis=int(m.rng.integers(rank + 1)))
    if kind == 3:
        return m.add("Unsqueeze", x, m.constant([int(m.rng.integers(rank + 1))]))
    if kind == 4:
        order = m.constant([0, -1] if m.rng.random() < 0.5 else [-1, 2])
        return m.add("Reshape", x, order)
    return m.add("Reshape", m.add("Transpose", x), m.add("Shape", x))


@_step()
def rows_of_pairs(m: Any) -> str:
    x = _one(m, 1)
    return m.add("Reshape", m.add("Concat", x, x, axis=_axis(m, x)), m.constant([2, -1]))


@_step(3)
def picked(m: Any) -> str:
    x = _one(m, 1)
    axis, kind = _axis(m, x), m.rng.integers(5)
    if kind == 0:
        return m.add("Gather", x, m.constant(int(_pick(m, [0, -1, 1]))), axis=axis)
    if kind == 1:
        return m.add("Gather", x, m.constant([0, -1, 1]), axis=axis)
    if kind == 2:
        return m.add("Gather", x, m.add("ArgMax", x, axis=axis, keepdims=0), axis=axis)
    if kind == 3:
        return m.add("GatherElements", x, m.add("ArgMin", x, axis=axis, keepdims=1), axis=axis)
    size = m.add("Squeeze", _size(m, x, axis), m.constant([0]))
    order = m.add("Range", m.constant(0), size, m.constant(int(m.rng.integers(1, 3))))
    back = m.add("Sub", m.add("Sub", size, m.constant(1)), order)
    return m.add("Gather", x, _pick(m, [order, back]), axis=axis)


@_step(2)
def positions(m: Any) -> str:
    """Returns 0, 1, … along an axis, as exporters write positions and masks."""
    x = _one(m, 1)
    size = m.add("Squeeze", _size(m, x, _axis(m, x)), m.constant([0]))
    at = m.add("Range", m.constant(0), size, m.constant(1))
    if m.rng.random() < 0.5:
        return at
    column = m.add("Unsqueeze", at, m.constant([1]))
    return m.add("Cast", m.add("LessOrEqual", at, column), to=int(_pick(m, [1, 7])))


@_step()
def triangle(m: Any) -> str:
    return m.add("Trilu", _one(m, 2), upper=int(m.rng.random() < 0.5))


@_step(2)
def filled(m: Any) -> str:
    x = _one(m, 1)
    sizes = m.add("Shape", x)
    value = m.constant(int(m.rng.integers(1, 4)), np.float32)
    return m.add("Expand", value, sizes) if m.rng.random() < 0.5 else m.add("Expand", x, sizes)


@_step()
def tiled(m: Any) -> str:
    x = _one(m, 1)
    repeats = np.ones(len(m.shapes(x)[0]), np.int64)
    repeats[_axis(m, x)] = 2
    return m.add("Tile", x, m.constant(repeats))


@_step(2)
def padding(m: Any) -> str:
    x = _one(m, 1)
    rank, axis = len(m.shapes(x)[0]), _axis(m, x)
    amounts = np.zeros(2 * rank, np.int64)
    amounts[[axis, rank + axis]] = m.rng.integers(-1, 3, 2)
    mode = _pick(m, ["constant", "constant", "edge", "reflect"])
    if mode != "constant":
        amounts = np.abs(amounts).clip(0, 1)
        return m.add("Pad", x, m.constant(amounts), mode=mode)
    return m.add("Pad", x, m.constant(amounts), _scalar(m, x, int(m.rng.integers(2))), mode=mode)


@_step(3)
def matrix_product(m: Any) -> str:
    x = _small(m, _floats(m, _one(m, 2, 3)))
    rank = len(m.shapes(x)[0])
    turned = m.add("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])
    if m.rng.random() < 0.3:
        pair = ("...ij,...ik->...jk", (x, x)) if m.rng.random() < 0.5 else ("...ij->...j", (x,))
        return m.add("Einsum", *pair[1], equation=pair[0])
    return m.add("MatMul", *((x, turned) if m.rng.random() < 0.5 else (turned, x)))


@_step()
def product_with_constant(m: Any) -> str:
    x = _small(m, _floats(m, _one(m, 2)))
    sizes = {shape[-1] for shape in m.shapes(x)}
    if len(sizes) > 1:
        raise NoStep
    return m.add("MatMul", x, m.constant(m.rng.integers(-2, 3, (sizes.pop(), 3)), np.float32))


@_step(2)
def ranked(m: Any) -> str:
    x = _one(m, 1)
    axis = _axis(m, x)
    k = _some(m, x, axis) if m.rng.random() < 0.5 else m.constant([int(m.rng.integers(1, 4))])
    values, at = m.add("TopK", x, k, axis=axis, largest=int(m.rng.random() < 0.5), count=2)
    return _pick(m, [values, at])


@_step(2)
def sorted_whole(m: Any) -> str:
    x = _one(m, 1)
    axis = _axis(m, x)
    values, at = m.add("TopK", x, _size(m, x, axis), axis=axis, largest=int(m.rng.random() < 0.5), count=2)
    return m.add("GatherElements", x, at, axis=axis) if m.rng.random() < 0.3 else _pick(m, [values, at])


@_step(3)
def scattered(m: Any) -> str:
    x = _one(m, 1)
    axis, kind = _axis(m, x), m.rng.integers(3)
    if kind == 0:
        at = m.add("ArgMax", x, axis=axis, keepdims=1)
        updates = m.add("Add", m.add("GatherElements", x, at, axis=axis), _scalar(m, x, 1))
        return m.add("ScatterElements", x, at, updates, axis=axis, reduction=_pick(m, ["none", "add", "max"]))
    if kind == 1:
        rows = m.add("Gather", x, m.constant([0, 1]), axis=0)
        return m.add("ScatterND", x, m.constant([[1], [0]]), rows, reduction=_pick(m, ["none", "add"]))
    # Sums of segments: rows are added to a table of fixed size.
    at = m.add("Mod", _small(m, m.add("Cast", x, to=7)), m.constant(3))
    table = np.zeros([3 if k == axis else d for k, d in enumerate(m.shapes(x)[0])])
    if any(k != axis for k in m.varying(x)):
        raise NoStep
    reduction = _pick(m, ["add", "max"])
    return m.add("ScatterElements", m.constant(table, _dtype(m, x)), at, x, axis=axis, reduction=reduction)


@_step()
def written_prefix(m: Any) -> str:
    """Writes the rows of one value over the first rows of a longer one."""
    x = _one(m, 1, 2)
    size = m.add("Squeeze", _size(m, x, 0), m.constant([0]))
    at = m.add("Unsqueeze", m.add("Range", m.constant(0), size, m.constant(1)), m.constant([1]))
    longer = m.add("Concat", x, x, axis=0)
    return m.add("ScatterND", m.add("Neg", longer), at, x)


def _moved_last(m: Any, x: str) -> str:
    """Returns a value with an axis whose size differs, if there is one, as the last one."""
    axes = list(range(len(m.shapes(x)[0])))
    axis = _axis(m, x)
    return m.add("Transpose", x, perm=[*(k for k in axes if k != axis), axis])


def _signal(m: Any) -> str:
    x = _moved_last(m, _small(m, _floats(m, _one(m, 1, 3))))
    missing = 3 - len(m.shapes(x)[0])
    return m.add("Unsqueeze", x, m.constant(list(range(missing)))) if missing else x


@_step(2)
def convolution(m: Any) -> str:
    x = _signal(m)
    channels = {shape[1] for shape in m.shapes(x)}
    if len(channels) > 1:
        raise NoStep
    filters = m.constant(m.rng.integers(-1, 2, (2, channels.pop(), 3)), np.float32)
    pads, stride = list(map(int, m.rng.integers(0, 3, 2))), int(m.rng.integers(1, 3))
    return m.add("Conv", x, filters, kernel_shape=[3], pads=pads, strides=[stride])


@_step()
def transposed_convolution(m: Any) -> str:
    x = _signal(m)
    channels = {shape[1] for shape in m.shapes(x)}
    if len(channels) > 1:
        raise NoStep
    filters = m.constant(m.rng.integers(-1, 2, (channels.pop(), 2, 3)), np.float32)
    stride = int(m.rng.integers(1, 3))
    return m.add("ConvTranspose", x, filters, kernel_shape=[3], pads=[int(m.rng.integers(2))] * 2, strides=[stride])


@_step()
def pooled(m: Any) -> str:
    pads, stride = [1, int(m.rng.integers(2))], int(m.rng.integers(1, 3))
    return m.add("MaxPool", _signal(m), kernel_shape=[3], pads=pads, strides=[stride])


@_step(rough=True)
def averaged(m: Any) -> str:
    pads, stride = [1, int(m.rng.integers(2))], int(m.rng.integers(1, 3))
    include = int(m.rng.random() < 0.5)
    x = _signal(m)
    return m.add("AveragePool", x, kernel_shape=[2], pads=pads[:1] * 2, strides=[stride], count_include_pad=include)


@_step()
def one_hot(m: Any) -> str:
    x = m.add("Abs", _small(m, m.add("Cast", _one(m, 1, 2), to=7)))
    return m.add("OneHot", x, m.constant(5), m.constant([0, 1], np.float32), axis=-1)


@_step()
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


@_step()
def same_number(m: Any) -> str:
    """Adds the number of elements, as code that divides by it does."""
    x = _one(m)
    return _small(m, m.add("Sub", x, m.add("Cast", m.add("Size", x), to=_onnx_type(m, x))))


def _onnx_type(m: Any, x: str) -> int:
    return {"float32": 1, "int32": 6, "int64": 7}[str(_dtype(m, x))]
