"""Convolutions with groups on a CPU: sums of shifted data, or a product for each group.

Which form is the fastest depends on the channels per group: up to 8, `by_member` (see `select_cpu`), or a product for
each group; from 16 on XLA's own, except for pointwise ones.

Tried and dropped: a sum over copies of the data whose channels are rotated within their group. It gained a third at 4
channels per group, and was wrong for 16, where XLA fused all of it into one loop.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.experimental.xla_metadata import set_xla_metadata

from jaxops.dtypes import accumulation_type
from jaxops.kernels.convolution.depthwise import channel_sum
from jaxops.kernels.convolution.filter_gradient import by_stretches
from jaxops.kernels.convolution.transposed import as_overlaps
from jaxops.kernels.convolution.window_slices import (
    positions,
    shifted,
    to_channels_first,
    to_channels_last,
    zero_padded,
)
from jaxops.kernels.custom_transpose import linear
from jaxops.kernels.matmul.dot import dot
from jaxops.kernels.stored_values import stored_in_order
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# The largest number of terms in a sum over the taps of a window and the channels of a group, or of taps in other forms:
# each one is a slice in the program.
MOST_TERMS = 64


def by_channel(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a depthwise convolution as a sum of shifted data. No axis is split, so the data may be channels last."""
    dtype = x.dtype
    wide = accumulation_type(dtype)
    # Without the barrier, XLA would read the interior of the padded data from the data before the pad, and would have
    # to compute that in a loop.
    x, w = lax.optimization_barrier(zero_padded(x, windows).astype(wide)), w.astype(wide)
    filters = stored_in_order(lax.transpose(lax.reshape(w, (w.shape[0], math.prod(windows.kernel))), (1, 0)))
    y = channel_sum(to_channels_last(x), filters, windows)
    return to_channels_first(y).astype(dtype)


def by_member(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes, for each image, a sum over the members of groups: the first channels of all groups, the second ones, …

    The channels of all groups are adjacent then, and fill vectors.
    """
    m, inner, wide = *w.shape[:2], accumulation_type(x.dtype)
    filters = lax.reshape(w.astype(wide), (group, m // group, inner, math.prod(windows.kernel)))
    filters = lax.transpose(filters, (2, 3, 1, 0))
    zeros = lax.full((1, *windows.sizes, m // group, group), 0, wide)

    def add(total: jax.Array, member: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        return total + channel_sum(*member, windows), None

    def convolve(image: jax.Array) -> jax.Array:
        members = lax.optimization_barrier(jnp.moveaxis(image[None], -1, 0))
        total, _ = lax.scan(add, zeros, (members, filters))
        return jnp.swapaxes(total[0], -1, -2)

    data = to_channels_last(zero_padded(x, windows).astype(wide))
    # Images one by one are faster than as a batch.
    y = lax.map(convolve, lax.reshape(data, (*data.shape[:-1], group, inner)))
    return to_channels_first(lax.reshape(y, (x.shape[0], *windows.sizes, m))).astype(x.dtype)


def columns_by_group(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Concatenates all windows (im2col), then computes one matrix product per group; channels last."""
    n, m, inner, taps = x.shape[0], *w.shape[:2], math.prod(windows.kernel)
    rows, data = n * math.prod(windows.sizes), lax.optimization_barrier(zero_padded(x, windows))
    parts = [
        lax.reshape(to_channels_last(shifted(data, tap, windows)), (rows, group, 1, inner))
        for tap in positions(windows)
    ]
    columns = lax.concatenate([lax.transpose(part, (1, 0, 2, 3)) for part in parts], 2)
    columns = lax.reshape(columns, (group, rows, taps * inner))
    filters = lax.transpose(lax.reshape(w, (group, m // group, inner, taps)), (0, 3, 2, 1))
    filters = lax.reshape(filters, (group, taps * inner, m // group))
    y = dot(columns, filters, (((2,), (1,)), ((0,), (0,))), x.dtype)  # (group, rows, M/group)
    return to_channels_first(lax.reshape(lax.transpose(y, (1, 0, 2)), (n, *windows.sizes, m)))


def as_sum(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a convolution with few channels per group as a sum of shifted data times weights, one loop for XLA.

    The gradients are written by hand: those that JAX derives have a padded sum, or a reduction, for each weight of a
    channel, and take many times as long to compile.
    """

    @jax.custom_jvp
    def convolve(x: jax.Array, w: jax.Array) -> jax.Array:
        # XLA:CPU would fuse the sum into each loop that reads it, and so compute it in each, above all in a training
        # step. It computes a function that is not inlined once.
        with set_xla_metadata(inlineable="false"):
            return _summed(x, w, windows, group)

    def rule(values: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]) -> tuple[jax.Array, Any]:
        (x, w), (along_x, along_w) = values, tangents
        parts = []
        if not isinstance(along_x, SymbolicZero):
            to_data = functools.partial(_to_data, sizes=x.shape[2:], windows=windows, group=group)
            parts.append(linear(lambda w, x: convolve(x, w), to_data, w, along_x))
        if not isinstance(along_w, SymbolicZero):
            to_filters = functools.partial(by_stretches, windows=windows, group=group)
            parts.append(linear(convolve, to_filters, x, along_w))
        return convolve(x, w), sum(parts[1:], parts[0])

    convolve.defjvp(rule, symbolic_zeros=True)
    return convolve(x, w)


def _to_data(w: jax.Array, y: jax.Array, sizes: Sizes, windows: Windows, group: int) -> jax.Array:
    """Returns the transpose of a convolution by its data: a convolution of the dilated cotangent with reversed filters.

    With many filters per group, that would be a sum of too many terms; then it is `as_overlaps`, a matrix product.
    """
    rank, (m, inner) = y.ndim, w.shape[:2]
    if m // group * math.prod(windows.kernel) > MOST_TERMS:
        return as_overlaps(y, w, dataclasses.replace(windows, sizes=sizes), group)
    filters = lax.reshape(w, (group, m // group, inner, *windows.kernel))
    filters = lax.reshape(
        lax.transpose(filters, (0, 2, 1, *range(3, rank + 1))), (group * inner, m // group, *windows.kernel)
    )
    edges = []
    for axis, size in enumerate(sizes):
        reach = (windows.kernel[axis] - 1) * windows.dilations[axis]
        step, begin = windows.strides[axis], reach - windows.pads[axis][0]
        end = size + reach - begin - (windows.sizes[axis] - 1) * step - 1
        edges.append((begin, end, step - 1))
    data = lax.pad(y, y.dtype.type(0), [(0, 0, 0)] * 2 + edges)
    ones, none = (1,) * len(sizes), ((0, 0),) * len(sizes)
    over = dataclasses.replace(windows, strides=ones, pads=none, sizes=sizes)
    return as_sum(data, lax.rev(filters, range(2, rank)), over, group)


@functools.partial(jax.jit, static_argnums=(2, 3))
def _summed(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    n, m, inner = x.shape[0], w.shape[0], w.shape[1]
    dtype = x.dtype
    wide = accumulation_type(dtype)
    x, w = x.astype(wide), w.astype(wide)
    data = lax.reshape(zero_padded(x, windows), (n, group, inner, *_padded_sizes(x, windows)))
    filters = lax.reshape(w, (group, m // group, inner, *windows.kernel))
    sizes = (n, group, m // group, *windows.sizes)
    data_axes = (0, 1, *range(3, len(sizes)))
    total = None
    for channel in range(inner):
        plane = lax.index_in_dim(data, channel, 2, keepdims=False)
        for tap in positions(windows):
            part = lax.broadcast_in_dim(shifted(plane, tap, windows), sizes, data_axes)
            weight = filters[(slice(None), slice(None), channel, *tap)]
            term = lax.mul(part, lax.broadcast_in_dim(weight, sizes, (1, 2)))
            total = term if total is None else lax.add(total, term)
    assert total is not None
    return lax.reshape(total, (n, m, *windows.sizes)).astype(dtype)


def _padded_sizes(x: jax.Array, windows: Windows) -> Sizes:
    return tuple(d + lo + hi for d, (lo, hi) in zip(x.shape[2:], windows.pads, strict=True))
