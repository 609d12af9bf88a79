"""Searches in sorted sequences."""

__all__ = ["bucketize", "search_sorted"]

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import flag
from jaxops.dtypes import as_traced, canonical, unify
from jaxops.errors import ShapeError, shape_text
from jaxops.ops.common.elementwise import require
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.openvino.suppression import index_type
from jaxops.shapes.arithmetic import all_agree, must_fit
from jaxops.signature import ElementType, Traits
from jaxops.static import ArrayLike, jit_if_concrete

TRAITS = Traits(precision="exact", differentiable=False)


def bucketize(
    data: ArrayLike, buckets: ArrayLike, *, output_type: ElementType = "int64", with_right_bound: bool = True
) -> jax.Array:
    """Returns the bucket of each element, which is the number of boundaries before it.

    data: any sizes. buckets: (n,), ascending. Real numbers. Returns the sizes of data, of output_type. An element
    that equals a boundary counts as before it with `with_right_bound`, else as after it.
    Raises ShapeError, DTypeError. Source: OpenVINO Bucketize-3.

    >>> bucketize(jnp.array([[3, 50], [10, -1]]), jnp.array([0, 5, 10])).tolist()
    [[1, 3], [2, 0]]
    """
    x, bounds = as_traced(data), as_traced(buckets)
    require("real numbers", x, bounds)
    must_fit("buckets", bounds.shape, ("n",))
    kind = index_type(output_type)
    right = flag("with_right_bound", with_right_bound)
    return _places((bounds, x), "left" if right else "right").astype(kind)


def search_sorted(
    sorted_sequence: ArrayLike, values: ArrayLike, *, right_mode: bool = False, output_type: ElementType = "int64"
) -> jax.Array:
    """Returns the index at which each value can be inserted into an ascending sequence.

    sorted_sequence: (…, n), and values: (…, m) with the same leading axes; or (n,) and any sizes. Real numbers of one
    dtype. Returns the sizes of values, of output_type. right_mode: True for the index after equal elements, False
    before.
    Raises ShapeError, DTypeError. Source: OpenVINO SearchSorted-15.

    >>> search_sorted(jnp.array([1, 3, 3, 5]), jnp.array([3, 6])).tolist()
    [1, 4]
    """
    sequence, x = (as_traced(v) for v in unify((sorted_sequence, values), ("sorted_sequence ", "values ")))
    require("real numbers", sequence)
    problem = (
        f"`sorted_sequence` of {shape_text(sequence.shape)} must have one axis, or the leading axes of `values` "
        f"{shape_text(x.shape)}"
    )
    if sequence.ndim == 0 or (sequence.ndim > 1 and not all_agree(problem, sequence.shape[:-1], x.shape[:-1])):
        raise ShapeError(problem)
    side = "right" if flag("right_mode", right_mode) else "left"
    return _places((sequence, x), side).astype(index_type(output_type))


@jit_if_concrete
def _places(operands: tuple[Any, Any], side: Any) -> Any:
    sequence, x = operands
    sizes = x.shape
    if sequence.dtype != x.dtype:
        work = canonical(np.promote_types(sequence.dtype, x.dtype))
        sequence, x = sequence.astype(work), x.astype(work)
    if sequence.ndim == 1:
        found = jnp.searchsorted(sequence, x.reshape(-1), side=side)
    else:
        rows = sequence.reshape(-1, sequence.shape[-1]), x.reshape(-1, x.shape[-1])
        found = jax.vmap(lambda s, v: jnp.searchsorted(s, v, side=side))(*rows)
    return assert_sizes(found.reshape(sizes).astype(np.int32), sizes)
