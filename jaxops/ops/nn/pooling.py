"""Pooling: the largest element, the mean or the p-norm of each window, or of all spatial axes at once.

A NaN in a window makes the result of the window NaN, as in reductions. The standard leaves this open; NumPy, JAX and
PyTorch do the same. onnxruntime sometimes skips a NaN, depending on its position, on dilations and on whether indices
are returned.
"""

__all__ = ["average_pool", "global_average_pool", "global_lp_pool", "global_max_pool", "lp_pool", "max_pool"]

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, ints
from jaxops.dtypes import accumulation_type, as_traced, canonical, floating, is_float
from jaxops.errors import ArgumentError, OutOfRangeError, SizeError, shape_text
from jaxops.kernels.xla_workarounds import flat_at_zero, largest, magnitude, root_of_squares
from jaxops.ops.nn.windows import counts, options, pool, slide
from jaxops.shapes.nn import windows as sizes_of
from jaxops.shapes.nn.windows import AutoPad, Options, Windows
from jaxops.signature import SecondOutput, Traits
from jaxops.static import ArrayLike, Ints, Sizes, jit_if_concrete

TRAITS = Traits(kind="pooling")


def max_pool(
    x: ArrayLike,
    *,
    kernel_shape: Ints,
    auto_pad: AutoPad = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    storage_order: int = 0,
    strides: Ints | None = None,
    return_indices: SecondOutput = False,
) -> Any:
    """The largest element of each window; padding is never chosen.

    x: (N, C, d1, …, dn), integers or floating point. Returns (N, C, o1, …, on), same dtype, with
    o = floor((d + pads - (k-1)·dilation - 1) / stride) + 1, or ceil with `ceil_mode` as long as the last window
    starts inside `x` or the padding before it. A window of only padding gives -inf, or the smallest integer.
    The gradient goes to the first of equal elements in row-major order.
    return_indices: also returns the index of that first element in the flattened `x`: int64 (int32 while x64 is off).
    With `storage_order` 1 the spatial axes are flattened in column-major order.
    auto_pad, pads, strides, dilations: as in `conv`.
    Raises ShapeError, ArgumentError for attributes that do not fit; OutOfRangeError when indices do not fit.
    Source: ONNX MaxPool, opsets 1–22.

    >>> max_pool(jnp.arange(4.0).reshape(1, 1, 4), kernel_shape=(2,), strides=(2,)).tolist()
    [[[1.0, 3.0]]]
    """
    attributes = _attributes(kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    return _max_pool(as_traced(x), attributes, flag("storage_order", storage_order), bool(return_indices))


def average_pool(
    x: ArrayLike,
    *,
    kernel_shape: Ints,
    auto_pad: AutoPad = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """The mean of each window, over its elements in `x` or, with `count_include_pad`, in the padding too.

    x: (N, C, d1, …, dn), floating point; 16-bit types are summed in float32. Returns (N, C, o1, …, on), same dtype.
    Positions beyond the padding, which `ceil_mode` can reach, never count, as in onnxruntime. Sizes and all other
    attributes: as in `max_pool`.
    Raises ShapeError, ArgumentError for attributes that do not fit, DTypeError for another dtype.
    Source: ONNX AveragePool, opsets 1–22.

    >>> average_pool(jnp.arange(4.0).reshape(1, 1, 4), kernel_shape=(2,), strides=(2,)).tolist()
    [[[0.5, 2.5]]]
    """
    attributes = _attributes(kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    include = flag("count_include_pad", count_include_pad)
    (data,) = floating(x=x)
    return _average_pool(data, attributes, include)


def lp_pool(
    x: ArrayLike,
    *,
    kernel_shape: Ints,
    auto_pad: AutoPad = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints | None = None,
    p: float = 2,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> jax.Array:
    """The p-norm of each window: (Σ |x|^p)^(1/p).

    x: (N, C, d1, …, dn), floating point; 16-bit types are summed in float32. Returns (N, C, o1, …, on), same dtype.
    p: > 0. With p > 1 the gradient of an all-zero window is zero. Sizes and all other attributes: as in `max_pool`.
    Raises ShapeError, ArgumentError for attributes that do not fit, DTypeError for another dtype.
    Source: ONNX LpPool, opsets 1–22.

    >>> lp_pool(jnp.array([[[3.0, 4.0]]]), kernel_shape=(2,)).tolist()
    [[[5.0]]]
    """
    attributes = _attributes(kernel_shape, auto_pad, pads, strides, dilations, ceil_mode)
    (data,) = floating(x=x)
    return _lp_pool(data, attributes, _power(p))


def global_average_pool(x: ArrayLike) -> jax.Array:
    """The mean over the spatial axes.

    x: (N, C, d1, …, dn), floating point; 16-bit types are summed in float32. Returns (N, C, 1, …, 1), same dtype.
    Raises ShapeError for fewer than three axes, DTypeError for another dtype.
    Source: ONNX GlobalAveragePool, opsets 1–22.

    >>> global_average_pool(jnp.ones((2, 3, 4, 5))).shape
    (2, 3, 1, 1)
    """
    return _global_average_pool(*floating(x=x))


def global_max_pool(x: ArrayLike) -> jax.Array:
    """The largest element over the spatial axes.

    x: (N, C, d1, …, dn), integers or floating point. Returns (N, C, 1, …, 1), same dtype.
    The gradient goes to the first of equal elements in row-major order.
    Raises ShapeError for fewer than three axes.
    Source: ONNX GlobalMaxPool, opsets 1–22.

    >>> global_max_pool(jnp.ones((2, 3, 4, 5))).shape
    (2, 3, 1, 1)
    """
    return _global_max_pool(as_traced(x))


def global_lp_pool(x: ArrayLike, *, p: float = 2) -> jax.Array:
    """The p-norm over the spatial axes.

    x: (N, C, d1, …, dn), floating point; 16-bit types are summed in float32. Returns (N, C, 1, …, 1), same dtype.
    p: > 0. With p > 1 the gradient at an all-zero input is zero.
    Raises ShapeError for fewer than three axes, ArgumentError for another `p`, DTypeError for another dtype.
    Source: ONNX GlobalLpPool, opsets 1–22.

    >>> global_lp_pool(jnp.array([[[3.0, 4.0]]])).tolist()
    [[[5.0]]]
    """
    (data,) = floating(x=x)
    return _global_lp_pool(data, _power(p))


Attributes = tuple[Sizes, Options, bool]


def _attributes(
    kernel_shape: Ints, auto_pad: AutoPad, pads: Any, strides: Any, dilations: Any, ceil: int
) -> Attributes:
    """The attributes that all pooling operators share, hashable."""
    window_options = options(auto_pad, pads, strides, dilations)
    return ints("kernel_shape", kernel_shape), window_options, flag("ceil_mode", ceil)


def _windows(x: jax.Array, attributes: Attributes) -> Windows:
    return sizes_of.sliding(sizes_of.spatial(x.shape), *attributes)


def _power(p: float) -> float:
    if not 0 < p < np.inf:
        raise ArgumentError(f"`p` is {p}; it must be greater than 0 and finite")
    return p


def _powers(x: jax.Array, p: float) -> jax.Array:
    """|x|^p; products for an integer `p`."""
    return x * x if p == 2 else magnitude(x) ** (int(p) if p == int(p) else p)


def _root(total: jax.Array, p: float) -> jax.Array:
    """The p-th root, with gradient zero at zero, where infinity times zero would give NaN."""
    if p == 1:
        return total
    return root_of_squares(total) if p == 2 else flat_at_zero(lambda x: x ** (1 / p), total)


@jit_if_concrete
def _max_pool(x: jax.Array, attributes: Attributes, column_major: bool, return_indices: bool) -> Any:
    windows = _windows(x, attributes)
    least = x.dtype.type(-np.inf if is_float(x.dtype) else jnp.iinfo(x.dtype).min)
    if not return_indices:
        return pool(x, windows, least, _larger, lax.max)
    if not all(isinstance(d, int) for d in x.shape[2:]):
        problem = f"with `return_indices` the spatial sizes of {shape_text(x.shape)} must be numbers"
        raise SizeError(problem, *x.shape[2:], fix=128)
    pairs = (x, _places(x, column_major))
    for axis in reversed(range(len(windows.kernel))):
        pairs = slide(pairs, windows, axis, (least, pairs[1].dtype.type(-1)), _larger_of_pairs)
    return pairs


def _larger(best: jax.Array, new: jax.Array) -> jax.Array:
    """The larger element; the first of equal ones, and NaN if one is NaN."""
    return lax.select(_exceeds(best, new), new, best)


def _exceeds(best: jax.Array, new: jax.Array) -> jax.Array:
    larger = lax.lt(best, new)
    return lax.bitwise_or(larger, lax.ne(new, new)) if is_float(new.dtype) else larger


Pair = tuple[jax.Array, jax.Array]


def _larger_of_pairs(best: Pair, new: Pair) -> Pair:
    """`_larger` of (element, index) pairs; padding has index -1, and an element of -inf wins over it."""
    take = lax.bitwise_or(_exceeds(best[0], new[0]), lax.lt(best[1], best[1].dtype.type(0)))
    return lax.select(take, new[0], best[0]), lax.select(take, new[1], best[1])


def _places(x: jax.Array, column_major: bool) -> jax.Array:
    """For each element, its index in the flattened data."""
    dtype, total = canonical(np.int64), math.prod(x.shape)
    if isinstance(total, int) and total - 1 > np.iinfo(dtype).max:
        raise OutOfRangeError(
            f"indices of {total} elements do not fit {dtype.name}, which stands for int64 while x64 is off"
        )
    flat = lax.iota(dtype, total)
    if not column_major:
        return lax.reshape(flat, x.shape)
    spatial = tuple(reversed(range(2, x.ndim)))
    return lax.transpose(lax.reshape(flat, (*x.shape[:2], *x.shape[:1:-1])), (0, 1, *spatial))


@jit_if_concrete
def _average_pool(x: jax.Array, attributes: Attributes, include_pad: bool) -> jax.Array:
    windows = _windows(x, attributes)
    if windows.kernel == x.shape[2:] and not any(map(any, windows.pads)):
        return _global_average_pool(x)
    wide = x.astype(accumulation_type(x.dtype))
    total = pool(wide, windows, wide.dtype.type(0), lax.add, lax.add)
    return lax.div(total, counts(total, x.shape[2:], windows, include_pad)).astype(x.dtype)


@jit_if_concrete
def _lp_pool(x: jax.Array, attributes: Attributes, p: float) -> jax.Array:
    windows = _windows(x, attributes)
    powers = _powers(x.astype(accumulation_type(x.dtype)), p)
    return _root(pool(powers, windows, powers.dtype.type(0), lax.add, lax.add), p).astype(x.dtype)


@jit_if_concrete
def _global_average_pool(x: jax.Array) -> jax.Array:
    axes, wide = _spatial(x), x.astype(accumulation_type(x.dtype))
    return lax.expand_dims(jnp.mean(wide, axes), axes).astype(x.dtype)


@jit_if_concrete
def _global_max_pool(x: jax.Array) -> jax.Array:
    axes = _spatial(x)
    return lax.expand_dims(_first_largest(x), axes)


@jax.custom_jvp
def _first_largest(x: jax.Array) -> jax.Array:
    """The largest element over the spatial axes, (N, C). The gradient goes to the first of equal elements."""
    return largest(x, tuple(range(2, x.ndim)))


@_first_largest.defjvp
def _first_largest_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    flat, along = (jnp.reshape(v, (*x.shape[:2], -1)) for v in (x, tangent))
    first = jnp.argmax(flat, -1, keepdims=True)
    return _first_largest(x), jnp.take_along_axis(along, first, -1)[..., 0]


@jit_if_concrete
def _global_lp_pool(x: jax.Array, p: float) -> jax.Array:
    axes = _spatial(x)
    powers = _powers(x.astype(accumulation_type(x.dtype)), p)
    return _root(jnp.sum(powers, axes, keepdims=True), p).astype(x.dtype)


def _spatial(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(2, 2 + len(sizes_of.spatial(x.shape))))
