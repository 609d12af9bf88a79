"""Reading and writing elements by index."""

from typing import Any

import numpy as np

from jaxops import ops
from jaxops.dtypes import is_float
from jaxops.errors import AxisError
from jaxops.openvino.registry import version
from jaxops.openvino.versions.arguments import Word, resolve_axis, scalar_like, single, vector
from jaxops.openvino.versions.arithmetic import floor_div
from jaxops.signature import ElementType, Static, Weight, like
from jaxops.static import Array, array, is_static, is_symbolic


@version("Gather", 1, of=ops.gather)
def gather_1(data: Weight[Array], indices: Array, axis: Static) -> Array:
    return ops.gather(data, indices, axis=single("Gather", "axis", axis))


@version("Gather", 7, of=ops.gather)
def gather_7(data: Weight[Array], indices: Array, axis: Static, *, batch_dims: int) -> Array:
    """`batch_dims` is the number of axes that data and indices share; if negative, the rank of indices is added."""
    return _gather(data, indices, axis, batch_dims, zero_fill=False)


@version("Gather", 8, of=ops.gather)
def gather_8(data: Weight[Array], indices: Array, axis: Static, *, batch_dims: int) -> Array:
    """An index that is out of range on either side reads zeros."""
    return _gather(data, indices, axis, batch_dims, zero_fill=True)


def _gather(data: Any, indices: Any, axis: Any, batch_dims: int, zero_fill: bool) -> Array:
    x, positions = array(data), array(indices)
    along = resolve_axis("Gather", single("Gather", "axis", axis), x.ndim)
    shared = batch_dims + positions.ndim if batch_dims < 0 else batch_dims
    if not 0 <= shared <= min(along, positions.ndim):
        raise AxisError(
            f"Gather: `batch_dims` is {batch_dims}; it must not exceed `axis`, {along}, and the rank of indices"
        )
    size = x.shape[along]
    inside = not zero_fill or _inside(positions, size)
    if not shared:
        if inside:
            return ops.gather(x, positions, axis=along)
        return _zeroed(x, positions, size, along, lambda p: ops.gather(x, p, axis=along))
    order = [*range(shared), along, *(a for a in range(shared, x.ndim) if a != along)]
    moved = ops.transpose(x, perm=order)
    read = lambda p: ops.gather_nd(moved, ops.unsqueeze(p, (-1,)), batch_dims=shared)  # noqa: E731
    picked = array(read(positions) if inside else _zeroed(x, positions, size, positions.ndim, read, trailing=True))
    between, extra = along - shared, positions.ndim - shared
    first = shared + extra
    order = [
        *range(shared),
        *range(first, first + between),
        *range(shared, first),
        *range(first + between, picked.ndim),
    ]
    return ops.transpose(picked, perm=order)


def _inside(positions: Any, size: Any) -> bool:
    """Returns True if all indices are known to be in range."""
    if is_symbolic(positions) or not is_static(positions) or not isinstance(size, int):
        return is_symbolic(positions)
    return not positions.size or bool(-size <= positions.min() and positions.max() < size)


def _zeroed(x: Any, positions: Any, size: Any, axis: int, read: Any, trailing: bool = False) -> Array:
    """Reads at indices that are in range, and gives zeros for the remaining ones."""
    positions = positions if is_float(positions.dtype) else ops.cast(positions, to=np.int64)
    limit = np.asarray(size, np.int64) if isinstance(size, int) else ops.gather(ops.shape(x), np.asarray(axis))
    good = ops.and_(ops.greater_or_equal(positions, ops.neg(limit)), ops.less(positions, limit))
    picked = array(read(ops.where(good, positions, np.zeros((), positions.dtype))))
    before = 0 if trailing else axis
    good = ops.reshape(good, [*[1] * before, *good.shape, *[1] * (picked.ndim - before - good.ndim)], allowzero=1)
    return ops.where(good, picked, scalar_like(picked, 0))


@version("GatherND", 5, of=ops.gather_nd)
def gather_nd_5(data: Array, indices: Array, *, batch_dims: int) -> Array:
    """Joins several batch axes into one."""
    picked = array(ops.gather_nd(data, indices, batch_dims=batch_dims))
    return ops.reshape(picked, [-1, *picked.shape[batch_dims:]]) if batch_dims > 1 else picked


version("GatherND", 8)(ops.gather_nd)


@version("ScatterUpdate", 3, of=ops.scatter_nd)
def scatter_update(data: Array, indices: Array, updates: Array, axis: Static) -> Array:
    """Writes along an axis, at indices of any rank."""
    x, positions = array(data), array(indices)
    along = resolve_axis("ScatterUpdate", single("ScatterUpdate", "axis", axis), x.ndim)
    first = [along, *(a for a in range(x.ndim) if a != along)]
    rank = positions.ndim
    moved = [*range(along, along + rank), *range(along), *range(along + rank, x.ndim - 1 + rank)]
    written = ops.scatter_nd(
        ops.transpose(x, perm=first), ops.unsqueeze(positions, (-1,)), ops.transpose(updates, perm=moved)
    )
    return ops.transpose(written, perm=np.argsort(first).tolist())


@version("ScatterElementsUpdate", 3, of=ops.scatter_elements)
def scatter_elements_update_3(data: Array, indices: Array, updates: Array, axis: Static) -> Array:
    return ops.scatter_elements(data, indices, updates, axis=single("ScatterElementsUpdate", "axis", axis))


_REDUCTIONS: dict[str, Any] = {"none": "none", "sum": "add", "sub": "add", "prod": "mul", "min": "min", "max": "max"}


@version("ScatterElementsUpdate", 12, of=ops.scatter_elements)
def scatter_elements_update_12(
    data: Array, indices: Array, updates: Array, axis: Static, *, reduction: Word, use_init_val: bool
) -> Array:
    """Without `use_init_val`, the data remains only where nothing is written. A mean of integers is rounded down."""
    along = single("ScatterElementsUpdate", "axis", axis)
    x = array(data)
    if reduction != "mean":
        if not use_init_val and reduction != "none":
            neutral = ops.expand(_neutral(reduction, x.dtype), np.shape(updates))
            x = ops.scatter_elements(x, indices, neutral, axis=along)
        return ops.scatter_elements(x, indices, updates, axis=along, reduction=_REDUCTIONS[reduction])
    ones, zeros = (ops.expand(scalar_like(x, n), np.shape(y)) for n, y in ((1, updates), (0, x)))
    counts = ops.scatter_elements(zeros, indices, ones, axis=along, reduction="add")
    if use_init_val:
        counts = ops.add(counts, scalar_like(x, 1))
        total = ops.scatter_elements(x, indices, updates, axis=along, reduction="add")
    else:
        total = ops.scatter_elements(zeros, indices, updates, axis=along, reduction="add")
    written = ops.greater(counts, scalar_like(x, 0))
    counts = ops.max([counts, scalar_like(x, 1)])
    mean = ops.div(total, counts) if is_float(x.dtype) else floor_div(total, counts)
    return ops.where(written, mean, x)


def _neutral(reduction: str, dtype: Any) -> np.ndarray:
    if reduction in ("sum", "prod"):
        return np.asarray(int(reduction == "prod"), dtype)
    if is_float(dtype):
        return np.asarray(np.inf if reduction == "min" else -np.inf, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(limits.max if reduction == "min" else limits.min, dtype)


version("ScatterNDUpdate", 4)(ops.scatter_nd)


@version("ScatterNDUpdate", 15, of=ops.scatter_nd)
def scatter_nd_update_15(data: Array, indices: Array, updates: Array, *, reduction: Word) -> Array:
    values = ops.neg(updates) if reduction == "sub" else updates
    return ops.scatter_nd(data, indices, values, reduction=_REDUCTIONS[reduction])


@version("OneHot", 16, of=ops.one_hot)
def one_hot_16(
    indices: Array, depth: Static, on_value: Array, off_value: Array, *, axis: int, negative_indices_mode: Word
) -> Array:
    values = ops.concat([ops.reshape(value, (1,)) for value in (off_value, on_value)], axis=0)
    count = single("OneHot", "depth", depth)
    return ops.one_hot(indices, count, values, axis=axis, wrap=negative_indices_mode == "normalize")


@version("OneHot", 1, of=ops.one_hot)
@like(one_hot_16, without=["negative_indices_mode"])
def one_hot_1(*inputs: Any, axis: int) -> Array:
    """An out-of-range or negative index gives a row of `off_value`."""
    return one_hot_16(*inputs, axis=axis, negative_indices_mode="ignore_negative")


@version("NonZero", 3, of=ops.nonzero)
def nonzero(x: Array, *, output_type: ElementType, size: Static = None) -> Array:
    return ops.cast(ops.nonzero(x, size=size), to=output_type)


@version("TopK", 3, of=ops.top_k)
def top_k_3(
    data: Array, k: Static, *, axis: int, mode: Word, sort: Word, index_element_type: ElementType
) -> tuple[Array, Array]:
    """`sort="index"` gives the elements in the order of `data`, whatever the mode."""
    values, places = ops.top_k(data, vector("TopK", "k", k), axis=axis, largest=int(mode == "max"))
    if sort == "index":
        places = ops.top_k(places, vector("TopK", "k", k), axis=axis, largest=0)[0]
        values = ops.gather_elements(data, places, axis=axis)
    return values, ops.cast(places, to=index_element_type)


@version("TopK", 1, of=ops.top_k)
@like(top_k_3, without=["index_element_type"])
def top_k_1(*inputs: Any, **attributes: Any) -> tuple[Array, Array]:
    return top_k_3(*inputs, index_element_type=np.dtype(np.int32), **attributes)


@version("TopK", 11, of=ops.top_k)
@like(top_k_3)
def top_k_11(*inputs: Any, stable: bool, **attributes: Any) -> tuple[Array, Array]:
    """Of equal elements the first one is taken, `stable` or not."""
    return top_k_3(*inputs, **attributes)


@version("Unique", 10, of=ops.unique)
def unique(
    x: Array,
    axis: Static = None,
    *,
    sorted: bool,
    index_element_type: ElementType,
    count_element_type: ElementType,
    size: Static = None,
) -> tuple[Array, ...]:
    along = None if axis is None else single("Unique", "axis", axis)
    values, first, inverse, counts = ops.unique(x, axis=along, sorted=int(sorted), size=size)
    first, inverse = (ops.cast(y, to=index_element_type) for y in (first, inverse))
    return values, first, inverse, ops.cast(counts, to=count_element_type)
