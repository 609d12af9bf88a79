"""Operators on maps: Python dictionaries whose keys are static, and whose values are numbers, or static strings."""

__all__ = ["cast_map", "dict_vectorizer", "zip_map"]

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import integer, one_of
from jaxops.dtypes import as_traced, canonical, is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError
from jaxops.memory import bounded
from jaxops.opaque import ZippedMaps
from jaxops.ops.ml.scores import class_labels, rows
from jaxops.signature import Traits, operator
from jaxops.static import Array, ArrayLike, Ints, array, known

TRAITS = Traits(differentiable=False)  # numbers in dictionaries may be Python's

CastTo = Literal["TO_FLOAT", "TO_STRING", "TO_INT64"]
MapForm = Literal["DENSE", "SPARSE"]


def zip_map(
    x: ArrayLike, *, classlabels_int64s: Ints | None = None, classlabels_strings: Sequence[str] | None = None
) -> Any:
    """A dictionary for each row: from the label of each column to the number in it.

    x: (rows, labels), or (labels,) for one row; real numbers. classlabels_…: static, one of both. Returns a list of
    dictionaries with Python numbers; under `jit` a `ZippedMaps`, whose `array` is x and whose `value`, outside of
    `jit`, is that list.
    Raises ShapeError unless there are as many columns as labels, SignatureError without labels.
    Source: ONNX ai.onnx.ml.ZipMap, opset 1.

    >>> zip_map(jnp.array([[0.25, 0.75]]), classlabels_strings=["no", "yes"])
    [{'no': 0.25, 'yes': 0.75}]
    """
    labels = class_labels(classlabels_int64s=classlabels_int64s, classlabels_strings=classlabels_strings)
    x = rows(x)
    if x.shape[1] != labels.size:
        raise ShapeError(f"x of {x.shape} has {x.shape[1]} columns, but there are {labels.size} labels")
    return ZippedMaps.of(x, labels)


def dict_vectorizer(
    x: Mapping[Any, Any], *, int64_vocabulary: Ints | None = None, string_vocabulary: Sequence[str] | None = None
) -> jax.Array:
    """The values of a dictionary in the order of the vocabulary; 0, or '' among strings, for a key that is not there.

    x: from integers or strings to numbers or strings. …_vocabulary: static, one of both, distinct keys. Returns a
    vector of the type of the values, Python numbers as float32 or int64; onnxruntime gives it a first axis of size 1.
    Raises ArgumentError for a key outside of the vocabulary, SignatureError without one, DTypeError for mixed values.
    Source: ONNX ai.onnx.ml.DictVectorizer, opset 1.

    >>> dict_vectorizer({"a": 4.0, "c": 8.0}, string_vocabulary=["a", "c", "b", "z"]).tolist()
    [4.0, 8.0, 0.0, 0.0]
    """
    vocabulary = class_labels(int64_vocabulary=int64_vocabulary, string_vocabulary=string_vocabulary).tolist()
    unknown = [key for key in x if key not in vocabulary]
    if unknown:
        raise ArgumentError(f"the key {unknown[0]!r} is not in the vocabulary")
    values = _values(list(x.values()))
    return _placed(values, [vocabulary.index(key) for key in x], len(vocabulary), "")


@operator(grows=True, differentiable=False)
def cast_map(
    x: Mapping[int, Any], *, cast_to: CastTo = "TO_FLOAT", map_form: MapForm = "DENSE", max_map: int = 1
) -> jax.Array:
    """The values of a dictionary in the order of its integer keys, as (1, values).

    x: from integers to numbers or strings. cast_to: float32, int64 (fractions are cut off), or strings (static numbers
    formatted by '%f'). map_form: SPARSE gives max_map values, each at the position of its key, and elsewhere 0, or
    '0.f' among strings, as onnxruntime does.
    Raises ArgumentError for a key outside of [0, max_map), or a string that is not a number; StaticError for traced
    numbers that are to become strings.
    Source: ONNX ai.onnx.ml.CastMap, opset 1.

    >>> cast_map({3: 1.5, 1: 2.5}, map_form="SPARSE", max_map=4).tolist()
    [[0.0, 2.5, 0.0, 1.5]]
    """
    one_of("cast_to", cast_to, CastTo)
    size = integer("max_map", max_map)
    keys = sorted(x)
    values = _cast(_values([x[key] for key in keys]), cast_to)
    if one_of("map_form", map_form, MapForm) == "DENSE":
        return values[None]
    outside = [key for key in keys if not 0 <= key < size]
    if outside:
        raise ArgumentError(f"the key {outside[0]} is outside of [0, {size}), where {size} is `max_map`")
    return _placed(values, keys, size, "0.f")[None]


def _values(values: list[Any]) -> Array:
    """Values of one type as a vector: NumPy's unless one is traced."""
    parts = [array(np.float32(v) if isinstance(v, float) else v).reshape(()) for v in values]
    kinds = {"string" if is_string(v) else v.dtype.name for v in parts}
    if any(isinstance(v, jax.Array) for v in parts):
        parts = [as_traced(v) for v in parts]
        kinds = {v.dtype.name for v in parts}
    if len(kinds) > 1:
        raise DTypeError(f"the values of the map must have one type, got {', '.join(sorted(kinds))}")
    if not parts:
        return np.zeros(0, np.float32)
    if kinds == {"string"}:
        return np.array([str(v) for v in parts], object)
    return jnp.stack(parts) if isinstance(parts[0], jax.Array) else np.stack(parts)


def _placed(values: Array, positions: list[int], size: int, missing: str) -> Any:
    """A vector with the values at these positions, and `missing` or 0 elsewhere."""
    if isinstance(values, jax.Array):
        return jnp.zeros(size, values.dtype).at[np.array(positions, np.int32)].set(values)
    bounded((size,), values.itemsize)
    vector = np.full(size, missing, object) if values.dtype == object else np.zeros(size, values.dtype)
    vector[positions] = values
    return vector


def _cast(values: Array, to: CastTo) -> Any:
    strings = isinstance(values, np.ndarray) and values.dtype == object
    if to == "TO_STRING":
        return values if strings else np.array([f"{v:f}" for v in known("x", values)], object)
    dtype = np.dtype(np.float32 if to == "TO_FLOAT" else np.int64)
    if not strings:
        return values.astype(canonical(dtype) if isinstance(values, jax.Array) else dtype)
    try:
        return np.array([float(v) if to == "TO_FLOAT" else int(v) for v in values], dtype)
    except ValueError as error:
        raise ArgumentError(f"{error}") from error
