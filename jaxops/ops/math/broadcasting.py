"""Broadcasting to a shape."""

__all__ = ["expand"]

import numpy as np
from jax import lax

from jaxops.attributes import check_not_negative, ints
from jaxops.dtypes import is_string, traced_for_sizes
from jaxops.memory import bounded
from jaxops.ops.common.chosen_strings import moves_strings
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.common.size_tracking import repeated
from jaxops.shapes.math.broadcasting import broadcast
from jaxops.shapes.tensor import reshaping as sizes_of
from jaxops.signature import StaticInts, Traits
from jaxops.static import A, Array, Operand, Sizes, jit_if_concrete

TRAITS = Traits(kind="movement", foldable=True)


@moves_strings(0)
def expand(input: Operand[A], shape: StaticInts) -> A:
    """Broadcasts `input` against `shape`, in both directions: the result may be larger than `shape`.

    input: any dtype. shape: static, 1-D integers or one integer; a 1 keeps the size of the input. Returns the dtype of
    input, of the common shape.
    Raises ShapeError when the two do not broadcast, ArgumentError for a negative size.
    Source: ONNX Expand, opsets 8–13.

    >>> expand(np.zeros((3, 1)), (2, 1, 6)).shape
    (2, 3, 6)
    """
    return repeated(input, _expand(input, ints("shape", shape, single=True)))


@jit_if_concrete
def _expand(input: Array, shape: Sizes) -> Array:
    check_not_negative("shape", shape)
    sizes = sizes_of.countable(broadcast(input.shape, shape))
    # NumPy's result is a view; but strings are looked at one by one.
    bounded(sizes, input.dtype.itemsize, computed=isinstance(input, np.ndarray) and is_string(input))
    input = traced_for_sizes(input, sizes)
    if isinstance(input, np.ndarray):
        return np.broadcast_to(input, sizes)
    if sizes == input.shape:
        return input
    y = lax.broadcast_in_dim(input, sizes, tuple(range(len(sizes) - input.ndim, len(sizes))))
    return assert_sizes(y, sizes, input.dtype)
