"""Operators that create an array from a value, a shape or the shape of another array."""

__all__ = ["constant", "constant_of_shape", "eye_like"]

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import check_not_negative, element_type, integer, ints
from jaxops.dtypes import as_traced, canonical, is_string
from jaxops.errors import DTypeError, ShapeError, SignatureError, describe, message
from jaxops.memory import bounded
from jaxops.ops.common.size_tracking import repeated
from jaxops.shapes.tensor import reshaping as sizes_of
from jaxops.signature import ElementType, ShapeOnly, Static, StaticInts, Traits
from jaxops.static import Ints, array, is_symbolic, known, static_array

TRAITS = Traits(foldable=True)

_ZERO = np.float32(0)


def constant(
    *,
    value: Static | None = None,
    sparse_value: Static | None = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> np.ndarray:
    """The given value as a static array; give exactly one.

    value, sparse_value: an array (dense in both cases). value_int, value_float, value_string: a scalar of int64, of
    float32, or a string. value_ints, value_floats, value_strings: a vector of such.
    Raises SignatureError unless exactly one value is given.
    Source: ONNX Constant, opsets 1–25.

    >>> constant(value_ints=(1, 2))
    array([1, 2])
    """
    values = {
        "value": (value, None),
        "sparse_value": (sparse_value, None),
        "value_int": (value_int, np.int64),
        "value_ints": (value_ints, np.int64),
        "value_float": (value_float, np.float32),
        "value_floats": (value_floats, np.float32),
        "value_string": (value_string, object),
        "value_strings": (value_strings, object),
    }
    names = [name for name, (chosen, _) in values.items() if chosen is not None]
    if len(names) != 1:
        raise SignatureError(f"give exactly one of {', '.join(values)}; got {', '.join(names) or 'none'}")
    chosen, dtype = values[names[0]]
    return np.asarray(chosen, dtype)


def constant_of_shape(input: StaticInts, *, value: Any = _ZERO) -> Any:
    """An array filled with one value.

    input: static, 1-D integers >= 0, the shape of the result. value: static, one number, which gives
    the elements and the dtype of the result. Returns a static array, unless a size is symbolic.
    Raises ArgumentError for a negative size, ShapeError for a value that is not one number.
    Source: ONNX ConstantOfShape, opsets 9–25.

    >>> constant_of_shape((2, 0), value=np.int64([7])).shape
    (2, 0)
    """
    sizes = sizes_of.countable(ints("input", input))
    fill = static_array(known("value", value))
    if fill.size != 1:
        raise ShapeError(message("`value` must be one number", value=fill))
    check_not_negative("input", sizes)
    if any(map(is_symbolic, sizes)):
        return repeated(fill, jnp.broadcast_to(as_traced(fill.reshape(())), sizes))
    # A broadcast view: a large constant takes memory once it becomes a JAX array. Strings are looked at one by one.
    bounded(sizes, fill.itemsize, computed=is_string(fill))
    return np.broadcast_to(fill.reshape(()), sizes)


def eye_like(input: ShapeOnly, *, dtype: ElementType | None = None, k: int = 0) -> Any:
    """Zeros in the shape of `input`, with ones on a diagonal.

    input: (n, m); only its shape and dtype are used. dtype: static, that of the result; None takes that of input.
    k: static, the diagonal; a positive k is above the main diagonal.
    Raises ShapeError when input is not a matrix, DTypeError when the result would be strings.
    Source: ONNX EyeLike, opsets 9–22.

    >>> eye_like(np.zeros((2, 3), np.int32), k=1)
    array([[0, 1, 0],
           [0, 0, 1]], dtype=int32)
    """
    x = array(input)
    if x.ndim != 2:
        raise ShapeError(f"the operand must be a matrix, got {describe(x)}")
    own_dtype = np.int64 if is_symbolic(x) else x.dtype
    kind = element_type("dtype", own_dtype if dtype is None else dtype)
    if kind.kind in "USTO":
        raise DTypeError(f"`dtype` is {kind.name}; it must be a numeric or boolean type")
    diagonal = integer("k", k)
    if isinstance(x, np.ndarray) and not is_symbolic(diagonal):
        bounded(x.shape, kind.itemsize)
        return np.eye(x.shape[0], x.shape[1], diagonal).astype(kind)
    row, column = (lax.broadcasted_iota(np.int32, x.shape, i) for i in (0, 1))
    if isinstance(diagonal, int):
        diagonal = min(max(diagonal, -(2**30)), 2**30)  # beyond every matrix
    row = row + lax.convert_element_type(diagonal, np.int32)
    return lax.convert_element_type(row == column, canonical(kind))
