"""Shapes, and operations that only move elements, with sizes and axes as inputs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.errors import ArgumentError, ShapeError, amount, shape_text
from jaxops.memory import bounded
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, resolve_axis, single, vector
from jaxops.shapes.arithmetic import equal
from jaxops.shapes.tensor.splitting import equal_chunks
from jaxops.signature import ElementType, ShapeOnly, Static, like
from jaxops.signature_errors import errors_of
from jaxops.static import Array, Dim, array, is_symbolic

version("ShapeOf", 1)(ops.shape)


@version("ShapeOf", 3, of=ops.shape)
def shape_of_3(data: ShapeOnly, *, output_type: ElementType) -> Any:
    return ops.cast(ops.shape(data), to=output_type)


@version("Reshape", 1, of=ops.reshape)
def reshape(data: Array, shape: Static, *, special_zero: bool) -> Array:
    """With `special_zero`, 0 copies a size of `data`. -1 is the remaining size, also beside sizes of zero."""
    sizes: list[Any] = list(vector("Reshape", "shape", shape))
    x = array(data)
    copied = [i for i, size in enumerate(sizes) if special_zero and _is(size, 0)]
    if copied and copied[-1] >= x.ndim:
        has = amount(x.ndim, "axis", "axes")
        raise ShapeError(f"Reshape: `shape` copies axis {copied[-1]}, but {shape_text(x.shape)} has {has}")
    new = [x.shape[i] if i in copied else size for i, size in enumerate(sizes)]
    if any(_is(size, -1) for size in new) and any(_is(size, 0) for size in new):
        # 0 elements leave -1 undetermined. As in OpenVINO, it follows from the sizes that are not copied.
        left = math.prod(size for i, size in enumerate(x.shape) if i not in copied)
        taken = math.prod(size for i, size in enumerate(sizes) if i not in copied and not _is(size, -1))
        new = [(left // taken if taken and left else 1) if _is(size, -1) else size for size in new]
    return ops.reshape(x, new, allowzero=int(not any(_is(size, -1) for size in new)))


def _is(size: Any, number: int) -> bool:
    """Returns True if a size is known to equal `number`."""
    return isinstance(size, int | np.integer) and size == number


@version("Squeeze", 1, of=ops.squeeze)
def squeeze(data: Array, axes: Static = None) -> Array:
    """Keeps axes whose size is not 1."""
    x = array(data)
    chosen = (
        range(x.ndim)
        if axes is None
        else [resolve_axis("Squeeze", a, x.ndim) for a in vector("Squeeze", "axes", axes).tolist()]
    )
    return ops.squeeze(x, tuple(dict.fromkeys(a for a in chosen if equal(x.shape[a], 1))))


@version("Squeeze", 15, of=ops.squeeze)
def squeeze_15(data: Array, axes: Static = None, *, allow_axis_skip: bool) -> Array:
    """`allow_axis_skip` is ignored: it only announces that the rank may vary."""
    return squeeze(data, axes)


@version("Unsqueeze", 1, of=ops.unsqueeze)
def unsqueeze(data: Array, axes: Static) -> Array:
    return ops.unsqueeze(data, vector("Unsqueeze", "axes", axes))


@version("Transpose", 1, of=ops.transpose)
def transpose(data: Array, order: Static) -> Array:
    """Reverses the axes if `order` is empty."""
    axes = vector("Transpose", "order", order)
    return ops.transpose(data, perm=axes) if axes.size else ops.transpose(data)


@version("Split", 1, of=ops.split)
def split(data: Array, axis: Static, *, num_splits: int) -> tuple[Array, ...]:
    x = array(data)
    along = resolve_axis("Split", single("Split", "axis", axis), x.ndim)
    if num_splits < 1:
        raise ArgumentError(f"Split: `num_splits` is {num_splits}; it must be at least 1")
    with errors_of("split"):
        chunks = equal_chunks(x.shape[along], num_splits)
    return ops.split(x, chunks, axis=along)


@version("Slice", 8, of=ops.slice)
def slice_8(data: Array, start: Static, stop: Static, step: Static, axes: Static = None) -> Array:
    return ops.slice(data, start, stop, axes, step)


@version("StridedSlice", 1, of=ops.slice)
def strided_slice(
    data: Array,
    begin: Static,
    end: Static,
    stride: Static = None,
    *,
    begin_mask: Sequence[int],
    end_mask: Sequence[int],
    new_axis_mask: Sequence[int],
    shrink_axis_mask: Sequence[int],
    ellipsis_mask: Sequence[int],
) -> Array:
    """Each mask is padded with zeros, or cut, to the length of `begin`.

    If several masks have a 1 at one position, ellipsis_mask wins over new_axis_mask, and that over shrink_axis_mask.
    The end and stride of a shrunk axis are ignored.
    """
    x = array(data)
    begins, ends = vector("StridedSlice", "begin", begin), vector("StridedSlice", "end", end)
    strides = np.ones(begins.size, np.int64) if stride is None else vector("StridedSlice", "stride", stride)
    count = begins.size
    if ends.size != count or strides.size != count:
        has = amount(count, "number")
        raise ShapeError(f"StridedSlice: `begin` has {has}, `end` {ends.size}, `stride` {strides.size}")
    masks = (begin_mask, end_mask, new_axis_mask, shrink_axis_mask, ellipsis_mask)
    ignored_begin, ignored_end, new, shrunk, ellipsis = ([*map(bool, mask), *[False] * count][:count] for mask in masks)
    first = ellipsis.index(True) if True in ellipsis else count
    taking = [i for i in range(count) if not ellipsis[i] and not new[i]]
    if len(taking) > x.ndim:
        slices = amount(len(taking), "axis", "axes")
        raise ShapeError(f"StridedSlice: `begin` slices {slices}, but {shape_text(x.shape)} has {x.ndim}")
    skipped = x.ndim - len(taking)
    starts: list[Any] = []
    stops: list[Any] = []
    steps: list[int] = []
    axes: list[int] = []
    removed: list[int] = []
    added: list[int] = []
    axis = result_axis = 0
    for i in range(count):
        if ellipsis[i]:
            if i == first:
                axis, result_axis = axis + skipped, result_axis + skipped
            continue
        if new[i]:
            added.append(result_axis)
            result_axis += 1
            continue
        if shrunk[i]:
            at = begins[i]
            starts.append(at)
            stops.append(at + 1 if not (isinstance(at, int | np.integer) and at == -1) else np.iinfo(np.int64).max)
            steps.append(1)
            removed.append(axis)
        else:
            step = int(strides[i])
            far, near = (np.iinfo(np.int64).max, 0) if step > 0 else (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
            starts.append(near if ignored_begin[i] else begins[i])
            stops.append(far if ignored_end[i] else ends[i])
            steps.append(step)
            result_axis += 1
        axes.append(axis)
        axis += 1
    if axes:
        x = ops.slice(x, _numbers(starts), _numbers(stops), axes, steps)
    if removed:
        x = ops.squeeze(x, removed)
    return ops.unsqueeze(x, added) if added else ops.identity(x)


def _numbers(values: Sequence[Any]) -> np.ndarray:
    symbolic = any(not isinstance(v, int | np.integer) for v in values)
    return np.array(values, object if symbolic else np.int64)


@version("Broadcast", 3, of=ops.expand)
def broadcast_3(data: Array, target_shape: Static, axes_mapping: Static = None, *, mode: Word) -> Array:
    x, sizes = array(data), list(vector("Broadcast", "target_shape", target_shape))
    if mode == "explicit":
        if axes_mapping is None:
            raise ShapeError("Broadcast: mode 'explicit' needs `axes_mapping`")
        axes = vector("Broadcast", "axes_mapping", axes_mapping).tolist()
        if len(axes) != x.ndim or sorted(set(axes)) != axes or not all(0 <= a < len(sizes) for a in axes):
            raise ShapeError(
                f"Broadcast: `axes_mapping` is {axes}; it must be ascending axes of the result, one for each "
                f"of the {x.ndim} axes of `data`"
            )
        others = [a for a in range(len(sizes)) if a not in axes]
        x = ops.unsqueeze(x, others) if others else x
    elif mode == "pdpd":
        x = ops.reshape(x, (*x.shape, *[1] * (len(sizes) - x.ndim)), allowzero=1)
    if mode != "bidirectional":
        _check_one_way(x.shape, sizes)
    return ops.expand(x, _numbers(sizes))


@version("Broadcast", 1, of=ops.expand)
@like(broadcast_3)
def broadcast_1(*inputs: Any, mode: Word) -> Array:
    """Takes mode "none" as explicit, as files write it."""
    return broadcast_3(*inputs, mode="explicit" if mode == "none" else mode)


def _check_one_way(source: Sequence[Dim], target: Sequence[Dim]) -> None:
    """Raises ShapeError if broadcasting would change the target shape, too."""
    pairs = zip(source[::-1], target[::-1], strict=False)
    grows = any(isinstance(a, int) and isinstance(b, int | np.integer) and a != b and a != 1 for a, b in pairs)
    if len(source) > len(target) or grows:
        raise ShapeError(f"Broadcast: {shape_text(source)} does not broadcast to {shape_text(tuple(target))}")


@version("Tile", 1, of=ops.tile)
def tile(data: Array, repeats: Static) -> Array:
    """The shorter one of shape and repeats gets ones in front."""
    x, counts = array(data), vector("Tile", "repeats", repeats)
    missing = x.ndim - counts.size
    if missing > 0:
        counts = np.concatenate([np.ones(missing, counts.dtype), counts])
    return ops.tile(ops.unsqueeze(x, [*range(-missing)]) if missing < 0 else x, counts)


@version("Range", 1, of=ops.range)
def range_1(start: Static, stop: Static, step: Static) -> Array:
    return ops.range(*_bounds(start, stop, step))


def _bounds(*values: Any) -> list[Any]:
    numbers = [vector("Range", name, x) for name, x in zip(("start", "stop", "step"), values, strict=True)]
    wrong = [x for x in numbers if x.size != 1]
    if wrong:
        raise ShapeError(f"Range: `start`, `stop` and `step` must be one number each, got {wrong[0].size}")
    return [x.reshape(()) for x in numbers]


@version("Range", 4, of=ops.range)
def range_4(start: Static, stop: Static, step: Static, *, output_type: ElementType) -> Array:
    """The count is computed before start and step are converted to `output_type`, the values after that."""
    first, last, by = (single("Range", name, x) for name, x in (("start", start), ("stop", stop), ("step", step)))
    if any(not isinstance(x, int | float | bool) for x in (first, last, by)):  # symbolic sizes
        return ops.cast(ops.range(*_bounds(start, stop, step)), to=output_type)
    if by == 0:
        raise ArgumentError("Range: `step` is 0")
    whole = all(isinstance(x, int) for x in (first, last, by))
    count = max(-((first - last) // by) if whole else math.ceil((last - first) / by), 0)
    dtype = np.dtype(output_type)
    first, by = (ops.cast(np.asarray(x), to=dtype) for x in (first, by))
    with errors_of("Range"):
        bounded((count,), np.dtype(np.int64).itemsize)
    places = ops.cast(np.arange(count), to=dtype)
    return ops.add(first, ops.mul(places, by))


@version("Pad", 1, of=ops.pad)
def pad(data: Array, pads_begin: Static, pads_end: Static, pad_value: Array | None = None, *, pad_mode: Word) -> Array:
    """Negative pads crop, after the positive pads have extended the whole of `data`, in all modes."""
    begins, ends = (vector("Pad", name, x) for name, x in (("pads_begin", pads_begin), ("pads_end", pads_end)))
    pads = np.concatenate([begins, ends])
    if pad_mode == "constant":
        value = None if pad_value is None else ops.reshape(pad_value, ())
        return ops.pad(data, pads, value)
    added, cut = (_clipped(pads, sign) for sign in (1, -1))
    padded = ops.pad(data, added, mode=pad_mode)
    return ops.pad(padded, cut) if cut.any() else padded


def _clipped(pads: np.ndarray, sign: int) -> np.ndarray:
    """Returns the pads of one sign, and zeros for the remaining ones; symbolic pads are positive."""
    if is_symbolic(pads):
        positive = [not isinstance(p, int | np.integer) or p > 0 for p in pads]
        return np.array([p if good is (sign > 0) else 0 for p, good in zip(pads, positive, strict=True)], pads.dtype)
    return np.maximum(pads, 0) if sign > 0 else np.minimum(pads, 0)


@version("Eye", 9, of=ops.eye_like)
def eye(
    num_rows: Static,
    num_columns: Static,
    diagonal_index: Static,
    batch_shape: Static = None,
    *,
    output_type: ElementType,
) -> Array:
    rows, columns, diagonal = (
        single("Eye", name, value)
        for name, value in (("num_rows", num_rows), ("num_columns", num_columns), ("diagonal_index", diagonal_index))
    )
    matrix = ops.eye_like(np.zeros((rows, columns), np.int8), dtype=output_type, k=diagonal)
    batch = () if batch_shape is None else vector("Eye", "batch_shape", batch_shape).tolist()
    return ops.expand(matrix, (*batch, rows, columns))
