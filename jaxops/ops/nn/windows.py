"""Functions that convolution and pooling share: their attributes, and combining or counting elements of windows.

Windows are pooled axis by axis, in k1 + … + kn steps instead of k1·…·kn. Each step is a slice, and XLA fuses the steps
of an axis into one loop. So values and gradients take less time than those of `lax.reduce_window`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints, one_of
from jaxops.kernels.convolution.window_slices import padded
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target
from jaxops.kernels.xla_workarounds import with_nans
from jaxops.memory import bounded
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.shapes.nn.windows import AutoPad, Options, Windows
from jaxops.static import Dim, Ints, Sizes

# Larger windows, and symbolic sizes, are left to `lax.reduce_window`, one axis at a time as well; the gradient of many
# slices would take much longer.
_MOST_STEPS = 4
Combine = Callable[[jax.Array, jax.Array], jax.Array]


def integers(name: str, values: Ints | None) -> Sizes | None:
    """An optional attribute of integers."""
    return None if values is None else ints(name, values)


def options(auto_pad: AutoPad, pads: Ints | None, strides: Ints | None, dilations: Ints | None) -> Options:
    """The attributes that these operators share."""
    return Options(
        one_of("auto_pad", auto_pad, AutoPad),
        integers("pads", pads),
        integers("strides", strides),
        integers("dilations", dilations),
    )


def pool(x: jax.Array, windows: Windows, initial: Any, combine: Combine, reducer: Combine) -> jax.Array:
    """Combines the elements of each window, with `combine` on slices or with `reducer` in `lax.reduce_window`."""
    sizes, dtype = (*x.shape[:2], *windows.sizes), x.dtype
    x = _pool(x, windows=windows, initial=initial, combine=combine, reducer=reducer)
    return assert_sizes(x, sizes, dtype)


def _of_padded(x: jax.Array, windows: Windows, initial: Any, combine: Combine, reducer: Combine) -> jax.Array:
    """Pools one padded copy of the data, which is faster if no derivative is needed.

    Without the copy, XLA makes a loop of each padded slice of the first axis, and compiles each loop: Inception v2,
    with ten pools, would start later.
    """
    copy, windows = padded(x, windows, initial)
    return _by_axes(x if copy is x else lax.optimization_barrier(copy), windows, initial, combine, reducer)


def _by_axes(x: jax.Array, windows: Windows, initial: Any, combine: Combine, reducer: Combine) -> jax.Array:
    # Last axis first, so that ties go to the first element in row-major order.
    for axis in reversed(range(len(windows.kernel))):
        is_static_size = isinstance(x.shape[axis + 2], int) and isinstance(windows.sizes[axis], int)
        if is_static_size and windows.kernel[axis] <= _MOST_STEPS:
            (x,) = slide((x,), windows, axis, (initial,), lambda a, b: (combine(a[0], b[0]),))
        else:
            reduced = _reduce(x, windows, axis, initial, reducer)
            x = _with_nans(reduced, x, windows, axis) if reducer is lax.max else reduced
    return x


def _select(target: Target, x: Any, **_: Any) -> Any:
    is_static_size = all(isinstance(d, int) for d in x.shape[2:])
    return _of_padded if target.platform == "cpu" and target.specialized and is_static_size else None


_pool = NamedCall("pool", _by_axes, _select, outside=lambda x, initial, **_: initial)


def slide(arrays: Any, windows: Windows, axis: int, fill: Any, combine: Any) -> Any:
    """Combines, along one axis, the first elements of all windows with the second ones, and so on.

    Each slice is padded separately, with `fill`, so no padded copy of the data is needed.
    """
    array_axis, size, count = axis + 2, arrays[0].shape[axis + 2], windows.sizes[axis]
    step, total = windows.strides[axis], None
    for i in range(windows.kernel[axis]):
        offset = i * windows.dilations[axis] - windows.pads[axis][0]
        # Windows first … last-1 have their element i inside the data.
        first, last = max(0, -(offset // step)), min(count, (size - 1 - offset) // step + 1)
        if last <= first:
            first = last = 0
        start = first * step + offset
        piece = tuple(
            _piece(x, array_axis, start, last - first, step, first, count - last, value)
            for x, value in zip(arrays, fill, strict=True)
        )
        total = piece if total is None else combine(total, piece)
    return total


def _piece(x: jax.Array, axis: int, start: int, count: int, step: int, before: int, after: int, fill: Any) -> jax.Array:
    if count == 0:
        return lax.full((*x.shape[:axis], before + after, *x.shape[axis + 1 :]), fill, x.dtype)
    part = lax.slice_in_dim(x, start, start + (count - 1) * step + 1, step, axis)
    if before == after == 0:
        return part
    return lax.pad(part, fill, [(before, after, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)])


def _with_nans(reduced: jax.Array, x: jax.Array, windows: Windows, axis: int) -> jax.Array:
    count = windows.sizes[axis]
    if isinstance(count, int) and count != 1 and windows.strides[axis] < windows.kernel[axis]:
        return reduced  # XLA:CPU drops NaNs only when the windows do not overlap, since it then runs a plain reduction
    return with_nans(reduced, x, lambda squares: _reduce(squares, windows, axis, squares.dtype.type(0), lax.add))


def _reduce(x: jax.Array, windows: Windows, axis: int, initial: Any, reducer: Combine) -> jax.Array:
    def at(value: Any, other: Any) -> list[Any]:
        return [value if a == axis + 2 else other for a in range(x.ndim)]

    pads = windows.pads[axis]
    if not all(isinstance(p, int) for p in pads):
        x, pads = lax.pad(x, initial, at((*pads, 0), (0, 0, 0))), (0, 0)
    return lax.reduce_window(
        x,
        initial,
        reducer,
        at(windows.kernel[axis], 1),
        at(windows.strides[axis], 1),
        at(pads, (0, 0)),
        window_dilation=at(windows.dilations[axis], 1),
    )


def counts(like: jax.Array, sizes: Sizes, windows: Windows, include_pad: bool) -> Any:
    """The number of elements in each window, in the type of `like`: one number, or one per spatial position."""
    rank = len(sizes)
    total: Any = np.ones((1,) * rank, np.int32)
    for axis, size in enumerate(sizes):
        along_axis = _count(size, windows, axis, include_pad)
        total = total * along_axis.reshape([-1 if a == axis else 1 for a in range(rank)])
    if isinstance(total, np.ndarray) and total.size and (total == total.flat[0]).all():
        return lax.full_like(like, total.flat[0])
    return lax.broadcast_in_dim(jnp.asarray(total, like.dtype), like.shape, tuple(range(2, like.ndim)))


def _count(size: Dim, windows: Windows, axis: int, include_pad: bool) -> Any:
    """`counts` along one axis, in positions of the padded data; with ceil_mode windows reach beyond them."""
    begin, _ = windows.pads[axis]
    low, high = (0, begin + size + windows.ends[axis]) if include_pad else (begin, begin + size)
    number, step, dilation = windows.sizes[axis], windows.strides[axis], windows.dilations[axis]
    is_static_size = all(isinstance(d, int) for d in (number, low, high))
    xp: Any = np if is_static_size else jnp
    if is_static_size:
        bounded((number,), np.dtype(np.int64).itemsize, "the counts of elements")
    first: Any = np.arange(number) if is_static_size else lax.iota(np.int32, number)
    if not is_static_size:
        low, high = (jnp.asarray(d, np.int32) for d in (low, high))
    start = first * step
    # The elements of a window are at start + i · dilation: the first i inside, and the one after the last.
    begin = xp.clip(-((start - low) // dilation), 0, windows.kernel[axis])
    end = xp.clip(-((start - high) // dilation), 0, windows.kernel[axis])
    return xp.maximum(end - begin, 0).astype(np.int32)
