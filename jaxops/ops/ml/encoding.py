"""Operators that map labels and categories to values."""

__all__ = ["category_mapper", "label_encoder", "one_hot_encoder"]

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxops.attributes import flag, ints
from jaxops.dtypes import as_traced, canonical, converted, is_float, is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, amount, describe
from jaxops.opaque import ChosenStrings
from jaxops.ops.common.chosen_strings import maps_strings
from jaxops.ops.common.elementwise import require
from jaxops.signature import Traits, operator
from jaxops.static import A, Array, ArrayLike, Ints, Operand, array, is_symbolic, jit_if_concrete, known

TRAITS = Traits(foldable=True)

# A table of all integers from the first key to the last has at most this many entries for each key.
_MOST_GAPS = 4


@operator(differentiable=False)
@maps_strings
def label_encoder(
    x: Operand[A],
    *,
    keys_tensor: Any = None,
    keys_strings: Sequence[str] | None = None,
    keys_int64s: Ints | None = None,
    keys_floats: Sequence[float] | None = None,
    values_tensor: Any = None,
    values_strings: Sequence[str] | None = None,
    values_int64s: Ints | None = None,
    values_floats: Sequence[float] | None = None,
    default_tensor: Any = None,
    default_string: str = "_Unused",
    default_int64: int = -1,
    default_float: float = -0.0,
) -> A:
    """Replaces each element that equals a key by the value of that key, and every other element by the default.

    x: any shape, in the dtype of the keys; strings are static, or chosen by traced numbers. Returns the shape of x, in
    the dtype of the values; strings for traced elements are NumPy strings outside `jit`, and `ChosenStrings` inside.
    keys_…, values_…: static, one of each, of one length; a tensor is 1-D, of any dtype; int64s are int64, floats
    float32. A NaN key matches every NaN. Of equal keys the last one counts, as the standard says from
    version 4 on (onnxruntime takes the first). With x64 off, keys that do not fit the 32-bit type match nothing.
    default_tensor: static, one element of the dtype of the values; None uses the default_… of their kind.
    Raises SignatureError unless exactly one keys_… and one values_… are given, ShapeError when their lengths differ,
    DTypeError when the dtypes do not fit, ArgumentError for a default that the dtype of the values does not hold.
    Source: ONNX ai.onnx.ml.LabelEncoder, opsets 2–4.

    >>> label_encoder(np.array(["Dori", "Amy"]), keys_strings=["Amy", "Sally"], values_int64s=[5, 6])
    array([-1,  5])
    """
    candidates = {"tensor": keys_tensor, "strings": keys_strings, "int64s": keys_int64s, "floats": keys_floats}
    keys = _one("keys", candidates)
    candidates = {"tensor": values_tensor, "strings": values_strings, "int64s": values_int64s, "floats": values_floats}
    values = _one("values", candidates)
    if keys.shape != values.shape:
        raise ShapeError(
            f"{amount(len(keys), 'key')} and {amount(len(values), 'value')} were given; give one value per key"
        )
    default = _default(values, default_tensor, default_string, default_int64, default_float)
    elements = as_traced(x) if is_symbolic(x) else array(x)
    traced = isinstance(elements, jax.Array)
    if is_string(elements) and is_string(keys):
        elements = elements.astype(object)
    elif elements.dtype != (canonical(keys.dtype) if traced else keys.dtype):
        raise DTypeError(
            f"x is {describe(elements)}, but the keys are {'strings' if is_string(keys) else keys.dtype.name}; "
            f"they must have one element type, convert with jaxops.cast"
        )
    keys, values = _holdable(keys, values, elements.dtype)
    ordered, results_by_key, nan = _table(keys, values, default)
    first = None
    if traced and ordered.dtype.kind in "iu" and ordered.size:
        results_by_key, first = _without_gaps(ordered, results_by_key, default)
    results = np.concatenate([results_by_key, default[None], (default if nan is None else nan)[None]])
    if traced and is_string(values):
        result_numbers = as_traced(np.arange(len(results), dtype=np.int32))
        return ChosenStrings.of(_encode((elements, ordered, result_numbers), first), results)
    return _encode((elements, ordered, as_traced(results) if traced else results), first)


def category_mapper(
    x: Operand[A],
    *,
    cats_int64s: Ints | None = None,
    cats_strings: Sequence[str] | None = None,
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> A:
    """Maps strings to the integers of their categories, and integers to the strings.

    x: any shape, strings or int64. cats_int64s, cats_strings: static, of one length; the strings and the integers at
    one position belong together. Of equal categories the last counts.
    default_…: the value for an element that is not a category. Returns the shape of x, the other type; strings for
    traced elements as in `label_encoder`.
    Raises SignatureError unless both kinds of categories are given, ShapeError when one is longer, DTypeError for
    another type.
    Source: ONNX ai.onnx.ml.CategoryMapper, opset 1.

    >>> category_mapper(np.array(["b", "c"]), cats_int64s=[5, 6], cats_strings=["a", "b"])
    array([ 6, -1])
    """
    if cats_int64s is None or cats_strings is None:
        raise SignatureError("give both `cats_int64s` and `cats_strings`")
    numbers, strings = len(np.atleast_1d(known("cats_int64s", cats_int64s))), len(cats_strings)
    if numbers != strings:
        raise ShapeError(
            f"{amount(numbers, 'integer')} and {amount(strings, 'string')} were given; give the same number of both"
        )
    elements = array(x)
    if is_string(elements):
        return label_encoder(
            elements, keys_strings=cats_strings, values_int64s=cats_int64s, default_int64=default_int64
        )
    if not is_symbolic(elements) and elements.dtype != np.int64 and elements.dtype != canonical(np.int64):
        raise DTypeError(f"x is {describe(elements)}; it must be strings or int64, convert with jaxops.cast")
    numbers = cast(Any, as_traced(elements) if elements.dtype == np.int32 else elements)
    return label_encoder(numbers, keys_int64s=cats_int64s, values_strings=cats_strings, default_string=default_string)


@operator(foldable=False)
def one_hot_encoder(
    x: ArrayLike, *, cats_int64s: Ints | None = None, cats_strings: Sequence[str] | None = None, zeros: int = 1
) -> jax.Array:
    """For each element a row with 1 at the position of its category, and 0 elsewhere.

    x: any shape; strings, which are static, or real numbers, whose fractions are cut off. cats_…: static, one of both,
    for strings or for numbers; of equal categories the last counts. Returns float32 (*x.shape, categories).
    zeros: 1 gives zeros for an element that is not a category. With 0, such an element raises if it is static, and
    gives NaN if it is traced.
    Raises SignatureError for missing categories, DTypeError when they are of the other kind, ArgumentError.
    Source: ONNX ai.onnx.ml.OneHotEncoder, opset 1.

    >>> one_hot_encoder(jnp.array([7, 4]), cats_int64s=[4, 5, 7]).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    lenient = flag("zeros", zeros)
    if (cats_int64s is None) == (cats_strings is None):
        raise SignatureError("give either `cats_int64s` or `cats_strings`")
    elements = array(x)
    if is_string(elements) != (cats_int64s is None):
        raise DTypeError(
            f"x is {describe(elements)}, so give {'cats_strings' if is_string(elements) else 'cats_int64s'}"
        )
    elements = elements if is_string(elements) else as_traced(elements)
    categories: Any = cats_strings if is_string(elements) else ints("cats_int64s", known("cats_int64s", cats_int64s))
    keys, count = np.array(categories, object if is_string(elements) else np.int64), len(categories)
    positions = np.arange(count, dtype=np.int32)
    if not is_string(elements):
        require("real numbers", elements)
        elements = (
            lax.convert_element_type(jnp.trunc(elements), elements.dtype) if is_float(elements.dtype) else elements
        )
        keys, positions = _exact(keys, positions, elements.dtype)
    numbers = label_encoder(
        elements, keys_tensor=keys, values_tensor=positions, default_tensor=np.array([-1], np.int32)
    )
    if not lenient and isinstance(numbers, np.ndarray) and (numbers < 0).any():
        raise ArgumentError(f"{np.asarray(elements)[numbers < 0][0]!r} is not a category, and `zeros` is 0")
    numbers = as_traced(numbers)
    rows = jax.nn.one_hot(numbers, count, dtype=np.float32)
    if lenient:
        return rows
    unknown = jnp.broadcast_to(jnp.expand_dims(numbers < 0, -1), rows.shape)
    return jnp.where(unknown, jnp.asarray(np.nan, np.float32), rows)


def _exact(keys: np.ndarray, positions: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The int64 keys that `dtype` holds exactly, converted to it, and their positions."""
    if is_float(dtype):
        with np.errstate(over="ignore"):
            representable = np.array([float(k.astype(dtype)) == k.item() for k in keys], bool)
    else:
        limits = jnp.iinfo(dtype)
        representable = (keys >= limits.min) & (keys <= limits.max)
    return keys[representable].astype(dtype), positions[representable]


def _one(name: str, candidates: dict[str, Any]) -> np.ndarray:
    """The one attribute that is given, as a vector."""
    present = {kind: value for kind, value in candidates.items() if value is not None}
    if len(present) != 1:
        listing = ", ".join(f"{name}_{kind}" for kind in (present or candidates))
        problem = "exclude each other" if present else "are all missing"
        raise SignatureError(f"{listing} {problem}; give one of them")
    ((kind, value),) = present.items()
    attribute = f"{name}_{kind}"
    if kind == "int64s":
        return np.array(ints(attribute, value), np.int64)
    vector = known(attribute, value)
    if vector.ndim != 1:
        raise ShapeError(f"`{attribute}` must be 1-D, got {describe(vector)}")
    if kind == "tensor":
        return vector.astype(object) if is_string(vector) else vector
    return vector.astype(object if kind == "strings" else np.float32)


def _default(values: np.ndarray, tensor: Any, string: str, integer: int, number: float) -> np.ndarray:
    dtype = values.dtype
    if tensor is None:
        if is_string(values):
            return np.array(string, object)
        value = number if is_float(dtype) else integer
        return converted("the default", np.asarray(value), dtype)
    element = known("default_tensor", tensor)
    if element.size != 1:
        raise ShapeError(f"`default_tensor` must be one element, got {describe(element)}")
    element = element.astype(object) if is_string(element) else element
    if element.dtype != dtype:
        raise DTypeError(
            f"`default_tensor` is {describe(element)}, but the values are "
            f"{'strings' if is_string(values) else dtype.name}"
        )
    return element.reshape(())


def _holdable(keys: np.ndarray, values: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The keys that fit `dtype`, the type of x, converted to it, and their values."""
    if keys.dtype == dtype:
        return keys, values
    with np.errstate(over="ignore"):
        narrow = keys.astype(dtype)
    fits_type = np.isfinite(narrow) | ~np.isfinite(keys) if is_float(dtype) else narrow == keys
    return narrow[fits_type], values[fits_type]


def _table(keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """The distinct keys in ascending order, their values, and the value of the NaN key if there is one."""
    missing = keys != keys  # NaN
    nan = values[missing][-1:].reshape(()) if missing.any() else None
    keys, values = keys[~missing], values[~missing]
    # The keys are reversed, since np.unique finds the first of equal keys and the last one counts.
    ordered, last = np.unique(keys[::-1], return_index=True)
    return ordered, values[::-1][last], nan


def _without_gaps(keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> tuple[np.ndarray, int | None]:
    """A table of a value for each integer from the first key to the last, with the default between keys; and the first
    key. If that table would be too large: the values unchanged, and None.

    A table needs no search, which would be a loop: an isolation forest of scikit-learn looks up two hundred times.
    """
    first, span = int(keys[0]), int(keys[-1]) - int(keys[0]) + 1
    if span > _MOST_GAPS * len(keys):
        return values, None
    every = np.full(span, default, values.dtype)
    every[(keys.astype(object) - first).astype(np.int64)] = values
    return every, first


@jit_if_concrete
def _encode(operands: tuple[Array, Array, Array], first: int | None) -> Any:
    """Looks up the value of each element. operands: x, the sorted keys, and the values: those of the keys, then the
    default, then that of NaN.

    first: the first key, if the values are those of all integers from it on (`_without_gaps`); None if they are those
    of the keys.
    """
    x, keys, results = operands
    xp = np if isinstance(x, np.ndarray) else jnp
    count = results.shape[0] - 2
    position = xp.full(x.shape, count)
    if first is not None:
        within = (x >= x.dtype.type(first)) & (x <= x.dtype.type(first + count - 1))
        wide = x if x.dtype.itemsize >= 4 else x.astype(np.int32)
        position = xp.where(within, (wide - wide.dtype.type(first)).astype(position.dtype), count)
    elif count:
        near = xp.minimum(xp.searchsorted(keys, x), count - 1)
        position = xp.where(xp.asarray(keys)[near] == x, near, count)
    if is_float(x.dtype):
        position = xp.where(xp.isnan(x), count + 1, position)
    return xp.asarray(results[position], results.dtype)
