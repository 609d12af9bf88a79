"""Ranges of numbers."""

__all__ = ["range"]

import builtins
import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import stash
from jaxops.dtypes import canonical, unify
from jaxops.errors import ArgumentError, ShapeError, SizeError, message
from jaxops.memory import bounded
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.size_tracking import steps
from jaxops.shapes import arithmetic as of_sizes
from jaxops.signature import ElementType, Static, Traits
from jaxops.static import Dim, FromSizes, Undecided, is_symbolic, known, static_array

TRAITS = Traits(foldable=True, precision="exact", grows=True)

_NARROW = ("float16", "bfloat16")


def range(start: Static, limit: Static, delta: Static, *, stash_type: ElementType = np.float32) -> np.ndarray:
    """start, start + delta, start + 2 · delta, … up to, not including, `limit`.

    start, limit, delta: static, one number each, of one dtype. Returns max(ceil((limit - start) / delta), 0) numbers of
    that dtype, static unless their number is symbolic.
    stash_type: the type that float16 and bfloat16 are computed in, as in `layer_normalization`.
    Raises ArgumentError for a delta of 0, ShapeError for an operand that is not one number, DTypeError.
    Source: ONNX Range, opsets 11–27.

    >>> range(10, 4, -2)
    array([10,  8,  6])
    """
    work = stash(stash_type)
    names = ("start", "limit", "delta")
    if any(isinstance(v, FromSizes) for v in (start, limit, delta)):
        return _of_floats(unify((start, limit, delta)), steps(start, limit, delta))
    numbers = [known(name, value) for name, value in zip(names, (start, limit, delta), strict=True)]
    for name, value in zip(names, numbers, strict=True):
        if value.size != 1:
            raise ShapeError(message(f"`{name}` must be one number", **{name: value}))
    require("real numbers", *numbers)
    symbolic = any(map(is_symbolic, numbers))
    first, last, step = (v.reshape(())[()] for v in unify(tuple(numbers), ("start ", "limit ", "delta ")))
    if not is_symbolic(step) and step == 0:
        raise ArgumentError("`delta` is 0; it must not be 0")
    if symbolic:  # symbolic sizes have no type of their own
        dtype = next((v.dtype for v in numbers if v.dtype != object), np.dtype(np.int64))
        return _symbolic(first, last, step, dtype)
    dtype = numbers[0].dtype
    if dtype.name in _NARROW:
        first, last, step = (v.astype(work) for v in (first, last, step))
    if dtype.kind in "iu":
        first, last, step = int(first), int(last), int(step)
        count = max(-((first - last) // step), 0)
        bounded((count,), np.dtype(np.int64).itemsize)
        return (first + np.arange(count, dtype=np.int64) * step).astype(dtype)
    if not all(np.isfinite(v) for v in (first, last, step)):
        raise ArgumentError(f"`start` {first}, `limit` {last} and `delta` {step} must be finite")
    length = (float(last) - float(first)) / float(step)
    # For a subnormal step, or for numbers far apart, the quotient may be infinite.
    count = max(math.ceil(min(length, 2.0**64)), 0)
    bounded((count,), np.dtype(np.int64).itemsize)
    return (first + np.arange(count).astype(first.dtype) * step).astype(dtype)


def _of_floats(operands: tuple[Any, ...], count: Dim) -> Any:
    start, _, delta = operands
    return lax.iota(np.int32, count).astype(start.dtype) * delta.reshape(()) + start.reshape(())


def _symbolic(start: Dim, limit: Dim, delta: Dim, dtype: np.dtype) -> Any:
    start, limit, delta = (v.item() if isinstance(v, np.generic) else v for v in (start, limit, delta))
    try:
        count = of_sizes.larger(-((start - limit) // delta), 0)
    except Undecided as error:
        raise SizeError(f"the step `delta` must not be 0, but {delta} may be 0", delta) from error
    if isinstance(count, int):
        return static_array(
            np.array([start + i * delta for i in builtins.range(count)], object), np.array(start, object)
        )
    kind = canonical(dtype)
    return lax.iota(kind, count) * jnp.asarray(delta, kind) + jnp.asarray(start, kind)
