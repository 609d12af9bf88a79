"""Products whose derivatives are exact where factors are 0, as programs that do not grow with the number of factors.

The derivatives of `lax.cumprod` and `lax.reduce_prod` are unrolled trees of log2(n) levels, which take much longer to
compile than the products. Here a loop runs over the levels.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.kernels.custom_transpose import linear


def cumulative_product(x: jax.Array, axis: int, reverse: bool) -> jax.Array:
    """`lax.cumprod` of floats along an axis of static size."""

    @jax.custom_jvp
    def run(x: jax.Array) -> jax.Array:
        return lax.cumprod(x, axis, reverse)

    @run.defjvp
    def _(values: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
        # y[i] = x[i]·y[i-1], so y'[i] = x[i]·y'[i-1] + y[i-1]·x'[i].
        (x,), (along,) = values, tangents
        y = run(x)
        before = _moved(y, axis, -1 if reverse else 1, 1)

        def there(residuals: Any, along: Any) -> Any:
            return _recurrence(residuals[0], residuals[1] * along, axis, reverse)

        def back(residuals: Any, cotangent: Any) -> Any:
            after = _moved(residuals[0], axis, 1 if reverse else -1, 0)
            return residuals[1] * _recurrence(after, cotangent, axis, not reverse)

        return y, linear(there, back, (x, before), along)

    return run(x)


def whole_product(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """`lax.reduce_prod` of floats over axes of static sizes."""

    @jax.custom_jvp
    def run(x: jax.Array) -> jax.Array:
        return lax.reduce_prod(x, axes)

    @run.defjvp
    def _(values: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, along = (_joined(v, axes) for v in (values[0], tangents[0]))
        # For each factor, the product of the factors before it, and the product of the factors after it.
        both = _moved(jnp.stack([x, lax.rev(x, (x.ndim - 1,))]), x.ndim, 1, 1)
        both = lax.scan(lambda y, step: (y * _earlier(y, step, 1), None), both, _steps(x.shape[-1]))[0]
        other_factors = both[0] * lax.rev(both[1], (x.ndim - 1,))
        return run(values[0]), jnp.sum(other_factors * along, -1)

    return run(x)


def _joined(x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Joins the axes into one, which becomes the last."""
    kept_axes = [i for i in range(x.ndim) if i not in axes]
    moved = lax.transpose(x, (*kept_axes, *axes))
    return lax.reshape(moved, (*moved.shape[: len(kept_axes)], math.prod(x.shape[i] for i in axes)))


def _recurrence(a: jax.Array, b: jax.Array, axis: int, reverse: bool) -> jax.Array:
    """Solves y[i] = a[i]·y[i-1] + b[i] along an axis, or y[i] = a[i]·y[i+1] + b[i] if `reverse`; y is 0 outside."""
    a, b = (jnp.moveaxis(lax.rev(v, (axis,)) if reverse else v, axis, -1) for v in (a, b))
    index = lax.broadcasted_iota(np.int32, b.shape, b.ndim - 1)

    def double(state: Any, step: Any) -> Any:
        a, b = state
        # The element before the first adds nothing, even if `a` is infinite.
        more = jnp.where(index < step, jnp.zeros_like(b), a * _earlier(b, step, 0))
        return (a * _earlier(a, step, 1), b + more), None

    y = jnp.moveaxis(lax.scan(double, (a, b), _steps(b.shape[-1]))[0][1], -1, axis)
    return lax.rev(y, (axis,)) if reverse else y


def _steps(size: int) -> np.ndarray:
    """The powers of 2 below a size: 1, 2, 4, …"""
    return 2 ** np.arange(max(size - 1, 0).bit_length(), dtype=np.int32)


def _earlier(x: jax.Array, step: Any, fill: float) -> jax.Array:
    """For each element, the one `step` (traced) places before it on the last axis; `fill` where there is none."""
    size = x.shape[-1]
    wide = lax.pad(x, x.dtype.type(fill), [(0, 0, 0)] * (x.ndim - 1) + [(size, 0, 0)])
    return lax.dynamic_slice_in_dim(wide, size - step, size, -1)


def _moved(x: jax.Array, axis: int, offset: int, fill: float) -> jax.Array:
    """Shifts the elements along an axis by `offset`; those that leave it are dropped, and `fill` takes free places."""
    return lax.pad(x, x.dtype.type(fill), [(offset, -offset, 0) if i == axis else (0, 0, 0) for i in range(x.ndim)])
