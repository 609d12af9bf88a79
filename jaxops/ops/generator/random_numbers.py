"""Random numbers of several distributions.

Each operator draws from a random key: `rng`, or one made from `seed`, a float32 number. The same key draws the same
numbers: those of `jax.random`, not those of other runtimes. 16-bit types are drawn in float32 and rounded.
"""

__all__ = ["bernoulli", "multinomial", "random_normal", "random_normal_like", "random_uniform", "random_uniform_like"]

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxops.attributes import check_not_negative, element_type, integer, ints
from jaxops.dtypes import SUB_BYTE, accumulation_type, canonical, floating, is_float
from jaxops.errors import DTypeError, ShapeError, shape_text
from jaxops.memory import bounded
from jaxops.ops.common.randomness import random_key
from jaxops.ops.common.result_sizes import assert_sizes, bounded_like, check_counts
from jaxops.shapes.tensor import reshaping as sizes_of
from jaxops.signature import ElementType, ShapeOnly, SizesKept, operator
from jaxops.static import ArrayLike, Ints, Sizes, array, is_symbolic, jit_if_concrete, tracing


@operator(precision="float32")
def random_normal(
    *,
    shape: Ints,
    dtype: ElementType = np.float32,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    rng: Any = None,
) -> jax.Array:
    """Numbers of a normal distribution.

    shape: static, the shape of the result. dtype: static, its floating-point type. mean; scale: the standard deviation.
    seed, rng: sources of the random key; one is needed, and `rng` takes precedence.
    Raises ArgumentError without a key and for a negative size, DTypeError for a type that is not floating-point.
    Source: ONNX RandomNormal, opsets 1–22.

    >>> random_normal(shape=(2, 3), seed=0.0).shape
    (2, 3)
    """
    sizes, kind = _sizes(shape), _floats(dtype)
    return _normal(rng, seed, sizes, kind, mean, scale)


@operator(precision="float32")
def random_normal_like(
    input: ShapeOnly,
    *,
    dtype: ElementType | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    rng: Any = None,
) -> jax.Array:
    """`random_normal` in the shape of `input`.

    input: any array; only its shape and dtype are used. dtype: static; None takes that of input. mean, scale, seed, rng
    and errors: as in `random_normal`.
    Source: ONNX RandomNormalLike, opsets 1–22.

    >>> random_normal_like(np.zeros((2, 3), np.float32), seed=0.0).shape
    (2, 3)
    """
    sizes, kind = _like(input, dtype)
    return _normal(rng, seed, sizes, kind, mean, scale)


def random_uniform(
    *,
    shape: Ints,
    dtype: ElementType = np.float32,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    rng: Any = None,
) -> jax.Array:
    """Numbers of a uniform distribution between `low` and `high`.

    shape: static, the shape of the result. dtype: static, its floating-point type; rounding to it may give `high`
    itself. seed, rng: sources of the random key; one is needed, and `rng` takes precedence.
    Raises ArgumentError without a key and for a negative size, DTypeError for a type that is not floating-point.
    Source: ONNX RandomUniform, opsets 1–22.

    >>> random_uniform(shape=(2, 3), seed=0.0).shape
    (2, 3)
    """
    sizes, kind = _sizes(shape), _floats(dtype)
    return _uniform(rng, seed, sizes, kind, low, high)


def random_uniform_like(
    input: ShapeOnly,
    *,
    dtype: ElementType | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    rng: Any = None,
) -> jax.Array:
    """`random_uniform` in the shape of `input`.

    input: any array; only its shape and dtype are used. dtype: static; None takes that of input. high, low, seed, rng
    and errors: as in `random_uniform`.
    Source: ONNX RandomUniformLike, opsets 1–22.

    >>> random_uniform_like(np.zeros((2, 3), np.float32), seed=0.0).shape
    (2, 3)
    """
    sizes, kind = _like(input, dtype)
    return _uniform(rng, seed, sizes, kind, low, high)


@operator(differentiable=False)
def bernoulli(
    input: SizesKept[ArrayLike], *, dtype: ElementType | None = None, seed: float | None = None, rng: Any = None
) -> jax.Array:
    """1 with the probability that `input` gives for each element, else 0.

    input: any shape, floats in [0, 1]. dtype: static, the type of the result, numbers or booleans; None takes that of
    input. seed, rng: sources of the random key; one is needed, and `rng` takes precedence.
    Returns 0 and 1 in the shape of input. Raises ArgumentError without a key, DTypeError.
    Source: ONNX Bernoulli, opsets 15–22.

    >>> bernoulli(np.float32([0, 1]), seed=0.0).tolist()
    [0.0, 1.0]
    """
    (x,) = floating(input=input)
    kind = element_type("dtype", x.dtype if dtype is None else dtype)
    if kind.kind in "USTOc" or kind.name in SUB_BYTE:
        raise DTypeError(f"`dtype` is {kind.name}; it must be real numbers of 8 bits or more, or booleans")
    key = random_key(rng, seed)
    # By the text and the test suite of the standard, `input` is the probability of 1. In its function body, which
    # onnxruntime runs, `input` is the probability of 0.
    ones = jax.random.bernoulli(key, lax.convert_element_type(x, accumulation_type(x.dtype)), x.shape)
    return lax.convert_element_type(ones, canonical(kind))


def multinomial(
    input: ArrayLike, *, dtype: ElementType = np.int32, sample_size: int = 1, seed: float | None = None, rng: Any = None
) -> jax.Array:
    """Classes drawn at random, with replacement.

    input: (batch, classes), floats, the logarithms of the probabilities, up to a constant. dtype: static, int32 or
    int64. sample_size: static, how many to draw for each row. seed, rng: sources of the random key; one is needed, and
    `rng` takes precedence.
    Returns (batch, sample_size), in [0, classes). Raises ShapeError, ArgumentError without a key or for a sample_size
    below 1, DTypeError.
    Source: ONNX Multinomial, opsets 7–22.

    >>> multinomial(np.float32([[-np.inf, 0, -np.inf]]), sample_size=3, seed=0.0).tolist()
    [[1, 1, 1]]
    """
    (x,) = floating(input=input)
    if x.ndim != 2 or (isinstance(x.shape[1], int) and x.shape[1] == 0):
        raise ShapeError(f"`input` of {shape_text(x.shape)} must be (batch, classes), with at least one class")
    count = integer("sample_size", sample_size, least=1)
    check_counts("sample_size", count)
    bounded_like((count, x.shape[0]), x, np.int64)
    kind = element_type("dtype", dtype)
    if kind not in (np.int32, np.int64):
        raise DTypeError(f"`dtype` is {kind.name}; it must be int32 or int64")
    key = random_key(rng, seed)
    return _classes((x, key), count, canonical(kind))


@jit_if_concrete
def _classes(operands: tuple[Any, Any], count: int, dtype: np.dtype) -> jax.Array:
    x, key = operands
    wide = lax.convert_element_type(x, accumulation_type(x.dtype))
    # Samples are drawn one after the other: a table of samples and classes would not fit for a large vocabulary.
    drawn = lax.map(lambda k: jax.random.categorical(k, wide), jax.random.split(key, count))
    return assert_sizes(lax.convert_element_type(drawn.T, dtype), (x.shape[0], count), dtype)


def _sizes(shape: Ints) -> Sizes:
    sizes = sizes_of.countable(ints("shape", shape))
    check_not_negative("shape", sizes)
    return sizes


def _like(value: Any, dtype: Any) -> tuple[Sizes, np.dtype]:
    x = array(value)
    own_dtype = np.int64 if is_symbolic(x) else x.dtype
    return x.shape, _floats(own_dtype if dtype is None else dtype)


def _floats(dtype: Any) -> np.dtype:
    kind = element_type("dtype", dtype)
    if not is_float(kind) or kind.name in SUB_BYTE:
        raise DTypeError(f"`dtype` is {kind.name}; it must be a floating-point type of 8 bits or more")
    return kind


def _normal(rng: Any, seed: Any, sizes: Sizes, dtype: np.dtype, mean: float, scale: float) -> jax.Array:
    return _drawn(jax.random.normal, rng, seed, sizes, dtype, lambda x: x * scale + mean)


def _uniform(rng: Any, seed: Any, sizes: Sizes, dtype: np.dtype, low: float, high: float) -> jax.Array:
    return _drawn(jax.random.uniform, rng, seed, sizes, dtype, lambda x: x * (high - low) + low)


def _drawn(draw: Any, rng: Any, seed: Any, sizes: Sizes, dtype: np.dtype, fn: Callable[[Any], Any]) -> jax.Array:
    key, work = random_key(rng, seed), canonical(accumulation_type(dtype))
    bounded(sizes, work.itemsize, computed=None if tracing() else True)
    return lax.convert_element_type(fn(draw(key, sizes, work)), canonical(dtype))
