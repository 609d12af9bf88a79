"""Operators that select features, or put them side by side."""

__all__ = ["array_feature_extractor", "feature_vectorizer"]

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import ints
from jaxops.dtypes import is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, amount, describe, shape_text
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.result_sizes import assert_sizes
from jaxops.ops.ml.scores import rows
from jaxops.ops.nn.flattening import flatten
from jaxops.ops.tensor.gathering import gather
from jaxops.shapes.arithmetic import must_agree
from jaxops.signature import operator
from jaxops.static import A, ArrayLike, Dim, Ints, Operand, Sizes, array, jit_if_concrete

# Up to this many static indices are read by slices. XLA would make one loop of many gathers and their readers, which
# takes longer to compile and to run.
_FEW = 8


@operator(foldable=True)
def array_feature_extractor(x: Operand[A], y: Operand[A]) -> Any:
    """The elements of the last axis at the indices `y`.

    x: (…, features), any dtype; strings are static. y: integers, any shape, their order is that of the result; negative
    ones count from the end, as in the reference evaluator of the standard. Returns (…, y.size) in x's dtype, and
    (1, y.size) for x with one axis, as onnxruntime does. Strings at traced indices are NumPy strings outside of `jit`,
    and `ChosenStrings` inside.
    Raises BoundsError for an out-of-range static index, ShapeError for x without axes, DTypeError.
    Source: ONNX ai.onnx.ml.ArrayFeatureExtractor, opset 1.

    >>> array_feature_extractor(jnp.array([[1, 2, 3], [4, 5, 6]]), np.array([2, 0])).tolist()
    [[3, 1], [6, 4]]
    """
    rows, columns = array(x), array(y)
    if rows.ndim == 0:
        raise ShapeError(f"x must have at least one axis, but is {describe(rows)}")
    indices = columns.reshape(-1)
    rows = rows[None] if rows.ndim == 1 else rows
    if isinstance(rows, np.ndarray) and is_string(rows) and isinstance(columns, jax.Array):
        if not jnp.issubdtype(columns.dtype, jnp.integer):
            raise DTypeError(f"y is {describe(columns)}; the indices must be integers, convert with jaxops.cast")
        positions = np.arange(rows.size, dtype=np.int32).reshape(rows.shape)
        return ChosenStrings.of(gather(jnp.asarray(positions), indices, axis=-1), rows.reshape(-1))
    if isinstance(rows, jax.Array) and isinstance(indices, np.ndarray) and _are_few(indices, rows.shape[-1]):
        return _columns(rows, tuple(int(column) % rows.shape[-1] for column in indices))
    return gather(rows, indices, axis=-1)


def _are_few(indices: np.ndarray, count: Dim) -> bool:
    """Returns True for few indices that are all in range."""
    if not 0 < indices.size <= _FEW or indices.dtype.kind not in "iu" or not isinstance(count, int):
        return False
    return bool(np.all((-count <= indices) & (indices < count)))


@jit_if_concrete
def _columns(x: jax.Array, columns: tuple[int, ...]) -> jax.Array:
    starts = [k for k, column in enumerate(columns) if k == 0 or column != columns[k - 1] + 1]
    runs = [columns[begin:end] for begin, end in itertools.pairwise([*starts, len(columns)])]
    parts = [lax.slice_in_dim(x, run[0], run[-1] + 1, axis=x.ndim - 1) for run in runs]
    return parts[0] if len(parts) == 1 else lax.concatenate(parts, x.ndim - 1)


def _joined_sizes(sizes: list[Sizes], widths: tuple[int, ...] | None) -> Sizes:
    """The sizes (rows, sum of the widths) for matrices with one number of rows. widths: None keeps their own."""
    if widths is not None and len(widths) != len(sizes):
        has = amount(len(widths), "value")
        raise ShapeError(f"`inputdimensions` has {has}; it must have {len(sizes)}, one per input")
    for index, size in enumerate(sizes):
        if size[0] != sizes[0][0]:
            must_agree(
                f"input {index} of {shape_text(size)} has {size[0]} rows, but the first has {sizes[0][0]}",
                size[:1],
                sizes[0][:1],
            )
    own_widths = [size[1] for size in sizes]
    return sizes[0][0], sum(own_widths if widths is None else widths)


def feature_vectorizer(x: Sequence[ArrayLike], *, inputdimensions: Ints | None = None) -> jax.Array:
    """The columns of all inputs side by side, as float32.

    x: one or more of (rows, columns), or (columns,) for one row; real numbers. Further axes are joined to the columns,
    as in onnxruntime. inputdimensions: static, how many columns each input has in the result: surplus ones are cut off
    and zeros fill missing ones, as in onnxruntime; None keeps them. Returns float32 (rows, sum of inputdimensions).
    Raises ShapeError for inputs that do not fit, ArgumentError for negative widths, SignatureError without inputs.
    Source: ONNX ai.onnx.ml.FeatureVectorizer, opset 1.

    >>> feature_vectorizer([jnp.array([[1.0]]), jnp.array([[2.0, 3.0]])], inputdimensions=[1, 2]).tolist()
    [[1.0, 2.0, 3.0]]
    """
    if not len(x):
        raise SignatureError("there are no inputs; at least one is needed")
    parts = [rows(flatten(part) if part.ndim > 2 else part) for part in map(array, x)]
    widths = None if inputdimensions is None else ints("inputdimensions", inputdimensions)
    if widths is not None and min(widths, default=0) < 0:
        raise ArgumentError(f"`inputdimensions` is {widths}; numbers of columns must not be negative")
    sizes = _joined_sizes([part.shape for part in parts], widths)
    zero = np.zeros((), np.float32)
    parts = [part.astype(np.float32) for part in parts]
    if widths is not None:
        paddings = [((0, 0, 0), (0, width - part.shape[1], 0)) for part, width in zip(parts, widths, strict=True)]
        parts = [lax.pad(part, zero, padding) for part, padding in zip(parts, paddings, strict=True)]
    return assert_sizes(lax.concatenate(parts, 1), sizes, np.float32)
