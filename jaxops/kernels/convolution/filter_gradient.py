"""The gradient of a convolution by filters with few channels: one matrix product for each group."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.dtypes import accumulation_type
from jaxops.kernels.convolution.window_slices import bounds, positions, zero_padded
from jaxops.kernels.matmul.dot import dot
from jaxops.shapes.nn.windows import Windows
from jaxops.static import Sizes

# A row of at most `_LONGEST` results is one stretch; a longer one is cut into stretches of `_STRETCH` results.
_LONGEST, _STRETCH = 28, 14
# If the data under the stretches of one image has more elements, images are processed one by one, so that the data
# stays in the cache.
_LARGE_IMAGE = 1 << 19


def by_stretches(x: jax.Array, y: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Returns the gradient by the filters. x: data (N, C, d1, …, dn). y: cotangents (N, M, o1, …, on).

    Each element of a stretch (a part of a row of cotangents) is multiplied with each element of the data under its
    windows, as one matrix product for all rows. The gradients of the weights are sums along the diagonals of the
    product. This needs a few times as many multiplications as necessary, but at the speed of a matrix product.

    A loop over the weights, one at a time, takes two to six times as long.
    """
    n, size = x.shape[0], windows.sizes[-1]
    taps, stretch = math.prod(windows.kernel[:-1]), size if size <= _LONGEST else _STRETCH
    elements = x.shape[1] * math.prod(windows.sizes) // stretch * taps * _width(windows, stretch)
    wide = accumulation_type(x.dtype)
    data, y = zero_padded(x, windows).astype(wide), y.astype(wide)
    if not isinstance(n, int) or n < 2 or elements < _LARGE_IMAGE:
        return _of_images(data, y, windows, group, stretch).astype(x.dtype)

    def add(total: jax.Array, image: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        data, y = (lax.expand_dims(part, (0,)) for part in image)
        return total + _of_images(data, y, windows, group, stretch), None

    zeros = lax.full((y.shape[1], x.shape[1] // group, *windows.kernel), 0, wide)
    return lax.scan(add, zeros, (data, y))[0].astype(x.dtype)


def _of_images(data: jax.Array, y: jax.Array, windows: Windows, group: int, stretch: int) -> jax.Array:
    """Returns the gradient for padded data. stretch: the number of results in a stretch.

    The rest of a row is a shorter stretch: filling it up with zeros would multiply infinite data by 0, which is NaN.
    """
    size, axis = windows.sizes[-1], y.ndim - 1
    whole = size // stretch * stretch
    gradients = []
    for begin, end, length in ((0, whole, stretch), (whole, size, size - whole)):
        if length:
            first = begin * windows.strides[-1]
            part = lax.slice_in_dim(data, first, first + _width(windows, end - begin), axis=axis)
            results = lax.slice_in_dim(y, begin, end, axis=axis)
            over = replace(windows, sizes=(*windows.sizes[:-1], end - begin))
            gradients.append(_of_stretches(part, results, over, group, length))
    return gradients[0] if len(gradients) == 1 else gradients[0] + gradients[1]


def _of_stretches(data: jax.Array, y: jax.Array, windows: Windows, group: int, stretch: int) -> jax.Array:
    n, m, inner, step = y.shape[0], y.shape[1], data.shape[1] // group, windows.strides[-1]
    rows, taps = math.prod(windows.sizes) // stretch, math.prod(windows.kernel[:-1])
    width = _width(windows, stretch)
    data = lax.reshape(_under_stretches(data, windows, stretch), (n, group, inner, rows, taps, width))
    data = lax.reshape(lax.transpose(data, (1, 0, 3, 2, 4, 5)), (group, n * rows, inner * taps * width))
    y = lax.reshape(y, (n, group, m // group, rows, stretch))
    y = lax.reshape(lax.transpose(y, (1, 0, 3, 2, 4)), (group, n * rows, m // group * stretch))
    products = dot(y, data, (((1,), (1,)), ((0,), (0,))), y.dtype)
    products = lax.reshape(products, (group, m // group, stretch, inner * taps, width))
    products = lax.reshape(lax.transpose(products, (0, 1, 3, 2, 4)), (m, inner * taps, stretch * width))
    # If rows have `stride` more elements, the diagonals become columns.
    products = lax.pad(products, y.dtype.type(0), [(0, 0, 0), (0, 0, 0), (0, stretch * step, 0)])
    products = lax.reshape(products, (m, inner * taps, stretch, width + step))
    diagonals = lax.slice_in_dim(products, 0, _width(windows, 1), windows.dilations[-1], 3)
    return lax.reshape(jnp.sum(diagonals, 2), (m, inner, *windows.kernel))


def _under_stretches(data: jax.Array, windows: Windows, stretch: int) -> jax.Array:
    """Returns the data under the windows of each stretch: (N, C, d1, …, dn) → (N, C, o1, …, stretches, taps, width).

    taps: the positions in a window along all axes but the last one.
    """
    rank, width, shift = data.ndim, _width(windows, stretch), stretch * windows.strides[-1]
    count = windows.sizes[-1] // stretch
    pieces = -(-width // shift) if count > 1 else 1
    if count > 1:  # so that the data consist of complete shifts
        more = (count + pieces) * shift - data.shape[-1]
        data = lax.pad(data, data.dtype.type(0), [(0, 0, 0)] * (rank - 1) + [(0, more, 0)])
    lead = windows.kernel[:-1], windows.strides[:-1], windows.dilations[:-1]
    planes = replace(windows, kernel=lead[0], strides=lead[1], dilations=lead[2], sizes=windows.sizes[:-1])
    parts = []
    for tap in positions(planes):
        first, last = bounds(tap, planes)
        rows = lax.slice(data, (0, 0, *first, 0), (*data.shape[:2], *last, data.shape[-1]), (1, 1, *planes.strides, 1))
        sizes: Sizes = (*rows.shape[:-1], count, 1)
        runs = []
        for k in range(pieces):
            run = rows if count == 1 else lax.slice_in_dim(rows, k * shift, (k + count) * shift, axis=rank - 1)
            run = lax.reshape(run, (*sizes, run.shape[-1] // count))
            runs.append(lax.slice_in_dim(run, 0, min(run.shape[-1], width - k * shift), axis=rank + 1))
        parts.append(lax.concatenate(runs, rank + 1))
    return lax.concatenate(parts, rank)


def _width(windows: Windows, results: int) -> int:
    """Returns the number of elements in a row under the windows of `results` adjacent results."""
    return (results - 1) * windows.strides[-1] + (windows.kernel[-1] - 1) * windows.dilations[-1] + 1
