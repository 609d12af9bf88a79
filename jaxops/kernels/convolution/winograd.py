"""Convolutions of three columns by Winograd's minimal filtering F(2, 3): four products for two results, not six.

Two neighbours of a row, y0 = d0·g0 + d1·g1 + d2·g2 and y1 = d1·g0 + d2·g1 + d3·g2, are z0 + z1 + z2 and z1 - z2 - z3
of the products z0 = (d0 - d2)·g0, z1 = (d1 + d2)/2·(g0 + g1 + g2), z2 = (d2 - d1)/2·(g0 - g1 + g2) and
z3 = (d1 - d3)·g2. A number that is not finite affects the same results as in the plain form (but an infinity may give
a NaN), and the rounding error is as large as that of the plain sum. Along both axes it would be 16 products instead of
36, but one NaN would affect all four results, and filters would have 16/9 of their size.

Source: S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, arXiv:1509.09308.
"""

import functools
import math
from typing import Annotated

import jax
import jax.numpy as jnp
from jax import lax

from jaxops.kernels.convolution.window_slices import stacked
from jaxops.kernels.matmul.dot import dot
from jaxops.kernels.target import Target
from jaxops.kernels.tuned import Tuned
from jaxops.shapes.nn.windows import Windows

# Multiplications of the plain form. With fewer, the gain is not worth the compile time.
_FEWEST: Annotated[float, Tuned("not recorded", "before 2026-11-29")] = 40e6
_FEWEST_IN_FEW_PARTS: Annotated[float, Tuned("AMD EPYC (Zen 4)", "2026-11-29")] = 100e6
# The same limit for bfloat16 products, which gain more.
_FEWEST_IN_BFLOAT16: Annotated[float, Tuned("not recorded", "before 2026-11-29")] = 25e6
# XLA of JAX 0.10, which does not divide batches, cuts such a product into four to eight parts of different sizes.
_MOST_CORES = 4
# The largest number of products that are in memory at a time, per channel of the data and in all. With more, memory
# accesses cost what is gained: 64 channels at 56×56 and a batch of eight (9.6 million) are slower, 256 channels (4.8
# million) faster. The transformed data, twice as large as the data, has the same limit: 64→8 at 128×128 and a batch of
# four. A loop over strips of rows, whose products fit into the cache, gains nothing.
_MOST_BY_CHANNEL: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 40_000
_MOST: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 6_000_000
# For fewer filters, XLA's own convolution takes as long as for this many.
_FILTERS: Annotated[int, Tuned("not recorded", "before 2026-11-29")] = 16


def pays(target: Target, x: jax.Array, w: jax.Array, windows: Windows, narrow: bool) -> bool:
    """Returns True if this form is faster for data (N, C, d1, d2) and filters (M, C, k, 3), in one group.

    narrow: whether its products are computed in bfloat16.
    """
    if (
        not target.prepared
        or x.ndim != 4
        or w.shape[3] != 3
        or x.dtype != jnp.float32
        or not isinstance(x.shape[0], int)
    ):
        return False
    if {*windows.strides, *windows.dilations} != {1}:
        return False
    if not target.divides_batches and target.cores > _MOST_CORES:
        return False
    fewest = _FEWEST_IN_BFLOAT16 if narrow else _FEWEST if target.divides_batches else _FEWEST_IN_FEW_PARTS
    count, most = x.shape[0] * math.prod(windows.sizes), min(_MOST_BY_CHANNEL * x.shape[1], _MOST)
    enough = count * max(w.shape[0], _FILTERS) * math.prod(w.shape[1:]) >= fewest
    return enough and 2 * windows.kernel[0] * w.shape[0] * count <= most and 2 * x.shape[1] * count <= _MOST


def convolve(x: jax.Array, w: jax.Array, windows: Windows) -> jax.Array:
    """Returns (N, o1, o2, M), the convolution of data (N, d1, d2, C) with filters (M, C, k, 3)."""
    (n, rows, width, c), (m, _, taps, _) = x.shape, w.shape
    (above, _), (left, _) = windows.pads
    height, columns = windows.sizes
    pairs = -(-columns // 2)
    zero, half = x.dtype.type(0), x.dtype.type(0.5)
    x = lax.pad(x, zero, [(0, 0, 0), (0, 0, 0), (left, 2 * pairs + 2 - width - left, 0), (0, 0, 0)])
    even, odd = _parts(lax.reshape(x, (n, rows, pairs + 1, 2, c)), 3)
    d0, d2 = (lax.slice_in_dim(even, k, k + pairs, axis=2) for k in (0, 1))
    d1, d3 = (lax.slice_in_dim(odd, k, k + pairs, axis=2) for k in (0, 1))
    data = stacked([d0 - d2, (d1 + d2) * half, (d2 - d1) * half, d1 - d3], 0)
    g0, g1, g2 = _parts(lax.transpose(w, (3, 1, 2, 0)), 0)
    ends = g0 + g2
    filters = lax.reshape(stacked([g0, ends + g1, ends - g1, g2], 0), (4, c, taps * m))
    z = dot(lax.reshape(data, (4, n * rows * pairs, c)), filters, (((2,), (1,)), ((0,), (0,))), x.dtype)
    z0, z1, z2, z3 = _parts(lax.reshape(z, (4, n, rows, pairs, taps, m)), 0)

    def summed(z: jax.Array) -> jax.Array:
        """Sums the products of all taps of a column; those of tap k belong to the result k rows above."""
        shifts = [(above - k, height - above + k - rows, 0) for k in range(taps)]
        parts = zip(_parts(z, 3), shifts, strict=True)
        return functools.reduce(lax.add, (lax.pad(z, zero, [(0, 0, 0), s, (0, 0, 0), (0, 0, 0)]) for z, s in parts))

    y = stacked([summed(z0 + z1 + z2), summed(z1 - z2 - z3)], 3)
    return lax.slice_in_dim(lax.reshape(y, (n, height, 2 * pairs, m)), 0, columns, axis=2)


def _parts(x: jax.Array, axis: int) -> list[jax.Array]:
    return [lax.index_in_dim(x, k, axis, keepdims=False) for k in range(x.shape[axis])]
