"""Static values: the conversion of operands, the choice between NumPy and JAX.

NumPy values and Python numbers are static, JAX arrays are traced. A concrete JAX array may be given for a static
value; a tracer may not.
"""

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeGuard, TypeVar, cast

import jax
import numpy as np
from jax.export import is_symbolic_dim, symbolic_shape

from jaxops.errors import (
    ArgumentError,
    JaxopsError,
    OutOfRangeError,
    SizeError,
    StaticError,
    TooLargeError,
    items,
    message,
)
from jaxops.jax_internals import (
    ConcretizationTypeError,
    Dim,
    JAXTypeError,
    Tracer,
    TracerArrayConversionError,
    TracerIntegerConversionError,
    Undecided,
    extent,
    get_opaque_trace_state,
    jaxpr_as_fun,
    partial_eval,
)
from jaxops.memory import bounded_operands, bounded_results, runs_here

__all__ = [
    "A",
    "Array",
    "ArrayLike",
    "Dim",
    "FromSizes",
    "Ints",
    "Operand",
    "Sizes",
    "Tracer",
    "Undecided",
    "symbolic_shape",
]

Array: TypeAlias = jax.Array | np.ndarray
if TYPE_CHECKING:
    import typing_extensions  # which type checkers have themselves

    # The result of a foldable operator: a JAX array if an operand is one, else a NumPy array. A type checker finds the
    # JAX array among the operands, or takes the default, whatever the bound says of it.
    A = typing_extensions.TypeVar("A", bound=jax.Array, default=np.ndarray)  # type: ignore
    # What an operator takes for an array; a float and an int count as complex.
    Operand = typing_extensions.TypeAliasType(
        "Operand", A | np.ndarray | np.generic | complex | Sequence[Any], type_params=(A,)
    )
    ArrayLike = typing_extensions.TypeAliasType("ArrayLike", Operand[jax.Array])
else:  # names for `help`
    A = TypeVar("A")

    class Operand(Generic[A]):
        """An array, or a number or nested sequences that make one."""

    class ArrayLike:
        """An operand of an operator whose results are JAX arrays."""


Sizes: TypeAlias = tuple[Dim, ...]
Ints: TypeAlias = int | np.integer | Sequence[int] | np.ndarray | jax.Array

# The errors for reading the content of a traced value: ours, and those of JAX for code that reads it directly.
UNKNOWN = (
    StaticError,
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)

# The limits of symbolic sizes that are computed with while tracing. Each element is an object of Python; sums and
# products of many terms grow without end.
_MOST_SIZES, _MOST_TERMS = 1 << 20, 100
# Whether an export looks for the limits that a model has on its sizes: an operator may ask for one then.
LIMITING: ContextVar[bool] = ContextVar("LIMITING", default=False)
# Whether the program that is traced may end before a node that raises StaticError, which then runs on known values.
CUTTABLE: ContextVar[bool] = ContextVar("CUTTABLE", default=False)


class once:
    """A property that is computed at the first use, without the lock of `functools.cached_property` in Python 3.11."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self._compute, self._name = compute, compute.__name__

    def __get__(self, instance: Any, owner: type) -> Any:
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def is_static(value: Any) -> TypeGuard[np.ndarray]:
    """Returns True if the value is known while tracing: anything but a JAX array, or a `FromSizes`, which has one."""
    return not isinstance(value, jax.Array | FromSizes)


def tracing() -> bool:
    """Returns True if new arrays are traced, as under `jit`, so that a Python loop would be unrolled into the
    program.
    """
    state = get_opaque_trace_state()
    if state != _CALM["state"]:
        if isinstance(jax.device_put(np.False_), Tracer):
            return True
        _CALM["state"] = state
    return False


def is_plainly_traced(x: Any) -> bool:
    """Returns True for an array in a program that is being traced, if no transformation follows it and its sizes are
    numbers.
    """
    return isinstance(x, partial_eval.DynamicJaxprTracer) and not any(map(is_symbolic_dim, x.shape))


# The last state in which new arrays were not traced: making one to see takes far longer than comparing.
_CALM: dict[str, Any] = {"state": None}


def is_symbolic(value: Any) -> bool:
    """Returns True for a symbolic dimension, or an array that holds one."""
    if isinstance(value, np.ndarray):
        if value.dtype != object:
            return False
        # An array may hold millions of strings, and `set` is the fastest way to see that.
        return set(map(type, items(value))) != {str} and any(map(is_symbolic_dim, items(value)))
    return is_symbolic_dim(value)


def varying(operands: Sequence[Any]) -> Sequence[Any]:
    """Operands of one primitive, each varying over the axes of `jax.shard_map` over which one of them varies."""
    over = [jax.typeof(x).manual_axis_type.varying for x in operands]
    axes = frozenset[str]().union(*over)
    if not axes:
        return operands
    missing = [tuple(sorted(axes - varying_axes)) for varying_axes in over]
    return [jax.lax.pcast(x, m, to="varying") if m else x for x, m in zip(operands, missing, strict=True)]


def array(value: Any) -> Any:  # which of the two it is follows from the value
    """An array operand: JAX and NumPy arrays unchanged, Python numbers and sequences as NumPy arrays."""
    return (
        value if isinstance(value, jax.Array) else value.traced if isinstance(value, FromSizes) else static_array(value)
    )


def static_array(value: Any, *operands: Any) -> np.ndarray:
    """A static value as an array; an object array without symbolic sizes becomes int64.

    operands: the operands of the value. An empty object array holds sizes if an operand does, else maybe strings.
    """
    result = value if type(value) is np.ndarray else as_array(value)
    if result.dtype == object:
        sizes = all(isinstance(v, int | np.integer) and type(v) is not bool for v in items(result))
        if sizes and (result.size or any(map(is_symbolic, operands))):
            try:
                return result.astype(np.int64)
            except OverflowError as error:
                large = next(v for v in items(result) if not -(2**63) <= v < 2**63)
                raise OutOfRangeError(f"the number {large!s:.40} does not fit int64") from error
        if result.base is None and is_symbolic(result):  # a view shows what was checked
            _check_symbolic(result)
    return result


def _check_symbolic(values: np.ndarray) -> None:
    """Raises TooLargeError for symbolic sizes with which each operation would take seconds."""
    if values.size > _MOST_SIZES:
        raise TooLargeError(f"an array of {values.size} symbolic sizes; the limit is {_MOST_SIZES}")
    for size in filter(is_symbolic_dim, values.flat):
        most, number = extent(size)
        if most > _MOST_TERMS or number >= 2**63:
            raise TooLargeError(
                f"a symbolic size has {most} terms, or factors in one, or numbers beyond 64 bits; the limit is "
                f"{_MOST_TERMS}\n  hint    give sizes of the inputs as numbers"
            )


@functools.cache
def _is_concrete(cls: type) -> bool:
    """Returns True for a class of concrete JAX arrays. The check is slow, so the answer is kept for each class."""
    return issubclass(cls, jax.Array) and not issubclass(cls, Tracer)


def is_concrete(value: Any) -> bool:
    """Returns True for a JAX array that is not traced."""
    return _is_concrete(type(value))


def jit_if_concrete(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Runs `fn(data, *attributes)` in the cheapest way; `data` is an array or a tuple of arrays.

    Static data: calls `fn` and makes its arrays static ones. A tracer: calls `fn`, so that only its `lax` calls enter
    the jaxpr. A concrete JAX array: compiles `fn` once per shape and (hashable) attributes, in JAX's own cache. Static
    data and results that take too many bytes raise TooLargeError.
    """

    def entry(data: Any, attributes: tuple[Any, ...]) -> Any:
        with runs_here():
            result = fn(data, *attributes)
            bounded_results(jax.tree.leaves(result))
            return result

    entry.__name__ = fn.__name__  # profilers show this name
    compiled = jax.jit(entry, static_argnums=1)

    @functools.wraps(fn)
    def run(data: Any, *attributes: Any) -> Any:
        if _is_concrete(type(data)):
            return compiled(data, attributes)
        if type(data) is tuple and data and isinstance(data[0], jax.Array | np.ndarray):
            if _is_concrete(type(data[0])) and not any(isinstance(d, Tracer) for d in data):
                return compiled(data, attributes)
            bounded_operands(data)
            return _static_arrays(fn(data, *attributes), data)
        data = array(data)
        bounded_operands((data,))
        return _static_arrays(fn(data, *attributes), (data,))

    return run


def traced_once(fn: Callable[..., Any], *args: Any) -> tuple[Callable[..., Any], Sequence[Any], Dim]:
    """Traces `fn` once: (what evaluates the equations of that trace, the values that it captures, a symbolic size that
    an equation reads, or None). The function takes the captured values before the arguments of `fn`.
    """
    closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
    tree = jax.tree.structure(shapes)
    read = (eqn.params["dim"] for eqn in closed.jaxpr.eqns if eqn.primitive.name == "dim_as_value")

    def repeat(captured: Sequence[Any], *args: Any) -> Any:
        return jax.tree.unflatten(tree, jaxpr_as_fun(closed.replace(consts=list(captured)))(*jax.tree.leaves(args)))

    return repeat, closed.consts, next(read, None)


def _static_arrays(result: Any, operands: tuple[Any, ...]) -> Any:
    if type(result) is np.ndarray:
        return static_array(result, *operands) if result.dtype == object else result
    if type(result) is tuple and result and type(result[0]) is np.ndarray:
        return tuple(static_array(part, *operands) for part in result)
    bounded_results(jax.tree.leaves(result))
    return result


@jax.tree_util.register_static
class StaticValue:
    """A static value that passes through `jit`: part of the cache key as an argument, unchanged as a result."""

    def __init__(self, value: np.ndarray) -> None:
        bounded_operands((value,), "the border of a compiled program: a static value")
        self.value = value
        content = tuple(value.flat) if value.dtype.kind in "OT" else value.tobytes()
        self._key = (value.dtype.name, value.shape, content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticValue) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class FromSizes:
    """A traced array of which something is known, as it comes from sizes: the float of a size, or one number n times.

    The operators of `jaxops.ops.common.size_tracking` keep what is known, until it makes a size again; to all others,
    and to JAX, it is the array. items: what is known of each element, or the SizeError with the reason why nothing is.
    If the shape is symbolic, all elements are equal, and `items` is 0-d.
    """

    def __init__(self, traced: jax.Array, items: np.ndarray) -> None:
        self.traced, self.items = traced, items

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of protocols, which copies and printers ask for
            raise AttributeError(name)
        return getattr(self.traced, name)

    def problem(self, text: str) -> SizeError:
        """The error for what needs the values while tracing; it begins with `text`."""
        error = next((v for v in self.items.flat if isinstance(v, SizeError)), None)
        if any(map(is_symbolic, self.traced.shape)):
            return SizeError(f"{text}: the number of its elements is a symbolic size", *self.traced.shape)
        if error is None:
            return SizeError(
                f"{text}: it is computed from symbolic sizes", *(item.numerator for item in self.items.flat)
            )
        return SizeError(f"{text}: {error.problem}", *error.symbols, needs=error.needs, otherwise=error.otherwise)

    def __jax_array__(self) -> jax.Array:
        return self.traced

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise self.problem("its value is not known while tracing")


def _of_traced(name: str) -> Any:
    return lambda self, *operands: getattr(self.traced, name)(*operands)


# Python looks for these in the class.
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(FromSizes, f"__{_name}__", _of_traced(f"__{_name}__"))
    setattr(FromSizes, f"__r{_name}__", _of_traced(f"__r{_name}__"))
for _name in ("neg", "abs", "lt", "le", "gt", "ge", "eq", "ne", "getitem"):
    setattr(FromSizes, f"__{_name}__", _of_traced(f"__{_name}__"))
jax.tree_util.register_pytree_node(FromSizes, lambda v: ((v.traced,), None), lambda _, leaves: cast(Any, leaves[0]))


def beside(data: Any, operand: str, value: Any) -> Any:
    """An operand by which `data` moves: read at once if these are strings, which no program can hold."""
    return known(operand, value) if is_static(data) and data.dtype.kind in "OUST" and not is_symbolic(data) else value


def known(operand: str, value: Any) -> Any:
    """A static operand as a NumPy array; a tracer raises StaticError, what sizes leave open SizeError."""
    if isinstance(value, FromSizes):
        raise value.problem(f"`{operand}` must be known while tracing")
    try:
        if not isinstance(value, Tracer):
            return as_array(value, f"`{operand}`")
    except TracerArrayConversionError:
        pass  # a tracer in a list
    problem = f"`{operand}` must be known while tracing, but it is traced"
    hint = f"give `{operand}` as Python numbers or a NumPy array, compute it from `jaxops.shape(x)`, or name it in "
    raise StaticError(message(problem, hint=None, **{operand: value}), f"{hint}`static_argnames` of `jax.jit`")


def as_array(value: Any, subject: str = "an operand") -> np.ndarray:
    """A value as a NumPy array; ArgumentError for anything else: ragged lists, masked arrays. subject: begins the
    message.
    """
    try:
        if not isinstance(value, np.ma.MaskedArray):
            return np.asarray(value)
        problem = "masked elements have no value; give them one with .filled(…)"
    except (JaxopsError, JAXTypeError):
        raise
    except (TypeError, ValueError, OverflowError) as error:
        problem = str(error).splitlines()[0]
    raise ArgumentError(f"{subject} is {value!r:.80}, which is not an array of numbers or strings: {problem}")
