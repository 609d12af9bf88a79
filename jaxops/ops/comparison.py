"""Operators that compare, and those that choose between elements."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.dtypes import as_traced, canonical, is_float, is_string, settled
from jaxops.errors import ShapeError
from jaxops.ops.pointwise import fold, on_sizes, operands, require, spread, symbolic, unary
from jaxops.shapes import arithmetic as of_sizes, movement as sizes_of
from jaxops.static import Array, array, is_symbolic, kernel, structural


@structural
def equal(a: Array, b: Array) -> Array:
    """Whether a = b, element by element; the operands broadcast to each other.

    a, b: any elements; strings are static, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, and when the answer depends on the value of a symbolic
    size; DTypeError when the dtypes differ.
    Source: ONNX Equal, opsets 7–19 (strings from 19).

    >>> equal(np.array([1, 2, 3]), 2)
    array([False,  True, False])
    """
    return fold(operands("equal", (a, b)), "equal", _equal, lax.eq)


def _equal(a: Any, b: Any) -> Any:
    return on_sizes(of_sizes.equal, a, b).astype(bool) if symbolic(a, b) else np.asarray(np.equal(a, b), bool)


@structural
def greater(a: Array, b: Array) -> Array:
    """Whether a > b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, and when the answer depends on the value of a symbolic
    size; DTypeError when the dtypes differ.
    Source: ONNX Greater, opsets 7–13.

    >>> greater(np.array([1, 2, 3]), 2)
    array([False, False,  True])
    """
    return fold(operands("greater", (a, b)), "greater", _greater, lax.gt)


def _greater(a: Any, b: Any) -> Any:
    return on_sizes(of_sizes.greater, a, b).astype(bool) if symbolic(a, b) else np.greater(a, b)


@structural
def less(a: Array, b: Array) -> Array:
    """Whether a < b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, and when the answer depends on the value of a symbolic
    size; DTypeError when the dtypes differ.
    Source: ONNX Less, opsets 7–13.

    >>> less(np.array([1, 2, 3]), 2)
    array([ True, False, False])
    """
    return fold(operands("less", (a, b)), "less", _less, lax.lt)


def _less(a: Any, b: Any) -> Any:
    return _greater(b, a)


@structural
def greater_or_equal(a: Array, b: Array) -> Array:
    """Whether a ≥ b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, and when the answer depends on the value of a symbolic
    size; DTypeError when the dtypes differ.
    Source: ONNX GreaterOrEqual, opsets 12–16.

    >>> greater_or_equal(np.array([1, 2, 3]), 2)
    array([False,  True,  True])
    """
    return fold(operands("greater_or_equal", (a, b)), "greater_or_equal", _greater_or_equal, lax.ge)


def _greater_or_equal(a: Any, b: Any) -> Any:
    if symbolic(a, b):
        return on_sizes(of_sizes.greater_or_equal, a, b).astype(bool)
    return np.greater_equal(a, b)


@structural
def less_or_equal(a: Array, b: Array) -> Array:
    """Whether a ≤ b, element by element; the operands broadcast to each other.

    a, b: numbers, of one dtype. Returns booleans, of the common shape.
    Raises ShapeError when the shapes do not broadcast, and when the answer depends on the value of a symbolic
    size; DTypeError when the dtypes differ.
    Source: ONNX LessOrEqual, opsets 12–16.

    >>> less_or_equal(np.array([1, 2, 3]), 2)
    array([ True,  True, False])
    """
    return fold(operands("less_or_equal", (a, b)), "less_or_equal", _less_or_equal, lax.le)


def _less_or_equal(a: Any, b: Any) -> Any:
    return _greater_or_equal(b, a)


@structural
def max(inputs: Sequence[Array]) -> Array:
    """The largest of the elements at each place; the operands broadcast to each other.

    inputs: at least one array of numbers, of one dtype. Returns that dtype, of the common shape. NaN wins.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ, SignatureError.
    Source: ONNX Max, opsets 8–13.

    >>> max([np.array([1, 5]), np.array([3, 2])])
    array([3, 5])
    """
    return fold(operands("max", inputs), "max", _max, lax.max)


def _max(a: Any, b: Any) -> Any:
    return on_sizes(of_sizes.larger, a, b) if symbolic(a, b) else np.maximum(a, b)


@structural
def min(inputs: Sequence[Array]) -> Array:
    """The smallest of the elements at each place; the operands broadcast to each other.

    inputs: at least one array of numbers, of one dtype. Returns that dtype, of the common shape. NaN wins.
    Raises ShapeError when the shapes do not broadcast, DTypeError when the dtypes differ, SignatureError.
    Source: ONNX Min, opsets 8–13.

    >>> min([np.array([1, 5]), np.array([3, 2])])
    array([1, 2])
    """
    return fold(operands("min", inputs), "min", _min, lax.min)


def _min(a: Any, b: Any) -> Any:
    return on_sizes(of_sizes.smaller, a, b) if symbolic(a, b) else np.minimum(a, b)


@structural
def clip(input: Array, min: Array | None = None, max: Array | None = None) -> Array:
    """Each element, no less than `min` and no more than `max`.

    input: any shape, numbers. min, max: scalars of the dtype of input; None is the least and the largest finite
    number, so an infinity becomes that number, as in onnxruntime. Where min is above max, every element becomes max.
    NaN stays.
    A static bound outside the 32-bit type that stands for a 64-bit one bounds by the end of that type.
    Raises ShapeError for a bound that is no scalar, DTypeError when the dtypes differ.
    Source: ONNX Clip, opsets 6–13 (bounds are inputs from 11).

    >>> clip(np.array([-5, 0, 5]), -1, 2)
    array([-1,  0,  2])
    """
    data = array(input)
    low, high = _bound("min", data, min), _bound("max", data, max)
    given = operands("clip", (data, *(bound for bound in (low, high) if bound is not None)))
    if low is not None and high is not None and not isinstance(given[0], np.ndarray):
        return _clamp(given)
    found = given[0]
    if low is not None:
        found = fold((found, given[1]), "clip", _max, lax.max)
    if high is not None:
        found = fold((found, given[-1]), "clip", _min, lax.min)
    return found


@kernel
def _clamp(arrays: tuple[Array, ...]) -> Array:
    data, low, high = arrays
    return lax.clamp(low, data, high)


def _bound(name: str, data: Array, bound: Any) -> Array | None:
    if bound is None:
        if not is_float(data.dtype):
            return None
        ends = jnp.finfo(data.dtype)
        return np.asarray(ends.min if name == "min" else ends.max, data.dtype)
    x = array(bound)
    if x.ndim > 1 or x.size != 1:  # onnxruntime tolerates one axis
        raise ShapeError(f"clip: `{name}` must be a scalar, got shape {sizes_of.text(x.shape)}")
    x = x.reshape(())
    if not isinstance(x, np.ndarray) or x.dtype == data.dtype or is_symbolic(x) or is_symbolic(data):
        return x
    if is_float(data.dtype) and type(bound) is int:
        x = x.astype(np.float64)
    narrowed = not isinstance(data, np.ndarray) and canonical(x.dtype) == data.dtype
    if not (narrowed or isinstance(bound, int | float)) or is_float(x.dtype) != is_float(data.dtype):
        return x
    # INT64_MAX, say, is no bound at all on what has become int32.
    limits = jnp.finfo(data.dtype) if is_float(data.dtype) else jnp.iinfo(data.dtype)
    within = (
        np.clip(x, float(limits.min), float(limits.max)) if is_float(x.dtype) else np.clip(x, limits.min, limits.max)
    )
    return np.asarray(x if is_float(x.dtype) and not np.isfinite(x) else within).astype(data.dtype)


@structural
def where(condition: Array, x: Array, y: Array) -> Array:
    """The element of `x` where `condition` holds, else that of `y`; the three broadcast to each other.

    condition: booleans. x, y: of one dtype, any. Returns that dtype, of the common shape. Strings are static.
    Raises ShapeError when the shapes do not broadcast, DTypeError for other conditions or differing dtypes.
    Source: ONNX Where, opsets 9–16.

    >>> where(np.array([True, False]), np.array([1, 2]), 0)
    array([1, 0])
    """
    test = array(condition)
    require("where", "boolean", test)
    values = operands("where", (x, y))
    if not (isinstance(test, np.ndarray) and isinstance(values[0], np.ndarray)):
        test, values = as_traced(test), tuple(as_traced(v) for v in values)
    return _where((test, *values))


@kernel
def _where(arrays: tuple[Array, ...]) -> Array:
    test, x, y = arrays
    sizes = sizes_of.broadcast("where", test.shape, x.shape, y.shape)
    if isinstance(test, np.ndarray):
        chosen = np.where(test, x, y)
        return chosen if is_string(chosen) and chosen.size else settled(chosen)
    # `lax.select` takes one condition for all elements as it is.
    return lax.select(test if test.ndim == 0 else spread(test, sizes), spread(x, sizes), spread(y, sizes))


@structural
def isnan(x: Array) -> Array:
    """Whether each element is NaN.

    x: any shape, floating-point. Returns booleans of the same shape.
    Raises DTypeError for another dtype.
    Source: ONNX IsNaN, opsets 9–20.

    >>> isnan(np.array([1.0, np.nan]))
    array([False,  True])
    """
    x = _wide("isnan", x)
    return unary(x, np.isnan, _traced_isnan)


def _traced_isnan(x: Any) -> Any:
    return lax.ne(x, x)


@structural
def isinf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether each element is infinite.

    x: any shape, floating-point. Returns booleans of the same shape.
    detect_negative, detect_positive: 0 answers False for that infinity.
    Raises DTypeError for another dtype.
    Source: ONNX IsInf, opsets 10–20.

    >>> isinf(np.array([-np.inf, np.inf]), detect_negative=0)
    array([False,  True])
    """
    return _isinf(_wide("isinf", x), bool(detect_negative), bool(detect_positive))


@kernel
def _isinf(x: Array, negative: bool, positive: bool) -> Array:
    same = np.equal if isinstance(x, np.ndarray) else lax.eq
    if negative and positive:
        return np.asarray(np.isinf(x)) if isinstance(x, np.ndarray) else jnp.isinf(x)
    if not (negative or positive):
        return (np if isinstance(x, np.ndarray) else jnp).zeros(x.shape, bool)
    infinity = np.asarray(np.inf if positive else -np.inf, x.dtype)
    return same(x, infinity if isinstance(x, np.ndarray) else spread(infinity, x.shape))


def _wide(op: str, value: Any) -> Array:
    """8-bit floats in float32, which every backend compares."""
    x = array(value)
    require(op, "floating-point", x)
    return x.astype(np.float32) if x.dtype.itemsize == 1 else x
