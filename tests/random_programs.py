"""Random straight programs: chains of what the passes of the compiler look for."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxops
from jaxops.kernels.normal_cdf import normal_distribution

# The most elements and axes of a value: what is larger is dropped.
_LARGEST, _MOST_AXES = 4096, 5
Motif = Callable[[np.random.Generator, list[Any]], Any]
MOTIFS: list[Motif] = []


def random_program(seed: int) -> tuple[Callable[..., list[Any]], tuple[np.ndarray, ...]]:
    """A function of two arrays, and the arrays. Each call of the function makes the same program."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice([1, 2, 3, 4, 6], rng.choice([3, 4])).tolist())
    length, choices = int(rng.integers(6, 22)), int(rng.integers(1 << 30))

    def program(x: Any, w: Any) -> list[Any]:
        chosen = np.random.default_rng(choices)
        values = [x, x * lax.broadcast_in_dim(lax.rsqrt(w * w + 1), x.shape, (x.ndim - 1,))]
        while len(values) < length:
            motif = MOTIFS[chosen.integers(len(MOTIFS))]
            y = motif(chosen, values)
            if y is not None and 0 < y.size <= _LARGEST and 0 < y.ndim <= _MOST_AXES:
                values.append(y)
            else:
                values.append(values[-1] + np.float32(0.5))
        return values[-3:]

    return program, tuple(rng.standard_normal(s).astype(np.float32) for s in (shape, shape[-1:]))


def _motif(weight: int = 1) -> Callable[[Motif], Motif]:
    """Adds a motif. weight: how often it is among the others."""

    def add(fn: Motif) -> Motif:
        MOTIFS.extend([fn] * weight)
        return fn

    return add


def _one(fn: Callable[[np.random.Generator, Any], Any]) -> Motif:
    """The motif of one of the last values."""

    @functools.wraps(fn)
    def motif(rng: np.random.Generator, values: list[Any]) -> Any:
        return fn(rng, values[rng.integers(max(0, len(values) - 4), len(values))])

    return motif


def _bounded(y: Any) -> Any:
    """The same between -1 and 1, so that no difference grows."""
    return y / (1 + jnp.abs(y))


def _along(vector: Any, like: Any, axis: int) -> Any:
    return lax.broadcast_in_dim(vector, like.shape, (axis,))


@_motif(4)
@_one
def elementwise(rng: np.random.Generator, v: Any) -> Any:
    number = np.float32(rng.choice([0.5, 1.25, 1.5]))
    kinds = [lambda: v + number, lambda: v * number, lambda: jnp.tanh(v), lambda: lax.max(v, np.float32(0))]
    return [*kinds, lambda: lax.select(v > 0, v, v * 2), lambda: v - number][rng.integers(6)]()


@_motif(3)
@_one
def transpose(rng: np.random.Generator, v: Any) -> Any:
    rank = v.ndim
    moves = [(0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))] if rank > 2 else []
    return lax.transpose(v, [*moves, *moves, tuple(rng.permutation(rank).tolist())][rng.integers(2 * len(moves) + 1)])


@_motif(2)
@_one
def reshape(rng: np.random.Generator, v: Any) -> Any:
    size, shape = v.size, []
    while size > 1 and len(shape) < 4:
        shape.append(int(rng.choice([d for d in range(1, size + 1) if size % d == 0])))
        size //= shape[-1]
    return lax.reshape(v, (*shape, size))


@_motif()
def of_two(rng: np.random.Generator, values: list[Any]) -> Any:
    same = [v for v in values[:-1] if v.shape == values[-1].shape]
    return values[-1] + same[rng.integers(len(same))] if same else None


@_motif()
@_one
def by_channel(rng: np.random.Generator, v: Any) -> Any:
    axis = int(rng.integers(v.ndim))
    return v * _along(jnp.arange(1, v.shape[axis] + 1, dtype=np.float32), v, axis)


@_motif(2)
@_one
def reduction(rng: np.random.Generator, v: Any) -> Any:
    axes = tuple(sorted(rng.choice(v.ndim, rng.integers(1, v.ndim + 1), replace=False).tolist()))
    y = [lax.reduce_sum, lax.reduce_max, lax.reduce_min][rng.integers(3)](v, axes)
    return lax.expand_dims(y, axes) if rng.random() < 0.7 else y


@_motif()
@_one
def sliced(rng: np.random.Generator, v: Any) -> Any:
    return lax.slice(v, [min(1, d - 1) for d in v.shape], v.shape)


@_motif()
@_one
def padded(rng: np.random.Generator, v: Any) -> Any:
    return lax.pad(v, np.float32(0), [(*rng.integers(0, 2, 2).tolist(), 0) for _ in v.shape])


@_motif()
@_one
def call(rng: np.random.Generator, v: Any) -> Any:
    y = normal_distribution(v * np.float32(1.5))
    return lax.max(y + _along(jnp.arange(y.shape[-1], dtype=np.float32), y, y.ndim - 1), np.float32(0))


@_motif()
@_one
def order(rng: np.random.Generator, v: Any) -> Any:
    return (v + np.float32(3)) - np.float32(1.25)


@_motif()
@_one
def attention(rng: np.random.Generator, v: Any) -> Any:
    if v.ndim < 3:
        return None
    last, batch = v.ndim - 1, tuple(range(v.ndim - 2))
    scores = _bounded(lax.dot_general(v, v, (((last,), (last,)), (batch, batch)))) * np.float32(0.5)
    powers = jnp.exp(scores - lax.expand_dims(lax.reduce_max(scores, (last,)), (last,)))
    return _bounded(lax.dot_general(powers, v, (((last,), (last - 1,)), (batch, batch))))


@_motif()
@_one
def pool(rng: np.random.Generator, v: Any) -> Any:
    window = tuple(min(2, d) for d in v.shape)
    return lax.reduce_window(v, -jnp.inf, lax.max, window, (1,) * v.ndim, "VALID") if v.ndim > 2 else None


@_motif()
@_one
def convolution(rng: np.random.Generator, v: Any) -> Any:
    if v.ndim != 4:
        return None
    filters = jnp.ones((2, v.shape[1], 1, 1)) * lax.broadcast_in_dim(jnp.arange(1.0, 3), (2, 1, 1, 1), (0,))
    return _bounded(jaxops.conv(v, filters))


@_motif(2)
@_one
def quantized_product(rng: np.random.Generator, v: Any) -> Any:
    """A product of arrays that are quantized and dequantized, which may be moved between."""
    scale, size, axes = np.float32(0.02), v.shape[-1], tuple(range(v.ndim))
    zero, zeros = np.uint8(rng.integers(256)), rng.integers(-9, 9, 3, np.int8)
    w = np.random.default_rng(size).integers(-128, 128, (3, size), np.int8)
    x = jaxops.dequantize_linear(jaxops.quantize_linear(_bounded(v), scale, zero), scale, zero)
    if v.ndim > 1 and rng.random() < 0.3:
        order = (*axes[:-2], axes[-1], axes[-2])
        return _bounded(jnp.matmul(x, lax.transpose(x, order)))
    by = np.linspace(0.01, 0.02, 3, dtype=np.float32)
    filters = jaxops.dequantize_linear(w, by, zeros, axis=0)
    return _bounded(lax.dot_general(x, filters, (((v.ndim - 1,), (1,)), ((), ()))))


@_motif()
@_one
def similarity(rng: np.random.Generator, v: Any) -> Any:
    """The products of all rows with one another."""
    rows = lax.reshape(v, (v.size // v.shape[-1], v.shape[-1]))
    return _bounded(jnp.matmul(rows, lax.transpose(rows, (1, 0)))) if rows.shape[0] ** 2 <= _LARGEST else None


@_motif()
@_one
def update(rng: np.random.Generator, v: Any) -> Any:
    return lax.dynamic_update_slice(v, lax.slice(v, [0] * v.ndim, [1] * v.ndim), [np.int32(d - 1) for d in v.shape])


@_motif(3)
@_one
def branches(rng: np.random.Generator, v: Any) -> Any:
    """Products that end alike, side by side."""
    if v.ndim < 2:
        return None
    has_bias, has_activation, number = rng.random() < 0.8, rng.random() < 0.8, np.float32(rng.choice([0.25, 0.5]))
    parts = []
    for k in range(int(rng.integers(2, 4))):
        size = int(rng.choice([1, 2, 16]))
        w = np.random.default_rng(k).standard_normal((v.shape[-1], size)).astype(np.float32)
        y = lax.dot_general(v, jnp.asarray(w), (((v.ndim - 1,), (0,)), ((), ())))
        y = y + _along(jnp.arange(size, dtype=np.float32), y, y.ndim - 1) if has_bias else y
        y = lax.max(y, np.float32(0)) if has_activation else y
        parts.append(y * (number if rng.random() < 0.9 else np.float32(2)))
    return _bounded(lax.concatenate(parts, v.ndim - 1)) if math.prod(v.shape[:-1]) * 48 <= _LARGEST else None


@_motif(2)
def growing(rng: np.random.Generator, values: list[Any]) -> Any:
    """A value that grows, concatenation by concatenation."""
    y = values[-1]
    axis = int(rng.integers(y.ndim))
    for k in range(int(rng.integers(2, 4))):
        part = jnp.tanh(lax.slice_in_dim(y, 0, min(2, y.shape[axis]), axis=axis)) * np.float32(1.5 + k)
        y = lax.concatenate([y, part], axis)
        if y.size <= _LARGEST:
            values.append(y)
    return y


@_motif(2)
@_one
def layers(rng: np.random.Generator, v: Any) -> Any:
    """Equal layers, half of the time each with a scale of its own."""
    scales = (0.25, 0.37, 1.25, 0.5) if rng.random() < 0.5 else (0.5,) * 4
    w = jnp.asarray(np.random.default_rng(0).standard_normal((v.shape[-1], v.shape[-1])).astype(np.float32))
    for scale in scales:
        v = _bounded(lax.dot_general(v, w, (((v.ndim - 1,), (0,)), ((), ())))) * np.float32(scale)
    return v
