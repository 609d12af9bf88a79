"""The border of a model: what a caller gives becomes JAX arrays or static values, and back."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced, canonical, is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, StaticError, describe
from jaxops.graph.nodes import Value
from jaxops.static import ChosenStrings, Deferred, StaticValue, Tracer, is_static, is_symbolic, tracing


def arrive(
    inputs: Sequence[Value], defaults: Sequence[Value], given: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs by name: JAX arrays, but for the static ones, which become `StaticValue`.

    inputs: in order; defaults: those that may be given by name alone, as the model has a value for them.
    Raises SignatureError for a missing, surplus or unknown one, and what `enter` raises.
    """
    names = [value.name for value in inputs]
    formals = {value.name: value for value in (*defaults, *inputs)}
    if len(given) > len(names):
        raise SignatureError(f"the model has {len(names)} inputs {names}, but {len(given)} were given")
    found = dict(zip(names, given, strict=False))
    for name, value in named.items():
        if name in found:
            raise SignatureError(f"input '{name}' was given twice, by position and by name")
        if name not in formals:
            raise SignatureError(f"the model has no input '{name}'; its inputs are {names}")
        found[name] = value
    missing = [v.name for v in inputs if v.name not in found and v.kind != "optional"]
    if missing:
        raise SignatureError(f"input '{missing[0]}' is missing; the inputs are {names}")
    return {name: enter(formals[name], found.get(name)) for name in formals if name in found or name in names}


def leave(outputs: Sequence[Any], given: Any) -> Any:
    """The outputs as the caller gets them: one as it is, several as a tuple; static ones are NumPy arrays.

    Inside a transformation they become JAX arrays here, where a number that does not fit raises: `jit` would cut it;
    strings become `ChosenStrings`.
    """
    inside = tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(given))

    def left(y: Any) -> Any:
        if inside and isinstance(y, np.ndarray) and is_string(y):
            return ChosenStrings.all_of(y)
        return as_traced(y) if inside or is_symbolic(y) else y

    traced = jax.tree.map(left, tuple(outputs))
    return traced[0] if len(traced) == 1 else traced


def opened(values: Any) -> Any:
    """Values, also in sequences, with what each `StaticValue` holds, or `Deferred` stands for, in its place."""
    wrapped = StaticValue | Deferred
    return jax.tree.map(
        lambda v: v.value if isinstance(v, wrapped) else v, values, is_leaf=lambda v: isinstance(v, wrapped)
    )


def enter(formal: Value, value: Any) -> Any:
    """One input at the border: checked against what the model declares, then a JAX array or a `StaticValue`."""
    if value is None:
        if formal.kind == "optional":
            return None
        raise SignatureError(f"input '{formal.name}' is None; the model expects {formal}")
    if formal.kind != "tensor" and isinstance(value, list | tuple):
        inner = dataclasses.replace(formal, kind="tensor")
        return [enter(inner, item) for item in value]
    if formal.kind == "map":
        if not isinstance(value, Mapping):
            raise ArgumentError(f"input '{formal.name}' is {value!r:.80}, but the model expects a dictionary: {formal}")
        inner = dataclasses.replace(formal, kind="tensor", shape=None)
        return {key: enter(inner, item) for key, item in value.items()}
    if isinstance(value, StaticValue):
        return value
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        value = _numbers(formal, value)
    _check_dtype(formal, value)
    _check_shape(formal, value.shape)
    if not formal.static:
        return as_traced(value)
    if isinstance(value, Tracer):
        raise StaticError(
            f"input '{formal.name}' must be known while tracing, but {describe(value)} is traced\n"
            f"  needed  {formal.static}\n"
            f"  hint    give it as a NumPy array; under jax.jit close over it or use static_argnames"
        )
    # A concrete 32-bit JAX array may stand for 64 bits; what is static has them.
    return StaticValue(np.asarray(value, formal.dtype))


def _numbers(formal: Value, value: Any) -> np.ndarray:
    """Python numbers as an array of the type that the model declares."""
    try:
        found = np.asarray(value)
        if found.dtype.kind in "fc" and formal.dtype is not None and "float" not in formal.dtype.name:
            raise TypeError(f"it holds {found.dtype.name}")
        return found if formal.dtype is None else np.asarray(value, formal.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"input '{formal.name}' is {value!r:.80}, but the model expects {formal}"
        raise ArgumentError(f"{problem}: {str(error).splitlines()[0]}") from error


def _check_dtype(formal: Value, value: Any) -> None:
    if formal.dtype is None:
        return
    if formal.dtype == object:
        fits = is_static(value) and value.dtype.kind in "USTO"
    else:
        fits = value.dtype == formal.dtype
        fits = fits or (isinstance(value, jax.Array) and value.dtype == canonical(formal.dtype))
    if not fits:
        raise DTypeError(f"input '{formal.name}' is {describe(value)}, but the model expects {formal}")


def _check_shape(formal: Value, sizes: tuple[Any, ...]) -> None:
    # Some writers declare a scalar where they do not know the shape; what other engines run is not refused here.
    if not formal.shape:
        return
    fits = len(sizes) == len(formal.shape)
    fits = fits and all(not isinstance(want, int) or want == got for want, got in zip(formal.shape, sizes, strict=True))
    if not fits:
        raise ShapeError(f"input '{formal.name}' has shape {tuple(sizes)}, but the model expects {formal}")
