"""Operators that rescale features, or replace some of their values.

Results in float32 are computed in float32; integers and float64 are computed in float64 where x64 is on.
"""

__all__ = ["binarizer", "imputer", "normalizer", "scaler"]

import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import integer, ints, one_of
from jaxops.dtypes import as_traced, canonical, converted, is_float
from jaxops.errors import ArgumentError, SignatureError
from jaxops.kernels.xla_workarounds import largest, magnitude, root_of_squares
from jaxops.ops.common.elementwise import require
from jaxops.shapes.ml import scaling as sizes_of
from jaxops.signature import operator
from jaxops.static import ArrayLike, Ints, jit_if_concrete, known

Norm = Literal["MAX", "L1", "L2"]


def scaler(x: ArrayLike, *, offset: Sequence[float] | None = None, scale: Sequence[float] | None = None) -> jax.Array:
    """(x - offset) * scale.

    x: any shape, real numbers. offset, scale: static, one number for all elements, or one for each along the last axis;
    without offset nothing is subtracted, without scale nothing multiplied. Returns float32, the shape of x.
    Raises ShapeError for another number of values.
    Source: ONNX ai.onnx.ml.Scaler, opset 1. onnxruntime needs both, equally long.

    >>> scaler(jnp.array([[1.0, 2.0]]), offset=[1.0], scale=[10.0, 20.0]).tolist()
    [[0.0, 20.0]]
    """
    x = _real(x)
    return _scaled((x, _per_feature("offset", offset, x), _per_feature("scale", scale, x)))


@operator(kind="normalization", precision="float32")
def normalizer(x: ArrayLike, *, norm: Norm = "MAX") -> jax.Array:
    """Each row divided by its maximum, by the sum of its absolute values (L1), or by its length (L2).

    x: (rows, features), or (features,) for one row; real numbers. Returns float32, the shape of x. A row whose divisor
    is 0 stays unchanged.
    As in onnxruntime, absolute values are added for L1, and L2 keeps the signs; the formulas of the standard, read
    literally, would do neither. The maximum is that of the signed values, as in onnxruntime and in the standard.
    Raises ShapeError for another rank, ArgumentError for another norm.
    Source: ONNX ai.onnx.ml.Normalizer, opset 1.

    >>> normalizer(jnp.array([[3.0, -4.0]]), norm="L2").tolist()
    [[0.6000000238418579, -0.800000011920929]]
    """
    how = one_of("norm", norm, Norm)
    x = _real(x)
    sizes_of.vector_or_matrix(x.shape)
    return _normalized(x, how)


def imputer(
    x: ArrayLike,
    *,
    imputed_value_floats: Sequence[float] | None = None,
    imputed_value_int64s: Ints | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> jax.Array:
    """x with each element that equals the replaced value set to the imputed value; a replaced NaN equals every NaN.

    x: any shape. imputed_value_floats (x floats) or imputed_value_int64s (x integers): static, one value for all
    elements, or one for each along the last axis. replaced_value_float (x floats), replaced_value_int64 (x integers):
    static, one number. Returns x's shape and dtype.
    Raises SignatureError unless exactly the imputed values of x's kind are given, ShapeError for another number of
    them, ArgumentError for one that the dtype does not hold.
    Source: ONNX ai.onnx.ml.Imputer, opset 1.

    >>> imputer(jnp.array([[1.0, jnp.nan]]), imputed_value_floats=[5.0], replaced_value_float=float("nan")).tolist()
    [[1.0, 5.0]]
    """
    x = _real(x)
    floats = is_float(x.dtype)
    kind, other = ("floats", "int64s") if floats else ("int64s", "floats")
    candidates = {"floats": imputed_value_floats, "int64s": imputed_value_int64s}
    if candidates[kind] is None or candidates[other] is not None:
        raise SignatureError(f"x is {x.dtype.name}, so give imputed_value_{kind}, and only that")
    name = f"imputed_value_{kind}"
    imputed: Any = candidates[kind]
    values = np.asarray(known(name, imputed), np.float32) if floats else np.array(ints(name, imputed))
    sizes_of.per_feature(name, values.size, x.shape)
    values = converted(f"`{name}`", values, x.dtype)
    if floats:
        replaced = np.float32(replaced_value_float)
        is_replaced = x != x if np.isnan(replaced) else x == jnp.asarray(replaced, x.dtype)
    else:
        old = integer("replaced_value_int64", replaced_value_int64)
        limits = jnp.iinfo(x.dtype)
        if not limits.min <= old <= limits.max:
            return x
        is_replaced = x == jnp.asarray(old, x.dtype)
    return lax.select(is_replaced, jnp.broadcast_to(as_traced(values.reshape(-1) if x.ndim else values[0]), x.shape), x)


@operator(differentiable=False)
def binarizer(x: ArrayLike, *, threshold: float = 0.0) -> jax.Array:
    """1 where x is greater than the threshold, 0 elsewhere and for NaN; in x's shape and dtype.

    x: any shape, real numbers; integers are compared exactly. threshold: static. Raises DTypeError for another dtype.
    Source: ONNX ai.onnx.ml.Binarizer, opset 1.

    >>> binarizer(jnp.array([0.5, 1.5, 2.5]), threshold=1.5).tolist()
    [0.0, 0.0, 1.0]
    """
    x = _real(x)
    limit = float(np.float32(threshold))
    if is_float(x.dtype):
        above = x > jnp.asarray(limit, x.dtype)
    elif math.isnan(limit):
        above = jnp.zeros(x.shape, bool)
    else:
        limits = jnp.iinfo(x.dtype)
        if limit < limits.min:
            above = jnp.ones(x.shape, bool)
        else:
            integer_limit = limits.max if limit >= limits.max else math.floor(limit)
            above = x > jnp.asarray(integer_limit, x.dtype)
    return above.astype(x.dtype)


def _real(x: Any) -> jax.Array:
    x = as_traced(x)
    require("real numbers", x)
    return x


def _per_feature(name: str, values: Any, x: jax.Array) -> np.ndarray | None:
    if values is None:
        return None
    numbers = np.asarray(known(name, values), np.float32).reshape(-1)
    sizes_of.per_feature(name, numbers.size, x.shape)
    if not numbers.size:
        raise ArgumentError(f"`{name}` is empty; leave it out, or give values")
    return numbers.astype(_work(x.dtype)) if x.ndim else numbers[0].astype(_work(x.dtype))


def _work(dtype: Any) -> Any:
    """The type that the numbers are computed in before they become float32."""
    return np.dtype(np.float32) if is_float(dtype) and dtype.itemsize <= 4 else canonical(np.float64)


@jit_if_concrete
def _scaled(operands: tuple[Any, Any, Any]) -> Any:
    x, offset, scale = operands
    y = x.astype(_work(x.dtype))
    if offset is not None:
        y = y - jnp.broadcast_to(offset, y.shape)
    if scale is not None:
        y = y * jnp.broadcast_to(scale, y.shape)
    return y.astype(np.float32)


@jit_if_concrete
def _normalized(x: Any, norm: Norm) -> Any:
    y = x.astype(_work(x.dtype))
    last = (y.ndim - 1,)
    if y.shape[-1] == 0:
        return y.astype(np.float32)
    if norm == "MAX":
        divisor = largest(y, last)
    elif norm == "L1":
        divisor = jnp.sum(magnitude(y), -1)
    else:
        # Squares of elements that are at most 1 do not overflow, and the greatest one does not underflow.
        greatest = lax.stop_gradient(jnp.max(jnp.abs(y), -1, keepdims=True))
        usable = (greatest > 0) & jnp.isfinite(greatest)
        y = y / jnp.broadcast_to(jnp.where(usable, greatest, jnp.ones_like(greatest)), y.shape)
        divisor = root_of_squares(jnp.sum(lax.square(y), -1))
    divisor = jnp.where(divisor == 0, jnp.ones_like(divisor), divisor)
    return (y / jnp.broadcast_to(jnp.expand_dims(divisor, -1), y.shape)).astype(np.float32)
