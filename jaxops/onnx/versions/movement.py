"""Reshape, Flatten, Split and their kin: versions that differ from the functions in `jaxops.ops`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxops import ops
from jaxops.attributes import axis as resolve_axis
from jaxops.errors import AxisError, SignatureError
from jaxops.onnx.registry import version
from jaxops.shapes.tensor import splitting
from jaxops.static import Array, Ints, ShapeOnly, Static, array, foldable, known

# Functions with a `*,` have attributes where newer versions have inputs.


def nonnegative(op: str, name: str, values: Any) -> None:
    """Where a version's text says that its axes are not negative: they may be from opset 11 on.

    The texts of other operators from before 11 leave it open, and models of the standard's own suite use them.
    """
    for value in (values,) if isinstance(values, int) else values or ():
        if value < 0:
            raise AxisError(f"{op}: `{name}` holds {value}; negative axes are allowed from opset 11 on")


@version("Reshape", 1)
@foldable
def _(data: Array, *, shape: Ints | None = None) -> Array:
    if shape is None:
        raise SignatureError("reshape: attribute `shape` is missing")
    return ops.reshape(data, shape)


version("Reshape", 5)(ops.reshape)
version("Identity", 1)(ops.identity)


@version("Identity", 14)
@foldable
def _(input: Any) -> Any:
    """Sequences came with opset 14, optionals with 16."""
    return input if input is None or isinstance(input, list) else ops.identity(input)


@version("Flatten", 1)
@foldable
def _(input: Array, *, axis: int) -> Array:
    nonnegative("flatten", "axis", axis)
    return ops.flatten(input, axis=axis)


version("Flatten", 11)(ops.flatten)


def _even_split(input: Array, split: Ints | None, axis: int, n_outputs: int) -> tuple[Array, ...]:
    """Before opset 18 the axis divides evenly when no lengths are given."""
    if split is None:
        size = array(input).shape[resolve_axis("split", axis, array(input).ndim)]
        split = splitting.equal_chunks(size, n_outputs)
    return _listed_split(input, split, axis, n_outputs)


def _listed_split(input: Array, split: Any, axis: int, n_outputs: int) -> tuple[Array, ...]:
    if np.size(split) != n_outputs:  # ops.split refuses what is not 1-D
        raise SignatureError(f"split: `split` holds {np.size(split)} lengths, but {n_outputs} outputs are asked for")
    return ops.split(input, split, axis=axis)


@version("Split", 1)
@foldable
def _(
    input: Array, lengths: Static = None, /, *, axis: int | None = None, split: Ints | None = None, n_outputs: int
) -> tuple[Array, ...]:
    if lengths is not None:  # of the type of the data, which may be a float
        split = tuple(int(length) for length in known("split", "split", lengths))
    return _even_split(input, split, axis or 0, n_outputs)


@version("Split", 2)
@foldable
def _(input: Array, *, axis: int, split: Ints | None = None, n_outputs: int) -> tuple[Array, ...]:
    return _even_split(input, split, axis, n_outputs)


@version("Split", 13)
@foldable
def _(input: Array, split: Static = None, *, axis: int, n_outputs: int) -> tuple[Array, ...]:
    return _even_split(input, split, axis, n_outputs)


@version("Split", 18)
@foldable
def _(
    input: Array, split: Static = None, *, axis: int, num_outputs: int | None = None, n_outputs: int
) -> tuple[Array, ...]:
    if split is not None and num_outputs is None:
        return _listed_split(input, split, axis, n_outputs)
    if num_outputs not in (None, n_outputs):
        raise SignatureError(f"split: `num_outputs` is {num_outputs}, but {n_outputs} outputs are asked for")
    return ops.split(input, split, axis=axis, num_outputs=num_outputs)


@version("Concat", 1)
@foldable
def _(inputs: Sequence[Array], *, axis: int | None = None) -> Array:
    return ops.concat(inputs, axis=1 if axis is None else axis)


version("Concat", 4)(ops.concat)


@version("Squeeze", 1)
@foldable
def _(data: Array, *, axes: Ints | None = None) -> Array:
    nonnegative("squeeze", "axes", axes)
    return ops.squeeze(data, axes)


@version("Squeeze", 11)
@foldable
def _(data: Array, *, axes: Ints | None = None) -> Array:
    return ops.squeeze(data, axes)


version("Squeeze", 13)(ops.squeeze)


@version("Unsqueeze", 1)
@foldable
def _(data: Array, *, axes: Ints) -> Array:
    nonnegative("unsqueeze", "axes", axes)
    return ops.unsqueeze(data, axes)


@version("Unsqueeze", 11)
@foldable
def _(data: Array, *, axes: Ints) -> Array:
    return ops.unsqueeze(data, axes)


version("Unsqueeze", 13)(ops.unsqueeze)


@version("Slice", 1)
@foldable
def _(data: Array, *, starts: Ints, ends: Ints, axes: Ints | None = None) -> Array:
    return ops.slice(data, starts, ends, axes)


version("Slice", 10)(ops.slice)


@version("Shape", 1)
@foldable
def _(data: ShapeOnly) -> Array:
    return ops.shape(data)


version("Shape", 15)(ops.shape)


@version("Constant", 1)
@foldable
def _(*, value: np.ndarray) -> Array:
    return value


@version("Constant", 11)
@foldable
def _(*, value: Any = None, sparse_value: Any = None) -> Array:
    return _one("Constant", {"value": value, "sparse_value": sparse_value})


@version("Constant", 12)
@foldable
def _(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
    value_float: float | None = None,
    value_floats: Any = None,
    value_string: str | None = None,
    value_strings: Any = None,
) -> Array:
    def typed(value: Any, dtype: Any) -> Any:
        return None if value is None else np.array(value, dtype)

    return _one(
        "Constant",
        {
            "value": value,
            "sparse_value": sparse_value,
            "value_int": typed(value_int, np.int64),
            "value_ints": typed(value_ints, np.int64),
            "value_float": typed(value_float, np.float32),
            "value_floats": typed(value_floats, np.float32),
            "value_string": typed(value_string, object),
            "value_strings": typed(value_strings, object),
        },
    )


def _one(op: str, values: dict[str, Any]) -> Any:
    given = {name: value for name, value in values.items() if value is not None}
    if len(given) != 1:
        raise SignatureError(f"{op}: give exactly one of {', '.join(values)}; got {', '.join(given) or 'none'}")
    return next(iter(given.values()))
