"""The errors of operators about arguments that their signature does not allow.

The signature is the contract. An operator does not ask of each argument whether it keeps to it, which would cost every
call some time: if a call fails with an error of Python, NumPy or JAX, the arguments are looked at one by one, and
the first that breaks the contract is named. An error that has another reason stays what it is.
"""

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from jaxops.attributes import element_type, integer, ints
from jaxops.call_hints import unfit
from jaxops.errors import (
    ArgumentError,
    DTypeError,
    JaxopsError,
    ShapeError,
    SignatureError,
    StaticError,
    describe,
    items,
    message,
)
from jaxops.jax_internals import TracerArrayConversionError
from jaxops.opaque import Deferred
from jaxops.signature import ELEMENT_TYPE, RANDOM_KEYS, SHAPE_ONLY, STATIC
from jaxops.static import ArrayLike, FromSizes, Ints, Operand, Tracer, as_array, is_symbolic, known

_Check = Callable[[str, Any], None]
F = TypeVar("F", bound=Callable[..., Any])
_MOST_AXES = 32  # of an array whose elements NumPy visits one by one
# NumPy's messages about an array of more than 64 axes; the second is about an array of JAX, which may have more.
_TOO_MANY_AXES = re.compile("maximum supported dimension for an ndarray|number of dimensions must be within")
# What Python, NumPy and JAX raise for an argument that they cannot use.
_RAW = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


def explain(package: dict[str, Any]) -> list[str]:
    """Makes the operators of a package name the argument that breaks their signature when a call fails.

    package: its namespace; each function takes its new form there, and where it is defined. Returns their names.
    """
    names = [name for name, value in package.items() if inspect.isfunction(value) and not name.startswith("_")]
    for name in names:
        function = package[name] = explained(package[name], is_operator=True)
        setattr(sys.modules[function.__module__], name, function)  # where `pickle` looks for it
    return names


def explained(fn: F, *, is_operator: bool = False) -> F:
    """Returns a function that names the argument of a failed call that breaks the contract.

    is_operator: the errors that it raises do not begin with its name, which they get here.
    """
    name = fn.__name__

    @functools.wraps(fn)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return fn(*args, **named)
        except JaxopsError as error:
            if is_operator and error.op is None:
                error.op = name
            raise
        except AssertionError as error:
            if is_operator:
                error.add_note(f"in the operator {name}")
            raise
        except _RAW as error:
            with errors_of(name):
                if _TOO_MANY_AXES.search(str(error)):
                    raise ShapeError(f"an array of more axes than NumPy has: {error}") from error
                _check_call(fn, args, named, error, is_operator)
            raise
        except RuntimeError as error:
            with errors_of(name):
                _check_axes((args, named), error)
            raise

    return cast(F, call)


@contextmanager
def errors_of(op: str) -> Iterator[None]:
    """Names an operator in the errors of jaxops that leave `with` and name none yet.

    op: the operator; empty for errors whose text is complete.

    >>> with errors_of("pad"):
    ...     raise ShapeError("`pads` has 3 numbers")
    Traceback (most recent call last):
    jaxops.errors.ShapeError: pad: `pads` has 3 numbers
    """
    try:
        yield
    except JaxopsError as error:
        if error.op is None:
            error.op = op
        raise


def _check_axes(operands: Any, error: RuntimeError) -> None:
    """Raises ShapeError if NumPy failed over an array of too many axes."""
    most = max((x.ndim for x in jax.tree.leaves(operands) if isinstance(x, np.ndarray)), default=0)
    if most > _MOST_AXES and "dimensions" in str(error):
        raise ShapeError(
            f"an operand has {most} axes, of which NumPy takes {_MOST_AXES} here; reshape it with jaxops.reshape"
        ) from error


def _check_call(
    fn: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any], error: Exception, is_operator: bool
) -> None:
    """Raises an error that names the first argument that violates the signature; returns if all are valid."""
    signature = inspect.signature(fn)
    try:
        arguments = signature.bind(*args, **named).arguments
    except TypeError as problem:
        if is_operator:
            unfit(fn.__name__, signature, args, named, _check)
        if not str(error).startswith(f"{fn.__name__}() "):
            raise TypeError(f"{fn.__name__}() {problem}") from error
        return
    for name, value in arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        try:
            _check(parameter, value)
            if isinstance(error, TracerArrayConversionError) and Any in _parts(parameter.annotation):
                _check_listed(name, value)
        except JaxopsError as problem:
            raise problem from error


def _check(parameter: inspect.Parameter, value: Any) -> None:
    allowed, name = _parts(parameter.annotation), parameter.name
    if value is None:
        if type(None) not in allowed and parameter.default is not None and Any not in allowed:
            raise SignatureError(f"`{name}` is None, but the operator needs it")
        return None
    if name == "rng":
        return check_key(value)
    problems, allowed = [], [part for part in allowed if part is not type(None)]
    for check in dict.fromkeys(map(_check_of, allowed)):
        try:
            return None if check is None else check(name, value)
        except JaxopsError as problem:
            problems.append(problem)
    if len(problems) > 1 and not any(isinstance(problem, StaticError) for problem in problems):
        raise _refusal(name, value, " or ".join(map(_name_of, allowed)))
    raise problems[0]


def _name_of(part: Any) -> str:
    return getattr(get_origin(part) or part, "__name__", str(part))


def _parts(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation; the union `Ints` counts as one, and numbers and lists count as arrays."""
    if get_origin(annotation) is Annotated and not {STATIC, ELEMENT_TYPE, RANDOM_KEYS} & set(annotation.__metadata__):
        return (jax.Array,) if SHAPE_ONLY in annotation.__metadata__ else _parts(get_args(annotation)[0])
    if annotation is ArrayLike or get_origin(annotation) is Operand:
        return jax.Array, np.ndarray
    if get_origin(annotation) not in (Union, types.UnionType):
        return (annotation,)
    parts = get_args(annotation)
    if set(_INTS) <= set(parts):
        return (Ints, *(part for part in parts if part not in _INTS))
    return tuple(alternative for part in parts for alternative in _parts(part))


def _check_of(part: Any) -> _Check | None:
    """The check of one alternative of an annotation; None if everything is allowed."""
    if get_origin(part) is Annotated:
        marked = {ELEMENT_TYPE: _element_type, RANDOM_KEYS: check_keys}
        return next((marked[mark] for mark in part.__metadata__ if mark in marked), _static)
    if isinstance(part, TypeVar):
        return check_array
    if get_origin(part) is Literal:
        return functools.partial(_one_of, get_args(part))
    if get_origin(part) is Sequence:
        return functools.partial(_sequence, get_args(part)[0])
    kind = get_origin(part) or part
    check = _CHECKS.get(part) or _CHECKS.get(kind)
    if check or not isinstance(kind, type) or kind is inspect.Parameter.empty or getattr(kind, "_is_protocol", False):
        return check
    return functools.partial(_instance, kind)


def _refusal(operand: str, value: Any, expected: str, hint: str | None = None) -> ArgumentError:
    text = describe(value)
    shown = text[:80].partition("\n")[0].rstrip()
    shown = text if shown == text else f"{shown[:79]}…"
    return ArgumentError(message(f"`{operand}` is {shown}; it must be {expected}", hint=hint))


def check_array(operand: str, value: Any) -> None:
    """Raises ArgumentError for a value that is not an array, DTypeError for one of a type that the standard does not
    have.
    """
    if isinstance(value, FromSizes | Deferred):
        return
    _check_listed(operand, value)
    array = value if isinstance(value, jax.Array) else as_array(value, f"`{operand}`")
    reason = _foreign(array)
    if reason:
        shown: dict[str, Any] = {operand: value} if array is value else {}
        raise DTypeError(message(f"`{operand}` {reason}", **shown))


def _check_listed(operand: str, value: Any) -> None:
    """Raises ArgumentError for tracers in a list, which NumPy cannot put together."""
    if isinstance(value, list | tuple) and any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value)):
        raise _refusal(operand, value, "one array", "put JAX arrays together with jnp.stack")


def _foreign(array: Any) -> str:
    """The reason why the standard has no such array; empty if its elements are numbers, booleans, strings or sizes."""
    dtype = array.dtype
    if isinstance(array, jax.Array):
        return "" if isinstance(dtype, np.dtype) else f"holds {dtype.name}, which are not numbers"
    if dtype.kind == "O":
        strings = all(isinstance(v, str | bytes) for v in items(array))
        sizes = all(is_symbolic(v) or isinstance(v, int | np.integer) for v in items(array))
        huge = sizes and [v for v in items(array) if not is_symbolic(v) and not -(2**63) <= v < 2**64]
        if huge:
            return f"holds {huge[0]!s:.40}, which no type of the standard can hold"
        return "" if strings or sizes else "holds Python objects; it must hold numbers or strings"
    if not dtype.isnative:
        return f"has the byte order of another machine ({dtype.str}); convert it with .astype"
    if dtype.kind in "biuUST" or (dtype.kind in "fc" and dtype.itemsize <= (8 if dtype.kind == "f" else 16)):
        return ""
    if jnp.issubdtype(dtype, np.number) and dtype.kind == "V":
        return ""  # of ml_dtypes
    return f"has elements of type {dtype}; the standard has no such type"


def _any(operand: str, value: Any) -> None:
    """Numbers, an array, a sequence of arrays; any other object passes, except a class."""
    if isinstance(value, type):
        raise _refusal(operand, value, "a value", f"give one, such as {value.__name__}(1)")
    numbers = isinstance(value, list | tuple) and not all(hasattr(item, "dtype") for item in value)
    if numbers or isinstance(value, np.ndarray | jax.Array):
        check_array(operand, value)


def _static(operand: str, value: Any) -> None:
    check_array(operand, known(operand, value))


def _number(operand: str, value: Any) -> None:
    values = known(operand, value)
    if values.dtype.kind not in "biuf" or values.ndim or (values.dtype.itemsize > 8 and values.dtype.kind == "f"):
        raise _refusal(operand, value, "a number")
    if isinstance(value, np.ndarray | jax.Array):
        raise _refusal(operand, value, "a number of Python", f"give float({operand})")


def _integer(operand: str, value: Any) -> None:
    number = value if isinstance(value, bool | np.bool_) else integer(operand, value)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise _refusal(operand, value, "an integer of 64 bits")


def _ints(operand: str, value: Any) -> None:
    for item in ints(operand, value, single=True):
        _integer(operand, item)


def _flag(operand: str, value: Any) -> None:
    values = known(operand, value)
    if values.ndim or values.dtype.kind not in "biu" or values not in (0, 1):
        raise _refusal(operand, value, "True or False")


def _text(operand: str, value: Any) -> None:
    if not isinstance(value, str):
        raise _refusal(operand, value, "a string")


def _one_of(allowed: tuple[Any, ...], operand: str, value: Any) -> None:
    if not isinstance(value, str | int | float | np.integer) or value not in allowed:
        raise _refusal(operand, value, f"one of {', '.join(map(repr, allowed))}")


def _element_type(operand: str, value: Any) -> None:
    element_type(operand, value)


def check_key(value: Any) -> None:
    """Raises ArgumentError unless it is a random key of JAX."""
    if _shape_of_keys(value) != ():
        raise _refusal("rng", value, "one random key, such as jax.random.key(0)")


def check_keys(operand: str, value: Any) -> None:
    """Raises ArgumentError unless it is a random key of JAX, or an array of them."""
    if _shape_of_keys(value) is None:
        raise _refusal(operand, value, "a random key, such as jax.random.key(0), or an array of them")


def _shape_of_keys(value: Any) -> tuple[int, ...] | None:
    """The shape of an array of random keys; None for any other value."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value.shape
    if not isinstance(value, jax.Array | np.ndarray) or value.dtype != np.uint32:
        return None
    try:  # the numbers of a key, as jax.random.PRNGKey gives them
        return jax.eval_shape(jax.random.wrap_key_data, value).shape
    except TypeError:
        return None


def _instance(kind: type, operand: str, value: Any) -> None:
    if not isinstance(value, kind):
        raise _refusal(operand, value, f"of type {kind.__name__}")


def _collection(operand: str, value: Any) -> None:
    is_collection = isinstance(value, Collection) and not isinstance(value, str | np.ndarray | jax.Array)
    if not is_collection or not all(isinstance(v, str) for v in value):
        raise _refusal(operand, value, "a list of names")


def _mapping(operand: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise _refusal(operand, value, "a dictionary")


def _callable(operand: str, value: Any) -> None:
    if not callable(value):
        raise _refusal(operand, value, "a function")


def _sequence(item: Any, operand: str, value: Any) -> None:
    if not isinstance(value, list | tuple):
        hint = f"give one of them as [{operand}]" if isinstance(value, jax.Array | np.ndarray) else None
        raise _refusal(operand, value, "a list", hint)
    check = next(filter(None, map(_check_of, _parts(item))), None)
    for position, part in enumerate(value):
        if check is not None and (part is not None or item in (int, float, str)):
            check(f"{operand}[{position}]", part)


_INTS = get_args(Ints)
_CHECKS: dict[Any, _Check] = {
    int: _integer,
    float: _number,
    bool: _flag,
    str: _text,
    Any: _any,
    Ints: _ints,
    jax.Array: check_array,
    np.ndarray: check_array,
    Collection: _collection,
    Mapping: _mapping,
    Callable: _callable,
}
