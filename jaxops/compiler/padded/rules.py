"""Rules for operations that combine elements along a symbolic axis of padded arrays, without the surplus elements."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.compiler.padded.values import Capacity, Padded, bind, positions
from jaxops.compiler.padded.windows import convolution, reduction
from jaxops.compiler.padded.writes import write
from jaxops.compiler.primitives import symbolic_axes
from jaxops.compiler.row_independence import only_first_axis_is_symbolic
from jaxops.dtypes import is_float
from jaxops.errors import UnsupportedError
from jaxops.jax_internals import evaluated
from jaxops.static import Dim, Sizes, Undecided, is_symbolic

# (equation, operands, their true sizes, capacity) → a result, or several.
Rule = Callable[[Any, list[Padded], list[Sizes], Capacity], Padded | list[Padded]]


def _resized(x: Any, axis: int, size: int) -> Any:
    """Returns the first `size` elements along an axis; zeros fill up an axis that is shorter."""
    missing = [(0, size - x.shape[axis] if k == axis else 0, 0) for k in range(x.ndim)]
    return x if size == x.shape[axis] else lax.pad(x, jnp.zeros((), x.dtype), missing)


def _sliced(x: Padded, axis: int, start: Any, size: Dim, capacity: Capacity, step: int = 1) -> Padded:
    """Returns every `step`-th element along an axis from `start` on, `size` in all; each must be a true one.

    `size` must differ from the size of the axis. So if it is symbolic, true elements of `x` may be surplus elements
    of the result, which then counts as not zero.
    """
    start = capacity.count(start) if is_symbolic(start) else start
    if isinstance(start, int) and isinstance(size, int):
        return Padded(lax.slice_in_dim(x.array, start, start + max(0, step * (size - 1) + 1), step, axis), x.zeroed)
    if isinstance(start, int) and start == 0 and step == 1:
        return Padded(_resized(x.array, axis, capacity.of(size)))
    if isinstance(size, int) and step == 1:
        return Padded(lax.dynamic_slice_in_dim(x.array, start, size, axis), x.zeroed)
    indices = jnp.asarray(start, np.int32) + step * jnp.arange(capacity.of(size), dtype=np.int32)
    return Padded(jnp.take(x.array, indices, axis=axis, mode="clip"))


def _concatenate(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    """Writes the operands into one array, in order: each overwrites the surplus elements of the operand before it."""
    axis = eqn.params["dimension"]
    array = _resized(inputs[0].array, axis, capacity.of(eqn.outvars[0].aval.shape[axis]))
    offset = sizes[0][axis]
    for x, size in zip(inputs[1:], sizes[1:], strict=True):
        most = evaluated(size[axis], capacity.largest) if is_symbolic(size[axis]) else size[axis]
        start = [capacity.count(offset) if k == axis else np.int32(0) for k in range(array.ndim)]
        array = write(array, _resized(x.array, axis, most), *start)
        offset = offset + size[axis]
    return Padded(array, all(x.zeroed for x in inputs))


def _reshape(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    """Computes the position of each element among the true elements, then its position in the padded operand."""
    (x,), after = inputs, eqn.params["new_sizes"]
    room = tuple(map(capacity.of, after))
    if 0 in room:
        return Padded(jnp.zeros(room, x.array.dtype), zeroed=True)
    if only_first_axis_is_symbolic(sizes[0]) and only_first_axis_is_symbolic(after) and math.prod(room) == x.array.size:
        return Padded(lax.reshape(x.array, room), x.zeroed)  # true elements stay before surplus ones
    position = _true_positions(after, capacity)
    index, stride = jnp.zeros_like(position), 1
    for size, room in zip(reversed(sizes[0]), reversed(x.array.shape), strict=True):
        count = capacity.count(size)
        index, position, stride = (
            index + position % count * jnp.asarray(stride, np.int32),
            position // count,
            stride * room,
        )
    return Padded(jnp.take(x.array.reshape(-1), index, mode="clip"))


def _true_positions(sizes: Sizes, capacity: Capacity) -> Any:
    """Returns the position of each element among the true elements of an array of these sizes, in order."""
    shape = jax.ShapeDtypeStruct(tuple(map(capacity.of, sizes)), np.int32)
    position = jnp.zeros((1,) * len(sizes), np.int32)
    for axis, size in enumerate(sizes):
        position = position * capacity.count(size) + positions(shape, axis)
    return position


def _random_bits(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    """Draws the bits that an array of the true size would have: those at a position do not depend on the size."""
    after = eqn.params["shape"]
    bits = eqn.primitive.bind(inputs[0].array, **{**eqn.params, "shape": (math.prod(map(capacity.of, after)),)})
    return Padded(jnp.take(bits, _true_positions(after, capacity), axis=-1, mode="clip"))


def _slice(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    params, result = eqn.params, inputs[0]
    strides = params["strides"] or (1,) * len(sizes[0])
    after = eqn.outvars[0].aval.shape
    for axis, (start, stride) in enumerate(zip(params["start_indices"], strides, strict=True)):
        if after[axis] != sizes[0][axis]:
            result = _sliced(result, axis, start, after[axis], capacity, stride)
    return result


def _split(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> list[Padded]:
    axis, offset, results = eqn.params["axis"], 0, []
    for v in eqn.outvars:
        size = v.aval.shape[axis]
        results.append(_sliced(inputs[0], axis, offset, size, capacity))
        offset = offset + size
    return results


def _dynamic_slice(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    result, after = inputs[0], eqn.params["slice_sizes"]
    for axis, start in enumerate(_bounded_starts(inputs[1:], sizes[0], after, capacity)):
        if after[axis] != sizes[0][axis]:
            result = _sliced(result, axis, start, after[axis], capacity)
    return result


def _dynamic_update_slice(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    x, update, *starts = inputs
    for before, size in zip(sizes[0], sizes[1], strict=True):
        if not isinstance(size, int) and size != before:
            raise UnsupportedError(f"an update of {size} elements along an axis of {before} is not supported")
    starts = _bounded_starts(starts, sizes[0], sizes[1], capacity)
    return Padded(write(x.array, update.array, *starts), x.zeroed and update.zeroed)


def _bounded_starts(starts: Sequence[Padded], before: Sizes, after: Sizes, capacity: Capacity) -> list[Any]:
    """Returns the starts of slices of the sizes `after`, clipped so that each slice has true elements only."""
    ends = [capacity.count(size) - capacity.count(part) for size, part in zip(before, after, strict=True)]
    return [jnp.clip(x.array, 0, jnp.asarray(end, x.array.dtype)) for x, end in zip(starts, ends, strict=True)]


def _pad(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    after, config = eqn.outvars[0].aval.shape, list(eqn.params["padding_config"])
    axes = symbolic_axes(after) | symbolic_axes(sizes[0])
    literal = getattr(eqn.invars[1], "val", None)
    with_zeros = literal is not None and literal == 0
    fill = literal if with_zeros else inputs[1].array
    x = Padded(inputs[0].array, with_zeros and inputs[0].zeroed).masked(sizes[0], axes, fill, capacity)
    moved: dict[int, Any] = {}
    # After a crop, true elements of the operand may be surplus elements of the result.
    zeroed = with_zeros and all(_is_at_least(config[axis][1], 0) for axis in symbolic_axes(after))
    for axis in axes:
        (low, _, inner), room = config[axis], capacity.of(after[axis])
        if inner or (is_symbolic(low) and not _is_at_least(after[axis], low)):
            raise UnsupportedError(f"padding of {low} before and {inner} between the elements of a symbolic axis")
        if is_symbolic(low):  # pads more than enough on both sides; a slice is taken below
            config[axis], moved[axis] = (room, room, 0), room - capacity.count(low)
        else:
            config[axis] = (int(low), room - int(low) - x.shape[axis], 0)
    x = lax.pad(x, inputs[1].array, config)
    for axis, start in moved.items():
        x = lax.dynamic_slice_in_dim(x, start, capacity.of(after[axis]), axis)
    return Padded(x, zeroed)


def _is_at_least(size: Dim, number: Dim) -> bool:
    """Returns True if `size >= number` holds for every value of the symbols."""
    try:
        return bool(size >= number)
    except Undecided:
        return False


def _gather(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> list[Padded]:
    mapped = eqn.params["dimension_numbers"].start_index_map
    windows = {axis: eqn.params["slice_sizes"][axis] for axis in mapped}
    indices = _bounded_indices(eqn, inputs[1].array, sizes[0], mapped, windows, capacity)
    return bind(eqn, [inputs[0].array, indices], capacity)


def _scatter(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> list[Padded]:
    x, indices, updates = inputs
    numbers = eqn.params["dimension_numbers"]
    mapped = numbers.scatter_dims_to_operand_dims
    # The window axes of the updates correspond, in order, to the axes of the operand that are listed in neither.
    no_windows = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    axes = [axis for axis in range(len(sizes[0])) if axis not in no_windows]
    windows = {a: sizes[2][w] for a, w in zip(axes, sorted(numbers.update_window_dims), strict=True)}
    if any(is_symbolic(size) and (axis in mapped or size != sizes[0][axis]) for axis, size in windows.items()):
        raise UnsupportedError("a scatter whose updates differ in size from call to call is not supported")
    bounded = _bounded_indices(eqn, indices.array, sizes[0], mapped, windows, capacity)
    for axis in symbolic_axes(sizes[1]):  # an index out of range drops a surplus update
        if _clips(eqn):
            raise UnsupportedError(
                "scatter with mode='clip' is not supported for a number of updates that differs from call to call"
            )
        is_true = positions(bounded, axis) < capacity.count(sizes[1][axis])
        bounded = jnp.where(is_true, bounded, jnp.asarray(np.iinfo(bounded.dtype).max, bounded.dtype))
    return bind(eqn, [x.array, bounded, updates.array], capacity, x.zeroed and updates.zeroed)


def _clips(eqn: Any) -> bool:
    return "CLIP" in str(eqn.params["mode"]).upper()


def _bounded_indices(
    eqn: Any, indices: Any, sizes: Sizes, mapped: Sequence[int], windows: Mapping[int, Dim], capacity: Capacity
) -> Any:
    """Returns indices for the padded array: an index out of range for the true sizes is clipped, if the mode asks for
    that, or else replaced by one that is out of range for the padded sizes, too."""
    if not any(is_symbolic(sizes[axis]) for axis in mapped):
        return indices
    ends = [capacity.count(sizes[axis]) - capacity.count(windows.get(axis, 1)) for axis in mapped]
    shape = (1,) * (indices.ndim - 1) + (len(mapped),)
    last = jnp.asarray(ends, indices.dtype).reshape(shape)
    outside = jnp.stack([jnp.asarray(capacity.of(sizes[axis]), indices.dtype) for axis in mapped]).reshape(shape)
    return jnp.clip(indices, 0, last) if _clips(eqn) else jnp.where(indices > last, outside, indices)


def _rev(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    array = inputs[0].array
    for axis in eqn.params["dimensions"]:
        indices = capacity.count(sizes[0][axis]) - 1 - jnp.arange(array.shape[axis], dtype=np.int32)
        array = jnp.take(array, indices, axis=axis, mode="clip")
    return Padded(array)


def _sort(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> list[Padded]:
    """Sorts with a first key that is 1 for surplus elements, so that they come last."""
    axis, arrays = eqn.params["dimension"], [x.array for x in inputs]
    surplus = positions(arrays[0], axis) >= capacity.count(sizes[0][axis])
    surplus = jnp.broadcast_to(surplus.astype(np.int32), arrays[0].shape)
    params = {**eqn.params, "num_keys": eqn.params["num_keys"] + 1}
    return [Padded(y) for y in eqn.primitive.bind(surplus, *arrays, **params)[1:]]


def _windows(eqn: Any, inputs: list[Padded], sizes: list[Sizes], capacity: Capacity) -> Padded:
    fill = NEUTRAL[eqn.primitive.name.replace("_window", "")](eqn.invars[0].aval.dtype)
    return reduction(eqn, inputs, sizes, capacity, fill)


RULES: dict[str, Rule] = {
    "concatenate": _concatenate,
    "conv_general_dilated": convolution,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "pad": _pad,
    "random_bits": _random_bits,
    **{f"reduce_window_{kind}": _windows for kind in ("max", "min", "sum")},
    "reshape": _reshape,
    "rev": _rev,
    **{f"scatter{kind}": _scatter for kind in ("", "-add", "-max", "-min", "-mul")},
    "slice": _slice,
    "sort": _sort,
    "split": _split,
}


def _lowest(dtype: Any) -> Any:
    return False if dtype == np.bool_ else -np.inf if is_float(dtype) else jnp.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    return True if dtype == np.bool_ else np.inf if is_float(dtype) else jnp.iinfo(dtype).max


# The neutral element of each operation, as a function of the dtype: including it in a combination changes no result.
NEUTRAL: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("cumsum", "dot_general", "reduce_or", "reduce_sum", "reduce_xor"), lambda _: 0),
    **dict.fromkeys(("cumprod", "reduce_prod"), lambda _: 1),
    **dict.fromkeys(("argmax", "cumlogsumexp", "cummax", "reduce_max", "top_k"), _lowest),
    **dict.fromkeys(("argmin", "cummin", "reduce_min"), _highest),
    "reduce_and": lambda dtype: np.array(-1).astype(dtype),
}
