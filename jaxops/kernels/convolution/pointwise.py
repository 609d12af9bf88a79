"""Pointwise convolutions: matrix products of all positions with all filters."""

import dataclasses
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution.channels_last import convolution_last, window_count
from jaxops.kernels.convolution.window_slices import shifted, to_channels_first, to_channels_last
from jaxops.kernels.matmul.dot import dot, has_amx, in_bfloat16
from jaxops.kernels.matmul.vector import row_product
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned
from jaxops.shapes.nn.windows import Windows

# XLA:CPU uses YNNPACK for matrix products, with few and uneven parts, and Eigen for convolutions, with many parts. So a
# small product is faster as a convolution: 196 rows 112→672, 784 rows 64→256, but not 196 rows 256→1024 or 49 rows
# 160→960. In models with bfloat16 products, the limit is lower. With AMX it is 0: bfloat16 products take half as long
# as a float32 convolution, from 16 channels and 49 rows on.
_MANY_ROWS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 100
_FEW_MULTIPLICATIONS: Annotated[float, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 30e6
_FEW_BESIDE_BFLOAT16: Annotated[float, Tuned("not recorded", "before 2026-11-29")] = 8e6
# If data and result of an image have at least this many times as many elements as the weights, a product for each image
# is faster. For one product, XLA transposes the images of a batch, and again for each of both gradients. So 64↔256 at
# 56×56, 128↔512 at 28×28 and 112↔672 at 14×14 are faster, but not 256↔1024 at 14×14 and 160↔960 at 7×7.
_LARGE_IMAGES: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 2
# `row_product` is used for at most this many weights: it takes a little longer than XLA's loop, for more weights twice
# as long, but compiles faster.
_FEW_WEIGHTS: Annotated[int, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 1 << 18


def as_product(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a pointwise convolution as one matrix product; for large images and few weights, one for each image."""
    if any(s != 1 for s in windows.strides):
        x = shifted(x, (0,) * len(windows.kernel), windows)
    (n, c), m, size = x.shape[:2], w.shape[0], math.prod(windows.sizes)
    flat, w = lax.reshape(x, (n, c, size)), lax.reshape(w, (m, c))
    if isinstance(size, int) and size * (c + m) >= _LARGE_IMAGES * m * c:
        y = dot(lax.broadcast_in_dim(w, (n, m, c), (1, 2)), flat, (((2,), (1,)), ((0,), (0,))), x.dtype)
    else:
        y = lax.transpose(dot(w, flat, (((1,), (1,)), ((), ())), x.dtype), (1, 0, 2))
    return lax.reshape(y, (n, m, *windows.sizes))


def product_last(target: Target, x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a pointwise convolution with channels last as one matrix product; a small one as a `lax` convolution."""
    rows = window_count(x, windows)
    if not target.prepared or not _is_small_product(target, x, w, rows):
        return only_product_last(x, w, windows, group)
    if any(s != 1 for s in windows.strides):
        x = shifted(x, (0,) * len(windows.kernel), windows)
        windows = dataclasses.replace(windows, strides=(1,) * len(windows.strides))
    return _row(x, w, windows) if rows == 1 else convolution_last(x, w, windows, group)


def only_product_last(x: jax.Array, w: jax.Array, windows: Windows, group: int) -> jax.Array:
    """Computes a pointwise convolution with channels last as one matrix product."""
    if any(s != 1 for s in windows.strides):
        x = shifted(x, (0,) * len(windows.kernel), windows)
    y = dot(to_channels_last(x), lax.reshape(w, w.shape[:2]), (((x.ndim - 1,), (1,)), ((), ())), x.dtype)
    return to_channels_first(y)


def _is_small_product(target: Target, x: jax.Array, w: jax.Array, rows: Any) -> bool:
    if not isinstance(rows, int) or x.dtype != jnp.float32:
        return False
    weights = math.prod(w.shape)
    if rows == 1:
        return w.shape[1] > 1 and weights <= _FEW_WEIGHTS
    few = _FEW_MULTIPLICATIONS
    if in_bfloat16(target, x, w, rows):
        few = 0 if has_amx(target) else _FEW_BESIDE_BFLOAT16
    return rows >= _MANY_ROWS and rows * weights <= few


def _row(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    matrix = lax.transpose(lax.reshape(w, w.shape[:2]), (1, 0))
    return lax.reshape(row_product(lax.reshape(x, (x.size,)), matrix), (1, w.shape[0], *windows.sizes))
