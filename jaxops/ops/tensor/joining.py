"""Operators that join arrays along an axis."""

__all__ = ["concat"]

from collections.abc import Sequence

import numpy as np
from jax import lax

from jaxops.attributes import axis as resolve_axis, integer
from jaxops.dtypes import unify, widened
from jaxops.errors import SignatureError
from jaxops.ops.common.result_sizes import bounded_like, with_sizes
from jaxops.ops.common.size_tracking import computes_sizes
from jaxops.shapes.tensor import joining as sizes_of
from jaxops.static import Array, foldable, jit_if_concrete


@foldable
@computes_sizes
def concat(inputs: Sequence[Array], *, axis: int) -> Array:
    """Joins arrays along an existing axis.

    inputs: at least one array, of one dtype and rank; their sizes may differ only along `axis`.
    axis: static, in [-n, n-1].
    Raises ShapeError when the sizes do not fit, DTypeError when the dtypes differ, AxisError.
    Source: ONNX Concat, opsets 1–13.

    >>> concat([np.zeros((2, 3)), np.zeros((2, 1))], axis=-1).shape
    (2, 4)
    """
    if len(inputs) == 0:
        raise SignatureError("concat: `inputs` is empty; at least one array is needed")
    return _concat(unify("concat", tuple(inputs)), integer("concat", "axis", axis))


@jit_if_concrete
def _concat(inputs: tuple[Array, ...], axis: int) -> Array:
    at = resolve_axis("concat", axis, inputs[0].ndim)
    sizes = sizes_of.concat([x.shape for x in inputs], at)
    if isinstance(inputs[0], np.ndarray):
        bounded_like("concat", sizes, inputs[0])
        return np.concatenate(inputs, axis=at)
    joined = widened(lambda arrays: lax.concatenate(arrays, at), inputs)
    return with_sizes("concat", joined, sizes, inputs[0].dtype)
