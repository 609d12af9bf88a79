"""Softmax, log-softmax and hardmax, over one axis or several axes together."""

__all__ = ["hardmax", "log_softmax", "softmax"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axes as resolve_axes, axis as resolve_axis, ints
from jaxops.dtypes import accumulation_type, canonical, floating
from jaxops.kernels.xla_workarounds import largest, rounded
from jaxops.signature import Traits, operator
from jaxops.static import ArrayLike, Ints, jit_if_concrete

TRAITS = Traits(kind="activation", precision="float32")


def _operand(input: Any, axis: int, axes: Ints | None) -> tuple[Any, tuple[int, ...]]:
    (x,) = floating(input=input)
    if axes is None:
        return x, (resolve_axis(axis, x.ndim),)
    return x, resolve_axes(ints("axes", axes), x.ndim)


def _shifted(x: Any, axes: tuple[int, ...]) -> Any:
    """x minus its maximum, so that no exponential overflows; 16-bit types in float32."""
    x = rounded(lax.convert_element_type(x, accumulation_type(x.dtype)))
    # The maximum may drop NaNs, since x keeps them. Over an empty axis it is -inf, but then x has no elements.
    top = lax.reduce_max(lax.stop_gradient(x), axes)
    return x - lax.expand_dims(top, sorted(axes))


def softmax(input: ArrayLike, *, axis: int = -1, axes: Ints | None = None) -> jax.Array:
    """Exponentials of the elements, divided by their sum along `axis`.

    input: floats. Returns an array like it; for float16 the exponentials and their sum are rounded, as in the function
    body of the standard. axes: static; when given, the sum runs over these axes together.
    Raises AxisError, DTypeError for an input that is not floating-point.
    Source: ONNX Softmax, opset 13; with `axes` also opsets 1–11, where it runs over all axes from `axis` on.

    >>> softmax(jnp.zeros((1, 4))).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return _softmax(*_operand(input, axis, axes))


@jit_if_concrete
def _softmax(x: Any, axes: tuple[int, ...]) -> Any:
    powers = _in_digits(lax.exp(_shifted(x, axes)), x.dtype)
    total = _in_digits(jnp.sum(powers, axes, keepdims=True), x.dtype)
    return lax.convert_element_type(powers / total, x.dtype)


def _in_digits(x: Any, dtype: Any) -> Any:
    """Rounds float32 numbers to the digits of float16 if `dtype` is float16; returns x unchanged for another type.

    In the standard's function body each step has the type of the input, and a case of its test suite shows it for
    float16: with one rounding at the end, two of its elements are wrong. The range stays that of float32. Otherwise the
    sum of 65,520 equal numbers would be infinite, and small exponentials would lose their digits.
    """
    return lax.reduce_precision(x, 8, 10) if dtype == np.float16 else x


def log_softmax(input: ArrayLike, *, axis: int = -1, axes: Ints | None = None) -> jax.Array:
    """The logarithm of `softmax`, computed without overflow or underflow.

    input: floats. Returns an array like it. axis, axes: as in `softmax`. Raises AxisError, DTypeError.
    Source: ONNX LogSoftmax, opset 13; with `axes` also opsets 1–11.

    >>> log_softmax(jnp.array([0.0, 1000.0])).tolist()
    [-1000.0, 0.0]
    """
    return _log_softmax(*_operand(input, axis, axes))


@jit_if_concrete
def _log_softmax(x: Any, axes: tuple[int, ...]) -> Any:
    shifted = _shifted(x, axes)
    total = jnp.sum(lax.exp(shifted), axes, keepdims=True)
    return lax.convert_element_type(shifted - lax.log(total), x.dtype)


@operator(precision="narrow", differentiable=False)
def hardmax(input: ArrayLike, *, axis: int = -1, axes: Ints | None = None) -> jax.Array:
    """1 at the first maximum along `axis`, 0 elsewhere.

    input: floats; a NaN counts as the maximum. Returns an array like it. axes: as in `softmax`.
    Raises AxisError, DTypeError.
    Source: ONNX Hardmax, opset 13; with `axes` also opsets 1–11.

    >>> hardmax(jnp.array([1.0, 3.0, 3.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    return _hardmax(*_operand(input, axis, axes))


@jit_if_concrete
def _hardmax(x: Any, axes: tuple[int, ...]) -> Any:
    top = lax.expand_dims(largest(lax.stop_gradient(x), axes), sorted(axes))
    index_type = canonical(np.int64)
    order = jnp.zeros((1,) * x.ndim, index_type)  # the position among the axes, in row-major order
    for i in sorted(axes):
        count = lax.broadcasted_iota(index_type, [d if j == i else 1 for j, d in enumerate(x.shape)], i)
        order = order * jnp.asarray(x.shape[i], index_type) + count
    is_top = (x == top) | (x != x)
    last = jnp.iinfo(index_type).max
    first = jnp.min(jnp.where(is_top, order, last), axes, keepdims=True, initial=last)
    return lax.convert_element_type(order == first, x.dtype)
