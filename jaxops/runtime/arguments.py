"""Converts the inputs of a call to JAX arrays and static values, and the outputs to what the caller gets."""

import dataclasses
import functools
import operator
import warnings
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from jaxops.dtypes import TYPES_OF_SIZES, as_canonical, as_traced, canonical, is_string, stand_in
from jaxops.errors import (
    ArgumentError,
    DTypeError,
    ModelError,
    OutOfRangeError,
    ShapeError,
    SignatureError,
    StaticError,
    amount,
    describe,
)
from jaxops.graph.declared_sizes import limits_text, within
from jaxops.graph.nodes import Value
from jaxops.lazy_sequences import SplitSequence
from jaxops.memory import bounded_operands
from jaxops.opaque import ChosenStrings, Deferred
from jaxops.shown_text import clean
from jaxops.static import FromSizes, StaticValue, Tracer, is_concrete, is_static, is_symbolic, tracing


class Given(NamedTuple):
    """The arguments of a call as the caller passed them, without the parameters.

    inputs: in order, or one dictionary of all. named: inputs by name. rng: a key, or None. outputs: the names of the
    tensors to return; None for the outputs of the model.
    """

    inputs: Sequence[Any]
    named: Mapping[str, Any]
    rng: Any = None
    outputs: Sequence[str] | None = None


class InputBinder:
    """Binds the arguments of a call to the inputs of a model.

    inputs: in order. defaults: inputs with a default value, which can be passed by name only.
    """

    def __init__(self, inputs: Sequence[Value], defaults: Sequence[Value]) -> None:
        self._inputs = tuple(inputs)
        self._names = [value.name for value in inputs]
        self.names = frozenset(self._names)
        self._formals = {value.name: value for value in (*defaults, *inputs)}
        self._aliases = {alias: value.name for value in inputs for alias in value.aliases}
        self._required = [value.name for value in inputs if value.kind != "optional"]
        self.deciding = [value.name for value in inputs if value.decides]
        self._takes_map = bool(inputs) and inputs[0].kind == "map"
        axes_by_name: dict[str, list[tuple[str, int]]] = {}
        for value in self._formals.values():
            for axis, size in enumerate((value.shape or ()) if value.kind == "tensor" else ()):
                if isinstance(size, str):
                    axes_by_name.setdefault(size, []).append((value.name, axis))
        self._shared = {symbol: axes for symbol, axes in axes_by_name.items() if len(axes) > 1}
        self._unlike: set[str] = set()  # names of sizes that had two values, and of which a warning was given

    def bind_inputs(self, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs by name, in the form of `to_operand`; `unwrap` makes operands of them.

        inputs: in order, or one dictionary of all.
        Warns once if one name of a size has two values. This is not an error, since a file may use a name for
        independent sizes.
        Raises SignatureError for a missing, surplus or unknown input, and what `to_operand` raises.
        """
        names, formals = self._names, self._formals
        if len(inputs) == 1 and not is_concrete(inputs[0]) and isinstance(inputs[0], Mapping) and not self._takes_map:
            (by_name,), inputs = inputs, ()
            twice = [name for name in named if name in by_name]
            if twice:
                raise SignatureError(f"input '{twice[0]}' was given twice, in the dictionary and by name")
            named = {**by_name, **named}
        if len(inputs) == len(names) and not named:  # the usual case
            return self._checked({f.name: to_operand(f, value) for f, value in zip(self._inputs, inputs, strict=True)})
        if len(inputs) > len(names):
            has = amount(len(names), "input")
            raise SignatureError(f"the model has {has} {names}, but got {len(inputs)}")
        by_name = dict(zip(names, inputs, strict=False))
        for name, value in named.items():
            name = self._aliases.get(name, name)
            if name in by_name:
                raise SignatureError(f"input '{name}' was given twice, by position and by name")
            if name not in formals:
                raise SignatureError(f"the model has no input '{name}'; its inputs are {names}")
            by_name[name] = value
        missing = [name for name in self._required if name not in by_name]
        if missing:
            raise SignatureError(f"input '{missing[0]}' is missing; the inputs are {names}")
        if len(by_name) < len(names):
            by_name = {**dict.fromkeys(names), **by_name}
        return self._checked({name: to_operand(formals[name], by_name[name]) for name in formals if name in by_name})

    def _checked(self, values: dict[str, Any]) -> dict[str, Any]:
        """Returns the inputs; warns if a symbolic size has two values."""
        for symbol, axes in self._shared.items():
            first = None
            for name, axis in axes:
                value = values.get(name)
                if value is None:
                    continue
                size = (value.value if isinstance(value, StaticValue) else value).shape[axis]
                if type(size) is int and size != (first := first or (name, size))[1] and symbol not in self._unlike:
                    self._unlike.add(symbol)
                    warnings.warn(unlike(symbol, first, (name, size)), stacklevel=5)
        return values


def unlike(symbol: str, one: tuple[str, int], other: tuple[str, int]) -> str:
    """Returns the warning about a symbolic size with two values. one, other: an input and its size."""
    (first, size), (second, other_size) = one, other
    return clean(
        f"the size '{symbol}' is {size} in input '{first}', but {other_size} in '{second}'; the model runs with both"
    )


def to_outputs(outputs: Sequence[Any], formals: Sequence[Value], arguments: Any) -> Sequence[Any]:
    """Returns the outputs in the types that the caller gets: static ones as NumPy arrays.

    Inside a transformation, static outputs become JAX arrays: a number that does not fit raises an error, since `jit`
    would cut it; strings become `ChosenStrings`. Raises ModelError for an output of another type than declared.
    """
    for formal, y in zip(formals, outputs, strict=True):
        if formal.dtype is not None and formal.dtype != getattr(y, "dtype", formal.dtype):
            _check_declared(formal, formal.dtype, y)
    if all(map(is_concrete, outputs)):  # the usual case
        return outputs
    # Symbolic sizes have no dtype, so they get the declared one.
    types = [formal.dtype if formal.dtype in TYPES_OF_SIZES else None for formal in formals]
    outputs = [as_traced(y, kind) if _is_of_sizes(y) else y for y, kind in zip(outputs, types, strict=True)]
    settled = all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(outputs))
    inside = not settled and (tracing() or any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(arguments)))

    for formal, y in zip(formals, outputs, strict=True):
        if isinstance(y, SplitSequence):
            raise y.problem(f"output '{formal.name}'")

    def left(y: Any) -> Any:
        if isinstance(y, Deferred):
            return y if inside else y.value
        bounded_operands((y,), "an output of the model: a static value")
        if inside and isinstance(y, np.ndarray) and is_string(y):
            return ChosenStrings.all_of(y)
        if inside:
            return as_traced(y)
        # A copy, as the program keeps the array for later calls, and may return it as two outputs.
        return y.copy() if isinstance(y, np.ndarray) else y

    return jax.tree.map(left, list(outputs), is_leaf=_is_deferred)


def packer(formals: Sequence[Value]) -> Callable[[Sequence[Any]], Any]:
    """Returns a function of a list of outputs that returns one as it is, several as a namedtuple."""
    if len(formals) == 1:
        return operator.itemgetter(0)
    return cast(Any, named_outputs(tuple([formal.name for formal in formals])))._make


def _is_of_sizes(y: Any) -> bool:
    """Returns True for integers that are symbolic sizes, or were computed from them."""
    return is_symbolic(y) or (isinstance(y, FromSizes) and y.dtype.kind in "iu")


def _check_declared(formal: Value, declared: np.dtype, y: Any) -> None:
    if _is_of_sizes(y) and declared in TYPES_OF_SIZES:
        return
    dtype = np.dtype(np.int64) if is_symbolic(y) else y.dtype
    strings = dtype.kind in "OUST" and declared.kind == "O"
    if formal.kind == "tensor" and not strings and dtype not in (declared, canonical(declared)):
        raise ModelError(f"the model declares the output {formal}, but its nodes compute {describe(y)}")


@functools.cache
def named_outputs(names: tuple[str, ...]) -> type:
    """Returns the namedtuple class of several outputs; '_' replaces characters that Python does not allow in fields."""
    fields = ["".join(c if c.isalnum() else "_" for c in name).lstrip("_") for name in names]

    class Outputs(namedtuple("Outputs", fields, rename=True)):
        __slots__ = ()

        def __reduce__(self) -> Any:
            return _outputs_again, (names, tuple(self))

    return Outputs


def _outputs_again(names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return named_outputs(names)(*values)


def undeferred(values: Any) -> Any:
    """Returns values, in sequences too, with the content of each `Deferred` in its place."""
    return jax.tree.map(lambda v: v.value if isinstance(v, Deferred) else v, values, is_leaf=_is_deferred)


def _is_deferred(value: Any) -> bool:
    return isinstance(value, Deferred)


def to_operand(formal: Value, value: Any) -> Any:
    """Checks one input against the declared type and sizes, and converts it.

    Returns a JAX array, a `StaticValue`, or a NumPy array of a type that JAX has. `jit` takes a NumPy array faster:
    making a JAX array here would double the time of a small call.
    """
    if is_concrete(value) and value.dtype == formal.dtype and formal.kind == "tensor" and not formal.static:
        _check_shape(formal, value.shape)  # the usual case
        return value if value.dtype.itemsize < 8 else _of_this_setting(formal, value)
    if value is None:
        if formal.kind == "optional":
            return None
        raise SignatureError(f"input '{formal.name}' is None; the model expects {formal}")
    if formal.kind != "tensor" and isinstance(value, list | tuple):
        inner = dataclasses.replace(formal, kind="tensor")
        return [to_operand(inner, item) for item in value]
    if formal.kind == "map":
        if not isinstance(value, Mapping):
            raise ArgumentError(f"input '{formal.name}' is {value!r:.80}, but the model expects a dictionary: {formal}")
        inner = dataclasses.replace(formal, kind="tensor", shape=None)
        return {key: to_operand(inner, item) for key, item in value.items()}
    if isinstance(value, StaticValue):
        return value
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        value = _numbers(formal, value)
    if not isinstance(value.dtype, np.dtype):
        raise DTypeError(f"input '{formal.name}' is {describe(value)}, but the model expects {formal}")
    value = _typed(formal, value)
    _check_shape(formal, value.shape)
    decides = formal.decides and value.size == 1 and not isinstance(value, jax.Array)
    if not (formal.static or decides):
        if isinstance(value, jax.Array):
            return _of_this_setting(formal, value)
        numbers = type(value) is np.ndarray and value.dtype.kind not in "OUST"
        try:
            return as_canonical(value) if numbers else as_traced(value)
        except OutOfRangeError as error:
            error.add_note(f"in input '{formal.name}'")
            raise
    if isinstance(value, Tracer):
        raise StaticError(
            f"input '{formal.name}' must be known while tracing, but {describe(value)} is traced\n"
            f"  needed  {formal.static}\n"
            f"  hint    give it as a NumPy array, which may not be an argument of jax.jit (a closure has it); or "
            f"fix it: load(path, values={{{formal.name!r}: {_example(formal)}}})"
        )
    # With x64 off, a JAX array of 32 bits may represent a 64-bit input; a static value gets the 64 bits back.
    # A copy, as the program keeps it, and the caller may write into the original.
    return StaticValue(np.array(value, formal.dtype))


def _example(formal: Value) -> str:
    """A value for an input in a hint."""
    return "True" if formal.dtype == bool and not any(d != 1 for d in formal.shape or ()) else "value"


def _numbers(formal: Value, value: Any) -> np.ndarray:
    """Returns Python numbers as an array of the declared type."""
    try:
        array = np.asarray(value)
        if array.dtype.kind in "fc" and formal.dtype is not None and "float" not in formal.dtype.name:
            raise TypeError(f"it holds {array.dtype.name}")
        return array if formal.dtype is None else np.asarray(value, formal.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        problem = f"input '{formal.name}' is {value!r:.80}, but the model expects {formal}"
        raise ArgumentError(f"{problem}: {str(error).splitlines()[0]}") from error


def _of_this_setting(formal: Value, value: jax.Array) -> jax.Array:
    """Returns a JAX array; with x64 off, one of 64 bits (the output of an x64 model, say) is converted to 32.

    Raises OutOfRangeError for a number that does not fit, DTypeError for a tracer, whose numbers are not known.
    """
    if value.dtype == canonical(value.dtype):
        return value
    if isinstance(value, Tracer):
        raise DTypeError(
            f"input '{formal.name}' is {describe(value)}, but the model runs with x64 off\n"
            f"  hint    load it with x64=True, or convert the input: x.astype(jnp.{canonical(value.dtype).name})"
        )
    return as_traced(np.asarray(value))


def _typed(formal: Value, value: Any) -> Any:
    """Returns an array of the declared type; integers of another width are converted if the values stay the same.

    With x64 off, a JAX array may have the 32-bit type that represents the declared 64-bit one.
    """
    declared = formal.dtype
    if declared is None or value.dtype == declared:
        return value
    strings = declared.kind == "O"
    if strings:
        if is_static(value) and value.dtype.kind in "USTO":
            return value
    elif isinstance(value, jax.Array) and value.dtype in (canonical(declared), stand_in(declared)):
        return as_traced(value, declared)
    elif value.dtype.kind in "iu" and declared.kind in "iu":
        if np.can_cast(value.dtype, declared):
            return value.astype(canonical(declared) if isinstance(value, jax.Array) else declared)
        if (
            is_static(value)
            and not is_symbolic(value)
            and (converted := value.astype(declared)).tolist() == value.tolist()
        ):
            return converted
    is_numeric = not strings and value.dtype.kind not in "USTO"
    scalar_type = f"{'np' if hasattr(np, declared.name) else 'jnp'}.{declared.name}"  # NumPy has no bfloat16
    mask = ", 1 where the mask is True" if value.dtype == bool else ""
    hint = f"\n  hint    give it as {declared.name}{mask}: x.astype({scalar_type})" if is_numeric else ""
    raise DTypeError(f"input '{formal.name}' is {describe(value)}, but the model expects {formal}{hint}")


def _check_shape(formal: Value, sizes: tuple[Any, ...]) -> None:
    # Some exporters declare a scalar when they do not know the shape, and other runtimes run such files. So a declared
    # scalar accepts every shape.
    if not formal.shape:
        return
    if not _fits(formal.shape, sizes):
        hint = _shape_hint(formal.shape, sizes)
        raise ShapeError(f"input '{formal.name}' has shape {tuple(sizes)}, but the model expects {formal}{hint}")
    for axis, limits in formal.limits:
        if type(sizes[axis]) is int and not within(sizes[axis], limits):
            raise ShapeError(
                f"input '{formal.name}' has {amount(sizes[axis], 'element')} on axis {axis}, but the model takes "
                f"{limits_text(limits)}: {formal}"
            )


def _fits(declared: tuple[Any, ...], sizes: tuple[Any, ...]) -> bool:
    if len(sizes) != len(declared):
        return False
    return all(type(expected) is not int or expected == size for expected, size in zip(declared, sizes, strict=True))


def _shape_hint(declared: tuple[Any, ...], sizes: tuple[Any, ...]) -> str:
    """Returns a hint if an input lacks its batch axis, or has channels last, not first (or the reverse)."""
    if _fits(declared, (1, *sizes)):
        return "\n  hint    add the batch axis, also under jax.vmap: x[None]"
    axes = range(1, len(sizes))
    for perm in ((0, *axes[-1:], *axes[:-1]), (0, *axes[1:], *axes[:1])):
        if len(sizes) > 2 and _fits(declared, tuple(sizes[axis] for axis in perm)):
            return f"\n  hint    transpose it: x.transpose{perm}"
    return ""
