"""Operators that reduce axes to one element.

Sums of 16-bit floats are accumulated in float32. A maximum or minimum is NaN if an element is NaN, as in NumPy and in
`ops.nn.pooling`.
"""

__all__ = [
    "reduce_l1",
    "reduce_l2",
    "reduce_log_sum",
    "reduce_log_sum_exp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
    "reduce_sum_square",
]

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, flag, ints
from jaxops.dtypes import accumulation_type, as_traced, canonical, is_float
from jaxops.kernels.xla_workarounds import largest, least, magnitude, root_of_squares, rounded, smallest
from jaxops.ops.common.elementwise import on_sizes, one_of_kind, symbolic
from jaxops.ops.common.prefix_products import whole_product
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.size_tracking import equal_in, sums_equal
from jaxops.ops.math.arithmetic import div
from jaxops.ops.math.exponentials import log
from jaxops.ops.tensor.inspection import dims
from jaxops.shapes import arithmetic as of_sizes
from jaxops.signature import StaticInts, Traits, operator
from jaxops.static import A, Array, Operand, is_symbolic, jit_if_concrete

TRAITS = Traits(foldable=True, precision="float32", grows=True)

Axes = tuple[int, ...]


def _reduced(data: Any, axes: Any, keepdims: int, noop: int, *rule: Any) -> Any:
    """Reduces the given axes. Without `axes` it reduces all axes, or none if `noop` (noop_with_empty_axes) is 1."""
    x = one_of_kind(_KINDS.get(rule[0], "real numbers"), data)
    named = () if axes is None else ints("axes", axes, single=True)
    every = not named and not flag("noop_with_empty_axes", noop)
    over = tuple(range(x.ndim)) if every else resolve_axes(named, x.ndim)
    if rule[0] in _NO_SIZES and is_symbolic(x):
        x = as_traced(x)  # a root or a logarithm of a size is not a size
    return _reduce(x, over, flag("keepdims", keepdims), *rule)


@jit_if_concrete
def _reduce(data: Array, over: Axes, keepdims: bool, rule: Callable[..., Array], real: bool = False) -> Array:
    """`rule(x, over)` in the accumulation type; with `real` integers are computed in floating point too."""
    with np.errstate(all="ignore"):
        x = rule(_widened(data, real), over)
        if isinstance(data, np.ndarray):
            x = np.expand_dims(np.asarray(x), over) if keepdims else np.asarray(x)
            return x.astype(data.dtype)
    x = lax.expand_dims(x, sorted(over)) if keepdims and over else x
    left = [1 if i in over else d for i, d in enumerate(data.shape) if keepdims or i not in over]
    return assert_sizes(lax.convert_element_type(x, data.dtype), tuple(left), data.dtype)


def _widened(x: Array, real: bool) -> Array:
    if real and not is_float(x.dtype):
        return x.astype(np.float64 if isinstance(x, np.ndarray) else canonical(np.float64))
    return x.astype(accumulation_type(x.dtype), copy=False)


def _total(x: Array, over: Axes) -> Any:
    return np.sum(x, axis=over, dtype=x.dtype) if isinstance(x, np.ndarray) else lax.reduce_sum(x, over)


def _product(x: Array, over: Axes) -> Any:
    if isinstance(x, np.ndarray):
        return np.prod(x, axis=over, dtype=x.dtype)
    has_exact_form = is_float(x.dtype) and all(isinstance(x.shape[i], int) for i in over)
    return whole_product(x, over) if has_exact_form else lax.reduce_prod(x, over)


def _average(x: Array, over: Axes) -> Any:
    count = math.prod(x.shape[i] for i in over)
    if symbolic(x):
        return div(_total(x, over), np.asarray(count))
    if not is_float(x.dtype):
        # The mean over no elements is undefined: 0 for integers, NaN for floats, as 0 / 0.
        return _whole_average(x, over, count if is_symbolic(count) else max(count, 1))
    if is_symbolic(count):
        return lax.div(_total(x, over), as_traced(dims(count)).astype(x.dtype))
    return div(_total(x, over), np.asarray(count, x.dtype))


def _whole_average(x: Array, over: Axes, count: Any) -> Any:
    """The mean of integers, truncated. Quotients and remainders are summed separately, so that no sum overflows."""
    if isinstance(x, np.ndarray):
        x = x if x.dtype == np.uint64 else x.astype(np.int64)
        quotient, remainder = np.divmod(x, x.dtype.type(count))
        more, remainder = np.divmod(_total(remainder, over), x.dtype.type(count))
        mean = _total(quotient, over) + more
        return mean + ((mean < 0) & (remainder > 0)).astype(mean.dtype)
    if jnp.iinfo(x.dtype).bits < 32:
        x = x.astype(np.int32)  # a narrow type may not hold the count
    size = jnp.broadcast_to(as_traced(dims(count)).astype(x.dtype), x.shape)
    zero = np.zeros((), x.dtype)
    remainder = lax.rem(x, size)
    below = remainder < zero
    parts = (lax.div(x, size) - below.astype(x.dtype), lax.select(below, remainder + size, remainder), size)
    mean, remainder, _ = lax.reduce(parts, (zero,) * 3, _carried, over)
    return mean + ((mean < zero) & (remainder > zero)).astype(mean.dtype)


def _carried(a: Any, b: Any) -> Any:
    """(quotient, remainder, divisor) of a + b. The operands carry the divisor, as a reducer has no other inputs."""
    remainder, size = a[1] + b[1], lax.max(a[2], b[2])
    carry = ((remainder >= size) & (size > 0)).astype(remainder.dtype)  # the initial value has divisor 0
    return a[0] + b[0] + carry, remainder - carry * size, size


def _norm1(x: Array, over: Axes) -> Any:
    if isinstance(x, np.ndarray):
        return _total(on_sizes(lambda d: of_sizes.larger(d, -d), x) if symbolic(x) else np.asarray(np.abs(x)), over)
    unsigned = jnp.issubdtype(x.dtype, jnp.unsignedinteger)
    return _total(x if unsigned else magnitude(x), over)


def _squares(x: Array, over: Axes) -> Any:
    # NumPy returns a scalar for 0-d operands.
    return _total(np.asarray(x * x) if isinstance(x, np.ndarray) else x * x, over)


def _norm2(x: Array, over: Axes) -> Any:
    if not is_float(x.dtype):
        return _whole_norm2(x, over)
    return (np.sqrt if isinstance(x, np.ndarray) else root_of_squares)(_squares(x, over))


def _whole_norm2(x: Array, over: Axes) -> Any:
    """The norm of integers, truncated; exact if the sum of squares is below half of the range of the widest type."""
    static = isinstance(x, np.ndarray)
    xp = np if static else jnp
    real, integer_type = (np.dtype(t) if static else canonical(t) for t in (np.float64, np.uint64))
    about = _total(xp.asarray(xp.square(x.astype(real))), over)
    total = _total(xp.asarray(xp.square(_magnitude(x).astype(integer_type))), over)
    exact = about < 2.0 ** (8 * integer_type.itemsize - 1)
    root = xp.sqrt(xp.where(exact, total.astype(real), about)).astype(integer_type)
    # A root that was rounded up to the next power of 2 must not become a negative number.
    root = xp.where(exact, root, xp.minimum(root, integer_type.type(np.iinfo(x.dtype).max)))
    one = integer_type.type(1)
    root = root - (exact & (root * root > total)).astype(integer_type)
    return root + (exact & ((root + one) * (root + one) <= total)).astype(integer_type)


def _magnitude(x: Any) -> Any:
    return x if jnp.issubdtype(x.dtype, jnp.unsignedinteger) else abs(x)


def _log_total(x: Array, over: Axes) -> Any:
    return log(_total(x, over))


def _log_total_exp(x: Array, over: Axes) -> Any:
    # Subtracting the largest element avoids overflow; if it is infinite or absent, subtract 0.
    kept_sizes = tuple(1 if i in over else d for i, d in enumerate(x.shape))
    if isinstance(x, np.ndarray):
        top = _largest(x, over)
        top = np.where(np.isfinite(top), top, 0).astype(x.dtype)
        return np.log(np.sum(np.exp(x - top.reshape(kept_sizes)), axis=over)) + top
    x = rounded(x)
    # The maximum may drop NaNs, since the sum keeps them.
    top = lax.stop_gradient(lax.reduce_max(x, over))
    top = lax.select(lax.is_finite(top), top, lax.full_like(top, 0))
    maxima = lax.broadcast_in_dim(top, x.shape, [i for i in range(x.ndim) if i not in over])
    # Subtract again what `rounded` adds to zeros.
    return lax.log(lax.reduce_sum(lax.exp(x - maxima), over)) + (top - least(x.dtype))


def _largest(x: Array, over: Axes) -> Any:
    if not isinstance(x, np.ndarray):
        return lax.reduce_or(x, over) if x.dtype == bool else largest(x, over)
    if symbolic(x):
        return _one_by_one(of_sizes.larger, x, over)
    return np.any(x, axis=over) if x.dtype == bool else np.max(x, axis=over, initial=_ends(x.dtype)[0])


def _smallest(x: Array, over: Axes) -> Any:
    if not isinstance(x, np.ndarray):
        return lax.reduce_and(x, over) if x.dtype == bool else smallest(x, over)
    if symbolic(x):
        return _one_by_one(of_sizes.smaller, x, over)
    return np.all(x, axis=over) if x.dtype == bool else np.min(x, axis=over, initial=_ends(x.dtype)[1])


def _one_by_one(fn: Any, x: Any, over: Axes) -> Any:
    for i in sorted(over, reverse=True):
        x = np.frompyfunc(fn, 2, 1).reduce(x, axis=i)
    return x


def _ends(dtype: Any) -> tuple[Any, Any]:
    """The maximum and the minimum of an empty set of elements."""
    if is_float(dtype):
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


_KINDS: dict[Any, str] = dict.fromkeys((_total, _product, _squares), "numbers")
_KINDS |= dict.fromkeys((_largest, _smallest), "real numbers or booleans")
_NO_SIZES = {_norm2, _log_total, _log_total_exp}


@operator(precision="narrow")
@sums_equal
def reduce_sum(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The sum along axes; 0 over no elements.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceSum, opsets 1–13 (axes are an operand from 13).

    >>> reduce_sum(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[ 6],
           [15]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _total)


@equal_in
def reduce_mean(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The mean along axes; truncated for integers.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceMean, opsets 1–18 (axes are an operand from 18).

    >>> reduce_mean(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[2],
           [5]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _average)


@operator(precision="narrow")
def reduce_prod(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The product along axes; 1 over no elements.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceProd, opsets 1–18 (axes are an operand from 18).

    >>> reduce_prod(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[  6],
           [120]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _product)


@operator(precision="narrow", grows=False)
@equal_in
def reduce_max(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The maximum along axes; NaN if one is NaN, -inf or the smallest integer over no elements.

    data: any shape, numbers or booleans (False < True). Returns the same dtype; reduced axes have size 1, or are
    dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceMax, opsets 1–20 (axes are an operand from 18).

    >>> reduce_max(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[3],
           [6]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _largest)


@operator(precision="narrow", grows=False)
@equal_in
def reduce_min(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The minimum along axes; NaN if one is NaN, inf or the largest integer over no elements.

    data: any shape, numbers or booleans (False < True). Returns the same dtype; reduced axes have size 1, or are
    dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceMin, opsets 1–20 (axes are an operand from 18).

    >>> reduce_min(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[1],
           [4]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _smallest)


def reduce_l1(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The sum of the absolute values along axes.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceL1, opsets 1–18 (axes are an operand from 18).

    >>> reduce_l1(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[ 6],
           [15]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _norm1)


def reduce_l2(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The square root of the sum of squares along axes; truncated for integers. Where it is 0, so is its gradient.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceL2, opsets 1–18 (axes are an operand from 18).

    >>> reduce_l2(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[3],
           [8]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _norm2)


def reduce_log_sum(data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> A:
    """The logarithm of the sum along axes; truncated for integers.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceLogSum, opsets 1–28 (axes are an operand from 18, floating-point only from 28).

    >>> reduce_log_sum(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[1],
           [2]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _log_total, True)


def reduce_log_sum_exp(
    data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> A:
    """The logarithm of the sum of exponentials along axes, without overflow; truncated for integers.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceLogSumExp, opsets 1–28 (axes are an operand from 18, floating-point only from 28).

    >>> reduce_log_sum_exp(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[3],
           [6]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _log_total_exp, True)


def reduce_sum_square(
    data: Operand[A], axes: StaticInts = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> A:
    """The sum of squares along axes.

    data: any shape, numbers. Returns the same dtype; reduced axes have size 1, or are dropped with keepdims=0.
    axes: static, 1-D integers or one, in [-n, n-1], distinct. None or empty means all axes, or no axes with
    noop_with_empty_axes=1.
    Raises AxisError for an axis out of range or repeated, StaticError when `axes` is traced.
    Source: ONNX ReduceSumSquare, opsets 1–18 (axes are an operand from 18).

    >>> reduce_sum_square(np.array([[1, 2, 3], [4, 5, 6]]), (1,))
    array([[14],
           [77]])
    """
    return _reduced(data, axes, keepdims, noop_with_empty_axes, _squares)
