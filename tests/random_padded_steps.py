"""Steps of random programs of symbolic sizes: moves, slices, gathers and combinations of rows."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxops
from jaxops.static import is_symbolic

# `at` replaces symbolic sizes by numbers, where a program runs on exact sizes.
At = Callable[[Any], Any]
Operation = Callable[..., Any]
# (random numbers, the values so far) → (the operation, the positions of its operands); None if it does not apply.
Motif = Callable[[np.random.Generator, "Values"], tuple[Operation, tuple[int, ...]] | None]
MOTIFS: list[Motif] = []


class Values(NamedTuple):
    """The types of values of a program, with symbolic shapes."""

    types: list[jax.ShapeDtypeStruct]

    def one(self, rng: np.random.Generator, least: int = 0) -> tuple[int, Any]:
        """Returns one of the last values with at least so many axes: its position and type."""
        found = [k for k, x in enumerate(self.types) if len(x.shape) >= least]
        position = int(rng.choice(found[-5:])) if found else 0
        return position, self.types[position]


def _motif(weight: int = 1, axes: int = 1) -> Callable[[Callable[..., Operation | None]], Motif]:
    """Adds a motif of one value with at least `axes` axes: fn(rng, its shape, its dtype) returns the operation."""

    def add(fn: Callable[..., Operation | None]) -> Motif:
        def motif(rng: np.random.Generator, values: Values) -> tuple[Operation, tuple[int, ...]] | None:
            position, x = values.one(rng, axes)
            operation = fn(rng, x.shape, np.dtype(x.dtype)) if len(x.shape) >= axes else None
            return None if operation is None else (operation, (position,))

        MOTIFS.extend([motif] * weight)
        return motif

    return add


def _small(x: Any) -> Any:
    """Returns whole numbers from -4 to 4, in a dtype whose sums are exact."""
    if x.dtype == np.bool_:
        return x
    y = lax.clamp(np.array(0 if x.dtype == np.uint8 else -4, x.dtype), x, np.array(4, x.dtype))
    return lax.floor(y) if jnp.issubdtype(y.dtype, jnp.floating) else y


def _wide(x: Any) -> Any:
    return x.astype(np.int32) if x.dtype in (np.bool_, np.uint8) else x


def _axis(rng: np.random.Generator, shape: Any) -> int:
    """Returns an axis, most often one of a symbolic size."""
    symbolic = [k for k, d in enumerate(shape) if is_symbolic(d)]
    return int(rng.choice(symbolic)) if symbolic and rng.random() < 0.8 else int(rng.integers(len(shape)))


def _pick(rng: np.random.Generator, items: Any) -> Any:
    return items[rng.integers(len(items))]


@_motif(5, axes=0)
def elementwise(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    number = int(rng.integers(1, 4))
    kinds = [
        lambda at, x: _small(_wide(x) + np.array(number, _wide(x).dtype)),
        lambda at, x: _small(np.array(number, _wide(x).dtype) - _wide(x)),
        lambda at, x: -_wide(x),
        lambda at, x: lax.abs(_wide(x)),
        lambda at, x: x > np.array(number % 2, x.dtype),
        lambda at, x: x == np.array(0, x.dtype),
        lambda at, x: lax.select(x > np.array(0, x.dtype), x, lax.full_like(x, 1)),
        lambda at, x: lax.max(x, np.array(1, x.dtype)),
    ]
    return _pick(rng, kinds)


@_motif(2, axes=0)
def cast(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    to = _pick(rng, [np.float32, np.float32, np.int32, np.uint8, np.bool_])
    return lambda at, x: (jnp.abs(x) if to == np.uint8 and x.dtype != np.bool_ else x).astype(to)


def _of_two(rng: np.random.Generator, values: Values) -> tuple[Operation, tuple[int, ...]] | None:
    position, x = values.one(rng)
    same = [k for k, y in enumerate(values.types) if y.shape == x.shape and y.dtype == x.dtype]
    other = int(rng.choice(same))
    if x.dtype == np.bool_:
        return (lambda at, x, y: x & ~y), (position, other)
    kinds = [
        lambda at, x, y: _small(_wide(x) * _wide(y)),
        lambda at, x, y: _small(x + y),
        lambda at, x, y: lax.select(x > y, x, y),
        lambda at, x, y: lax.concatenate([x, y], x.ndim - 1),
        lambda at, x, y: lax.concatenate([y, x], 0),
    ]
    return _pick(rng, kinds), (position, other)


MOTIFS.extend([_of_two] * 4)


@_motif(2, axes=2)
def transpose(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    perm = tuple(rng.permutation(len(shape)).tolist())
    return lambda at, x: lax.transpose(x, perm)


@_motif(4)
def reshape(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    k = int(rng.integers(len(shape)))
    new: list[Any] = [(*shape[:k], 1, *shape[k:]), (math.prod(shape),), (*shape[:k], math.prod(shape[k:]))]
    new.append((math.prod(shape[: k + 1]), *shape[k + 1 :]))
    if shape[k] % 2 == 0:
        new += [(*shape[:k], 2, shape[k] // 2, *shape[k + 1 :]), (*shape[:k], shape[k] // 2, 2, *shape[k + 1 :])]
    chosen = _pick(rng, new)
    return lambda at, x: lax.reshape(x, at(chosen))


@_motif(8)
def sliced(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis = _axis(rng, shape)
    starts, limits, steps = [0] * len(shape), list(shape), [1] * len(shape)
    d = shape[axis]
    places = [(0, d - 1, 1), (0, d - 1, 1), (0, d // 2, 1), (0, d - 2, 1), (0, 2, 1), (1, d, 1), (1, d - 1, 1)]
    places += [(1, 3, 1), (d // 2, d, 1), (d - 2, d, 1), (0, d, 2), (1, d, 2), (0, d // 2, 2), (d // 2, d - 1, 1)]
    starts[axis], limits[axis], steps[axis] = _pick(rng, places)
    for other, size in enumerate(shape):
        if other != axis and isinstance(size, int) and size > 1 and rng.random() < 0.3:
            starts[other], limits[other] = _pick(rng, [(0, 1), (1, size)])
    return lambda at, x: lax.slice(x, at(starts), at(limits), steps)


@_motif(2)
def split(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis, piece = _axis(rng, shape), int(rng.integers(2))
    d = shape[axis]
    sizes = _pick(rng, [(d - 1, 1), (1, d - 1), (d // 2, d - d // 2), (2, d - 2)])
    return lambda at, x: lax.split(x, at(sizes), axis)[piece]


@_motif(3)
def joined(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis, order = _axis(rng, shape), rng.permutation(3)
    row = tuple(2 if k == axis else d for k, d in enumerate(shape))
    new = np.array(rng.integers(0, 2), dtype)

    def operation(at: At, x: Any) -> Any:
        parts = [x, lax.full(at(row), new), lax.slice_in_dim(x, 0, 1, axis=axis)]
        return lax.concatenate([parts[k] for k in order], axis)

    return operation


@_motif(4)
def padded(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    config: list[tuple[Any, Any, int]] = [(0, 0, 0) for _ in shape]
    axis, fill = _axis(rng, shape), np.array(rng.choice([0, 0, 1]), dtype)
    d = shape[axis]
    lows, highs = [0, 0, 1, 2, -1, d // 2], [0, 1, 2, -1, -1, -2, d // 2, -(d // 2)]
    config[axis] = _pick(rng, lows), _pick(rng, highs), 0
    other = int(rng.integers(len(shape)))
    if isinstance(shape[other], int) and other != axis:
        config[other] = 1, 0, 1
    return lambda at, x: lax.pad(x, fill, at(config))


@_motif(6)
def reduction(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis = _axis(rng, shape)
    axes = (axis,) if rng.random() < 0.6 else tuple(range(len(shape)))
    if dtype == np.bool_:
        return _pick(rng, [lambda at, x: lax.reduce_or(x, axes), lambda at, x: lax.reduce_and(x, axes)])
    kinds = [
        lambda at, x: _small(lax.reduce_sum(_wide(x), axes)),
        lambda at, x: _small(lax.reduce_sum(_wide(x), axes)),
        lambda at, x: lax.reduce_max(x, axes),
        lambda at, x: lax.reduce_min(x, axes),
        lambda at, x: lax.reduce_prod(lax.sign(_wide(x)), axes),
        lambda at, x: _small(jnp.mean(_wide(x).astype(np.float32), axes)),
        lambda at, x: lax.argmax(x, axis, np.int32),
        lambda at, x: lax.argmin(x, axis, np.int32),
        lambda at, x: (
            x - lax.broadcast_in_dim(lax.reduce_max(x, (axis,)), x.shape, [k for k in range(x.ndim) if k != axis])
        ),
    ]
    return _pick(rng, kinds)


@_motif(4)
def cumulative(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis, reverse = _axis(rng, shape), bool(rng.random() < 0.6)
    kinds = [
        lambda at, x: _small(lax.cumsum(_wide(x), axis, reverse=reverse)),
        lambda at, x: _small(lax.cumsum(_wide(x), axis, reverse=reverse)),
        lambda at, x: lax.cummax(_wide(x), axis, reverse=reverse),
        lambda at, x: lax.cummin(_wide(x), axis, reverse=reverse),
        lambda at, x: lax.cumprod(lax.sign(_wide(x)), axis, reverse=reverse),
    ]
    return _pick(rng, kinds)


@_motif(4)
def product(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    """Products of a value with itself, summed over one axis, with another as batch."""
    axis, batch = _axis(rng, shape), int(rng.integers(len(shape)))
    batches = ((batch,), (batch,)) if batch != axis and rng.random() < 0.5 else ((), ())
    other = np.float32(rng.integers(1, 3))

    def operation(at: At, x: Any) -> Any:
        x = x.astype(np.float32) if x.dtype in (np.bool_, np.uint8) else x
        y = x if other == 1 else x + np.array(1, x.dtype)
        return _small(lax.dot_general(x, y, (((axis,), (axis,)), batches)))

    return operation


@_motif(4)
def windows(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis, kernel, stride, dilation = _axis(rng, shape), *rng.integers(1, 4, 3).tolist()
    pads = tuple(rng.integers(0, 3, 2).tolist())  # XLA aborts on some negative ones

    def by_axis(value: Any, other: Any = 1) -> list[Any]:
        return [value if k == axis else other for k in range(len(shape))]

    arguments = by_axis(kernel), by_axis(stride), by_axis(pads, (0, 0)), by_axis(1), by_axis(dilation)
    kinds = [
        lambda at, x: _small(lax.reduce_window(_wide(x), np.array(0, _wide(x).dtype), lax.add, *arguments)),
        lambda at, x: _small(lax.reduce_window(_wide(x).astype(np.float32), np.float32(-np.inf), lax.max, *arguments)),
        lambda at, x: _small(lax.reduce_window(_wide(x).astype(np.float32), np.float32(np.inf), lax.min, *arguments)),
    ]
    return _pick(rng, kinds)


@_motif(4)
def pools(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    """Convolutions and pools along the last axis."""
    rows, kernel, stride = math.prod(shape[:-1]), int(rng.integers(1, 4)), int(rng.integers(1, 3))
    pads = tuple(rng.integers(0, kernel, 2).tolist())
    kinds = [
        lambda x: jaxops.conv(x, jnp.arange(-1.0, kernel - 1).reshape(1, 1, -1), pads=pads, strides=(stride,)),
        lambda x: jaxops.max_pool(x, kernel_shape=(kernel,), pads=pads, strides=(stride,)),
        lambda x: jaxops.average_pool(x, kernel_shape=(kernel,), pads=pads, strides=(stride,)),
        lambda x: jaxops.average_pool(x, kernel_shape=(kernel,), pads=pads, count_include_pad=1, ceil_mode=1),
    ]
    kind = _pick(rng, kinds)
    channels = shape[0] if len(shape) > 1 and isinstance(shape[0], int) else None
    if channels is not None and rng.random() < 0.5:
        w = jnp.asarray(rng.integers(-1, 2, (2, channels, kernel)), np.float32)
        images = (1, channels, rows // channels, shape[-1])
        return lambda at, x: _small(
            jaxops.conv(lax.reshape(x.astype(np.float32), at(images)), w[:, :, None], pads=(0, pads[0], 0, pads[1]))
        )
    return lambda at, x: _small(kind(lax.reshape(x.astype(np.float32), at((rows, 1, shape[-1])))))


@_motif(4)
def gathered(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis = _axis(rng, shape)
    d, table, mode = shape[axis], jnp.asarray(rng.integers(-2, 12, 3), np.int32), _pick(rng, ["clip", "fill"])
    fill = None if mode == "clip" else True if dtype == np.bool_ else 3

    def take(x: Any, indices: Any, axis: int) -> Any:
        return jnp.take(x, indices, axis=axis, mode=mode, fill_value=fill)

    kinds = [
        lambda at, x: take(x, table, axis),
        lambda at, x: take(x, at(d) - 1 - jnp.arange(at(d)), axis),
        lambda at, x: take(x, jnp.arange(at(d)) * 2 % 5, axis),
        lambda at, x: take(jnp.arange(1, 11, dtype=np.int32), x.astype(np.int32), 0),
        lambda at, x: lax.slice_in_dim(jnp.arange(1, 41, dtype=np.int32).reshape(20, 2), 0, at(d)),
        lambda at, x: jnp.take_along_axis(x, jnp.argsort(x, axis), axis),
        lambda at, x: lax.dynamic_slice_in_dim(x, table[0], 2, axis),
        lambda at, x: lax.dynamic_slice_in_dim(x, table[0], at(d) - 2, axis),
    ]
    return _pick(rng, kinds)


@_motif(4)
def scattered(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis, table = _axis(rng, shape), jnp.asarray(rng.choice(11, 2, replace=False), np.int32)
    d = shape[axis]

    def first(x: Any) -> Any:
        return jnp.moveaxis(x, axis, 0)

    def rows(x: Any, count: int) -> Any:
        return lax.slice_in_dim(first(x), 0, count)

    kinds = [
        lambda at, x: first(x).at[table].set(rows(x, 2), mode="drop"),
        lambda at, x: first(x).at[table].max(rows(x, 2), mode="drop"),
        lambda at, x: _small(first(_wide(x)).at[table % 3].add(rows(_wide(x), 2))),
        lambda at, x: first(x).at[at(d) - 1 - jnp.arange(at(d))].set(first(x), unique_indices=True),
        lambda at, x: _small(jnp.zeros_like(rows(_wide(x), 3)).at[jnp.arange(at(d)) % 3].add(first(_wide(x)))),
        lambda at, x: first(x).at[jnp.arange(at(d - 1)) + 1].set(lax.slice_in_dim(first(x), 0, at(d - 1))),
        lambda at, x: lax.dynamic_update_slice_in_dim(first(x), rows(x, 2), table[0], 0),
        lambda at, x: lax.dynamic_update_slice_in_dim(first(x), rows(x, 1), at(d) - 1, 0),
        lambda at, x: lax.dynamic_update_slice(first(x), first(x), [np.int32(0)] * x.ndim),
    ]
    return _pick(rng, kinds)


@_motif(3)
def ordered(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis = _axis(rng, shape)
    kinds = [
        lambda at, x: lax.rev(x, (axis,)),
        lambda at, x: lax.sort(x, axis),
        lambda at, x: jnp.argsort(x, axis),
        lambda at, x: lax.top_k(jnp.moveaxis(_wide(x), axis, -1), 2)[0],
        lambda at, x: lax.top_k(jnp.moveaxis(_wide(x), axis, -1), 1)[1],
    ]
    return _pick(rng, kinds)


@_motif(3, axes=0)
def spread(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    sizes = [d for d in shape if is_symbolic(d)] or [2]
    d, place = _pick(rng, [*sizes, 2]), int(rng.integers(len(shape) + 1))
    new = (*shape[:place], d, *shape[place:])
    axes = [k for k in range(len(new)) if k != place]
    kinds = [
        lambda at, x: lax.broadcast_in_dim(x, at(new), axes),
        lambda at, x: jnp.where(lax.broadcasted_iota(np.int32, at(new), place) > 1, np.array(0, x.dtype), 1).astype(
            x.dtype
        ),
        lambda at, x: _small(_wide(x) + jnp.asarray(at(d)).astype(_wide(x).dtype) - np.array(5, _wide(x).dtype)),
    ]
    return _pick(rng, kinds)


@_motif(3)
def loops(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    axis, reverse = _axis(rng, shape), bool(rng.integers(2))

    def scan(at: At, x: Any) -> Any:
        rows = jnp.moveaxis(_wide(x), axis, 0)

        def step(state: Any, row: Any) -> Any:
            return _small(state + row), _small(state * row.sum().astype(row.dtype))

        last, all_rows = lax.scan(step, lax.index_in_dim(rows, 0, keepdims=False), rows, reverse=reverse)
        return all_rows if reverse else last

    def total(x: Any) -> Any:
        return lax.reduce_sum(x, tuple(range(x.ndim)))

    kinds = [
        scan,
        lambda at, x: lax.fori_loop(0, 2, lambda _, y: _small(y + lax.cumsum(y, axis, reverse=True)), _wide(x)),
        lambda at, x: lax.while_loop(
            lambda y: total(y) < 9,
            lambda y: y + np.array(1, y.dtype) + lax.reduce_max(y, tuple(range(y.ndim))),
            jnp.abs(_wide(x)),
        ),
        lambda at, x: lax.cond(total(_wide(x)) > 0, lambda y: _small(y + total(y)), lambda y: y, _wide(x)),
        lambda at, x: jax.jit(lambda y: _small(total(y) - y))(_wide(x)),
    ]
    return _pick(rng, kinds)


@_motif(2)
def rounded(rng: np.random.Generator, shape: Any, dtype: Any) -> Operation:
    """Results that are equal only to rounding, and no whole numbers, so no step reads them."""
    axis = _axis(rng, shape)
    kinds = [
        lambda x: jaxops.softmax(x, axis=axis),
        lambda x: jax.nn.logsumexp(x, axis),
        lambda x: jnp.std(x, axis),
        lambda x: lax.cumlogsumexp(x, axis, reverse=True),
        lambda x: jaxops.layer_normalization(x, jnp.ones(x.shape[axis:]), axis=axis)[0],
        lambda x: jnp.sqrt((x * x).sum(axis)),
    ]
    kind = _pick(rng, kinds)
    return lambda at, x: kind(x.astype(np.float32))
