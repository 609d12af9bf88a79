"""Operators that put elements back into an image: largest elements to their old places, blocks as overlapping sums."""

__all__ = ["col2im", "max_unpool"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import as_traced, integral, is_float
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like
from jaxops.ops.nn.windows import integers, options
from jaxops.shapes.nn import unpooling as sizes_of
from jaxops.shapes.nn.windows import Options
from jaxops.signature import StaticInts, operator
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

# More rows than this are added by a scatter.
_MOST_ROWS = 512


@operator(grows=True)
def col2im(
    input: ArrayLike,
    image_shape: StaticInts,
    block_shape: StaticInts,
    *,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """Puts blocks of elements, given as columns, into an image, and sums them where they overlap.

    input: (N, C·b1·…·bn, L), numbers; the L blocks are in row-major order of their positions. 16-bit floats are summed
    in float32. image_shape: static, (d1, …, dn). block_shape: static, (b1, …, bn). Returns (N, C, d1, …, dn), same
    dtype. pads: how many elements are dropped at each beginning, then at each end; None is 0. strides, dilations: None
    is 1.
    Raises ShapeError when columns, blocks and image do not fit, ArgumentError, DTypeError.
    Source: ONNX Col2Im, opset 18.

    >>> col2im(jnp.ones((1, 2, 3)), (1, 4), (1, 2)).tolist()
    [[[[1.0, 2.0, 2.0, 1.0]]]]
    """
    x = as_traced(input)
    require("numbers", x)
    image, block = ints("image_shape", image_shape), ints("block_shape", block_shape)
    return _col2im(x, image, block, options("NOTSET", pads, strides, dilations))


@jit_if_concrete
def _col2im(x: Any, image: Sizes, block: Sizes, window_options: Options) -> Any:
    sizes, windows = sizes_of.blocks(x.shape, image, block, window_options)
    bounded_like(sizes, x)
    wide = is_float(x.dtype) and x.dtype.itemsize < 4
    y = lax.convert_element_type(x, np.float32) if wide else x
    y = y.reshape(*sizes[:2], *block, *windows.sizes)
    rank = len(block)
    for axis in range(rank):
        # Axis 2 holds the elements of a block along `axis`. When one of them is taken, `array_axis` holds the positions
        # of the blocks along `axis`. The k-th elements of all blocks are a strided row of the image. A finished axis
        # goes to the end.
        step, dilation, (low, high) = windows.strides[axis], windows.dilations[axis], windows.pads[axis]
        length, array_axis = image[axis] + low + high, 1 + rank - axis
        # If there are fewer blocks than elements in one, the rows are the blocks, and the elements are spread.
        if isinstance(windows.sizes[axis], int) and windows.sizes[axis] < block[axis]:
            y, step, dilation = jnp.swapaxes(y, 2, array_axis + 1), dilation, step
        if y.shape[2] > _MOST_ROWS:
            total = _scattered(y, array_axis, length, step, dilation)
        else:
            total = _sum_of_rows(y, array_axis, length, step, dilation)
        y = jnp.moveaxis(lax.slice_in_dim(total, low, length - high, axis=array_axis), array_axis, -1)
    return assert_sizes(lax.convert_element_type(y, x.dtype), sizes, x.dtype)


def _sum_of_rows(y: Any, axis: int, length: Any, step: int, dilation: int) -> Any:
    """Sums the entries of axis 2 where they belong in an axis of `length`: the k-th one begins at k · dilation, and its
    elements along `axis` are `step` apart.
    """
    total: Any = None
    for k in range(y.shape[2]):
        row = lax.index_in_dim(y, k, 2, keepdims=False)
        after = length - k * dilation - (row.shape[axis] - 1) * step - 1
        config = [(k * dilation, after, step - 1) if a == axis else (0, 0, 0) for a in range(row.ndim)]
        padded = lax.pad(row, jnp.zeros((), row.dtype), config)
        total = padded if total is None else total + padded
    return total


def _scattered(y: Any, axis: int, length: Any, step: int, dilation: int) -> Any:
    """`_sum_of_rows` as one operation, for many rows: a program of thousands takes minutes to compile."""
    y = jnp.moveaxis(y, axis + 1, 3)
    place = lax.iota(np.int32, y.shape[2])[:, None] * dilation + lax.iota(np.int32, y.shape[3])[None] * step
    total = jnp.zeros((*y.shape[:2], length, *y.shape[4:]), y.dtype).at[:, :, place].add(y)
    return jnp.moveaxis(total, 2, axis)


def max_unpool(
    x: ArrayLike,
    i: ArrayLike,
    output_shape: StaticInts = None,
    *,
    kernel_shape: Ints,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """Puts the elements that `max_pool` has found back where they were, among zeros.

    x: (N, C, d1, …, dn), any numbers. i: the same sizes, integers: the index of each element in the flattened result.
    Elements whose index is out of range are dropped; of elements with one index any is kept. kernel_shape, pads,
    strides: those of the pooling.
    output_shape: static, all sizes of the result; None means (d - 1)·stride + kernel - pads. A larger one is filled up
    with zeros at the ends of the axes, and the indices count in the smaller sizes, as in the standard's test suite; its
    text, and onnxruntime, count them in `output_shape`.
    Raises ShapeError when sizes do not fit, DTypeError.
    Source: ONNX MaxUnpool, opsets 9–22.

    >>> max_unpool(jnp.array([[[5.0]]]), jnp.array([[[1]]]), kernel_shape=(2,)).tolist()
    [[[0.0, 5.0]]]
    """
    data = as_traced(x)
    require("numbers", data)
    (indices,) = integral(i=i)
    shape = None if output_shape is None else ints("output_shape", output_shape)
    kernel = ints("kernel_shape", kernel_shape)
    return _max_unpool((data, indices), kernel, integers("strides", strides), integers("pads", pads), shape)


@jit_if_concrete
def _max_unpool(
    operands: tuple[Any, Any], kernel: Sizes, strides: Sizes | None, pads: Sizes | None, shape: Sizes | None
) -> Any:
    x, indices = operands
    sizes_of.same(x.shape, indices.shape)
    sizes = (*x.shape[:2], *sizes_of.unpooled(x.shape[2:], kernel, strides, pads))
    result_sizes = sizes if shape is None else sizes_of.larger(shape, sizes)
    bounded_like(sizes, x)
    bounded_like(result_sizes, x)
    count = math.prod(sizes)
    flat = jnp.zeros(count, x.dtype).at[indices.reshape(-1)]
    y = flat.set(x.reshape(-1), mode="drop", wrap_negative_indices=False).reshape(sizes)
    if result_sizes != sizes:
        y = lax.pad(y, jnp.zeros((), y.dtype), [(0, w - s, 0) for s, w in zip(sizes, result_sizes, strict=True)])
    return assert_sizes(y, result_sizes, x.dtype)
