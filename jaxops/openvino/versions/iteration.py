"""Loop, and the slices that an iteration of it reads and writes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ArgumentError
from jaxops.frontend.signature_operator import SignatureOperator
from jaxops.openvino.versions.arguments import resolve_axis
from jaxops.ops.controlflow.looping import Body
from jaxops.signature import ElementType, ShapeOnly, Static, operator
from jaxops.static import Array, Dim, array, is_static, is_symbolic


def _first_and_count(size: Dim, start: int, end: int, stride: int, part_size: int) -> tuple[Dim, Dim]:
    """Returns the first row of the first slice, and the number of slices.

    Both ends are included, and negative ones count from the end of the axis. With a negative stride, the
    row of a slice is its last one.
    """
    if stride == 0 or part_size < 1:
        raise ArgumentError(
            f"port map: `stride` is {stride} and `part_size` {part_size}; `stride` must not be 0, and `part_size` "
            "must be at least 1"
        )
    first, last = (row + size if row < 0 else row for row in (start, end))
    span = (last - first if stride > 0 else first - last) + 1
    count = (span - part_size) // abs(stride) + 1
    return first if stride > 0 else first - part_size + 1, count


@operator(foldable=True)
def slice_count(x: ShapeOnly, *, axis: int, start: int, end: int, stride: int, part_size: int) -> Any:
    """Returns the number of slices of an axis."""
    sizes = np.shape(x)
    size = sizes[resolve_axis("port map", axis, len(sizes))]
    count = _first_and_count(size, start, end, stride, part_size)[1]
    return np.array(count, np.int64 if isinstance(count, int) else object)


@operator(kind="movement", foldable=True)
def slice_at(x: Array, number: Array, *, axis: int, start: int, end: int, stride: int, part_size: int) -> Array:
    """Returns the slice that iteration `number` reads."""
    x, step = array(x), array(number)
    along = resolve_axis("port map", axis, x.ndim)
    first, _ = _first_and_count(x.shape[along], start, end, stride, part_size)
    offset = ops.mul(step, np.asarray(stride, step.dtype))
    rows = ops.add(
        ops.add(np.arange(part_size), offset), np.array(first, np.int64 if isinstance(first, int) else object)
    )
    return ops.gather(x, rows, axis=along)


@operator(kind="movement", foldable=True)
def join_slices(stacked: Array, *, axis: int, stride: int) -> Array:
    """Joins the slices of all iterations, the rows of `stacked`, along an axis; in reverse for a negative stride."""
    x = array(stacked)
    rank = x.ndim - 1
    along = resolve_axis("port map", axis, rank)
    if stride < 0:
        x = array(ops.slice(x, [-1], [np.iinfo(np.int64).min], [0], [-1]))
    if x.shape[along + 1 : along + 2] == (1,):  # rows of one element only move
        return ops.transpose(ops.squeeze(x, (along + 1,)), perm=[*range(1, along + 1), 0, *range(along + 1, rank)])
    x = array(ops.transpose(x, perm=[*range(1, along + 1), 0, *range(along + 1, rank + 1)]))
    sizes = x.shape
    return ops.reshape(x, (*sizes[:along], sizes[along] * sizes[along + 1], *sizes[along + 2 :]), allowzero=1)


@operator(kind="movement", foldable=True)
def last_slice(stacked: Array) -> Array:
    """Returns the values of the last iteration."""
    return ops.gather(stacked, np.asarray(-1), axis=0)


@operator(kind="form", foldable=True)
def iteration_number(number: Array, *, rank: int, to: ElementType) -> Array:
    """Returns the number of an iteration in the type and rank that the body declares."""
    return ops.reshape(ops.cast(number, to=to), (1,) * rank)


@operator(kind="form", foldable=True)
def scalar(x: Array) -> Array:
    """Returns one element as a scalar."""
    return ops.reshape(x, ())


def loop(
    m: Any, cond: Any, v_initial: Sequence[Any], body: Body, *, size: Static = None, rng: Any = None
) -> tuple[Any, ...]:
    """ONNX's Loop; a negative trip count means no limit."""
    if m is not None:
        m = scalar(ops.cast(m, to=np.int64))
        if is_static(m) and not is_symbolic(m):
            m = None if m < 0 else m
        else:
            m = ops.where(ops.less(m, np.asarray(0, np.int64)), np.asarray(np.iinfo(np.int32).max, np.int64), m)
    return ops.loop(m, None if cond is None else scalar(cond), v_initial, body, size=size, rng=rng)


IDENTITY = SignatureOperator("Identity", ops.identity)
IF = SignatureOperator("If", ops.if_, ("cond",))
LOOP = SignatureOperator("Loop", loop, ("M", "cond", "v_initial"), variadic=True, function=ops.loop)
SLICE_COUNT, SLICE_AT, JOIN_SLICES, LAST_SLICE, ITERATION_NUMBER, SCALAR = (
    SignatureOperator(fn.__name__, fn)
    for fn in (slice_count, slice_at, join_slices, last_slice, iteration_number, scalar)
)
