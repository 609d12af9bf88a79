"""Operators that make an array from a description of it."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxops.dtypes import as_traced
from jaxops.errors import ArgumentError, ShapeError, message
from jaxops.shapes import movement as sizes_of
from jaxops.static import Array, Static, ints, is_symbolic, known, structural

_ZERO = np.float32(0)


@structural
def constant_of_shape(input: Static, *, value: Any = _ZERO) -> Array:
    """An array of one value.

    input: static, 1-D integers >= 0, the shape of the result. value: static, one number of any dtype, the
    fill and the dtype of the result. Static, unless a size is symbolic.
    Raises ArgumentError for a negative size, ShapeError for a value that is not one number.
    Source: ONNX ConstantOfShape, opsets 9–25.

    >>> constant_of_shape((2, 0), value=np.int64([7])).shape
    (2, 0)
    """
    sizes = sizes_of.countable("constant_of_shape", ints("constant_of_shape", "input", input))
    fill = known("constant_of_shape", "value", value)
    if fill.size != 1:
        raise ShapeError(message("constant_of_shape", "`value` must be one number", value=fill))
    negative = [d for d in sizes if isinstance(d, int) and d < 0]
    if negative:
        raise ArgumentError(f"constant_of_shape: shape {sizes} holds {negative[0]}; sizes must not be negative")
    if any(map(is_symbolic, sizes)):
        return jnp.broadcast_to(as_traced(fill.reshape(())), sizes)
    # A view: a splat weight of many megabytes takes memory only once it becomes a JAX array.
    return np.broadcast_to(fill.reshape(()), sizes)
