"""The border of a model: what a caller gives becomes JAX arrays or static values, and back."""

import dataclasses
import functools
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxops.dtypes import as_traced, canonical, is_string
from jaxops.errors import ArgumentError, DTypeError, ShapeError, SignatureError, StaticError, describe
from jaxops.graph.nodes import Value
from jaxops.memory import bounded_operands
from jaxops.static import ChosenStrings, Deferred, StaticValue, Tracer, is_static, is_symbolic, tracing


def arrive(
    inputs: Sequence[Value], defaults: Sequence[Value], given: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs by name: JAX arrays, but for the static ones, which become `StaticValue`.

    inputs: in order; defaults: those that may be given by name alone, as the model has a value for them. A dictionary
    of inputs may be given in place of all.
    Raises SignatureError for a missing, surplus or unknown one, ShapeError for two values of one symbolic size, and
    what `enter` raises.
    """
    names = [value.name for value in inputs]
    formals = {value.name: value for value in (*defaults, *inputs)}
    if len(given) == 1 and isinstance(given[0], Mapping) and not (inputs and inputs[0].kind == "map"):
        (by_name,), given = given, ()
        twice = [name for name in named if name in by_name]
        if twice:
            raise SignatureError(f"input '{twice[0]}' was given twice, in the dictionary and by name")
        named = {**by_name, **named}
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
    values = {name: enter(formals[name], found.get(name)) for name in formals if name in found or name in names}
    _check_symbols(formals, values)
    return values


def leave(outputs: Sequence[Any], names: Sequence[str], given: Any) -> Any:
    """The outputs as the caller gets them: one as it is, several as a namedtuple; static ones are NumPy arrays.

    Inside a transformation they become JAX arrays here, where a number that does not fit raises: `jit` would cut it;
    strings become `ChosenStrings`.
    """
    settled = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(outputs))  # the usual case
    inside = not settled and (tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(given)))

    def left(y: Any) -> Any:
        bounded_operands("an output of the model", (y,))
        if inside and isinstance(y, np.ndarray) and is_string(y):
            return ChosenStrings.all_of(y)
        return as_traced(y) if inside or is_symbolic(y) else y

    traced = jax.tree.map(left, tuple(outputs))
    return traced[0] if len(traced) == 1 else named_outputs(tuple(names))(*traced)


@functools.cache
def named_outputs(names: tuple[str, ...]) -> type:
    """The namedtuple of several outputs: its fields are their names, with '_' for what Python does not allow in one."""
    fields = ["".join(c if c.isalnum() else "_" for c in name).lstrip("_") for name in names]

    class Outputs(namedtuple("Outputs", fields, rename=True)):
        __slots__ = ()

        def __reduce__(self) -> Any:
            return _outputs_again, (names, tuple(self))

    return Outputs


def _outputs_again(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return named_outputs(names)(*values)


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
    value = _typed(formal, value)
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


def _typed(formal: Value, value: Any) -> Any:
    """An array of the type that the model declares; integers of another width are converted where that is exact."""
    wanted = formal.dtype
    if wanted is None or value.dtype == wanted:
        return value
    strings = wanted.kind == "O"
    if strings:
        if is_static(value) and value.dtype.kind in "USTO":
            return value
    elif isinstance(value, jax.Array) and value.dtype == canonical(wanted):
        return value
    elif value.dtype.kind in "iu" and wanted.kind in "iu":
        if np.can_cast(value.dtype, wanted):
            return value.astype(canonical(wanted) if isinstance(value, jax.Array) else wanted)
        if (
            is_static(value)
            and not is_symbolic(value)
            and (converted := value.astype(wanted)).tolist() == value.tolist()
        ):
            return converted
    known = not strings and value.dtype.kind not in "USTO"
    hint = f"\n  hint    give it as {wanted.name}: x.astype(np.{wanted.name})" if known else ""
    raise DTypeError(f"input '{formal.name}' is {describe(value)}, but the model expects {formal}{hint}")


def _check_symbols(formals: Mapping[str, Value], values: Mapping[str, Any]) -> None:
    """Raises ShapeError where two inputs give a symbolic size two values."""
    first: dict[str, tuple[str, int]] = {}
    for name, value in values.items():
        formal = formals[name]
        if formal.kind != "tensor" or not formal.shape or value is None:
            continue
        sizes = value.value.shape if isinstance(value, StaticValue) else value.shape
        for symbol, size in zip(formal.shape, sizes, strict=True):
            if isinstance(symbol, str) and isinstance(size, int):
                other, earlier = first.setdefault(symbol, (name, size))
                if earlier != size:
                    raise ShapeError(f"the size '{symbol}' is {earlier} in input '{other}', but {size} in '{name}'")


def _check_shape(formal: Value, sizes: tuple[Any, ...]) -> None:
    # Some writers declare a scalar where they do not know the shape; what other engines run is not refused here.
    if not formal.shape:
        return
    fits = len(sizes) == len(formal.shape)
    fits = fits and all(not isinstance(want, int) or want == got for want, got in zip(formal.shape, sizes, strict=True))
    if not fits:
        raise ShapeError(f"input '{formal.name}' has shape {tuple(sizes)}, but the model expects {formal}")
