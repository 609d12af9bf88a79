"""Operators that write elements by index.

An out-of-range static index raises BoundsError. An update at an out-of-range traced index is dropped.
"""

__all__ = ["scatter_elements", "scatter_nd", "tensor_scatter"]

import functools
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, one_of
from jaxops.dtypes import as_traced, at_least_int32, unify
from jaxops.errors import AxisError, DTypeError, ShapeError, describe
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.indices import checked_indices, from_start
from jaxops.shapes import arithmetic as of_sizes
from jaxops.shapes.tensor import indexing as sizes_of
from jaxops.signature import Cache, Traits, operator
from jaxops.static import A, ArrayLike, Operand, array, beside, is_static, is_symbolic, jit_if_concrete, static_array

TRAITS = Traits(foldable=True)

Reduction = Literal["none", "add", "mul", "max", "min"]
TensorScatterMode = Literal["linear", "circular"]


@functools.partial(jax.custom_jvp, nondiff_argnums=(3, 4))
def _scatter_mul(data: Any, indices: Any, updates: Any, dims: Any, mode: str) -> Any:
    """`lax.scatter_mul`, whose own derivative needs distinct indices."""
    return lax.scatter_mul(data, indices, updates, dims, mode=mode)


@_scatter_mul.defjvp
def _scatter_mul_jvp(dims: Any, mode: str, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (data, indices, updates), (data_dot, _, updates_dot) = primals, tangents
    zero = updates == 0
    ones, zeros = jnp.ones_like(data), jnp.zeros_like(data)
    # For each update, the product of the other updates at its position: the product of all nonzero updates there,
    # divided by the update itself; or 0 if another update is 0.
    nonzero = jnp.where(zero, jnp.ones_like(updates), updates)
    product = _scatter_mul(ones, indices, nonzero, dims, mode)
    count = lax.scatter_add(zeros, indices, zero.astype(data.dtype), dims, mode=mode)
    product, count = (_gathered(x, indices, updates, dims) for x in (product, count))
    other_factors = jnp.where(count == zero.astype(count.dtype), product / nonzero, jnp.zeros_like(product))
    moved = lax.scatter_add(zeros, indices, updates_dot * other_factors, dims, mode=mode)
    factor = _scatter_mul(ones, indices, updates, dims, mode)
    return _scatter_mul(data, indices, updates, dims, mode), data_dot * factor + data * moved


def _gathered(x: Any, indices: Any, updates: Any, dims: lax.ScatterDimensionNumbers) -> Any:
    """The elements of x at the positions of the updates; any element for an update that is dropped."""
    gather_dims = lax.GatherDimensionNumbers(
        tuple(dims.update_window_dims), tuple(dims.inserted_window_dims), tuple(dims.scatter_dims_to_operand_dims)
    )
    window = iter(updates.shape[i] for i in dims.update_window_dims)
    sizes = tuple(1 if i in dims.inserted_window_dims else next(window) for i in range(x.ndim))
    return lax.gather(x, indices, gather_dims, sizes, mode="clip")


_REDUCTIONS = {
    "none": (lax.scatter, None),
    "add": (lax.scatter_add, np.add),
    # By position: JAX 0.10.1 counts a keyword as an array where it traces a custom derivative once more to lower it.
    "mul": (
        lambda data, indices, updates, dims, *, mode: _scatter_mul(data, indices, updates, dims, mode),
        np.multiply,
    ),
    "max": (lax.scatter_max, np.maximum),
    "min": (lax.scatter_min, np.minimum),
}
_OF_SIZES = {"max": np.frompyfunc(of_sizes.larger, 2, 1), "min": np.frompyfunc(of_sizes.smaller, 2, 1)}


def _reduction(reduction: Reduction, data: Any) -> Reduction:
    one_of("reduction", reduction, Reduction)
    if reduction != "none" and (data.dtype == bool or data.dtype.kind in "UST"):
        raise DTypeError(f"`reduction` {reduction!r} needs numbers, got {describe(data)}")
    return reduction


def _accumulates(operands: Any, result: Any, attributes: Mapping[str, Any]) -> bool:
    return attributes.get("reduction", "none") in ("add", "mul")


@operator(grows=_accumulates)
@moves_strings(0, 2)
def scatter_elements(
    data: Operand[A], indices: Operand[A], updates: Operand[A], *, axis: int = 0, reduction: Reduction = "none"
) -> A:
    """Writes each update at its own coordinates, except along `axis`, where `indices` gives the position.

    data: n axes, any dtype. indices: n axes, integers in [-d, d-1] of the axis; on other axes at most the size of data.
    updates: the shape of indices, the dtype of data. reduction: 'none' replaces, and the last of several updates to
    one position wins, as in onnxruntime; 'add', 'mul', 'max' and 'min' combine with the old element. Returns a new
    array like data.
    Raises BoundsError for an out-of-range static index, ArgumentError, AxisError, ShapeError, DTypeError.
    Source: ONNX ScatterElements, opsets 11–18; Scatter, opset 9.

    >>> scatter_elements(np.zeros((1, 4)), np.array([[1, 3]]), np.array([[5.0, 6.0]]), axis=1)
    array([[0., 5., 0., 6.]])
    """
    old, new = unify((data, updates), ("data ", "updates "))
    indices = beside(old, "indices", indices)
    along, how = resolve_axis(axis, old.ndim), _reduction(reduction, old)
    sizes_of.elements(old.shape, array(indices).shape, along)
    sizes_of.updates(array(indices).shape, new.shape)
    positions, inside = checked_indices(indices, old.shape[along])
    if is_static(old) and inside:
        coordinates = list(np.indices(positions.shape, sparse=True))
        coordinates[along] = np.asarray(positions)
        return _write(old, tuple(coordinates), new, how)
    return _scatter_elements(tuple(map(as_traced, (old, positions, new))), along, how, inside)


def _write(data: np.ndarray, coordinates: tuple[Any, ...], updates: Any, how: str) -> Any:
    result, combine = data.copy(), _REDUCTIONS[how][1]
    if is_symbolic(data) or is_symbolic(updates):
        result = result.astype(object)
        combine = _OF_SIZES.get(how, combine)
    if combine is None:
        result[coordinates] = updates[()]  # an object array would store the array itself as an element
    else:
        combine.at(result, coordinates, updates)
    return static_array(result, data)


@jit_if_concrete
def _scatter_elements(operands: tuple[Any, ...], axis: int, how: str, inside: bool) -> Any:
    data, indices, updates = operands
    if not inside:
        indices = from_start(indices, data.shape[axis])
    # Full coordinates, since batch axes would not allow `indices` smaller than `data`.
    coordinates = [
        indices if i == axis else lax.broadcasted_iota(indices.dtype, indices.shape, i) for i in range(data.ndim)
    ]
    every = tuple(range(data.ndim))
    dims = lax.ScatterDimensionNumbers((), every, every)
    return _REDUCTIONS[how][0](data, jnp.stack(coordinates, -1), updates, dims, mode=_mode(inside))


def _mode(inside: bool) -> str:
    return "promise_in_bounds" if inside else "drop"


@operator(grows=_accumulates)
@moves_strings(0, 2)
def scatter_nd(data: Operand[A], indices: Operand[A], updates: Operand[A], *, reduction: Reduction = "none") -> A:
    """Writes `updates` into `data` at the positions given by tuples of indices.

    data: n axes, any dtype. indices: (q…, k), integers; each tuple of k indexes the first k axes of data.
    updates: (q…) and the last n-k sizes of data, of the dtype of data. reduction: as in `scatter_elements`. Returns a
    new array like data.
    Raises BoundsError for an out-of-range static index, ArgumentError, ShapeError, DTypeError.
    Source: ONNX ScatterND, opsets 11–18.

    >>> scatter_nd(np.arange(4), np.array([[1], [3]]), np.array([7, 8]))
    array([0, 7, 2, 8])
    """
    old, new = unify((data, updates), ("data ", "updates "))
    indices = beside(old, "indices", indices)
    how = _reduction(reduction, old)
    sizes = array(indices).shape
    count = sizes_of.tuples(old.shape, sizes)
    sizes_of.updates((*sizes[:-1], *old.shape[count:]), new.shape)
    tuples, inside = checked_indices(indices, old.shape[:count])
    if is_static(old) and inside:
        return _write(old, tuple(np.moveaxis(np.asarray(tuples), -1, 0)), new, how)
    return _scatter_nd(tuple(map(as_traced, (old, tuples, new))), how, inside)


@jit_if_concrete
def _scatter_nd(operands: tuple[Any, ...], how: str, inside: bool) -> Any:
    data, indices, updates = operands
    count = indices.shape[-1]
    if not inside:
        indices = from_start(indices, data.shape[:count])
    window = tuple(range(indices.ndim - 1, updates.ndim))
    dims = lax.ScatterDimensionNumbers(window, tuple(range(count)), tuple(range(count)))
    return _REDUCTIONS[how][0](data, indices, updates, dims, mode=_mode(inside))


@operator(foldable=False)
def tensor_scatter(
    past_cache: Cache[ArrayLike],
    update: ArrayLike,
    write_indices: ArrayLike | None = None,
    *,
    axis: int = -2,
    mode: TensorScatterMode = "linear",
) -> jax.Array:
    """Writes new steps into a cache of sequences, for each sequence from an index of its own on.

    past_cache: (batch, …), any dtype. update: the same shape, except that it may be shorter along `axis`.
    write_indices: (batch,) integers, the index of the first step; None means 0. mode: 'linear' drops steps beyond the
    end; 'circular' continues at the start. Returns the shape and dtype of past_cache.
    Raises ArgumentError, AxisError for axis 0, ShapeError, DTypeError.
    Source: ONNX TensorScatter, opset 24.

    >>> tensor_scatter(jnp.zeros((1, 3, 1)), jnp.ones((1, 1, 1)), jnp.array([2])).ravel().tolist()
    [0.0, 0.0, 1.0]
    """
    cache, update = (as_traced(v) for v in unify((past_cache, update), ("past_cache ", "update ")))
    along = resolve_axis(axis, cache.ndim)
    if along == 0:
        raise AxisError("`axis` is 0, the batch axis; it must be a later one")
    one_of("mode", mode, TensorScatterMode)
    if update.ndim != cache.ndim:
        raise ShapeError(f"`update` has {update.ndim} axes, but `past_cache` has {cache.ndim}")
    sizes_of.updates((*cache.shape[:along], update.shape[along], *cache.shape[along + 1 :]), update.shape)
    first = as_traced(np.zeros(1, np.int32) if write_indices is None else write_indices)
    if first.ndim != 1 or not jnp.issubdtype(first.dtype, jnp.integer):
        raise DTypeError(f"`write_indices` must be a vector of integers, got {describe(first)}")
    problem = f"`write_indices` has {first.shape[0]} entries, but the batch has {cache.shape[0]}"
    if not of_sizes.sizes_fit(problem, first.shape, cache.shape[:1], (1,)):
        raise ShapeError(problem)
    first = jnp.broadcast_to(at_least_int32(first), cache.shape[:1])
    return _tensor_scatter((cache, update, first), along, mode == "circular")


@jit_if_concrete
def _tensor_scatter(operands: tuple[Any, Any, Any], axis: int, circular: bool) -> Any:
    cache, update, first = operands
    shape = (update.shape[0], update.shape[axis])
    step = jnp.broadcast_to(first[:, None], shape) + lax.broadcasted_iota(first.dtype, shape, 1)
    if circular:
        step = lax.rem(step, jnp.broadcast_to(jnp.asarray(cache.shape[axis], step.dtype), shape))
    coordinates = jnp.stack([lax.broadcasted_iota(step.dtype, shape, 0), step], -1)
    window = tuple(i for i in range(update.ndim) if i not in (0, axis))
    dims = lax.ScatterDimensionNumbers(window, (0, axis), (0, axis))
    return lax.scatter(cache, coordinates, update, dims, mode="drop")
