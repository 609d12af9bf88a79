"""Workarounds for float results of XLA that are wrong or less exact: of fusions on a CPU, of divisions on a GPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from jaxops.dtypes import accumulation_type, is_float
from jaxops.jax_internals import enable_x64
from jaxops.kernels.named_call import NamedCall
from jaxops.kernels.target import Target


def least(dtype: Any) -> Any:
    """Returns the smallest normal number of a type of at least 32 bits."""
    return np.finfo(dtype).tiny


def rounded(x: Any) -> Any:
    """Returns x, written so that XLA rounds it before a subtraction.

    If x is a product, XLA:CPU computes it again in each loop that reads it, and LLVM fuses it with a subtraction into
    one FMA. So `x - max(x)` is the unrounded product minus the rounded maximum: at the maximum it is half an ulp
    instead of 0, 256 for an x of 7e9, and its exponential is 0 or infinite. `lax.optimization_barrier`,
    `lax.reduce_precision`, bitcasts and `x + 0` are removed before LLVM. Adding a tiny number survives: LLVM then
    fuses the product with this addition, equally in every loop.

    x: float32 or float64. Adds 1e-38 where |x| is below 1e-30, and nothing elsewhere. Derivative 1.
    """
    return x + least(x.dtype)


def hidden(constant: Any) -> Any:
    """Returns a constant that XLA's simplifier does not see.

    XLA would turn (x + c) - d into x + (c - d), and (x * c) * d into x * (c * d), without the rounding or overflow in
    between: adding and subtracting 12582912, say, rounds to an integer. A barrier hides the constant until XLA has
    fused loops; in the loops it is a constant again.
    """
    return lax.optimization_barrier(constant)


def quotient(x: Any, divisor: Any) -> Any:
    """Returns x / divisor, correctly rounded, for a divisor that is broadcast to x.

    XLA multiplies by the reciprocal of a scalar, constant or broadcast divisor. The result is an ulp off in about a
    quarter of all cases, enough to round to another integer. So the divisor is hidden in a select (which divides a NaN
    by itself). On a GPU, XLA's float32 division is up to two ulps off for any divisor (openxla/xla#37181).

    x: float32 or float64. divisor: same dtype and sizes.
    """
    return _quotient(x, divisor)


def _divided(x: Any, divisor: Any) -> Any:
    return lax.div(x, lax.select(lax.ne(x, x), lax.stop_gradient(x), divisor))


def _corrected(x: Any, divisor: Any) -> Any:
    """Returns the quotient, corrected by the remainder of x, which float64 holds exactly.

    A float64 quotient, rounded to float32, would be right, too, but LLVM turns it into a float32 division.
    """
    near = _divided(x, divisor)
    with enable_x64(True):
        wide, by, first = (lax.convert_element_type(v, np.float64) for v in (x, divisor, lax.stop_gradient(near)))
        exact = lax.convert_element_type(first + (wide - first * by) / by, np.float32)
    return lax.select(lax.is_finite(exact), exact, near)  # the remainder of an infinity is NaN


def _select_quotient(target: Target, x: Any, divisor: Any) -> Any:
    return _corrected if target.platform == "gpu" and x.dtype == np.float32 else None


_quotient = NamedCall("quotient", _divided, _select_quotient)


def computed_once(x: Any) -> Any:
    """Returns x, written so that XLA computes it once although several operations read it.

    XLA computes elementwise operations again in each loop that reads them, back to the last operation that it considers
    expensive, such as a division (so this divides by 1). In a chain of residual sums, each loop would add all terms.
    """
    return _divided(x, lax.full_like(x, 1))


def magnitude(x: Any) -> Any:
    """Returns |x|. Its derivative at 0 is 0, as in PyTorch; that of `lax.abs` is 1."""
    value = lax.abs(x)
    return lax.select(lax.eq(value, lax.full_like(value, 0)), lax.full_like(value, 0), value)


def flat_at_zero(root: Callable[[Any], Any], total: Any) -> Any:
    """Returns root(total), a root of a sum of powers. Its derivative at 0 is 0, PyTorch's subgradient of a norm.

    Otherwise it would be NaN: the derivative of the root is infinite at 0, that of the powers is 0.
    """
    nothing = lax.full_like(total, 0)
    zero = lax.eq(total, nothing)
    return lax.select(zero, nothing, root(lax.select(zero, lax.full_like(total, 1), total)))


def root_of_squares(total: Any) -> Any:
    """Returns the square root of a sum of squares; see `flat_at_zero`."""
    return flat_at_zero(lax.sqrt, total)


def largest(x: Any, axes: tuple[int, ...]) -> Any:
    """Returns `lax.reduce_max`, NaN if an element is NaN. Equal maxima share the gradient."""
    return _extreme(lax.reduce_max, x, axes)


def smallest(x: Any, axes: tuple[int, ...]) -> Any:
    """Returns `lax.reduce_min`, NaN if an element is NaN. Equal minima share the gradient."""
    return _extreme(lax.reduce_min, x, axes)


def _extreme(reduce: Any, x: Any, axes: tuple[int, ...]) -> Any:
    return with_nans(reduce(x, axes), x, lambda squares: lax.reduce_sum(squares, axes))


def with_nans(extremes: Any, x: Any, add: Callable[[Any], Any]) -> Any:
    """Returns `extremes` with NaN for each window of x that has a NaN. add: sums each window.

    extremes: the maximum or minimum of each window. XLA:CPU hands reductions of thousands of elements to YNNPACK, whose
    maximum and minimum drop NaNs. Its sums keep them, and a sum of squares is NaN only for a NaN, since squares of
    infinities do not cancel. Squares of 16-bit types are computed in float32, where sums are fast; those of 8-bit types
    without infinities would overflow to NaN. A program that is compiled here, and the program that prepares its
    weights, do not use YNNPACK for reductions (`compiler.xla_options`), and XLA's own keep NaNs: these programs need no
    such sums, which take time.
    """
    if not is_float(x.dtype):
        return extremes
    x = lax.stop_gradient(x)
    wide = lax.convert_element_type(x, accumulation_type(x.dtype))
    return _keep_nans(extremes, add(wide * wide))


def _nan_of_sums(extremes: Any, total: Any) -> Any:
    return lax.select(total != total, lax.convert_element_type(total, extremes.dtype), extremes)


def _select(target: Target, extremes: Any, total: Any) -> Any:
    return (lambda extremes, total: extremes) if target.compiled_here else None


_keep_nans = NamedCall("keep_nans", _nan_of_sums, _select)
