"""Steps of random models: each adds a node or a few to a `RandomModel`, and returns the name of the result."""

from collections.abc import Callable
from typing import Any

import numpy as np

Motif = Callable[[Any], str]
# (whether results are rounded, so that nothing may follow; the step)
MOTIFS: list[tuple[bool, Motif]] = []


class NoStep(Exception):
    """Says that a step does not apply to the values so far."""


def step(weight: int = 1, rough: bool = False) -> Callable[[Motif], Motif]:
    def add(motif: Motif) -> Motif:
        MOTIFS.extend([(rough, motif)] * weight)
        return motif

    return add


def pick(m: Any, items: Any) -> Any:
    return items[m.rng.integers(len(items))]


def one(m: Any, axes: int = 0, most: int = 9, kinds: str = "fi") -> str:
    """Returns one of the last values with so many axes, most often one whose size differs."""
    found = [
        name for name in m.pool if axes <= m.samples[name][0].ndim <= most and m.samples[name][0].dtype.kind in kinds
    ]
    varying = [name for name in found if m.varying(name)]
    if varying and m.rng.random() < 0.9:
        found = varying
    if not found:
        raise NoStep
    return str(pick(m, found[-6:]))


def axis_of(m: Any, x: str) -> int:
    varying, rank = m.varying(x), len(m.shapes(x)[0])
    if rank == 0:
        raise NoStep
    return int(pick(m, varying)) if varying and m.rng.random() < 0.8 else int(m.rng.integers(rank))


def dtype_of(m: Any, x: str) -> Any:
    return m.samples[x][0].dtype


def scalar(m: Any, x: str, value: float) -> str:
    return m.constant(value, dtype_of(m, x))


def small(m: Any, x: str) -> str:
    """Returns whole numbers from -4 to 4."""
    x = m.add("Clip", x, scalar(m, x, -4), scalar(m, x, 4))
    return m.add("Floor", x) if dtype_of(m, x).kind == "f" else x


def floats(m: Any, x: str) -> str:
    return x if dtype_of(m, x) == np.float32 else m.add("Cast", x, to=1)


def size_of(m: Any, x: str, axis: int) -> str:
    """Returns the size of an axis, an int64 of shape (1,)."""
    return m.add("Shape", x, start=axis, end=axis + 1)


def some_of(m: Any, x: str, axis: int) -> str:
    """Returns a position or a number of elements of an axis, computed from its size."""
    size = size_of(m, x, axis)
    kind = m.rng.integers(4)
    if kind == 0:
        return m.add("Div", size, m.constant([2]))
    if kind == 1:
        return m.add("Sub", size, m.constant([1]))
    if kind == 2:
        return m.add("Min", size, m.constant([int(m.rng.integers(1, 5))]))
    return m.add("Div", m.add("Add", size, m.constant([1])), m.constant([2]))


@step(5)
def elementwise(m: Any) -> str:
    x = one(m)
    number = scalar(m, x, int(m.rng.integers(1, 4)))
    kind = m.rng.integers(7)
    if kind == 0:
        return small(m, m.add("Add", x, number))
    if kind == 1:
        return small(m, m.add("Sub", number, x))
    if kind == 2:
        return m.add("Neg", x)
    if kind == 3:
        return m.add("Abs", x)
    if kind == 4:
        return m.add("Where", m.add("Greater", x, number), x, number)
    if kind == 5:
        return m.add("Cast", x, to=int(pick(m, [1, 6, 7])))
    return m.add("Max", x, number)


@step(4)
def binary(m: Any) -> str:
    x = one(m)
    same = [name for name in m.pool if dtype_of(m, name) == dtype_of(m, x)]
    y = pick(m, same[-8:])
    if m.rng.random() < 0.3:
        return m.add("Where", m.add("LessOrEqual", x, y), x, y)
    return small(m, m.add(pick(m, ["Add", "Sub", "Mul", "Max", "Min"]), x, y))


@step(6)
def part(m: Any) -> str:
    x = one(m, 1)
    axis, kind = axis_of(m, x), m.rng.integers(8)
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
        return m.add("Slice", x, some_of(m, x, axis), huge, at)
    if kind == 6:
        return m.add("Slice", x, m.constant([int(m.rng.integers(2))]), m.constant([int(m.rng.integers(2, 5))]), at)
    return m.add("Slice", x, m.constant([0]), some_of(m, x, axis), at)


@step()
def pieces(m: Any) -> str:
    x = one(m, 1)
    axis = axis_of(m, x)
    some = some_of(m, x, axis)
    rest = m.add("Sub", size_of(m, x, axis), some)
    if min(int(n.min()) for name in (some, rest) for n in m.samples[name]) < 0:
        raise NoStep
    return pick(m, m.add("Split", x, m.add("Concat", some, rest, axis=0), axis=axis, count=2))


@step(3)
def joined(m: Any) -> str:
    x = one(m, 1)
    axis, rank = axis_of(m, x), len(m.shapes(x)[0])
    kinds = [name for name in m.pool if dtype_of(m, name) == dtype_of(m, x) and m.samples[name][0].ndim == rank]
    other = pick(m, [*kinds[-5:], x])
    if m.rng.random() < 0.4:
        size = [1 if k == axis else d for k, d in enumerate(m.shapes(x)[0])]
        if any(k != axis for k in m.varying(x)):
            raise NoStep
        other = m.constant(m.rng.integers(-3, 4, size), dtype_of(m, x))
    return m.add("Concat", *((x, other) if m.rng.random() < 0.5 else (other, x)), axis=axis)


@step(3)
def moved(m: Any) -> str:
    x = one(m, 1)
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


@step()
def rows_of_pairs(m: Any) -> str:
    x = one(m, 1)
    return m.add("Reshape", m.add("Concat", x, x, axis=axis_of(m, x)), m.constant([2, -1]))


@step(3)
def picked(m: Any) -> str:
    x = one(m, 1)
    axis, kind = axis_of(m, x), m.rng.integers(5)
    if kind == 0:
        return m.add("Gather", x, m.constant(int(pick(m, [0, -1, 1]))), axis=axis)
    if kind == 1:
        return m.add("Gather", x, m.constant([0, -1, 1]), axis=axis)
    if kind == 2:
        return m.add("Gather", x, m.add("ArgMax", x, axis=axis, keepdims=0), axis=axis)
    if kind == 3:
        return m.add("GatherElements", x, m.add("ArgMin", x, axis=axis, keepdims=1), axis=axis)
    size = m.add("Squeeze", size_of(m, x, axis), m.constant([0]))
    order = m.add("Range", m.constant(0), size, m.constant(int(m.rng.integers(1, 3))))
    back = m.add("Sub", m.add("Sub", size, m.constant(1)), order)
    return m.add("Gather", x, pick(m, [order, back]), axis=axis)


@step(2)
def positions(m: Any) -> str:
    """Returns 0, 1, … along an axis, as exporters write positions and masks."""
    x = one(m, 1)
    size = m.add("Squeeze", size_of(m, x, axis_of(m, x)), m.constant([0]))
    at = m.add("Range", m.constant(0), size, m.constant(1))
    if m.rng.random() < 0.5:
        return at
    column = m.add("Unsqueeze", at, m.constant([1]))
    return m.add("Cast", m.add("LessOrEqual", at, column), to=int(pick(m, [1, 7])))


@step()
def triangle(m: Any) -> str:
    return m.add("Trilu", one(m, 2), upper=int(m.rng.random() < 0.5))


@step(2)
def filled(m: Any) -> str:
    x = one(m, 1)
    sizes = m.add("Shape", x)
    value = m.constant(int(m.rng.integers(1, 4)), np.float32)
    return m.add("Expand", value, sizes) if m.rng.random() < 0.5 else m.add("Expand", x, sizes)


@step()
def tiled(m: Any) -> str:
    x = one(m, 1)
    repeats = np.ones(len(m.shapes(x)[0]), np.int64)
    repeats[axis_of(m, x)] = 2
    return m.add("Tile", x, m.constant(repeats))


@step(2)
def padding(m: Any) -> str:
    x = one(m, 1)
    rank, axis = len(m.shapes(x)[0]), axis_of(m, x)
    amounts = np.zeros(2 * rank, np.int64)
    amounts[[axis, rank + axis]] = m.rng.integers(-1, 3, 2)
    mode = pick(m, ["constant", "constant", "edge", "reflect"])
    if mode != "constant":
        amounts = np.abs(amounts).clip(0, 1)
        return m.add("Pad", x, m.constant(amounts), mode=mode)
    return m.add("Pad", x, m.constant(amounts), scalar(m, x, int(m.rng.integers(2))), mode=mode)


@step()
def same_number(m: Any) -> str:
    """Adds the number of elements, as code that divides by it does."""
    x = one(m)
    return small(m, m.add("Sub", x, m.add("Cast", m.add("Size", x), to=onnx_type(m, x))))


def onnx_type(m: Any, x: str) -> int:
    return {"float32": 1, "int32": 6, "int64": 7}[str(dtype_of(m, x))]
