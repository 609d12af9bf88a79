"""Maximum and minimum of several operands, and clipping."""

__all__ = ["clip", "max", "min"]

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import canonical, is_float
from jaxops.errors import OutOfRangeError, ShapeError, shape_text
from jaxops.ops.common.elementwise import broadcast_reduce, broadcast_to, on_sizes, operands, symbolic
from jaxops.ops.common.size_tracking import tracks_sizes
from jaxops.shapes import arithmetic as of_sizes
from jaxops.signature import LowerBound, Traits, UpperBound, operator
from jaxops.static import A, Array, Operand, array, is_symbolic, jit_if_concrete

TRAITS = Traits(foldable=True)


@tracks_sizes
def max(inputs: Sequence[Operand[A]]) -> A:
    """The elementwise maximum; the operands broadcast to each other.

    inputs: at least one array of numbers, of one dtype. Returns that dtype, of the common shape. NaN if one is NaN.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ, SignatureError.
    Source: ONNX Max, opsets 8–13.

    >>> max([np.array([1, 5]), np.array([3, 2])])
    array([3, 5])
    """
    return broadcast_reduce(operands(inputs, "real numbers"), _max, lax.max)


def _max(a: Any, b: Any) -> Any:
    return on_sizes(of_sizes.larger, a, b) if symbolic(a, b) else np.maximum(a, b)


@tracks_sizes
def min(inputs: Sequence[Operand[A]]) -> A:
    """The elementwise minimum; the operands broadcast to each other.

    inputs: at least one array of numbers, of one dtype. Returns that dtype, of the common shape. NaN if one is NaN.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ, SignatureError.
    Source: ONNX Min, opsets 8–13.

    >>> min([np.array([1, 5]), np.array([3, 2])])
    array([1, 2])
    """
    return broadcast_reduce(operands(inputs, "real numbers"), _min, lax.min)


def _min(a: Any, b: Any) -> Any:
    return on_sizes(of_sizes.smaller, a, b) if symbolic(a, b) else np.minimum(a, b)


@operator(kind="activation")
def clip(input: Operand[A], min: LowerBound[Operand[A]] | None = None, max: UpperBound[Operand[A]] | None = None) -> A:
    """Limits each element to the range from `min` to `max`.

    input: any shape, numbers. min, max: scalars of the dtype of input; None is the smallest or largest finite
    number, so an infinity becomes that number, as in onnxruntime. If min is above max, every element becomes max.
    NaN stays, and a bound that is NaN replaces each element. With x64 off, a static 64-bit bound that no element can
    pass is limited to the range of the 32-bit type.
    The gradient goes to the element, or to the bound that replaces it. An element that equals a bound has gradient 1
    where a bound is traced, as in PyTorch's `clamp`, and 0 where both are static, as in its `hardtanh` and `relu6`.
    Raises ShapeError for a bound that is not a scalar, DTypeError when the dtypes differ, OutOfRangeError for a static
    bound that becomes every element and does not fit their type.
    Source: ONNX Clip, opsets 6–13 (bounds are inputs from 11).

    >>> clip(np.array([-5, 0, 5]), -1, 2)
    array([-1,  0,  2])
    """
    data = array(input)
    low, high = _bound("min", data, min), _bound("max", data, max)
    arrays = operands((data, *(bound for bound in (low, high) if bound is not None)), "real numbers")
    if low is not None and high is not None and not isinstance(arrays[0], np.ndarray):
        return _clamp(arrays, isinstance(low, np.ndarray) and isinstance(high, np.ndarray))
    clipped: Any = arrays[0]
    if low is not None:
        clipped = broadcast_reduce((clipped, arrays[1]), _max, lax.max)
    if high is not None:
        clipped = broadcast_reduce((clipped, arrays[-1]), _min, lax.min)
    return clipped


@jit_if_concrete
def _clamp(arrays: tuple[Array, ...], constant: bool) -> Any:
    data, low, high = arrays
    if constant or not is_float(data.dtype):
        return lax.clamp(low, data, high)
    low, high = (broadcast_to(bound, data.shape) for bound in (low, high))
    # `lax.clamp` cannot differentiate scalar bounds. A comparison with NaN is false: a NaN among the bounds is chosen.
    raised = lax.select(lax.ge(data, low), data, low)
    lowered = lax.select(lax.bitwise_or(lax.le(raised, high), lax.ne(raised, raised)), raised, high)
    return lax.select(lax.ne(data, data), data, lowered)


def _bound(name: str, data: Array, bound: Any) -> Array | None:
    if bound is None:
        if not is_float(data.dtype):
            return None
        ends = jnp.finfo(data.dtype)
        return np.asarray(ends.min if name == "min" else ends.max, data.dtype)
    x = array(bound)
    if x.ndim > 1 or x.size != 1:  # like onnxruntime, accept the shape (1,), too
        raise ShapeError(f"`{name}` must be a scalar, got shape {shape_text(x.shape)}")
    x = x.reshape(())
    if not isinstance(x, np.ndarray) or x.dtype == data.dtype or is_symbolic(x) or is_symbolic(data):
        return x
    if is_float(data.dtype) and type(bound) is int:
        x = x.astype(np.float64)
    narrowed = not isinstance(data, np.ndarray) and canonical(x.dtype) == data.dtype
    if not (narrowed or isinstance(bound, int | float)) or is_float(x.dtype) != is_float(data.dtype):
        return x
    # INT64_MAX, for example, becomes the largest int32.
    limits = jnp.finfo(data.dtype) if is_float(data.dtype) else jnp.iinfo(data.dtype)
    within = (
        np.clip(x, float(limits.min), float(limits.max)) if is_float(x.dtype) else np.clip(x, limits.min, limits.max)
    )
    if is_float(x.dtype) and not np.isfinite(x):
        return x.astype(data.dtype)
    if within > x if name == "max" else within < x:
        kind, hint = data.dtype.name, "convert the elements with jaxops.cast"
        if narrowed:
            kind = f"{kind}, which stands for {x.dtype.name} while x64 is off,"
            hint = "turn it on with jax.config.update('jax_enable_x64', True)"
        raise OutOfRangeError(
            f"`{name}` is {x}, so every element would become {x}, but {kind} does not hold that number; {hint}"
        )
    return np.asarray(within, data.dtype)  # for one number np.clip returns a scalar
