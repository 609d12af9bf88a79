"""Operations of one operand, element by element: activations, rounding, conversion."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.dtypes import is_float
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, scalar_like
from jaxops.signature import ElementType, Weight
from jaxops.static import Array, array, is_static


def _on_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an operation that leaves integers as they are."""

    def adapter(data: Array) -> Array:
        return fn(data) if is_float(array(data).dtype) else ops.identity(data)

    adapter.__name__ = adapter.__qualname__ = fn.__name__
    return adapter


version("Floor", 1, of=ops.floor)(_on_floats(ops.floor))
version("Ceiling", 1, of=ops.ceil)(_on_floats(ops.ceil))


def _in_floats(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Makes an operation that computes integers in float32, and rounds the result to the nearest integer."""

    def adapter(data: Array) -> Array:
        x = array(data)
        if is_float(x.dtype):
            return fn(x)
        return ops.cast(ops.round(fn(ops.cast(x, to=np.float32))), to=x.dtype)

    adapter.__name__ = adapter.__qualname__ = fn.__name__
    return adapter


for _function in (
    *(ops.acos, ops.acosh, ops.asin, ops.asinh, ops.atan, ops.atanh, ops.cos, ops.cosh, ops.sin, ops.sinh, ops.tan),
    *(ops.tanh, ops.erf, ops.exp, ops.log, ops.sqrt, ops.sigmoid),
):
    for _since in (1, 4):
        version(_function.__name__.capitalize(), _since, of=_function)(_in_floats(_function))


@version("Round", 5, of=ops.round)
def round_5(data: Array, *, mode: Word) -> Array:
    x = array(data)
    if not is_float(x.dtype):
        return ops.identity(x)
    if mode == "half_to_even":
        return ops.round(x)
    # Not floor(|x| + 0.5), which rounds 0.49999997 up.
    magnitude = ops.abs(x)
    whole = ops.floor(magnitude)
    rounds_up = ops.greater_or_equal(ops.sub(magnitude, whole), scalar_like(x, 0.5))
    return ops.mul(ops.sign(x), ops.where(rounds_up, ops.add(whole, scalar_like(x, 1)), whole))


version("HSwish", 4)(ops.hard_swish)


@version("HSigmoid", 5, of=ops.hard_sigmoid)
def h_sigmoid(data: Array) -> Array:
    return ops.hard_sigmoid(data, alpha=1 / 6, beta=0.5)


@version("Clamp", 1, of=ops.clip)
def clamp(data: Array, *, min: float, max: float) -> Array:
    """For integers, the bounds are rounded inwards."""
    x = array(data)
    if is_float(x.dtype):
        return ops.clip(x, scalar_like(x, min), scalar_like(x, max))
    limits = np.iinfo(x.dtype)
    low = limits.min if min == -math.inf else int(np.clip(math.ceil(min), limits.min, limits.max))
    high = limits.max if max == math.inf else int(np.clip(math.floor(max), limits.min, limits.max))
    return ops.clip(x, scalar_like(x, low), scalar_like(x, high))


version("Gelu", 2)(ops.gelu)


@version("Gelu", 7, of=ops.gelu)
def gelu_7(data: Array, *, approximation_mode: Word) -> Array:
    return ops.gelu(data, approximate="tanh" if approximation_mode == "TANH" else "none")


def _number(value: Any) -> float | None:
    """Returns one static number; None if it is traced or holds several."""
    return float(np.asarray(value).reshape(-1)[0]) if is_static(value) and np.size(value) == 1 else None


@version("Swish", 4, of=ops.swish)
def swish(data: Array, beta: Array | None = None) -> Array:
    if beta is None:
        return ops.swish(data)
    number = _number(beta)
    if number is not None:
        return ops.swish(data, alpha=number)
    return ops.mul(data, ops.sigmoid(ops.mul(data, beta)))


@version("HardSigmoid", 1, of=ops.hard_sigmoid)
def hard_sigmoid(data: Array, alpha: Array, beta: Array) -> Array:
    numbers = _number(alpha), _number(beta)
    if numbers[0] is not None and numbers[1] is not None:
        return ops.hard_sigmoid(data, alpha=numbers[0], beta=numbers[1])
    x = ops.add(ops.mul(data, alpha), beta)
    return ops.clip(x, scalar_like(x, 0), scalar_like(x, 1))


@version("Selu", 1, of=ops.selu)
def selu(data: Array, alpha: Array, lambda_: Array) -> Array:
    numbers = _number(alpha), _number(lambda_)
    if numbers[0] is not None and numbers[1] is not None:
        return ops.selu(data, alpha=numbers[0], gamma=numbers[1])
    positive = ops.greater(data, scalar_like(data, 0))
    return ops.mul(lambda_, ops.where(positive, data, ops.mul(alpha, ops.elu(data))))


@version("PRelu", 1, of=ops.prelu)
def prelu(data: Array, slope: Weight[Array]) -> Array:
    """A 1-D slope with one element per channel applies to channels; otherwise NumPy's broadcasting holds."""
    x, slopes = array(data), array(slope)
    if slopes.ndim == 1 and x.ndim > 1 and slopes.shape[0] == x.shape[1]:
        slopes = ops.reshape(slopes, (slopes.shape[0], *[1] * (x.ndim - 2)))
    return ops.prelu(x, slopes)


@version("IsInf", 10, of=ops.isinf)
def is_inf(data: Array, *, detect_negative: bool, detect_positive: bool) -> Array:
    return ops.isinf(data, detect_negative=int(detect_negative), detect_positive=int(detect_positive))


@version("IsFinite", 10, of=ops.isnan)
def is_finite(data: Array) -> Array:
    return ops.not_(ops.or_(ops.isnan(data), ops.isinf(data)))


@version("Convert", 1, of=ops.cast)
def convert(data: Array, *, destination_type: ElementType) -> Array:
    """Integers wrap modulo 2^N; floats are cut towards zero, and beyond the integer type's range they saturate."""
    return ops.cast(data, to=destination_type)


version("ConvertLike", 1)(ops.cast_like)
